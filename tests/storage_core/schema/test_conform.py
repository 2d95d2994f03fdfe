"""Rows made to fit a schema: what writers pass in, and what older frames hold."""

from __future__ import annotations

import datetime
import decimal
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.errors import InvalidSchemaError, SchemaMismatchError, UnsupportedTypeError
from storage_core.schema.conform import check_fits, conform, read_column, read_up
from storage_core.schema.evolution import evolve
from storage_core.schema.fields import Field, SchemaVersion, from_arrow
from storage_core.schema.rows import TypedRows, concat
from tests.support.typed.random_schemas import batches, schemas


def version(*fields: pa.Field | tuple[str, pa.DataType]) -> SchemaVersion:
    return SchemaVersion(1, from_arrow(pa.schema(list(fields))))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def pylist(rows: TypedRows) -> list[dict[str, Any]]:
    found = rows.to_batch()
    found.validate(full=True)
    assert found.num_rows == rows.count
    assert found.schema.equals(rows.schema.arrow)
    return [dict(row) for row in found.to_pylist()]


def test_columns_are_found_by_name_and_missing_ones_are_null() -> None:
    schema = version(("a", pa.int64()), ("B c", pa.string()), ("d", pa.list_(pa.int8())))
    rows = conform(
        pa.RecordBatch.from_arrays([pa.array(["x", None]), pa.array([1, 2])], ["b C", "a"]), schema
    )
    assert pylist(rows) == [{"a": 1, "B c": "x", "d": None}, {"a": 2, "B c": None, "d": None}]
    assert rows.arrays[2] is None


ns = pa.timestamp("ns", tz="Asia/Seoul")
LOSSLESS = [
    (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
    (pa.array([200, None], pa.uint8()), pa.int16(), [200, None]),
    (pa.array([200, None], pa.uint8()), pa.int64(), [200, None]),
    (pa.array([1.5, None], pa.float16()), pa.float64(), [1.5, None]),
    (pa.array([1.5, None], pa.float32()), pa.float64(), [1.5, None]),
    (pa.array([1000, None], ns), pa.timestamp("us", tz="UTC"), None),
    (pa.array([1, None], pa.timestamp("s")), pa.timestamp("us"), None),
    (pa.array([86_400_000], pa.date64()), pa.date32(), [datetime.date(1970, 1, 2)]),
    (pa.array([1, None], pa.duration("s")), pa.duration("us"), None),
    (
        pa.array([decimal.Decimal("1.5")], pa.decimal64(10, 1)),
        pa.decimal128(38, 10),
        [decimal.Decimal("1.5")],
    ),
    (
        pa.array([decimal.Decimal(10**37)], pa.decimal256(38, 0)),
        pa.decimal128(38, 0),
        [decimal.Decimal(10**37)],
    ),
    (pa.array(["a", None], pa.large_string()), pa.string(), ["a", None]),
    (pa.array(["a", None], pa.string_view()), pa.string(), ["a", None]),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary(), [b"ab", None]),
    (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
    (pa.array([None, None], pa.null()), pa.struct([("x", pa.int8())]), [None, None]),
    (pa.array([[1], None, [2, 3]], pa.list_view(pa.int8())), pa.list_(pa.int16()), None),
    (pa.array([[1], None, [2, 3]], pa.large_list_view(pa.int8())), pa.list_(pa.int8()), None),
    (pa.array([[1], None, [], [2]], pa.large_list(pa.int8())), pa.list_(pa.int8()), None),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)), pa.list_(pa.int64()), None),
    (
        pa.array([[("a", 1)], None, [("b", None), ("c", 2)]], pa.map_(pa.string(), pa.int8())),
        pa.map_(pa.string(), pa.int64()),
        None,
    ),
    (
        pa.array([{"B": 1, "a": ["x"]}, None, {"B": None, "a": None}]),
        pa.struct([("a", pa.list_(pa.string())), ("b", pa.int64()), ("c", pa.int8())]),
        [{"a": ["x"], "b": 1, "c": None}, None, {"a": None, "b": None, "c": None}],
    ),
]


