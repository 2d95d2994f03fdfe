"""Telling the brokers' directories apart by their file names."""

from __future__ import annotations

from ..errors import LayoutMismatchError
from ..vfs import Vfs
from .layout import BROKER_LAYOUT, BROKER_ORDINAL_LAYOUT, CURSUS_LAYOUT, RUSTLOG_LAYOUT, RowLayout

LOOKED_FOR = (
    "<topic>/partition_<p>_segment_<n>.log (cursus), "
    "<topic>/partition_<p>_segment_<20 digits>.log (cursus-broker), "
    "topics/<topic>/partition-<p>/<20 digits>.log (rustlog)"
)


def detect_broker(vfs: Vfs) -> str | None:
    """Layout of a broker's directory, or None.

    Raises:
        LayoutMismatchError: files of two layouts lie side by side; which offsets are right is not
            ours to guess.
    """
    layouts = (CURSUS_LAYOUT, BROKER_LAYOUT, RUSTLOG_LAYOUT)
    found = [layout for layout in layouts if layout.names.topics(vfs)]
    if not found and vfs.stat("__topic_metadata.json") is not None:
        return BROKER_LAYOUT.name
    if len(found) > 1:
        names = " and ".join(layout.name for layout in found)
        raise LayoutMismatchError(
            f"{vfs.root} holds files of {names} side by side (an unfinished upgrade?), and their "
            "offsets overlap. Move one kind away, or name the layout to read only its files."
        )
    return found[0].name if found else None


def find_layout(vfs: Vfs, name: str) -> RowLayout:
    """The layout object for a name; ``cursus-broker`` also reads directories of its ordinal era."""
    if name == "cursus-broker" and CURSUS_LAYOUT.names.topics(vfs):
        return BROKER_LAYOUT if BROKER_LAYOUT.names.topics(vfs) else BROKER_ORDINAL_LAYOUT
    by_name = {layout.name: layout for layout in (CURSUS_LAYOUT, BROKER_LAYOUT, RUSTLOG_LAYOUT)}
    return by_name[name]
