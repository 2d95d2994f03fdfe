"""The bytes of keys, against a second encoder that takes one value at a time."""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage_core.errors import InvalidSchemaError
from storage_core.schema.conform import conform, read_up
from storage_core.schema.evolution import evolve
from storage_core.schema.fields import Field, SchemaVersion, from_arrow, walk
from storage_core.schema.keys import check_key_columns, key_bytes, tombstones
from storage_core.schema.rows import TypedRows
from tests.support.typed.random_schemas import batches, schemas

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)


def keys_of(batch: pa.RecordBatch, key_columns: list[str]) -> list[bytes]:
    found = key_bytes(conform(batch, SchemaVersion(1, from_arrow(batch.schema))), key_columns)
    found.validate(full=True)
    assert found.null_count == 0
    return list(found.to_pylist())


def one_column(*values: object, kind: pa.DataType) -> list[bytes]:
    return keys_of(pa.record_batch({"k": pa.array(values, kind)}), ["k"])


def plainly(value: Any, field: Field) -> bytes:
    """The bytes of one value, as docs/format.md has them."""
    kind, types = field.type, pa.types
    if value is None:
        return b"\0"
    if types.is_boolean(kind):
        return b"\2" if value else b"\1"
    if types.is_integer(kind):
        return b"\3" + struct.pack("<q", value)
    if types.is_floating(kind):
        nan = struct.pack("<Q", 0x7FF8000000000000)
        return b"\4" + (nan if math.isnan(value) else struct.pack("<d", value + 0.0))
    if types.is_decimal(kind):
        sign, digits, exponent = value.as_tuple()
        whole: int = int("".join(map(str, digits))) * 10 ** (38 + exponent)
        return b"\5" + (-whole if sign else whole).to_bytes(32, "little", signed=True)
    if types.is_string(kind) or types.is_binary(kind):
        data: bytes = value.encode() if types.is_string(kind) else value
        return struct.pack("<BI", 6 if types.is_string(kind) else 7, len(data)) + data
    if types.is_date(kind):
        return struct.pack("<Bi", 8, (value - EPOCH.date()).days)
    if types.is_timestamp(kind):
        since = (value.replace(tzinfo=None) - EPOCH) // MICROSECOND
        return struct.pack("<Bq", 9 if kind.tz else 10, since)
    if types.is_duration(kind):
        return struct.pack("<Bq", 11, value // MICROSECOND)
    if types.is_list(kind):
        items = [plainly(item, field.children[0]) for item in value]
        return struct.pack("<BI", 12, len(items)) + b"".join(items)
    inner = sorted(field.children, key=lambda child: child.id)
    there = [(child, value[child.name]) for child in inner if value[child.name] is not None]
    pairs = [struct.pack("<I", child.id) + plainly(found, child) for child, found in there]
    return struct.pack("<BI", 13, len(pairs)) + b"".join(pairs)


@given(st.data())
def test_the_bytes_are_those_of_the_document(data: st.DataObject) -> None:
    batch = data.draw(schemas().flatmap(batches))
    version = SchemaVersion(1, from_arrow(batch.schema))
    usable = [
        field
        for field in version.fields
        if not any(pa.types.is_map(f.type) or pa.types.is_null(f.type) for f in walk([field]))
    ]
    assume(usable)
    columns = data.draw(st.permutations(usable))
    names = [field.name for field in columns]
    check_key_columns(version.fields, names)
    wanted = [
        b"".join(plainly(row[field.name], field) for field in columns) for row in batch.to_pylist()
    ]
    assert keys_of(batch, names) == wanted


def test_golden_bytes() -> None:
    assert one_column(5, kind=pa.int8()) == [bytes.fromhex("03 0500000000000000")]
    assert one_column("né", kind=pa.string()) == [bytes.fromhex("06 03000000 6ec3a9")]
    [hundredth] = one_column(Decimal("-0.01"), kind=pa.decimal128(3, 2))
    assert hundredth == b"\5" + (-(10**36)).to_bytes(32, "little", signed=True)
    row = {"u": "ann", "n": None, "s": {"a": True, "b": None, "c": [1.5, None]}}
    batch = pa.RecordBatch.from_pylist([row], schema=GOLDEN)
    assert keys_of(batch, ["u", "n", "s"]) == [
        bytes.fromhex(
            "06 03000000 616e6e000d 0200000004000000 0206000000 0c 02000000 04 000000000000f83f 00"
        )
    ]


GOLDEN = pa.schema(
    [
        ("u", pa.string()),
        ("n", pa.int32()),
        ("s", pa.struct([("a", pa.bool_()), ("b", pa.binary()), ("c", pa.list_(pa.float32()))])),
    ]
)


@pytest.mark.parametrize(
    ("value", "narrow", "wide"),
    [
        (-5, pa.int8(), pa.int64()),
        (-5, pa.int16(), pa.int32()),
        (0.1, pa.float32(), pa.float64()),
        (math.nan, pa.float32(), pa.float64()),
        (Decimal("-12.30"), pa.decimal128(4, 2), pa.decimal128(38, 10)),
        ([1, None], pa.list_(pa.int8()), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_a_wider_type_has_the_same_bytes(
    value: object, narrow: pa.DataType, wide: pa.DataType
) -> None:
    old = SchemaVersion(1, from_arrow(pa.schema([("k", narrow)])))
    new = evolve(
        old, from_arrow(pa.schema([("k", wide)])), add=False, widen=True, next_id=9, version=2
    )
    array = pa.array([value, None], narrow).cast(old.fields[0].type)
    before = TypedRows(old, [array], 2)
    after = TypedRows(new, [read_up(array, old.fields[0], new.fields[0])], 2)
    assert after.column(0).type == new.fields[0].type != array.type
    assert key_bytes(before, ["k"]).equals(key_bytes(after, ["k"]))


def test_a_field_that_is_added_to_a_struct_changes_no_old_key() -> None:
    old = SchemaVersion(1, from_arrow(pa.schema([("k", pa.struct([("b", pa.int8())]))])))
    wider = pa.schema([("k", pa.struct([("b", pa.int8()), ("a", pa.string())]))])
    new = evolve(old, from_arrow(wider), add=True, widen=False, next_id=9, version=2)
    array = pa.array([{"b": 1}, None, {"b": None}]).cast(old.fields[0].type)
    before = TypedRows(old, [array], 3)
    after = TypedRows(new, [read_up(array, old.fields[0], new.fields[0])], 3)
    assert len(after.column(0).type) == 2
    assert key_bytes(before, ["k"]).equals(key_bytes(after, ["k"]))


def test_equal_values_have_equal_bytes_and_others_have_not() -> None:
    signalling = np.array([0x7FF0000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    nan, minus, plus = one_column(math.nan, -0.0, 0.0, kind=pa.float64())
    assert one_column(*signalling, kind=pa.float64()) == [nan, nan]
    assert minus == plus != nan
    assert len(set(one_column(None, 0, 256, -1, kind=pa.int64()))) == 4
    # Where one column ends is part of the bytes.
    batch = pa.record_batch({"a": ["ab", "a"], "b": ["c", "bc"]})
    assert len(set(keys_of(batch, ["a", "b"]))) == 2


def test_no_rows_and_no_key_columns() -> None:
    batch = pa.record_batch({"a": pa.array([], pa.string()), "b": pa.array([], GOLDEN[2].type)})
    assert keys_of(batch, ["a", "b"]) == []
    assert keys_of(pa.record_batch({"a": [1, 2]}), []) == [b"", b""]


def test_what_stands_under_a_null_is_no_part_of_the_key() -> None:
    hidden = pa.array([[1, 2], [3]], pa.list_(pa.int64()))
    nulls = pa.py_buffer(b"\x02")
    array = pa.Array.from_buffers(
        hidden.type, 2, [nulls, hidden.buffers()[1]], children=[hidden.values]
    )
    inner = pa.StructArray.from_arrays([array], ["x"], mask=pa.array([True, False]))
    first, second = keys_of(pa.record_batch({"l": array, "s": inner}), ["l", "s"])
    assert first == b"\0\0"
    assert len(second) == 14 + 5 + 4 + 14


def test_key_columns_that_cannot_be() -> None:
    fields = from_arrow(
        pa.schema(
            [
                ("a b", pa.int8()),
                ("m", pa.list_(pa.map_(pa.string(), pa.int8()))),
                ("void", pa.null()),
            ]
        )
    )
    check_key_columns(fields, ["a b"])
    with pytest.raises(InvalidSchemaError, match="key column A: the schema has no such column"):
        check_key_columns(fields, ["A"])
    with pytest.raises(InvalidSchemaError, match="key column `a b` is there twice"):
        check_key_columns(fields, ["a b", "a b"])
    with pytest.raises(InvalidSchemaError, match="key column m: found type map"):
        check_key_columns(fields, ["m"])
    with pytest.raises(InvalidSchemaError, match="key column void: found type void"):
        check_key_columns(fields, ["void"])
    with pytest.raises(InvalidSchemaError, match="values of type map"):
        keys_of(
            pa.record_batch({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}), ["m"]
        )


@given(st.data())
def test_a_tombstone_has_nothing_but_its_key(data: st.DataObject) -> None:
    batch = data.draw(schemas().flatmap(batches))
    names = data.draw(st.lists(st.sampled_from(batch.schema.names), unique=True))
    rows = conform(batch, SchemaVersion(1, from_arrow(batch.schema)))
    others = [name for name in batch.schema.names if name not in names]
    wanted = [all(row[name] is None for name in others) for row in batch.to_pylist()]
    assert tombstones(rows, names).tolist() == wanted