@pytest.mark.parametrize(("array", "kind", "expected"), LOSSLESS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("skip", [0, 1])
def test_values_are_widened_without_loss(
    array: pa.Array, kind: pa.DataType, expected: list[object] | None, skip: int
) -> None:
    found = array.to_pylist() if expected is None else expected
    rows = conform(batch(c=array.slice(skip)), version(("c", kind)))
    assert [row["c"] for row in pylist(rows)] == found[skip:]


def test_runs_are_decoded() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), pa.array(["a", None]))
    rows = conform(batch(c=runs), version(("c", pa.string())))
    assert [row["c"] for row in pylist(rows)] == ["a", "a", None]


REFUSED = [
    (pa.array([1]), pa.int32(), "found bigint, wanted int"),
    (pa.array([1.5]), pa.float32(), "found double, wanted float"),
    (pa.array(["1"]), pa.int32(), "found string, wanted int"),
    (pa.array([1001], pa.timestamp("ns")), pa.timestamp("us"), "would lose data"),
    (pa.array([1], pa.date64()), pa.date32(), "whole number of days"),
    (pa.array([1], pa.timestamp("us")), pa.timestamp("us", tz="UTC"), "wanted timestamp"),
    (pa.array([{"x": 1, "y": 2}]), pa.struct([("x", pa.int64())]), r"c\.y: .*no such column"),
]


