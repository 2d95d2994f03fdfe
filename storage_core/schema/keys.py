"""The key of a typed row as bytes, and which rows are tombstones.

The bytes choose the partition (murmur2) and tell compaction which rows have one key. They stand
byte by byte in ``docs/format.md``. Two rows have equal bytes if and only if Spark groups them
together: NaN equals NaN, -0.0 equals 0.0, null equals null. Only collations are not looked at:
texts are equal if their bytes are. Wider types of the same values give the same bytes, and so do
new fields that are null, so a key keeps its partition when the schema evolves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..errors import InvalidSchemaError
from ..format.numbers import bounds_of, is_present, lengths_of, numbers_of, raw_values, starts_of
from .fields import Field, dotted, sql_type, walk
from .nesting import children_of, entries_of
from .rows import TypedRows

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Mask = npt.NDArray[np.bool_]

NULL, FALSE, TRUE, INTEGER, FLOAT, DECIMAL, STRING, BINARY = range(8)
DATE, TIMESTAMP, TIMESTAMP_NTZ, DURATION, LIST, STRUCT = range(8, 14)

_NAN = np.uint64(0x7FF8000000000000)
# A whole number of 10**-38: every decimal of up to 38 digits is one, and it fits in 32 bytes.
_WIDEST_DECIMAL = pa.decimal256(76, 38)
_DECIMAL_BYTES = 32
_MOST_BYTES = (1 << 31) - 1


def check_key_columns(fields: Sequence[Field], key_columns: Sequence[str]) -> None:
    """Refuse key columns that a topic cannot have.

    Raises:
        InvalidSchemaError: a name is unknown, there twice, or of a type without equality.
    """
    by_name = {field.name: field for field in fields}
    for place, name in enumerate(key_columns):
        field = by_name.get(name)
        if field is None:
            raise InvalidSchemaError(
                f"key column {dotted((name,))}: the schema has no such column. Names are exact."
            )
        if name in key_columns[:place]:
            raise InvalidSchemaError(f"key column {dotted((name,))} is there twice.")
        for inner in walk([field]):
            if pa.types.is_map(inner.type) or pa.types.is_null(inner.type):
                raise InvalidSchemaError(
                    f"key column {dotted((name,))}: found type {sql_type(inner.type)}, whose "
                    "values cannot be compared. Choose another column."
                )


def key_bytes(rows: TypedRows, key_columns: Sequence[str]) -> pa.BinaryArray:
    """The canonical bytes of the key of each row, none of them null."""
    parts = []
    for name in key_columns:
        field = rows.schema.names[name]
        parts.append(_encode(rows.column(rows.schema.positions[field.id]), field))
    return _join(parts, rows.count)


def tombstones(rows: TypedRows, key_columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows delete their key: all columns but the key columns are null."""
    keys = set(key_columns)
    found: Mask = np.ones(rows.count, dtype=np.bool_)
    for field, array in zip(rows.schema.fields, rows.arrays, strict=True):
        if array is None or field.name in keys or array.null_count == rows.count:
            continue
        if array.null_count == 0:
            return np.zeros(rows.count, dtype=np.bool_)
        found &= ~is_present(array)
    return found


def _encode(array: pa.Array, field: Field) -> pa.BinaryArray:
    """The bytes of each value, its tag first; a null is the single byte 0."""
    kind = field.type
    if array.null_count == len(array):
        return _binary(np.full((len(array), 1), NULL, dtype=np.uint8))
    if pa.types.is_struct(kind):
        return _encode_struct(array, field)
    if pa.types.is_string(kind):
        return _with_length(STRING, array, lengths_of(array), array.cast(pa.binary()))
    if pa.types.is_binary(kind):
        return _with_length(BINARY, array, lengths_of(array), array)
    if pa.types.is_list(kind):
        return _encode_list(array, field)
    rows = _fixed(array, kind)
    return _binary(rows) if array.null_count == 0 else _shorten(rows, is_present(array))


def _fixed(array: pa.Array, kind: pa.DataType) -> Bytes:
    """One row of bytes for each value of a type of fixed width; nonsense where it is null."""
    if pa.types.is_boolean(kind):
        bits = np.frombuffer(array.buffers()[1], dtype=np.uint8)
        end = array.offset + len(array)
        values = np.unpackbits(bits, count=end, bitorder="little")[array.offset :]
        return (values + np.uint8(FALSE)).reshape(-1, 1)
    if pa.types.is_integer(kind):
        return _tagged(INTEGER, numbers_of(array).astype("<i8"))
    if pa.types.is_floating(kind):
        return _tagged(FLOAT, _canonical_floats(raw_values(array, f"<f{kind.bit_width // 8}")))
    if pa.types.is_decimal(kind):
        wide = array.cast(_WIDEST_DECIMAL)
        return _tagged(DECIMAL, raw_values(wide, f"V{_DECIMAL_BYTES}"))
    if pa.types.is_date(kind):
        return _tagged(DATE, raw_values(array, "<i4"))
    if pa.types.is_timestamp(kind):
        return _tagged(TIMESTAMP if kind.tz else TIMESTAMP_NTZ, raw_values(array, "<i8"))
    if pa.types.is_duration(kind):
        return _tagged(DURATION, raw_values(array, "<i8"))
    raise InvalidSchemaError(f"values of type {sql_type(kind)} cannot be part of a key.")


