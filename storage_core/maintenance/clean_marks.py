"""``topics/<topic>/<partition>/cleaned.json``: how far compaction has come, and when.

A hint that costs time when it is lost: everything then counts as new, and null values are kept for
another ``delete_retention_ms``. It is written when every segment below ``upto`` is clean, durably.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import DamagedMetadataError
from ..io import json_files as metafile
from ..vfs import Vfs

_FORMAT = 1
_MOST_MARKS = 32


class CleanMark(NamedTuple):
    """At this moment no record below ``upto`` had a later one of its key below ``upto``."""

    upto: int
    at_us: int


@dataclass(frozen=True, slots=True)
class CleanMarks:
    """The marks of one partition, oldest first.

    ``tombstones`` is how many null values the last compaction left, ``tombstones_below`` the offset
    below which it left none.
    """

    marks: tuple[CleanMark, ...] = ()
    tombstones: int = 0
    tombstones_below: int = 0

    @property
    def upto(self) -> int:
        """Where what was never compacted begins."""
        return self.marks[-1].upto if self.marks else 0

    def horizon(self, now_us: int, delete_retention_ms: int) -> int:
        """Null values below this offset have been kept long enough."""
        oldest = now_us - delete_retention_ms * 1000
        return max((mark.upto for mark in self.marks if mark.at_us <= oldest), default=0)

    def after(self, upto: int, now_us: int, tombstones: int, horizon: int) -> CleanMarks:
        """The marks after a compaction that removed the null values below ``horizon``.

        Of the marks whose time was up only the last counts. If there are too many, one in between
        goes: what it spoke of then waits for the next one.
        """
        kept = [mark for mark in self.marks if mark.upto >= horizon]
        while len(kept) >= _MOST_MARKS:
            del kept[len(kept) // 2]
        if upto > self.upto:
            kept.append(CleanMark(upto, now_us))
        return CleanMarks(tuple(kept), tombstones, horizon)


def native_path(topic: str, partition: int) -> str:
    """Where the marks of a native partition stand."""
    return f"topics/{topic}/{partition}/cleaned.json"


def read(vfs: Vfs, path: str, topic_uuid: str) -> CleanMarks:
    """The marks; none if there are none that can be trusted, or they are of another topic."""
    try:
        fields = metafile.read(vfs, path)
        if fields is None or fields.get("topic_uuid") != topic_uuid:
            return CleanMarks()
        rows = metafile.field(fields, "marks", list, path)
        marks = tuple(_mark(row, path) for row in rows)
        tombstones = metafile.field(fields, "tombstones", int, path)
        return CleanMarks(marks, tombstones, metafile.field(fields, "tombstones_below", int, path))
    except DamagedMetadataError:
        return CleanMarks()


def write(vfs: Vfs, path: str, topic_uuid: str, marks: CleanMarks) -> None:
    """Replace the marks of a partition. The caller keeps others out."""
    metafile.replace(
        vfs,
        path,
        {
            "format": _FORMAT,
            "topic_uuid": topic_uuid,
            "marks": [list(mark) for mark in marks.marks],
            "tombstones": marks.tombstones,
            "tombstones_below": marks.tombstones_below,
        },
    )


def _mark(row: object, path: str) -> CleanMark:
    if not isinstance(row, Sequence) or len(row) != 2 or {type(item) for item in row} != {int}:
        raise DamagedMetadataError(f"{path} holds an odd mark: {row!r}", path=path)
    return CleanMark(*row)
