"""The statistics of a sealed segment's columns: a hint, by which planners skip whole segments.

They are the statistics of its frames put together, for each schema version by itself: rows of an
older version are null in columns that it lacks. All integers are big-endian.

====== ==== =================================================================
offset size field
====== ==== =================================================================
0      4    magic ``CRSS``
4      4    CRC32C of all bytes from 8 on
8      8    size of the log
16     4    CRC32C of the header and the trailer of the log's last frame
20     4    number of schema versions
..     16   for each version: its number (4 bytes), how many rows (8), length of the statistics (4)
..     n    statistics of that version in JSON, right after its 16 bytes
====== ==== =================================================================

Size and last frame bind them to their log: the last frame has its own offsets, times and checksum.
What is damaged, or belongs to another log, counts as missing, and the segment is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..errors import BrokenFrameError
from ..io.byte_source import Source
from ..io.checksum import crc32c
from ..schema import statistics
from ..schema.statistics import ColumnStatistics
from . import typed_frames
from .frame import HEADER_BYTES, TRAILER_BYTES
from .frame_scan import last_header, walk_frames
from .selection import Projection

_MAGIC = b"CRSS"
_HEADER = struct.Struct(">4sIQII")
_VERSION = struct.Struct(">IQI")
_CHECKED_FROM = 8


class VersionStatistics(NamedTuple):
    """What is known of the rows of one schema version, by field id."""

    version: int
    rows: int
    columns: Mapping[int, ColumnStatistics]


def gather(log: Source, base: int) -> list[VersionStatistics] | None:
    """Put the statistics of all frames together; None if the log has other frames or is damaged."""
    found: dict[int, VersionStatistics] = {}
    try:
        for frame in walk_frames(log, base, bodies=False):
            if not frame.header.records:
                continue  # it only covers a hole of compaction
            if not frame.header.is_typed:
                return None
            read = partial(log.read, frame.position + HEADER_BYTES)
            version, columns = typed_frames.versioned_statistics(frame.header, read)
            new = VersionStatistics(version, frame.header.records, columns)
            found[version] = _joined(found[version], new) if version in found else new
    except BrokenFrameError:
        return None
    return [found[version] for version in sorted(found)]


def _joined(one: VersionStatistics, other: VersionStatistics) -> VersionStatistics:
    columns = {}
    for number, known in one.columns.items():
        merged = statistics.merge(known, other.columns.get(number))
        if merged is not None:
            columns[number] = merged
    return VersionStatistics(one.version, one.rows + other.rows, columns)


def pack(log: Source, versions: Sequence[VersionStatistics]) -> bytes:
    """The file of a sealed log.

    Raises:
        BrokenFrameError: the log does not end with a frame.
    """
    end = _end_checksum(log)
    if end is None:
        raise BrokenFrameError("the last frame is not sound")
    parts = []
    for version, rows, columns in versions:
        text = statistics.to_json(columns).encode()
        parts += [_VERSION.pack(version, rows, len(text)), text]
    data = _HEADER.pack(_MAGIC, 0, log.size, end, len(versions)) + b"".join(parts)
    checksum = crc32c(data[_CHECKED_FROM:])
    return data[:4] + checksum.to_bytes(4, "big") + data[_CHECKED_FROM:]


def unpack(data: bytes, log: Source) -> list[VersionStatistics] | None:
    """What ``pack`` wrote for this log; None for anything else. Takes any bytes."""
    if len(data) < _HEADER.size:
        return None
    magic, checksum, size, end, count = _HEADER.unpack_from(data)
    if magic != _MAGIC or checksum != crc32c(data[_CHECKED_FROM:]) or size != log.size:
        return None
    if end != _end_checksum(log):
        return None
    found, at = list[VersionStatistics](), _HEADER.size
    while len(found) < count:
        if len(data) - at < _VERSION.size:
            return None
        version, rows, length = _VERSION.unpack_from(data, at)
        at += _VERSION.size
        columns = statistics.from_json(data[at : at + length])
        if columns is None or len(data) - at < length:
            return None
        at += length
        found.append(VersionStatistics(version, rows, columns))
    return found if at == len(data) else None


def bounds_of(
    projection: Projection, versions: Sequence[VersionStatistics]
) -> dict[str, ColumnStatistics | None]:
    """The bounds of the columns that a read needs, over all versions; None: unknown.

    Raises:
        DamagedMetadataError: a schema version is missing.
    """
    found: dict[str, ColumnStatistics | None] = {}
    for number, (version, rows, columns) in enumerate(versions):
        bounds = typed_frames.bounds_of_version(projection, version, rows, columns)
        for name, known in bounds.items():
            found[name] = statistics.merge(found[name], known) if number else known
    return found


def _end_checksum(log: Source) -> int | None:
    last = last_header(log)
    if last is None:
        return None
    header = log.read(log.size - last.length, HEADER_BYTES)
    return crc32c(log.read(log.size - TRAILER_BYTES, TRAILER_BYTES), crc32c(header))
