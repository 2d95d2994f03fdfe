"""Slices: where the frames of one topic-partition stand inside an object.

A reader takes a slice for a segment. The path of a slice says all that a read needs, so that a task
opens it without loading the log: ``<key>@<base>:<position>+<size>+<index>+<time index>``. The
indexes stand right after the frames, in the format of sealed ``.idx`` and ``.timeidx`` files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_PATH = re.compile(r"(.+)@(\d+):(\d+)\+(\d+)\+(\d+)\+(\d+)")


class Slice(NamedTuple):
    """Frames of one partition that stand together in one object. Its frames count from ``base``.

    ``end`` is the offset after its last record or hole; ``smallest`` and ``largest`` are bounds of
    the timestamps; ``checksum`` covers the headers and trailers of the frames.
    """

    base: int
    end: int
    key: str
    position: int
    size: int
    index_bytes: int
    time_index_bytes: int
    records: int
    smallest: int
    largest: int
    checksum: int

    @property
    def path(self) -> str:
        """The name of the slice, for readers and messages."""
        return slice_path(self)

    @property
    def stored(self) -> int:
        """Bytes in its object, the indexes included."""
        return self.size + self.index_bytes + self.time_index_bytes

    def moved(self, base: int) -> Slice:
        """The same records at other offsets: the frames stay as they are."""
        return self._replace(base=base, end=base + self.end - self.base)


class Place(NamedTuple):
    """What the path of a slice says."""

    key: str
    base: int
    position: int
    size: int
    index_bytes: int
    time_index_bytes: int


def slice_path(found: Slice) -> str:
    """The path of a slice; ``parse_path`` is the inverse."""
    return (
        f"{found.key}@{found.base}:{found.position}+{found.size}"
        f"+{found.index_bytes}+{found.time_index_bytes}"
    )


def parse_path(path: str) -> Place:
    """What the path of a slice says.

    Raises:
        FileNotFoundError: it is no path of a slice.
    """
    found = _PATH.fullmatch(path)
    if found is None:
        raise FileNotFoundError(path)
    return Place(found[1], *map(int, found.groups()[1:]))


class SliceTable:
    """Slices as rows of numbers, with a table of the objects that they stand in."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def keys(self) -> list[str]:
        """The objects, in the order of their numbers."""
        return list(self._numbers)

    def row(self, found: Slice) -> list[int]:
        """One slice; the object is a number."""
        number = self._numbers.setdefault(found.key, len(self._numbers))
        return [*found[:2], number, *found[3:]]


def slice_from(row: Sequence[Any], keys: Sequence[str]) -> Slice:
    """The slice of a row.

    Raises:
        ValueError: a number is missing or out of range.
    """
    if len(row) != len(Slice._fields) or not all(type(number) is int for number in row):
        raise ValueError(f"a slice must be {len(Slice._fields)} numbers, found {row!r:.200}")
    base, end, key, position, size, index, times, records, *_ = row
    sizes = (base, position, size, index, times, records)
    if min(sizes) < 0 or not 0 <= key < len(keys) or end <= base:
        raise ValueError(f"a number of a slice is out of range: {row!r:.200}")
    return Slice(base, end, keys[key], *row[3:])
