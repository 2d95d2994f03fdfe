"""Sparse indexes: hints that shorten a lookup; where they differ from the log, the log is right.

``.idx`` and ``.timeidx`` are rows of two big-endian 64-bit integers.

* ``.idx``: offset, position. The frame that starts at ``position`` begins with ``offset``. There is
  an entry once ``index_interval_bytes`` of log have passed since the last one (or the start).
* ``.timeidx``: timestamp, offset. No record of this segment before ``offset`` is later than
  ``timestamp``. It has an entry for each of ``.idx``, and a last one for the segment's end. The
  first entry has the segment's own base as ``offset`` and its smallest timestamp; it stands twice
  if a frame has a record that is older than one of an earlier frame. Indexes that were written
  before this entry existed lack it: readers then do not know the smallest timestamp.

When a segment is sealed its indexes get a 16-byte footer: magic (``CRSI`` or ``CRSX``), CRC32C of
the entries and the next field, and the size of the log they describe, so that a stale index is
noticed. An open segment's ``.idx`` has no footer: each entry is checked against the frame it points
to before it is used. An open segment has no ``.timeidx``; the frame headers answer instead.

Example of a sealed ``.idx`` with one entry: see ``docs/format.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..io.checksum import crc32c
from ..types import NO_TIMESTAMP, Int64s, OffsetPosition, TimeBounds
from .frame import FrameHeader

IndexKind = Literal["offset", "time"]

ENTRY_BYTES = FOOTER_BYTES = 16
_MAGIC: dict[IndexKind, bytes] = {"offset": b"CRSI", "time": b"CRSX"}
_FOOTER = struct.Struct(">4sIQ")
_NO_ENTRIES: Int64s = np.empty(0, dtype=np.int64)
_LAST_TIMESTAMP = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """Positions of some frames of one segment, rising."""

    offsets: Int64s
    positions: Int64s

    def floor(self, offset: int, base: int) -> OffsetPosition:
        """The last entry at or before ``offset``, or the segment's start."""
        at = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        if at < 0:
            return OffsetPosition(base, 0)
        return OffsetPosition(int(self.offsets[at]), int(self.positions[at]))


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """``timestamps[i]`` is the largest timestamp before ``offsets[i]``; both rise."""

    timestamps: Int64s
    offsets: Int64s

    @property
    def largest(self) -> int:
        """Largest timestamp of the segment."""
        return int(self.timestamps[-1]) if len(self.timestamps) else NO_TIMESTAMP

    def smallest(self, base: int) -> int:
        """Lower bound of the timestamps of the segment that begins at ``base``."""
        return int(self.timestamps[0]) if base in self.offsets[:1] else NO_TIMESTAMP

    def in_order(self, base: int) -> bool:
        """Whether no frame is known to have a record older than one of an earlier frame."""
        return int(np.count_nonzero(self.offsets[:2] == base)) < 2

    def floor(self, timestamp: int, base: int) -> int:
        """An offset such that every earlier record is older than ``timestamp``."""
        at = int(np.searchsorted(self.timestamps, timestamp, side="left")) - 1
        return base if at < 0 else int(self.offsets[at])


def bounds_of(index: TimeIndex, base: int) -> TimeBounds:
    """Bounds of the timestamps of the segment that begins at ``base``."""
    return TimeBounds(index.smallest(base), index.largest)


NO_INDEX = SparseIndex(_NO_ENTRIES, _NO_ENTRIES)


class IndexBuilder:
    """Collects the entries of both indexes while a segment is written or walked, in order."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._last_position = 0
        self._base = self._end = -1
        self._smallest, self._largest = _LAST_TIMESTAMP, NO_TIMESTAMP
        self._in_order = True
        self.is_typed = False
        """Whether the segment has rows of a typed topic."""
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.timestamps: list[int] = []

    def add(self, offset: int, position: int, header: FrameHeader) -> bool:
        """Note one frame; return whether it got an entry."""
        due = position - self._last_position >= self._interval
        if due:
            self._last_position = position
            self.offsets.append(offset)
            self.positions.append(position)
            self.timestamps.append(self._largest)
        if self._base < 0:
            self._base = offset
        self.is_typed = self.is_typed or header.is_typed
        if header.records:
            self._in_order = self._in_order and header.min_timestamp >= self._largest
            self._smallest = min(self._smallest, header.min_timestamp)
        self._largest = max(self._largest, header.max_timestamp)
        self._end = offset + header.span
        return due

    def offset_index(self) -> SparseIndex:
        return SparseIndex(
            np.array(self.offsets, dtype=np.int64), np.array(self.positions, dtype=np.int64)
        )

    def time_index(self) -> TimeIndex:
        """The time index with its first and last entry; empty for a segment without frames."""
        if self._end < 0:
            return TimeIndex(_NO_ENTRIES, _NO_ENTRIES)
        first = 1 if self._in_order else 2
        inner = 1 if self.offsets[:1] == [self._base] else 0  # else the base would stand once more
        smallest = min(self._smallest, self._largest)
        timestamps = [*[smallest] * first, *self.timestamps[inner:], self._largest]
        offsets = [*[self._base] * first, *self.offsets[inner:], self._end]
        return TimeIndex(np.array(timestamps, dtype=np.int64), np.array(offsets, dtype=np.int64))


def encode_entries(first: Int64s | Sequence[int], second: Int64s | Sequence[int]) -> bytes:
    """Entries as they stand in a file."""
    table = np.empty((len(first), 2), dtype=">i8")
    table[:, 0] = first
    table[:, 1] = second
    return table.tobytes()


def seal(kind: IndexKind, entries: bytes, log_size: int) -> bytes:
    """A sealed index file: entries and footer."""
    checksum = crc32c(log_size.to_bytes(8, "big"), crc32c(entries))
    return entries + _FOOTER.pack(_MAGIC[kind], checksum, log_size)


def is_sealed(kind: IndexKind, data: bytes) -> bool:
    """Whether the file ends in a footer; says nothing about its soundness."""
    return len(data) >= FOOTER_BYTES and data[-FOOTER_BYTES:][:4] == _MAGIC[kind]


def parse_sealed(kind: IndexKind, data: bytes, log_size: int) -> tuple[Int64s, Int64s] | None:
    """Both columns of a sealed index, or None when it is short, damaged or of another log."""
    if len(data) < FOOTER_BYTES or len(data) % ENTRY_BYTES:
        return None
    entries = data[:-FOOTER_BYTES]
    if seal(kind, entries, log_size)[-FOOTER_BYTES:] != data[-FOOTER_BYTES:]:
        return None
    return _columns(entries)


def parse_open(data: bytes, log_size: int) -> SparseIndex:
    """Whatever of an open segment's ``.idx`` is plausible: whole rising entries inside the log."""
    offsets, positions = _columns(data[: len(data) - len(data) % ENTRY_BYTES])
    if not len(offsets):
        return NO_INDEX
    sound = (offsets >= 0) & (positions >= 0) & (positions < log_size)
    sound[1:] &= (np.diff(offsets) > 0) & (np.diff(positions) > 0)
    count = len(sound) if sound.all() else int(np.argmin(sound))
    return SparseIndex(offsets[:count], positions[:count])


def _columns(entries: bytes) -> tuple[Int64s, Int64s]:
    table = np.frombuffer(entries, dtype=">i8").reshape(-1, 2).astype(np.int64)
    return table[:, 0].copy(), table[:, 1].copy()
