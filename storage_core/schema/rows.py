"""Rows of a typed topic as Arrow columns, ready to be encoded or just decoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..format.numbers import bounds_of, joined_starts, number_column, starts_of
from ..types import Int64s, Integers
from .fields import SchemaVersion
from .nesting import entries_of

_OFFSET_BYTES = 4


class TypedRows:
    """``count`` rows of a schema version: one array per column, or None where all are null.

    The arrays have the canonical types of the columns. Whoever makes one vouches for them:
    ``conform`` checks what users pass in, and the decoder of frames checks what it reads.
    """

    __slots__ = ("_bounds", "arrays", "count", "schema")

    def __init__(
        self,
        schema: SchemaVersion,
        arrays: Sequence[pa.Array | None],
        count: int,
        bounds: Integers | None = None,
    ) -> None:
        self.schema = schema
        self.arrays = tuple(arrays)
        self.count = count
        self._bounds = bounds

    @property
    def bounds(self) -> Integers:
        """Where each row begins when all are laid end to end, and where the last one ends.

        Counts the bytes of values, 4 for each text, list or map, and nothing for what is null in
        all rows. One number more than rows; the first one need not be 0.
        """
        if self._bounds is None:
            self._bounds = row_bounds(self.arrays, self.count)
        return self._bounds

    @property
    def size(self) -> int:
        """Bytes of all rows, as ``bounds`` counts them."""
        return int(self.bounds[-1]) - int(self.bounds[0])

    def column(self, position: int) -> pa.Array:
        """A column as an array, also if it is all null."""
        array = self.arrays[position]
        return pa.nulls(self.count, self.schema.fields[position].type) if array is None else array

    def to_batch(self) -> pa.RecordBatch:
        """The rows as an Arrow batch with the names and types of the schema."""
        columns = [self.column(position) for position in range(len(self.arrays))]
        if not columns:
            return _without_columns(self.count)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)

    def slice(self, start: int, end: int) -> TypedRows:
        """Rows ``start`` to ``end``, without copying."""
        if start == 0 and end == self.count:
            return self
        length = end - start
        arrays = [None if array is None else array.slice(start, length) for array in self.arrays]
        bounds = None if self._bounds is None else self._bounds[start : end + 1]
        return TypedRows(self.schema, arrays, length, bounds)

    def take(self, rows: Int64s) -> TypedRows:
        """The given rows, in the given order."""
        index = number_column(rows)
        arrays = [None if array is None else array.take(index) for array in self.arrays]
        bounds = None if self._bounds is None else bounds_of(np.diff(self._bounds)[rows])
        return TypedRows(self.schema, arrays, len(rows), bounds)


def concat(parts: Sequence[TypedRows]) -> TypedRows:
    """The rows of one or more parts of one schema, one after another."""
    if len(parts) == 1:
        return parts[0]
    schema = parts[0].schema
    if any(part.schema is not schema and part.schema != schema for part in parts):
        found = sorted({part.schema.version for part in parts})
        raise ValueError(f"rows of different schemas cannot be joined: versions {found}")
    arrays = [
        None
        if all(part.arrays[position] is None for part in parts)
        else pa.concat_arrays([part.column(position) for part in parts])
        for position in range(len(schema.fields))
    ]
    bounds = None
    if all(part._bounds is not None for part in parts):
        bounds = joined_starts([part.bounds for part in parts], np.int64)
    return TypedRows(schema, arrays, sum(part.count for part in parts), bounds)


def _without_columns(count: int) -> pa.RecordBatch:
    """A batch of rows without columns: only a struct can say how many there are."""
    return pa.RecordBatch.from_struct_array(pa.nulls(count, pa.struct([])))


def row_bounds(arrays: Sequence[pa.Array | None], count: int) -> Integers:
    """Where each row begins when all are laid end to end, and where the last one ends."""
    width = 0
    varying: list[Integers] = []
    for array in arrays:
        if array is not None:
            width += _split_widths(array, varying)
    kind = _wide_enough(width * count, varying)
    bounds: Integers = np.arange(count + 1, dtype=kind)
    bounds *= kind(width)
    for edges in varying:
        bounds += edges
    return bounds


def _entry_bounds(entries: pa.Array, starts: Integers) -> Integers:
    """Where the entries of each list begin when all are laid end to end, and where the last ends.

    ``starts`` are their numbers. It takes no memory for entries of one width: there may be two
    billion nulls in a list that has no byte.
    """
    varying: list[Integers] = []
    width = _split_widths(entries, varying)
    kind = _wide_enough(width * len(entries), varying)
    bounds: Integers = starts.astype(kind)
    bounds *= kind(width)
    for edges in varying:
        bounds += edges[starts]
    return bounds


def _wide_enough(fixed: int, varying: Sequence[Integers]) -> type[np.int32] | type[np.int64]:
    """The type for sums of this many bytes. numpy adds 32 bits several times as fast."""
    largest = fixed + sum(int(edges[-1]) for edges in varying)
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def _split_widths(array: pa.Array, varying: list[Integers]) -> int:
    """The bytes that each row has at least; where rows differ, the sums so far go to ``varying``.

    What stands under a null counts too: it is stored.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        children = (array.field(index) for index in range(kind.num_fields))
        return sum(_split_widths(child, varying) for child in children)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        starts, entries = starts_of(array), entries_of(array)
        varying.append(_entry_bounds(entries, starts - starts[0]))
        return _OFFSET_BYTES
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        varying.append(starts_of(array))
        return _OFFSET_BYTES
    if pa.types.is_null(kind):
        return 0
    return max(1, int(kind.bit_width) // 8)
