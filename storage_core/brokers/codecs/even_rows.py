"""Rows that all have one length: the whole run is checked, and copied out, in one pass each.

Sensors, counters and packed structs write records of one size. Where the first record stands, the
others then stand at a fixed step, and their headers can be compared all at once. That is proof, not
a guess: if each header in such a row of places gives the same length, following the lengths one by
one leads through exactly these places.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .rows import Data, Ending, RowFormat, Rows, make_rows, offsets_at, slices_column, walk_scalar

# Fewer are not worth it; so many are looked at before all are, and so many may differ at the end.
_SAMPLE = 64
_INT32_MAX = 2**31 - 1


def walk_even(data: Data, start: int, limit: int, fmt: RowFormat) -> Rows | None:
    """The same as ``walk_scalar`` where almost all records have one length; else None.

    Only a few at the end may differ, which are walked by scalar.
    """
    view = memoryview(data)
    if limit - start < fmt.header_bytes:
        return None
    length = int.from_bytes(view[start : start + 4], "big")
    if not fmt.min_payload <= length <= fmt.max_payload:
        return None
    step = fmt.header_bytes + length
    count = (limit - start) // step
    if count < _SAMPLE:
        return None
    found = np.ndarray((count,), ">u4", buffer=view, offset=start, strides=(step,))
    if not (found[:_SAMPLE] == length).all():
        return None
    same = found == length
    if not same[: max(_SAMPLE, count - _SAMPLE)].all():
        return None
    count = count if same.all() else int(np.argmin(same))
    positions = np.arange(start, start + count * step, step, dtype=np.int64)
    end = start + count * step
    offsets = None
    if fmt.has_offset:
        words = np.ndarray((count,), ">u8", buffer=view, offset=start + 4, strides=(step,))
        offsets = words.astype(np.int64)
    if end == limit:
        return make_rows(positions, end, fmt, Ending.WHOLE, None, offsets)
    rest = walk_scalar(data, end, limit, fmt)
    positions = np.concatenate((positions, rest.positions))
    if offsets is not None:
        offsets = np.concatenate((offsets, offsets_at(view, rest.positions)))
    return make_rows(positions, rest.end, fmt, rest.ending, rest.problem, offsets)


def payload_column(data: pa.Buffer, rows: Rows, fmt: RowFormat) -> pa.BinaryArray:
    """Payloads of ``rows``, copied once."""
    length, size = (int(rows.lengths[0]), int(rows.lengths.sum())) if rows.count else (0, 0)
    if not length or size > _INT32_MAX - length or not (rows.lengths == length).all():
        return slices_column(data, rows.positions + fmt.header_bytes, rows.lengths)
    first, step = int(rows.positions[0]) + fmt.header_bytes, fmt.header_bytes + length
    payloads = np.ndarray((rows.count, length), np.uint8, data, first, (step, 1))
    # Arrow's pool gives back memory that was used before; new pages would cost as much as the copy.
    copied = pa.allocate_buffer(size)
    np.copyto(np.frombuffer(copied, np.uint8).reshape(payloads.shape), payloads)
    edges = np.arange(0, size + length, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows.count, [None, pa.py_buffer(edges), copied])
