"""The broker's own fields as record headers, and back.

Headers are ``producer, seq, epoch, event_type, schema_version, aggregate_version, metadata`` and
``txn_id``, in this order: texts as their bytes, numbers in decimal. The broker has no null, so what
is empty or zero is left out, a record with none of them has no headers at all, and on the way back
an empty, zero or null header is the same as none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidRecordError, UnsupportedColumnError
from ...format.columns import HEADER, HEADERS
from ...types import Int64s
from .records import Bodies, Bools, Ints

NUMBER_TYPES = {
    "seq": pa.uint64(),
    "epoch": pa.int64(),
    "schema_version": pa.uint32(),
    "aggregate_version": pa.uint64(),
}
NAMES = tuple(
    "producer seq epoch event_type schema_version aggregate_version metadata txn_id".split()
)


class Fields(NamedTuple):
    """Broker fields taken from headers; a field that no record has is missing."""

    texts: dict[str, pa.BinaryArray]
    numbers: dict[str, Ints]


def headers_column(data: pa.Buffer, bodies: Bodies) -> pa.ListArray:
    """Headers of parsed bodies; null where a record has none."""
    present: list[Bools] = []
    values: list[pa.Array] = []
    codes: list[int] = []
    for code, name in enumerate(NAMES):
        if name in NUMBER_TYPES:
            numbers = bodies.number(name)
            here = numbers != 0
        else:
            here = bodies.text(name).lengths > 0
        if not here.any():
            continue
        present.append(here)
        codes.append(code)
        values.append(
            _decimal(numbers[here], name)
            if name in NUMBER_TYPES
            else _texts(data, bodies, name, here)
        )
    if not codes:
        return pa.nulls(bodies.count, HEADERS)
    return _assemble(np.array(codes), np.stack(present, axis=1), values)


def _decimal(numbers: Ints, name: str) -> pa.Array:
    kind = NUMBER_TYPES[name]
    first = numbers[0]
    if (numbers == first).all():
        return pa.repeat(pa.scalar(str(first).encode(), pa.binary()), len(numbers))
    return pa.array(numbers, type=kind).cast(pa.string()).cast(pa.binary())


def _texts(data: pa.Buffer, bodies: Bodies, name: str, here: Bools) -> pa.Array:
    slices = bodies.text(name)
    column = slices.column(data)
    return column if here.all() else column.filter(pa.array(here))


def _assemble(codes: Int64s, present: Bools, values: list[pa.Array]) -> pa.ListArray:
    """Lists of headers from one array of values per field; ``present`` is records × fields."""
    counts = present.sum(axis=1)
    edges = np.zeros(len(present) + 1, dtype=np.int32)
    np.cumsum(counts, out=edges[1:])
    _, fields = np.nonzero(present)
    # Value of record r, field f: the values of f before it, after all values of fields before f.
    ranks = np.cumsum(present, axis=0) - 1
    ranks += np.concatenate(([0], np.cumsum([len(array) for array in values])))[:-1]
    names = pa.array(NAMES).take(pa.array(codes[fields]))
    taken = pa.concat_arrays(values).take(pa.array(ranks[present]))
    entries = pa.StructArray.from_arrays([names, taken], fields=list(HEADER))
    valid = None
    if not counts.all():
        valid = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(
        HEADERS, len(present), [valid, pa.py_buffer(edges)], children=[entries]
    )


def fields_from_headers(headers: pa.ListArray | None, count: int) -> Fields:
    """Map headers back to broker fields.

    Raises:
        UnsupportedColumnError: a header has a name that the broker has no field for.
        InvalidRecordError: a record has a header twice, or a number that is not one.
    """
    fields = Fields({}, {})
    if headers is None or headers.null_count == len(headers):
        return fields
    entries = headers.flatten()
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(count), lengths)
    codes = pc.index_in(entries.field("key"), value_set=pa.array(NAMES))
    if codes.null_count:
        name = entries.field("key")[pc.index(codes.is_null(), True).as_py()].as_py()
        raise UnsupportedColumnError(
            f"layout cursus-broker cannot store the header {name!r} of column headers. It has "
            f"fields only for {', '.join(NAMES)}."
        )
    code = codes.to_numpy()
    for index in np.unique(code):
        which, name = np.flatnonzero(code == index), NAMES[index]
        if len(which) > 1 and not (np.diff(rows[which]) > 0).all():
            raise InvalidRecordError(f"a record has the header {name!r} twice. Keep one of them.")
        values = pc.fill_null(entries.field("value").take(pa.array(which)), b"")
        if name in NUMBER_TYPES:
            fields.numbers[name] = _numbers(name, values, rows[which], count)
        else:
            places = np.full(count, -1)
            places[rows[which]] = np.arange(len(which))
            taken = values.take(pa.array(places, mask=places < 0))
            fields.texts[name] = pc.fill_null(taken, b"")
    return fields


def _numbers(name: str, values: pa.Array, rows: Int64s, count: int) -> Ints:
    kind = NUMBER_TYPES[name]
    filled = pc.not_equal(pc.binary_length(values), 0)
    try:
        texts = values.filter(filled).cast(pa.string())
        numbers = texts.cast(kind)
        if not numbers.cast(pa.string()).equals(texts):
            raise pa.ArrowInvalid("leading zeros or signs")
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(
            f"header {name!r} must be a plain decimal number of type {kind}: {error}"
        ) from error
    result: Ints = np.zeros(count, dtype=kind.to_pandas_dtype())
    result[rows[filled.to_numpy(zero_copy_only=False)]] = numbers.to_numpy(zero_copy_only=False)
    return result
