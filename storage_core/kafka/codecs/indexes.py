"""The broker's index files, as hints: the longest prefix that can be true.

============== ===================================================== =======================
file           entry (big-endian)                                    means
============== ===================================================== =======================
``.index``     u32 offset less the base, i32 position                a batch begins at the
                                                                     position; offset is the
                                                                     last of the append that
                                                                     it begins
``.timeindex`` i64 milliseconds, u32 offset less the base            no record up to the
                                                                     offset is later
``.txnindex``  i16 0, i64 producer, i64 first offset, i64 last       an aborted transaction,
               offset, i64 last stable offset                        by the offset of its
                                                                     abort marker
============== ===================================================== =======================

The broker makes the first two longer than they are, with zeros at the end. ``.snapshot`` is the
state of all producers before the offset in its name, with a checksum: i16 version 1, u32 CRC-32C of
the rest, u32 number of producers, and for each 46 bytes, the last eight of which are the first
offset of its open transaction, or -1.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ...format.sparse_index import NO_INDEX, SparseIndex
from ...io.checksum import crc32c
from ...types import Int64s

_OFFSET_ENTRY = np.dtype([("offset", ">u4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">u4")])
_ABORTED = np.dtype(
    [("version", ">i2"), ("producer", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")]
)
ABORTED_BYTES = _ABORTED.itemsize
_PRODUCER = np.dtype(
    [
        ("producer", ">i8"),
        ("epoch", ">i2"),
        ("sequence", ">i4"),
        ("last_offset", ">i8"),
        ("delta", ">i4"),
        ("time", ">i8"),
        ("coordinator", ">i4"),
        ("first_offset", ">i8"),
    ]
)
_SNAPSHOT = struct.Struct(">hII")
_SNAPSHOT_VERSION, _CHECKED_FROM = 1, 6


class TimeEntries(NamedTuple):
    """Entries of a ``.timeindex``: milliseconds and offsets."""

    times: Int64s
    offsets: Int64s


class Aborted(NamedTuple):
    """Entries of a ``.txnindex``: producers, first offsets, offsets of the abort markers."""

    producers: Int64s
    first: Int64s
    last: Int64s


def parse_offset_index(data: bytes, base: int, log_size: int) -> SparseIndex:
    """The entries before the zeros, a pair that does not rise, or a position past the log."""
    entries = np.frombuffer(data, _OFFSET_ENTRY, len(data) // _OFFSET_ENTRY.itemsize)
    offsets, positions = entries["offset"].astype(np.int64), entries["position"].astype(np.int64)
    if not len(offsets):
        return NO_INDEX
    sound = (positions > 0) & (positions < log_size)
    sound[1:] &= (np.diff(offsets) > 0) & (np.diff(positions) > 0)
    upto = _prefix(sound)
    return SparseIndex(base + offsets[:upto], positions[:upto])


def parse_time_index(data: bytes, base: int) -> TimeEntries:
    """The entries before the zeros; none if a pair does not rise.

    An entry says that no earlier record has a later time. If the one after it is false, it may be
    false too: then a search would begin after what it looks for.
    """
    entries = np.frombuffer(data, _TIME_ENTRY, len(data) // _TIME_ENTRY.itemsize)
    times, offsets = entries["time"].astype(np.int64), entries["offset"].astype(np.int64)
    sound = times > 0
    sound[1:] &= (np.diff(times) > 0) & (np.diff(offsets) >= 0)
    upto = _prefix(sound)
    if times[upto:].any() or offsets[upto:].any():
        upto = 0
    return TimeEntries(times[:upto], base + offsets[:upto])


def parse_aborted(data: bytes) -> Aborted:
    """The aborted transactions before the first entry of another version."""
    entries = np.frombuffer(data, _ABORTED, len(data) // _ABORTED.itemsize)
    upto = _prefix(entries["version"] == 0)
    fields = (entries[name][:upto].astype(np.int64) for name in ("producer", "first", "last"))
    return Aborted(*fields)


def parse_snapshot(data: bytes) -> dict[int, int] | None:
    """First offsets of the open transactions, by producer; None for another or damaged file."""
    if len(data) < _SNAPSHOT.size:
        return None
    version, checksum, count = _SNAPSHOT.unpack_from(data)
    size = _SNAPSHOT.size + count * _PRODUCER.itemsize
    if (
        version != _SNAPSHOT_VERSION
        or size != len(data)
        or crc32c(data[_CHECKED_FROM:]) != checksum
    ):
        return None
    entries = np.frombuffer(data, _PRODUCER, count, _SNAPSHOT.size)
    opened = entries[entries["first_offset"] >= 0]
    pairs = zip(opened["producer"].tolist(), opened["first_offset"].tolist(), strict=True)
    return dict(pairs)


def _prefix(sound: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return len(sound) if sound.all() else int(np.argmin(sound))
