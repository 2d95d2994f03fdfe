"""Decoded frames to record batches: trimmed, projected, and small ones joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..errors import StorageError
from ..format.columns import TIMESTAMP, DecodedFrame
from ..format.numbers import lengths_of, number_column, numbers_of
from ..format.selection import Selection
from ..lazy import LazyModule
from ..types import TIMESTAMP_ABSENT, Int64s, TimeRange

if TYPE_CHECKING:
    from ..schema import rows as typed_rows
else:
    typed_rows = LazyModule("storage_core.schema.rows")

JOIN_ROWS = 8192
JOIN_BYTES = 1 << 20
_OFFSET_TYPE = pa.int64()
_COUNTED = np.arange(2 * JOIN_ROWS, dtype=np.int64)


def to_batch(
    frame: DecodedFrame, selection: Selection, start: int, end: int
) -> pa.RecordBatch | None:
    """What is selected of a frame with ``start <= offset < end``, or None if that is nothing."""
    batch = _within(frame, selection, start, end)
    if batch is not None and selection.times is not None:
        batch = _of_times(frame, batch, selection.times, selection.time_name)
    if batch is None or not batch.num_rows:
        return None
    mask = None
    if selection.where is not None:
        columns = dict(zip(selection.needed, batch.columns, strict=True))
        mask = selection.where.mask(columns, batch.num_rows)
    if selection.needed is not selection.names:
        batch = batch.select(range(len(selection.names)))
    if mask is None or mask.true_count == batch.num_rows:
        return batch
    return batch.filter(mask) if mask.true_count else None


def _within(
    frame: DecodedFrame, selection: Selection, start: int, end: int
) -> pa.RecordBatch | None:
    if frame.offsets is None:
        low, high = max(0, start - frame.first_offset), min(frame.rows, end - frame.first_offset)
    else:
        low, high = np.searchsorted(numbers_of(frame.offsets), (start, end)).tolist()
    if low >= high:
        return None
    rows, columns, arrays = high - low, frame.columns, []
    for name in selection.needed:
        column = columns.get(name)
        if column is None:
            column = _computed(frame, selection, name, low, rows)
        elif rows != frame.rows:
            column = column.slice(low, rows)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=selection.schema)


def _of_times(
    frame: DecodedFrame, batch: pa.RecordBatch, times: TimeRange, name: str
) -> pa.RecordBatch:
    """The records of a range of time: none without a time."""
    if frame.timestamp_type == TIMESTAMP_ABSENT:
        return batch.slice(0, 0)
    stamps = numbers_of(batch.column(name))
    kept = (stamps >= times.start) & (stamps < times.end)
    return batch if kept.all() else batch.filter(pa.array(kept))


def _computed(
    frame: DecodedFrame, selection: Selection, name: str, low: int, rows: int
) -> pa.Array:
    """A column that is not stored because it follows from the header, or is null in all rows."""
    if name == "_offset" or (name == "offset" and selection.projection is None):
        if frame.offsets is not None:
            return frame.offsets.slice(low, rows)
        return number_column(_counting(frame.first_offset + low, rows), _OFFSET_TYPE)
    if name == "timestamp_type" and selection.projection is None:
        return _repeated_number(frame.timestamp_type, rows)
    if name in (selection.time_name, "_timestamp"):
        stored = frame.columns.get(selection.time_name)
        if stored is not None:
            return stored.slice(low, rows)
        if frame.timestamp_type != TIMESTAMP_ABSENT:
            return _repeated_time(frame.constant_timestamp, rows)
    if name == "_partition":
        return _repeated_number(selection.partition, rows)
    if name == "_topic":
        return _repeated_text(selection.topic, rows)
    return selection.nulls(name, rows)


def _counting(first: int, rows: int) -> Int64s:
    """``rows`` numbers from ``first`` on. Adding to a ready range is twice as fast as counting."""
    if rows <= len(_COUNTED):
        return _COUNTED[:rows] + first
    return np.arange(first, first + rows, dtype=np.int64)


# Neighbouring frames of one append have the same rows and time, so these columns are cached.
@lru_cache(maxsize=16)
def _repeated_number(number: int, rows: int) -> pa.Array:
    """One number in every row."""
    return number_column(np.full(rows, number, dtype=np.int32))


@lru_cache(maxsize=16)
def _repeated_time(microseconds: int, rows: int) -> pa.Array:
    """One time in every row."""
    return number_column(np.full(rows, microseconds, dtype=np.int64), TIMESTAMP)


@lru_cache(maxsize=16)
def _repeated_text(text: str, rows: int) -> pa.Array:
    """One text in every row."""
    data = text.encode()
    starts = number_column(np.arange(rows + 1, dtype=np.int32) * np.int32(len(data)))
    buffers = [None, starts.buffers()[1], pa.py_buffer(data * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def join_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join runs of small batches: a batch costs the caller as much as thousands of records."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if batch.num_rows >= JOIN_ROWS // 2 and not waiting:
                yield batch
                continue
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= JOIN_ROWS or size >= JOIN_BYTES:
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
    except StorageError:
        # The records before the damage are sound: the caller gets them.
        if waiting:
            yield _joined(waiting)
        raise
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def limit(
    batches: Iterable[pa.RecordBatch],
    max_records: int | None,
    max_bytes: int | None,
    *,
    typed: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Stop after ``max_records``, or with the record that reaches ``max_bytes`` (at least one).

    Of a typed topic it counts the bytes of the columns that are read.
    """
    records_left = max_records
    bytes_left = max_bytes
    for batch in batches:
        if records_left is not None and batch.num_rows > records_left:
            batch = batch.slice(0, records_left)
        if bytes_left is not None:
            ends = np.cumsum(_record_bytes(batch, typed=typed))
            batch = batch.slice(0, int(np.searchsorted(ends, bytes_left, side="left")) + 1)
            bytes_left -= int(ends[batch.num_rows - 1]) if batch.num_rows else 0
        if batch.num_rows:
            yield batch
        if records_left is not None:
            records_left -= batch.num_rows
        if records_left == 0 or (bytes_left is not None and bytes_left <= 0):
            return


def _record_bytes(batch: pa.RecordBatch, *, typed: bool) -> Int64s:
    if typed:
        found: Int64s = np.diff(typed_rows.row_bounds(batch.columns, batch.num_rows))
        return found
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("key", "value"):
        if name in batch.schema.names:
            sizes += lengths_of(batch.column(name))
    return sizes