@pytest.mark.parametrize(("array", "kind", "says"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_does_not_fit_is_refused_in_one_line(
    array: pa.Array, kind: pa.DataType, says: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=says) as refused:
        conform(batch(c=array), version(("c", kind)))
    assert "column c" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_double_and_unsupported_columns_are_refused() -> None:
    schema = version(("a", pa.int64()))
    one = pa.array([1])
    with pytest.raises(SchemaMismatchError, match="column b: found bigint, but the topic has no"):
        conform(batch(a=one, b=one), schema)
    with pytest.raises(InvalidSchemaError, match="differ only in case"):
        conform(batch(a=one, A=one), schema)
    with pytest.raises(UnsupportedTypeError, match="column a: found type time64"):
        conform(batch(a=pa.array([1], pa.time64("us"))), schema)


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def test_a_null_in_a_not_null_column_is_refused_at_every_depth() -> None:
    schema = version(
        required("a", pa.int64()),
        ("l", pa.list_(required("element", pa.int64()))),
        ("s", pa.struct([required("x", pa.int64())])),
        ("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    )
    good = pa.array([1, 2, 3])
    fine = conform(
        batch(
            a=good,
            l=pa.array([[1], None, []]),
            s=pa.array([{"x": 1}, None, None]),
            m=pa.array([None, [("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        ),
        schema,
    )
    assert pylist(fine)[1] == {"a": 2, "l": None, "s": None, "m": [("k", 1)]}
    with pytest.raises(SchemaMismatchError, match="column a: found a null in row 1, wanted bigint"):
        conform(batch(a=pa.array([1, None, 3])), schema)
    with pytest.raises(SchemaMismatchError, match="column a: found a null in row 0"):
        conform(batch(a=pa.nulls(3)), schema)
    with pytest.raises(SchemaMismatchError, match="column a: found no such column"):
        conform(batch(l=pa.nulls(3)), schema)
    with pytest.raises(SchemaMismatchError, match=r"column s\.x: found no such column"):
        check_fits(pa.schema([("a", pa.int64()), ("s", pa.struct([]))]), schema, topic="t")
    nested: dict[str, pa.Array] = {
        "l.element": pa.array([[1], None, [2, None]]),
        "s.x": pa.array([{"x": 1}, None, {"x": None}]),
        "m.value": pa.array([None, [("k", None)], None], pa.map_(pa.string(), pa.int64())),
    }
    for path, array in nested.items():
        with pytest.raises(
            SchemaMismatchError, match=f"column {path}: found a null, wanted bigint"
        ):
            conform(pa.RecordBatch.from_arrays([good, array], ["a", path[0]]), schema)
        # The null is in the last row but one, so a slice without it fits.
        head = pa.RecordBatch.from_arrays([good, array], ["a", path[0]]).slice(0, 1)
        assert conform(head, schema).count == 1


def test_entries_under_a_null_list_do_not_count() -> None:
    entries = pa.array([1, None, 3])
    bits = pa.py_buffer(bytes([0b101]))
    starts = pa.py_buffer(np.array([0, 1, 2, 3], dtype=np.int32))
    kind = pa.list_(pa.int64())
    array = pa.Array.from_buffers(kind, 3, [bits, starts], children=[entries])
    schema = version(("l", pa.list_(required("element", pa.int64()))))
    rows = conform(batch(l=array), schema)
    assert [row["l"] for row in pylist(rows)] == [[1], None, [3]]
    assert conform(batch(l=array.slice(1)), schema).count == 2


def test_a_map_whose_pairs_are_a_slice_keeps_its_pairs() -> None:
    fields = [required("key", pa.string()), pa.field("value", pa.int64())]
    pairs = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([1, 2, 3])], fields=fields
    )
    starts = pa.py_buffer(np.array([0, 2], dtype=np.int32))
    kind = pa.map_(pa.string(), pa.int64())
    array = pa.Array.from_buffers(kind, 1, [None, starts], children=[pairs.slice(1)])
    rows = conform(batch(m=array), version(("m", kind)))
    assert pylist(rows) == [{"m": [("b", 2), ("c", 3)]}]


def test_unsound_arrays_are_refused() -> None:
    starts = pa.py_buffer(np.array([0, 9, 3], dtype=np.int32))
    back = pa.Array.from_buffers(pa.string(), 2, [None, starts, pa.py_buffer(b"abc")])
    latin = pa.Array.from_buffers(
        pa.string(),
        1,
        [None, pa.py_buffer(np.array([0, 1], dtype=np.int32)), pa.py_buffer(b"\xe9")],
    )
    big = pa.Array.from_buffers(
        pa.decimal128(2, 0), 1, [None, pa.py_buffer(b"\xff" * 15 + b"\x7f")]
    )
    turning = pa.py_buffer(np.array([0, 3, 1, 2], dtype=np.int32))
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()), 3, [None, turning], children=[pa.array([1, 2, 3])]
    )
    inside = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), latin)
    struct = pa.StructArray.from_arrays([inside], ["inner"])
    for array in (back, latin, big, lists, inside, struct):
        with pytest.raises(SchemaMismatchError, match=r"column c: found .* cannot be stored") as no:
            conform(batch(c=array), version(("c", array.type)))
        assert "\n" not in str(no.value)


def test_only_the_rows_of_a_slice_are_checked() -> None:
    """Else a large table that comes in many slices is checked as a whole for each of them."""
    text = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.py_buffer(np.array([0, 1, 2], dtype=np.int32)), pa.py_buffer(b"a\xe9")],
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), text)
    schema = version(("c", lists.type))
    assert pylist(conform(batch(c=lists).slice(0, 1), schema)) == [{"c": ["a"]}]
    with pytest.raises(SchemaMismatchError, match="cannot be stored"):
        conform(batch(c=lists).slice(1, 1), schema)


def test_rows_without_columns_and_without_rows() -> None:
    assert conform(pa.RecordBatch.from_pylist([], schema=pa.schema([])), version()).count == 0
    schema = version(required("a", pa.int64()), ("m", pa.map_(pa.string(), pa.int8())))
    rows = conform(pa.RecordBatch.from_pylist([], schema=schema.arrow), schema)
    assert rows.count == 0
    assert pylist(rows) == []
    assert rows.bounds.tolist() == [0]


