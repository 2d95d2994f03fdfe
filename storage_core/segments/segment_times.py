"""``times``: bounds of the timestamps of the sealed segments of a partition, in one small file.

A lookup by time would else read the time index of every segment. Rows of 40 bytes, big-endian:
``base u64, base of the next segment u64, smallest i64, largest i64, CRC32C of these u32, 4 zero
bytes``. The last row of a segment counts.

A writer adds the rows of what it sealed, once that is published: until then a failed append may cut
the segment off, and other records may take its place. From then on the records between two bases
stay what they are, or become fewer; a merge changes the bases. With ``fsync=none`` a power cut may
take published records too, so there the file is neither written nor read.

The file is a hint and is not synced. A segment without a row has its own time index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from ..io.checksum import crc32c
from ..io.durable import parent, read_file, replace_file, write_all
from ..types import TimeBounds
from ..vfs import Vfs
from .listing import list_segments

_ROW = struct.Struct(">QQqqI4x")
_CHECKED = _ROW.size - 8
_MOST_BYTES = 1 << 28
_FEW_ROWS = 1024


class SegmentTimes(NamedTuple):
    """The bounds of one sealed segment, which ends where ``following`` begins."""

    base: int
    following: int
    bounds: TimeBounds


def path_of(directory: str) -> str:
    """The path of the file, given the directory of the partition's segments."""
    return f"{parent(directory)}/times"


def read_times(vfs: Vfs, directory: str) -> dict[tuple[int, int], TimeBounds]:
    """The bounds by base and following base; damaged rows are left out."""
    data = read_file(vfs, path_of(directory), _MOST_BYTES) or b""
    view, found = memoryview(data), dict[tuple[int, int], TimeBounds]()
    rows = view[: len(data) // _ROW.size * _ROW.size]
    for number, row in enumerate(_ROW.iter_unpack(rows)):
        base, following, smallest, largest, checksum = row
        start = number * _ROW.size
        if crc32c(view[start : start + _CHECKED]) == checksum:
            found[base, following] = TimeBounds(smallest, largest)
    return found


def add_times(vfs: Vfs, directory: str, added: Sequence[SegmentTimes]) -> None:
    """Add rows of published segments. The caller holds the partition's lock."""
    path = path_of(directory)
    try:
        fd = vfs.open(path, "write")
    except FileNotFoundError:
        fd = vfs.open(path, "create")
    try:
        before = vfs.fstat(fd).size // _ROW.size
        write_all(vfs, fd, [_pack(added)], before * _ROW.size)
    finally:
        vfs.close(fd)
    after = before + len(added)
    # Now and then: retention and merges leave rows that no segment has.
    if after > _FEW_ROWS and after.bit_length() > before.bit_length():
        _drop_old_rows(vfs, directory)


def drop_times(vfs: Vfs, directory: str) -> None:
    """Delete the file: published records are about to be cut off."""
    with suppress(FileNotFoundError):
        vfs.unlink(path_of(directory))


def _drop_old_rows(vfs: Vfs, directory: str) -> None:
    known: Mapping[tuple[int, int], TimeBounds] = read_times(vfs, directory)
    bases = list_segments(vfs, directory).bases
    kept = [SegmentTimes(*pair, known[pair]) for pair in pairwise(bases) if pair in known]
    replace_file(vfs, path_of(directory), _pack(kept), sync=False)


def _pack(rows: Iterable[SegmentTimes]) -> bytes:
    return b"".join(
        _ROW.pack(*values, crc32c(_ROW.pack(*values, 0)[:_CHECKED]))
        for values in ((row.base, row.following, *row.bounds) for row in rows)
    )