def _canonical_floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        wide = values.astype("<f8")
    wide[wide == 0.0] = 0.0
    wide.view("<u8")[np.isnan(wide)] = _NAN
    return wide


def _tagged(tag: int, values: npt.NDArray[Any]) -> Bytes:
    values = np.ascontiguousarray(values)
    rows = np.empty((len(values), 1 + values.dtype.itemsize), dtype=np.uint8)
    rows[:, 0] = tag
    rows[:, 1:] = values.view(np.uint8).reshape(len(values), -1)
    return rows


def _binary(rows: Bytes) -> pa.BinaryArray:
    """Rows of one width as a binary array."""
    count, width = rows.shape
    return _binary_of(np.arange(count + 1, dtype=np.int64) * width, rows.reshape(-1))


def _binary_of(bounds: npt.NDArray[Any], data: Bytes) -> pa.BinaryArray:
    if int(bounds[-1]) > _MOST_BYTES:
        raise pa.ArrowInvalid(f"the keys have {int(bounds[-1])} bytes; write fewer rows at once")
    starts = pa.py_buffer(bounds.astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, starts, pa.py_buffer(np.ascontiguousarray(data))]
    )


def _shorten(rows: Bytes, present: Mask) -> pa.BinaryArray:
    """Rows of bytes where the absent ones are the single byte of a null."""
    rows[~present, 0] = NULL
    keep = np.ones(rows.shape, dtype=np.bool_)
    keep[~present, 1:] = False
    return _binary_of(bounds_of(np.where(present, rows.shape[1], 1)), rows[keep])


def _with_length(
    tag: int, array: pa.Array, lengths: npt.NDArray[Any], content: pa.BinaryArray
) -> pa.BinaryArray:
    """The tag, a length or count in four bytes, the content; where the array is null only a 0."""
    heads = _tagged(tag, lengths.astype("<u4"))
    if array.null_count == 0:
        return _join([_binary(heads), content], len(array))
    return _join([_shorten(heads, is_present(array)), content], len(array))


def _join(parts: Sequence[pa.BinaryArray], count: int) -> pa.BinaryArray:
    """The bytes of all parts of each row, one after another; a null has none."""
    if not parts:
        return _binary(np.empty((count, 0), dtype=np.uint8))
    if len(parts) == 1:
        return parts[0]
    import pyarrow.compute as pc  # only topics with key columns need it

    total = sum(int(starts[-1]) - int(starts[0]) for starts in map(starts_of, parts))
    if total > _MOST_BYTES:
        raise pa.ArrowInvalid(f"the keys have {total} bytes; write fewer rows at once")
    empty = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*parts, empty, null_handling="replace", null_replacement=b"")


def _encode_list(array: pa.Array, field: Field) -> pa.BinaryArray:
    starts = starts_of(array)
    elements = _encode(entries_of(array), field.children[0])
    # The elements of a row stand one after another already.
    bounds = starts_of(elements)[starts - starts[0]]
    bits = pa.py_buffer(np.packbits(is_present(array), bitorder="little"))
    content = pa.Array.from_buffers(
        pa.binary(), len(array), [bits, pa.py_buffer(bounds), elements.buffers()[2]]
    )
    return _with_length(LIST, array, lengths_of(array), content)


def _encode_struct(array: pa.Array, field: Field) -> pa.BinaryArray:
    """Only the fields that are not null, each after its id, the lowest id first."""
    present = is_present(array)
    counts = np.zeros(len(array), dtype=np.int64)
    parts = []
    pairs = zip(field.children, children_of(array), strict=True)
    for child, values in sorted(pairs, key=lambda pair: pair[0].id):
        if values.null_count == len(values):
            continue
        there = present & is_present(values)
        counts += there
        number = np.frombuffer(np.uint32(child.id).tobytes(), dtype=np.uint8)
        heads = np.broadcast_to(number, (len(array), 4))[there].reshape(-1)
        parts.append(_binary_of(bounds_of(there * np.int64(4)), heads))
        parts.append(_where(_encode(values, child), there))
    content = _join(parts, len(array))
    return _with_length(STRUCT, array, counts, content)


def _where(array: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    if present.all():
        return array
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    _, starts, data = array.buffers()
    return pa.Array.from_buffers(pa.binary(), len(array), [bits, starts, data], offset=0)