@given(st.data())
def test_rows_are_those_of_the_batch(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    found = data.draw(batches(schema))
    topic = SchemaVersion(1, from_arrow(schema))
    rows = conform(found, topic)
    plain = found.to_pylist()
    assert repr(pylist(rows)) == repr(plain)
    assert len(rows.bounds) == rows.count + 1
    assert (np.diff(rows.bounds) >= 0).all()
    low = data.draw(st.integers(0, rows.count))
    high = data.draw(st.integers(low, rows.count))
    part = rows.slice(low, high)
    assert repr(pylist(part)) == repr(plain[low:high])
    sizes = np.diff(rows.bounds).tolist()
    fresh = TypedRows(topic, part.arrays, part.count)
    assert np.diff(fresh.bounds).tolist() == np.diff(part.bounds).tolist() == sizes[low:high]
    if rows.count:
        picks = data.draw(st.lists(st.integers(0, rows.count - 1), max_size=6))
        taken = rows.take(np.array(picks, dtype=np.int64))
        assert repr(pylist(taken)) == repr([plain[pick] for pick in picks])
        assert np.diff(taken.bounds).tolist() == [sizes[pick] for pick in picks]
    assert repr(pylist(concat([part, rows, part]))) == repr(
        [*plain[low:high], *plain, *plain[low:high]]
    )


@given(st.data())
def test_rows_of_an_older_schema_are_read_as_the_newest(data: st.DataObject) -> None:
    schema, more = data.draw(schemas()), data.draw(schemas())
    old = SchemaVersion(1, from_arrow(schema))
    rows = conform(data.draw(batches(schema)), old)
    try:
        new = evolve(old, from_arrow(more), add=True, widen=True, next_id=old.max_id + 1, version=2)
    except SchemaMismatchError:
        return
    # Written through the new schema at once, or through the old one and read up: the same.
    direct = conform(rows.to_batch(), new)
    arrays = [
        None
        if field.id not in old.positions
        else read_up(rows.column(old.positions[field.id]), old.by_id[field.id], field)
        for field in new.fields
    ]
    assert repr(pylist(TypedRows(new, arrays, rows.count))) == repr(pylist(direct))


def test_inner_fields_are_read_by_id() -> None:
    (old,) = from_arrow(pa.schema([("s", pa.list_(pa.struct([("x", pa.int8())])))]))
    element, x = old.children[0], old.children[0].children[0]
    another = Field(9, "x", pa.int64())
    wide = Field(x.id, "renamed", pa.int64())
    struct = pa.struct([another.arrow, wide.arrow])
    inner = Field(element.id, "element", struct, children=(another, wide))
    new = Field(old.id, "s", pa.list_(inner.arrow), children=(inner,))
    array = pa.array([None, [{"x": 1}, None], [], [{"x": 2}]], old.type).slice(1)
    assert read_up(array, old, new).to_pylist() == [
        [{"x": None, "renamed": 1}, None],
        [],
        [{"x": None, "renamed": 2}],
    ]


def test_a_column_that_was_void_is_read_as_such_while_it_is_null() -> None:
    stored, void = Field(1, "n", pa.int32()), Field(1, "n", pa.null())
    assert read_column(pa.nulls(2, pa.int32()), stored, void).equals(pa.nulls(2))
    with pytest.raises(SchemaMismatchError, match="column n: found a value of int that does not"):
        read_column(pa.array([None, 5], pa.int32()), stored, void)


def test_two_thousand_columns_are_quick() -> None:
    wide = pa.schema([(f"column {number}", pa.list_(pa.int32())) for number in range(2000)])
    topic = SchemaVersion(1, from_arrow(wide))
    array = pa.array([[1, 2], None, [3]], pa.list_(pa.int32()))
    found = pa.RecordBatch.from_arrays([array] * 2000, schema=wide)
    started = time.perf_counter()
    for _ in range(10):
        rows = conform(found, topic)
        assert rows.size == 2000 * 3 * 8
    assert time.perf_counter() - started < 5
