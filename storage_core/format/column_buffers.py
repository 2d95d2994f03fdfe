"""Arrow arrays as nodes and buffers, without copying where an array is not a slice.

A node is the length of an array and how many of its values are null. An array has one, followed by
those of its children. Its buffers follow in the order of Arrow's columnar format. What an array
holds outside of its slice is left out: offsets begin at 0, and bits at the first bit of a byte.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .buffer_encodings import Numbers

_FORMS = {
    kind.id: form
    for form, kinds in {
        "<i1": [pa.int8()],
        "<i2": [pa.int16()],
        "<i4": [pa.int32(), pa.date32()],
        "<u4": [pa.uint32()],
        "<i8": [pa.int64(), pa.timestamp("us"), pa.duration("us")],
        "<f4": [pa.float32()],
        "<f8": [pa.float64()],
        "V16": [pa.decimal128(1)],
    }.items()
    for kind in kinds
}
DTYPES = {kind: np.dtype(form) for kind, form in _FORMS.items()}
"""The form of the values of a type with fixed width, by the id of the type."""
NULL, BOOL, STRUCT = (kind.id for kind in (pa.null(), pa.bool_(), pa.struct([])))
TEXTS = frozenset({pa.string().id, pa.binary().id})
MAP = pa.map_(pa.int8(), pa.int8()).id
LISTS = frozenset({pa.list_(pa.null()).id, MAP})
OFFSET = np.dtype("<i4")
EMPTY = pa.py_buffer(b"")


class Part(NamedTuple):
    """One buffer of an array, or two that belong together: the offsets and the bytes of texts.

    ``dtype`` is None for bits. ``validity`` says which numbers are null, where some are.
    """

    data: pa.Buffer
    dtype: np.dtype[Any] | None = None
    texts: pa.Buffer | None = None
    validity: pa.Buffer | None = None


def lay_out(array: pa.Array, nodes: list[int], parts: list[Part]) -> None:
    """Append the nodes (length and nulls of each) and the buffers of an array and its children."""
    kind, length, nulls = array.type.id, len(array), array.null_count
    nodes += (length, nulls)
    if kind == NULL:
        return
    buffers = array.buffers()
    validity = _bits(buffers[0], array.offset, length) if nulls else None
    parts.append(Part(EMPTY if validity is None else validity))
    dtype = DTYPES.get(kind)
    if dtype is not None:
        data = _slice(buffers[1], array.offset * dtype.itemsize, length * dtype.itemsize)
        parts.append(Part(data, dtype, validity=validity))
    elif kind in TEXTS:
        starts, first, size = _offsets(buffers[1], array.offset, length)
        parts.append(Part(starts, OFFSET, _slice(buffers[2], first, size)))
    elif kind in LISTS:
        starts, first, size = _offsets(buffers[1], array.offset, length)
        parts.append(Part(starts, OFFSET))
        lay_out(array.values.slice(first, size), nodes, parts)
    elif kind == STRUCT:
        for index in range(array.type.num_fields):
            lay_out(array.field(index), nodes, parts)
    elif kind == BOOL:
        parts.append(Part(_bits(buffers[1], array.offset, length)))
    else:
        raise TypeError(f"a typed frame cannot hold {array.type}")


def numbers_in(data: pa.Buffer, dtype: np.dtype[Any]) -> Numbers:
    """The numbers of a buffer, as a view of its bytes."""
    return np.frombuffer(data, dtype, data.size // dtype.itemsize) if data.size else _none(dtype)


def _none(dtype: np.dtype[Any]) -> Numbers:
    return np.zeros(0, dtype)  # numpy refuses empty buffers


def _slice(buffer: pa.Buffer | None, first: int, size: int) -> pa.Buffer:
    if buffer is None or not size:
        return EMPTY
    return buffer if not first and size == buffer.size else buffer.slice(first, size)


def _bits(buffer: pa.Buffer | None, first: int, count: int) -> pa.Buffer:
    """``count`` bits from the bit ``first`` on."""
    if buffer is None or not count:
        return EMPTY
    whole = _slice(buffer, first // 8, (first % 8 + count + 7) // 8)
    if not first % 8:
        return whole
    bits = np.unpackbits(np.frombuffer(whole, np.uint8), bitorder="little")
    moved = bits[first % 8 : first % 8 + count]
    return pa.py_buffer(np.packbits(moved, bitorder="little"))


def _offsets(buffer: pa.Buffer | None, first: int, count: int) -> tuple[pa.Buffer, int, int]:
    """The offsets of ``count`` rows from 0 on, where the first one was, and the last one now."""
    if buffer is None or not count:
        return EMPTY, 0, 0
    whole = _slice(buffer, first * OFFSET.itemsize, (count + 1) * OFFSET.itemsize)
    starts = np.frombuffer(whole, OFFSET)
    base, size = int(starts[0]), int(starts[-1]) - int(starts[0])
    return (pa.py_buffer(starts - starts[0]) if base else whole), base, size
