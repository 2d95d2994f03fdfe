"""Comparison of two streams of record batches, independent of the sizes of the batches."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from ..format.columns import HEADERS


def first_difference(left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]) -> int | None:
    """Number of the first row where the streams differ or one ends; None if they are equal."""
    streams = iter(left), iter(right)
    rest: list[pa.RecordBatch | None] = [None, None]
    row = 0
    while True:
        for side, stream in enumerate(streams):
            batch = rest[side]
            while (batch is not None and batch.num_rows == 0) or batch is None:
                batch = next(stream, None)
                if batch is None:
                    break
            rest[side] = batch
        ours, theirs = rest
        if ours is None or theirs is None:
            return None if ours is theirs else row
        rows = min(ours.num_rows, theirs.num_rows)
        if not ours.slice(0, rows).equals(theirs.slice(0, rows)):
            return row + _first_row(ours, theirs, rows)
        rest = [ours.slice(rows), theirs.slice(rows)]
        row += rows


def _first_row(ours: pa.RecordBatch, theirs: pa.RecordBatch, rows: int) -> int:
    """The first of ``rows`` rows where two batches differ; the caller knows that there is one."""
    low = 0
    while rows > 1:
        half = rows // 2
        if ours.slice(low, half).equals(theirs.slice(low, half)):
            low += half
            rows -= half
        else:
            rows = half
    return low


def floats_as_bits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with floats at any depth as integers: Arrow takes no NaN for equal to another."""
    arrays = [column.view(_bits(column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _bits(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_floating(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_bits(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_bits(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_bits(kind.key_type)),
            kind.item_field.with_type(_bits(kind.item_type)),
        )
    return kind


def without_empties(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with empty keys and headers as null: a broker stores both in the same way."""
    for name, length in (("key", pc.binary_length), ("headers", pc.list_value_length)):
        if name in batch.schema.names:
            column = batch[name]
            nothing = pa.scalar(None, HEADERS if name == "headers" else pa.binary())
            filled = pc.if_else(pc.equal(length(column), 0), nothing, column)
            batch = batch.set_column(batch.schema.get_field_index(name), name, filled)
    return batch
