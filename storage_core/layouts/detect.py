"""Recognising the layout of a directory by its file names.

``brokers.ordinal_era`` then tells raw records of ``cursus`` from messages of an early broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LayoutMismatchError, LayoutNotFoundError, NotWritableError
from ..lazy import LazyModule
from ..vfs import Vfs
from .broker_names import BROKER_TOPICS, CURSUS_NAMES, KAFKA_FILES, STATE_DIRECTORY
from .registry import (
    CURSUS_BROKER,
    KAFKA,
    LAYOUT_NAMES,
    LAYOUTS,
    NATIVE,
    OBJECTS,
    READ_ONLY,
    STORE_FILE,
)

if TYPE_CHECKING:
    from . import neighbours
else:  # only errors need it
    neighbours = LazyModule("storage_core.layouts.neighbours")

_LOOKED_FOR = ", ".join(f"{layout.files} ({layout.name})" for layout in LAYOUTS.values())
_OURS = ("meta", "topics", STATE_DIRECTORY)


def recognise(vfs: Vfs) -> str | None:
    """Name of the layout of a directory, or None when it is empty or missing.

    Raises:
        LayoutNotFoundError: there are files, but of no known layout.
        LayoutMismatchError: there are files of several layouts.
    """
    try:
        names = vfs.listdir("")
    except FileNotFoundError:
        return None
    if STORE_FILE in names:
        return OBJECTS.name
    if any(name in names for name in KAFKA_FILES):
        return KAFKA.name
    broker = _recognise_broker(vfs)
    if "meta" in names and broker is not None:
        raise LayoutMismatchError(
            f"{vfs.root} holds a native store and files of {broker}. Move one of them away."
        )
    if broker is not None:
        return broker
    if "meta" in names or _has_native_topic(vfs):
        return NATIVE.name
    if all(name in _OURS for name in names):
        return None
    raise LayoutNotFoundError(
        f"{vfs.root} is not a log directory.{neighbours.hint(vfs.root)} Looked for: {_LOOKED_FOR}. "
        f"Found: {', '.join(sorted(names)[:8])}. A new store needs a directory that is new or "
        "empty.",
        path="",
    )


def _recognise_broker(vfs: Vfs) -> str | None:
    found = [
        layout.name for layout in LAYOUTS.values() if layout.names and layout.names.topics(vfs)
    ]
    if len(found) > 1:
        # Which of the overlapping offsets are right cannot be found out here.
        raise LayoutMismatchError(
            f"{vfs.root} holds files of {' and '.join(found)} side by side (an unfinished "
            "upgrade?), and their offsets overlap. Move the files of one layout away, or name the "
            "layout to read only its files."
        )
    if not found and vfs.stat(BROKER_TOPICS) is not None:
        return CURSUS_BROKER.name
    return found[0] if found else None


def _has_native_topic(vfs: Vfs) -> bool:
    try:
        topics = vfs.listdir("topics")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(vfs.stat(f"topics/{topic}/topic.json") is not None for topic in topics)


def choose_layout(vfs: Vfs, asked: str, *, create: bool) -> str:
    """The layout to use for a directory.

    Raises:
        LayoutNotFoundError: the name is unknown, or there is nothing to open and ``create`` is off.
        LayoutMismatchError: the directory holds another layout than the one asked for.
        NotWritableError: there is nothing to open, and such a directory is only read.
    """
    if asked not in LAYOUT_NAMES:
        raise LayoutNotFoundError(
            f"layout {asked!r} is unknown. Use one of {', '.join(LAYOUT_NAMES)}."
        )
    if asked in LAYOUTS and _has_topics(vfs, asked):
        return asked
    found = recognise(vfs)
    if found is not None:
        if asked not in ("auto", found):
            raise LayoutMismatchError(
                f"{vfs.root} holds layout {found}, not {asked}. Use layout='auto' or {found!r}."
            )
        return found
    if not create:
        raise LayoutNotFoundError(
            f"{vfs.root} {_what_is_there(vfs)} "
            "Writing makes a store there: a Spark write, `cursus create`, or create=True.",
            path="",
        )
    if asked in READ_ONLY:
        raise NotWritableError(
            f"{vfs.root} is empty or does not exist, and layout {asked} is only read: its broker "
            "makes such a directory. Create a store of layout native instead.",
            path="",
        )
    return NATIVE.name if asked == "auto" else asked


def _what_is_there(vfs: Vfs) -> str:
    """Of a path without a store: that it is missing, or what was looked for."""
    try:
        vfs.listdir("")
    except FileNotFoundError:
        return f"does not exist.{neighbours.hint(vfs.root) or ' Check the path.'}"
    return f"is empty.{neighbours.hint(vfs.root)} Looked for: {_LOOKED_FOR}."


def _has_topics(vfs: Vfs, asked: str) -> bool:
    """Whether a broker's directory has topics of this layout, whatever else lies there."""
    names = LAYOUTS[asked].names
    if names is None:
        return False
    if asked == CURSUS_BROKER.name and CURSUS_NAMES.topics(vfs):  # of the broker's ordinal era
        return True
    return bool(names.topics(vfs))
