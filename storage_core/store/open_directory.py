"""Recognising a log directory and choosing the engine for it."""

from __future__ import annotations

import errno
import os

from ..brokers.detect import LOOKED_FOR, detect_broker, find_layout
from ..brokers.engine import BrokerEngine
from ..brokers.isolation import IsolationLevel
from ..config import StoreConfig
from ..engine.api import Engine
from ..engine.native import NativeEngine
from ..errors import LayoutMismatchError, LayoutNotFoundError
from ..metadata.opening import first_boot, require_trusted_locks
from ..vfs import PosixVfs, Vfs

LAYOUT_NAMES = ("native", "cursus", "cursus-broker", "rustlog")
_LOOKED_FOR = f"Looked for: meta/broker.id and topics/<topic>/topic.json (native), {LOOKED_FOR}."
_OURS = ("meta", "topics", ".cursus-spark")
_NO_DIRECTORY = {
    errno.ENOTDIR: "is a file, or below one, not a directory",
    errno.ELOOP: "cannot be reached: its symbolic links lead in a circle",
}


def recognise(vfs: Vfs) -> str | None:
    """Name of the layout of a directory, or None when it is empty or missing.

    Raises:
        LayoutNotFoundError: there are files, but of no layout we know.
        LayoutMismatchError: there are files of several layouts.
    """
    try:
        names = vfs.listdir("")
    except FileNotFoundError:
        return None
    foreign = detect_broker(vfs)
    if "meta" in names and foreign is not None:
        raise LayoutMismatchError(
            f"{vfs.root} holds a native store and files of {foreign}. Move one of them away."
        )
    if foreign is not None:
        return foreign
    if "meta" in names or _has_native_topic(vfs):
        return "native"
    if all(name in _OURS for name in names):
        return None
    raise LayoutNotFoundError(
        f"{vfs.root} is not a log directory. {_LOOKED_FOR} Found: {', '.join(sorted(names)[:8])}.",
        path="",
    )


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
    """
    if asked not in ("auto", *LAYOUT_NAMES):
        raise LayoutNotFoundError(
            f"layout {asked!r} is unknown. Use auto, {', '.join(LAYOUT_NAMES)}."
        )
    if asked not in ("auto", "native") and find_layout(vfs, asked).names.topics(vfs):
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
            f"{vfs.root} is empty or does not exist. {_LOOKED_FOR} "
            "Writing makes a store there: a Spark write, `cursus create`, or create=True.",
            path="",
        )
    return "native" if asked == "auto" else asked


def open_files(
    path: str | os.PathLike[str], layout: str, *, create: bool, config: StoreConfig
) -> tuple[Vfs, str]:
    """Files of a directory and its layout; a missing one is made when ``create`` is set.

    Raises:
        LayoutNotFoundError: there is nothing to open, or something else than a directory.
        LayoutMismatchError: the directory holds another layout than the one asked for.
    """
    vfs = PosixVfs(path)
    try:
        chosen = choose_layout(vfs, layout, create=create)
        if create:
            vfs.make_root()
    except OSError as error:
        if error.errno not in _NO_DIRECTORY:
            raise
        raise LayoutNotFoundError(
            f"{vfs.root} {_NO_DIRECTORY[error.errno]}. Name the directory of the log.", path=""
        ) from error
    if create and chosen == "native" and vfs.stat("topics") is None:
        # Also when another process is in its first boot, or crashed there: topics/ comes last.
        require_trusted_locks(vfs, config)
        first_boot(vfs, config)
    return vfs, chosen


def make_engine(
    vfs: Vfs,
    layout: str,
    config: StoreConfig,
    *,
    isolation: IsolationLevel,
    internal_topics: bool,
) -> Engine:
    """The engine for a directory of this layout."""
    if layout == "native":
        return NativeEngine(vfs, config)
    return BrokerEngine(
        vfs,
        find_layout(vfs, layout),
        config,
        isolation=isolation,
        internal_topics=internal_topics,
    )
