"""Numbers between Arrow and numpy, without pandas.

``pa.array``, ``pa.scalar`` and ``Array.to_numpy`` import pandas where it is installed. A Spark task
would wait longer for that than for all other modules together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt


def numbers_of(column: pa.Array, null: int = 0) -> npt.NDArray[Any]:
    """The numbers of a column of integers or times, those that are null replaced.

    Without nulls it is a view of the column's bytes.
    """
    kind = np.dtype("int64" if pa.types.is_timestamp(column.type) else str(column.type))
    if column.null_count == len(column):
        return np.full(len(column), null, kind)
    buffer = column.buffers()[1]
    numbers = np.frombuffer(buffer, kind, len(column), column.offset * kind.itemsize)
    return numbers if column.null_count == 0 else np.where(is_present(column), numbers, null)


def raw_values(column: pa.Array, kind: str) -> npt.NDArray[Any]:
    """The stored values of a column of fixed width as numpy's ``kind``; anything where null.

    A view of the column's bytes. The column must not be all null: it might have no bytes.
    """
    dtype = np.dtype(kind)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def lengths_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """How many bytes or entries each row of a binary, text or list column has; 0 where null."""
    starts = starts_of(column)
    lengths = starts[1:] - starts[:-1]
    return lengths if column.null_count == 0 else np.where(is_present(column), lengths, 0)


def starts_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where each row of a binary, text or list column begins, and where the last one ends."""
    if not len(column):
        return np.zeros(1, dtype=np.int32)  # an empty array may lack offsets
    first = column.offset * np.dtype(np.int32).itemsize
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, first)


def bounds_of(lengths: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.int64]:
    """0, then the sum of the lengths so far: one number more than there are lengths."""
    bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def joined_starts(
    parts: Sequence[npt.NDArray[np.signedinteger]], kind: type[np.signedinteger]
) -> npt.NDArray[Any]:
    """Where each row begins when the rows of all parts stand one after another, from 0 on.

    Each part has where its own rows begin, and where its last one ends.
    """
    joined = np.zeros(1 + sum(map(len, parts)) - len(parts), dtype=kind)
    row = 0
    for starts in parts:
        end = row + len(starts) - 1
        moved = joined[row + 1 : end + 1]
        np.add(starts[1:], joined[row] - starts[0], out=moved, dtype=kind)
        row = end
    return joined


def is_present(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows are not null."""
    bitmap = column.buffers()[0]
    if column.null_count == 0 or bitmap is None:
        return np.ones(len(column), dtype=np.bool_)
    end = column.offset + len(column)
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), count=end, bitorder="little")
    return bits[column.offset :].view(np.bool_)


def number_column(numbers: npt.NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """A column of integers, or of times if ``kind`` says so; contiguous ones are not copied."""
    found = pa.from_numpy_dtype(numbers.dtype) if kind is None else kind
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(found, len(numbers), [None, buffer])
