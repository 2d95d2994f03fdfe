"""Statistics bound the values that they describe, and survive nothing but their own text."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.schema.statistics import (
    MAX_BYTES,
    ColumnStatistics,
    column_statistics,
    from_json,
    merge,
    to_json,
)

LONG = st.integers(-(2**63), 2**63 - 1)
LETTERS = st.sampled_from(["", "a", "é", "€", "😀", "\x7f", "\ud7ff", "\uffff", "\U0010ffff", "\0"])
TEXTS = st.lists(LETTERS, max_size=90).map("".join) | st.text(max_size=90)
BYTES = st.binary(max_size=80) | st.integers(0, 80).map(lambda size: b"\xff" * size)
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): LONG,
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(38, 10): st.integers(1 - 10**38, 10**38 - 1).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -10))
    ),
    pa.decimal128(38, 38): st.integers(1 - 10**38, 10**38 - 1).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -38))
    ),
    pa.string(): TEXTS,
    pa.binary(): BYTES,
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.timestamp("us", tz="UTC"): LONG,
    pa.timestamp("us"): LONG,
    pa.duration("us"): LONG,
}


def make(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    return pa.array(values, kind)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    kind = draw(st.sampled_from(list(COLUMNS)))
    return kind, draw(st.lists(st.none() | COLUMNS[kind], max_size=6))


def known(kind: pa.DataType, values: list[Any]) -> ColumnStatistics:
    found = column_statistics(make(kind, values))
    assert found is not None
    return found


def check(found: ColumnStatistics, values: list[Any]) -> None:
    """What statistics say of the values is so."""
    present = [value for value in values if value is not None]
    numbers = [value for value in present if value == value]
    assert found.nulls == len(values) - len(present)
    assert found.has_nan == (len(numbers) < len(present))
    assert (found.minimum is None) == (not numbers)
    for value in numbers:
        assert type(found.minimum) is type(value)
        assert found.minimum <= value
        assert found.maximum is None or value <= found.maximum


@given(columns())
def test_statistics_bound_every_value(column: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = column
    found = known(kind, values)
    check(found, values)
    numbers = [value for value in values if value is not None and value == value]
    if numbers and kind not in (pa.string(), pa.binary()):
        assert (found.minimum, found.maximum) == (min(numbers), max(numbers))


@given(columns(), st.data())
def test_merged_statistics_bound_the_values_of_both(
    column: tuple[pa.DataType, list[Any]], data: st.DataObject
) -> None:
    kind, values = column
    cut = data.draw(st.integers(0, len(values)))
    merged = merge(known(kind, values[:cut]), known(kind, values[cut:]))
    assert merged is not None
    check(merged, values)


@given(st.lists(columns(), max_size=3))
def test_the_json_form_gives_the_same_statistics_back(
    found: list[tuple[pa.DataType, list[Any]]],
) -> None:
    statistics = {number: known(*column) for number, column in enumerate(found)}
    assert from_json(to_json(statistics)) == statistics
    assert from_json(to_json(statistics).encode()) == statistics


@given(columns(), st.data())
def test_any_text_is_statistics_or_nothing(
    column: tuple[pa.DataType, list[Any]], data: st.DataObject
) -> None:
    text = to_json({1: known(*column)})
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 3)))
    changed = text[:start] + data.draw(st.text('[]{}",:-.019Eeabnsx\\', max_size=3)) + text[end:]
    found = from_json(changed)
    if found is not None:
        assert from_json(to_json(found)) == found
        for each in found.values():
            assert each.maximum is None or each.minimum <= each.maximum


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "null",
        "[]",
        "[" * 100_000,
        '{"1":' * 100_000,
        b"\xff\xfe",
        '{"1":["i",0,0,1,2],"1":["i",0,0,1,2]}',
        '{"01":["i",0,0,1,2]}',
        '{"-1":["i",0,0,1,2]}',
        '{"²":["i",0,0,1,2]}',
        '{"4294967296":["i",0,0,1,2]}',
        '{"1":["i",0,0,2,1]}',
        '{"1":["i",0,0,1,null]}',
        '{"1":["i",0,0,null,1]}',
        '{"1":["i",0,0,true,true]}',
        '{"1":["i",-1,0,1,2]}',
        '{"1":["i",true,0,1,2]}',
        '{"1":["i",0,2,1,2]}',
        '{"1":["i",0,1,1,2]}',
        '{"1":["i",0,0,1.0,2.0]}',
        '{"1":["i",0,0]}',
        '{"1":["i",0,0,' + "9" * 5000 + ",1]}",
        '{"1":["i",0,0,0,9223372036854775808]}',
        '{"1":["f",0,0,1.0,2.0]}',
        '{"1":["f",0,0,"nan","nan"]}',
        '{"1":["f",0,0,"1","2"]}',
        '{"1":["f",0,0,"x","y"]}',
        '{"1":["d",0,0,"NaN","NaN"]}',
        '{"1":["d",0,0,"1e999999","1e9999999"]}',
        '{"1":["s",0,0,"\\ud800","z"]}',
        '{"1":["s",0,0,"","' + "a" * 65 + '"]}',
        '{"1":["x",0,0,"0","00"]}',
        '{"1":["x",0,0,"AA","BB"]}',
        '{"1":["x",0,0,"","' + "00" * 65 + '"]}',
        '{"1":["n",0,0,1,2]}',
        '{"1":["q",0,0,1,2]}',
        '{"1":[["i"],0,0,1,2]}',
        '{"1":["i",0,NaN,1,2]}',
        '{"1":{}}',
    ],
)
def test_a_text_that_we_did_not_write_is_refused(text: str | bytes) -> None:
    assert from_json(text) is None


def test_long_texts_are_cut_between_characters_and_rounded_up() -> None:
    found = known(pa.string(), ["b" * 40, "a" * 63 + "é", "z" * 63 + "\U0010ffff" * 2])
    assert (found.minimum, found.maximum) == ("a" * 63, "z" * 62 + "{")
    found = known(pa.string(), ["\U0010ffff" * 17])
    assert (found.minimum, found.maximum) == ("\U0010ffff" * 16, None)
    found = known(pa.string(), ["\ud7ff" * 30])
    assert (found.minimum, found.maximum) == ("\ud7ff" * 21, "\ud7ff" * 20 + "\ue000")
    found = known(pa.string(), ["\x7f" * 65])
    assert found.maximum == "\x7f" * 62 + "\x80"
    assert len((found.maximum or "").encode()) == MAX_BYTES
    found = known(pa.binary(), [b"\xff" * 65])
    assert (found.minimum, found.maximum) == (b"\xff" * 64, None)
    found = known(pa.binary(), [b"a" + b"\xff" * 80])
    assert found.maximum == b"b"


def test_columns_without_values_and_without_rows() -> None:
    for kind in COLUMNS:
        assert known(kind, []) == ColumnStatistics(None, None, 0, False)
        assert known(kind, [None, None]) == ColumnStatistics(None, None, 2, False)
    nan = float("nan")
    assert known(pa.float64(), [nan, None]) == ColumnStatistics(None, None, 1, True)


def test_times_outside_of_datetime_are_numbers() -> None:
    far = 2**62
    assert known(pa.timestamp("us"), [far, -far])[:2] == (-far, far)
    day = datetime.date(1969, 12, 31)
    assert column_statistics(pa.array([day])) == ColumnStatistics(-1, -1, 0)


def test_a_slice_is_described_alone() -> None:
    assert column_statistics(pa.array([9, None, 2, 3])[1:3]) == ColumnStatistics(2, 2, 1)


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.null(), pa.map_("int8", "int8")],
)
def test_other_types_have_no_statistics(kind: pa.DataType) -> None:
    assert column_statistics(pa.nulls(2, kind)) is None


def test_statistics_of_different_kinds_do_not_merge() -> None:
    number, text = ColumnStatistics(1, 2, 0), ColumnStatistics("a", "b", 0)
    assert merge(number, text) is None
    assert merge(None, number) is None
    assert merge(number, ColumnStatistics(None, None, 3)) == ColumnStatistics(1, 2, 3)
    assert merge(text, ColumnStatistics("b", None, 1)) == ColumnStatistics("a", None, 1)


def test_the_text_is_short() -> None:
    statistics = {1: ColumnStatistics(1, 2, 0), 2: ColumnStatistics(0.5, float("inf"), 1, True)}
    assert to_json(statistics) == '{"1":["i",0,0,1,2],"2":["f",1,1,"0.5","inf"]}'
    assert json.loads(to_json({})) == {}
