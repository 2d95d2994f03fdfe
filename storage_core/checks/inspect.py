"""A native segment as it is on disk: its index entries, the time and the columns of its frames.

For people who inspect a log, not for readers: nothing here stops at the high watermark, and nothing
is cached or repaired.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ..config import GIB
from ..errors import BrokenFrameError
from ..format import typed_frames
from ..format.file_names import IDX, LOG, TIMEIDX
from ..format.frame import HEADER_BYTES, unpack_header
from ..format.frame_scan import StoredFrame, frames_at, last_header, walk_frames
from ..format.numbers import numbers_of
from ..format.selection import Schemas
from ..format.sparse_index import (
    FOOTER_BYTES,
    IndexBuilder,
    IndexKind,
    TimeIndex,
    is_sealed,
    parse_open,
    parse_sealed,
)
from ..format.typed_body import StoredColumn, stored_columns
from ..io.byte_source import open_source
from ..io.durable import read_file
from ..schema.fields import Field
from ..schema.statistics import ColumnStatistics
from ..types import NO_TIMESTAMP, Int64s, SegmentContents
from ..vfs import Vfs

_DECODED_FRAMES = 16
_HEADERS_WINDOW = 64 << 10
IndexState = Literal["sealed", "open", "stale", "missing"]


class IndexInfo(NamedTuple):
    """One index file: its two columns, and whether a reader would use it as it is."""

    kind: IndexKind
    state: IndexState
    first: Int64s
    second: Int64s


class TimeSpan(NamedTuple):
    """About the time of a segment's records, microseconds since 1970."""

    first: int
    last: int


class TimeOrder(NamedTuple):
    """The times of a segment's records, and whether its frames have them in order."""

    smallest: int
    largest: int
    in_order: bool


def indexes(vfs: Vfs, path: str) -> list[IndexInfo]:
    """Both index files of a segment's log."""
    size = _size(vfs, path)
    return [
        _index(vfs, path.removesuffix(LOG) + IDX, "offset", size),
        _index(vfs, path.removesuffix(LOG) + TIMEIDX, "time", size),
    ]


def time_span(vfs: Vfs, path: str) -> TimeSpan | None:
    """The times of a segment's first and last frames, from two headers; None without records."""
    with open_source(vfs, path, HEADER_BYTES) as source:
        try:
            first = unpack_header(source.read(0, HEADER_BYTES))
        except BrokenFrameError:
            return None
        # A frame that only covers a hole of compaction has no time.
        headers = [each for each in (first, last_header(source)) if each and each.records]
        if not headers:
            return None
        return TimeSpan(headers[0].min_timestamp, max(each.max_timestamp for each in headers))


def contents(vfs: Vfs, path: str, base: int, end: int) -> SegmentContents:
    """What the frames of a segment hold below offset ``end``, from their headers.

    After damage every offset counts as a record: ``check`` reports it.
    """
    records, offset = 0, base
    times: list[int] = []
    with (
        open_source(vfs, path, _HEADERS_WINDOW) as source,
        suppress(BrokenFrameError),
    ):
        for frame in walk_frames(source, base, bodies=False):
            if frame.end_offset > end:
                break
            offset, header = frame.end_offset, frame.header
            if header.records:  # else it only covers a hole of compaction
                records += header.records
                low, high = times or (header.min_timestamp, header.max_timestamp)
                times = [min(low, header.min_timestamp), max(high, header.max_timestamp)]
    first, last = times or (None, None)
    return SegmentContents(records + max(0, end - offset), first, last)


def time_order(vfs: Vfs, path: str, base: int, *, sealed: bool) -> TimeOrder | None:
    """How the timestamps of a segment's frames lie; None without records.

    A sealed segment is not walked: its index tells, or else its first and last frames. Of the
    active one some frames are decoded too, to find records out of order inside a frame.
    """
    if sealed:
        found = _index(vfs, path.removesuffix(LOG) + TIMEIDX, "time", _size(vfs, path))
        index = TimeIndex(found.first, found.second)
        if found.state == "sealed" and index.smallest(base) != NO_TIMESTAMP:
            return TimeOrder(index.smallest(base), index.largest, index.in_order(base))
        span = time_span(vfs, path)
        return None if span is None else TimeOrder(*span, in_order=True)
    builder, in_order = IndexBuilder(GIB), True
    # What follows the last whole frame is a torn tail, or what a writer appends just now.
    with open_source(vfs, path, HEADER_BYTES) as source, suppress(BrokenFrameError):
        for number, frame in enumerate(walk_frames(source, base, bodies=False)):
            builder.add(frame.offset, frame.position, frame.header)
            if number < _DECODED_FRAMES and in_order:
                in_order = _rises(vfs, path, frame)
    index = builder.time_index()
    if not len(index.offsets):
        return None
    return TimeOrder(index.smallest(base), index.largest, in_order and index.in_order(base))


def _rises(vfs: Vfs, path: str, frame: StoredFrame) -> bool:
    if not frame.header.records or frame.header.min_timestamp == frame.header.max_timestamp:
        return True
    (found,) = frames_at(vfs, path, [(frame.position, frame.header.length)])
    return bool(np.all(np.diff(_times(found)) >= 0))


def _times(frame: StoredFrame) -> Int64s | int:
    if not frame.header.is_typed:
        return frame.columns().timestamps
    body = pa.py_buffer(frame.rest[: frame.header.body_length])
    return numbers_of(typed_frames.decode_projected(frame.header, body, None)["timestamp"])


class ColumnFacts(NamedTuple):
    """One column of a typed frame: how it is stored, and its statistics if they are sound."""

    field: Field
    storage: StoredColumn | None
    """None if it is null in all rows."""
    statistics: ColumnStatistics | None


def typed_columns(frame: StoredFrame, schemas: Schemas) -> tuple[int, list[ColumnFacts]]:
    """The schema version of a typed frame whose bytes are checked, and the columns of that version.

    Raises:
        BrokenFrameError: the body is not what its header says.
    """
    body = frame.rest[: frame.header.body_length]
    version = typed_frames.schema_version(frame.header, body)
    stored = {column.field_id: column for column in stored_columns(body)}
    known = typed_frames.read_statistics(frame.header, lambda length: body[:length])
    fields = schemas.get(version).fields
    return version, [ColumnFacts(f, stored.get(f.id), known.get(f.id)) for f in fields]


def _size(vfs: Vfs, path: str) -> int:
    stat = vfs.stat(path)
    return 0 if stat is None else stat.size


def _index(vfs: Vfs, path: str, kind: IndexKind, log_size: int) -> IndexInfo:
    data = read_file(vfs, path, GIB)
    if data is None:
        nothing = parse_open(b"", 0)
        return IndexInfo(kind, "missing", nothing.offsets, nothing.positions)
    sealed = parse_sealed(kind, data, log_size)
    if sealed is not None:
        return IndexInfo(kind, "sealed", *sealed)
    state: IndexState = "open"
    if is_sealed(kind, data):
        state, data = "stale", data[:-FOOTER_BYTES]
    found = parse_open(data, log_size)
    return IndexInfo(kind, state, found.offsets, found.positions)
