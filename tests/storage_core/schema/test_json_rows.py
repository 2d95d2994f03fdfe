"""Rows of typed topics as JSON and back: exact, or refused with the column."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.errors import InvalidRecordError, SchemaMismatchError, StorageError
from storage_core.schema.conform import conform
from storage_core.schema.ddl import parse_ddl
from storage_core.schema.fields import SchemaVersion, from_arrow
from storage_core.schema.json_reader import JsonReader, JsonRow
from storage_core.schema.json_writer import json_rows
from storage_core.schema.rows import TypedRows
from tests.support.typed.random_schemas import batches, schemas

UTC = pa.timestamp("us", tz="UTC")


def read(schema: SchemaVersion, *lines: str) -> TypedRows:
    reader = JsonReader(schema)
    return conform(reader.batch([reader.read(line) for line in lines]), schema)


def read_one(ddl: str, line: str) -> Any:
    rows = read(SchemaVersion(1, parse_ddl(ddl)), line)
    return json_rows(rows)[0]


@given(schemas(depth=3).flatmap(batches))
def test_rows_come_back_equal(batch: pa.RecordBatch) -> None:
    schema = SchemaVersion(1, from_arrow(batch.schema))
    rows = conform(batch, schema)
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in json_rows(rows)]
    again = read(schema, *lines)
    assert again.count == rows.count
    # As text, because NaN is not equal to NaN.
    assert json_rows(again) == json_rows(rows)
    nan = "nan" in str(batch.to_pylist())
    assert nan or again.to_batch().equals(rows.to_batch())


def test_every_type_has_its_form() -> None:
    line = {
        "a": True,
        "b": -(2**63),
        "c": 0.1,
        "d": "Infinity",
        "e": "12.30",
        "f": "é\n",
        "g": "AP8=",
        "h": "1969-12-31",
        "i": "2026-11-01T09:00:00.000001Z",
        "j": "0001-01-01T00:00:00.000000",
        "k": "INTERVAL '-1 02:03:04.500000' DAY TO SECOND",
        "l": [1, None],
        "m": {"x": None, "": 1},
        "n": [{"key": 1, "value": {"s": None}}],
        "o": None,
    }
    ddl = (
        "a BOOLEAN, b BIGINT, c FLOAT, d DOUBLE, e DECIMAL(5,2), f STRING, g BINARY, h DATE, "
        "i TIMESTAMP, j TIMESTAMP_NTZ, k INTERVAL DAY TO SECOND, l ARRAY<INT>, "
        "m MAP<STRING, INT>, n MAP<INT, STRUCT<s: INT>>, o VOID"
    )
    assert read_one(ddl, json.dumps(line)) == line
    # What is not there is null.
    assert read_one(ddl, "{}") == dict.fromkeys(line)


@pytest.mark.parametrize(
    ("ddl", "given", "found"),
    [
        ("a DOUBLE", "3", 3.0),
        ("a DOUBLE", "1e3", 1000.0),
        ("a DOUBLE", '"NaN"', "NaN"),
        ("a DECIMAL(38,0)", "1" * 38, "1" * 38),
        ("a DECIMAL(5,2)", "1.5", "1.50"),
        ("a DECIMAL(5,2)", "1e2", "100.00"),
        ("a DECIMAL(5,2)", "1.500", "1.50"),
        ("a TIMESTAMP", '"2026-11-01 09:00+09:00"', "2026-11-01T00:00:00.000000Z"),
        ("a TIMESTAMP", '"2026-11-01T09:00:00.5"', "2026-11-01T09:00:00.500000Z"),
        ("a TIMESTAMP", '"2026-11-01"', "2026-11-01T00:00:00.000000Z"),
        ("a TIMESTAMP", '"2026-11-01T00:00:00-0130"', "2026-11-01T01:30:00.000000Z"),
        ("a DATE", '"+12026-11-01"', "12026-11-01"),
        ("a MAP<STRING,INT>", '[{"key": "x"}]', {"x": None}),
        ("a STRUCT<Bc: INT>", '{"bC": 1}', {"Bc": 1}),
    ],
)
def test_other_ways_to_write_a_value(ddl: str, given: str, found: Any) -> None:
    assert read_one(ddl, f'{{"A": {given}}}') == {"a": found}


@pytest.mark.parametrize(
    ("ddl", "value", "message"),
    [
        ("a BOOLEAN", "1", "column a: found 1, wanted boolean: true or false."),
        (
            "a TINYINT",
            "128",
            "column a: found 128, wanted tinyint: a whole number from -128 to 127.",
        ),
        ("a INT", "1.0", 'column a: found "1.0", wanted int: a whole number'),
        ("a INT", "true", "column a: found true, wanted int: a whole number"),
        ("a INT", '"1"', 'column a: found "1", wanted int: a whole number'),
        ("a BIGINT", str(2**63), f"column a: found {2**63}, wanted bigint"),
        ("a FLOAT", "1e39", 'found "1E+39", wanted float: a number in its range'),
        ("a DOUBLE", "1e400", "wanted double: a number in its range"),
        ("a DOUBLE", "9" * 400, "wanted double: a number in its range"),
        ("a DOUBLE", '"x"', 'column a: found "x", wanted double'),
        ("a DECIMAL(5,2)", "1.234", "wanted decimal(5,2): a number of at most 3 digits and 2 dec"),
        ("a DECIMAL(5,2)", "1000", "column a: found 1000, wanted decimal(5,2)"),
        ("a DECIMAL(5,2)", '"NaN"', 'column a: found "NaN", wanted decimal(5,2)'),
        ("a DECIMAL(5,2)", '"1e999999999"', "wanted decimal(5,2)"),
        ("a STRING", "1", "column a: found 1, wanted string: a text"),
        ("a STRING", '"\\ud800"', "wanted string: a text of valid Unicode"),
        ("a BINARY", '"é"', "wanted binary: base64 text"),
        ("a DATE", '"2026-02-30"', 'column a: found "2026-02-30", wanted date: a date such as'),
        ("a DATE", '"9999999-01-01"', "wanted date"),
        ("a TIMESTAMP", "1", "column a: found 1, wanted timestamp: ISO 8601 text"),
        ("a TIMESTAMP", '"2026-11-01T24:00:00"', "wanted timestamp"),
        ("a TIMESTAMP", '"2026-11-01T00:00:00.1234567Z"', "wanted timestamp"),
        ("a TIMESTAMP", '"300000-01-01T00:00:00Z"', "wanted timestamp"),
        ("a TIMESTAMP_NTZ", '"2026-11-01T00:00:00Z"', "wanted timestamp_ntz: ISO 8601 text"),
        (
            "a INTERVAL DAY TO SECOND",
            '"1 day"',
            "wanted interval day to second: text such as INTERVAL",
        ),
        ("a ARRAY<INT>", "{}", "column a: found {}, wanted array<int>: a list."),
        ("a ARRAY<INT>", "[1, 1.5]", 'column a.element: found "1.5", wanted int'),
        (
            "a MAP<STRING,INT>",
            "[1]",
            "column a: found [1], wanted map<string,int>: an object, or a list of",
        ),
        (
            "a MAP<INT,INT>",
            '{"1": 1}',
            "wanted map<int,int>: a list of objects with key and value.",
        ),
        ("a MAP<INT,INT>", '[{"key": null}]', "column a.key: found null, wanted int: NOT NULL"),
        ("a STRUCT<b: INT NOT NULL>", "{}", "column a.b: found null or nothing, wanted int NOT"),
        (
            "a STRUCT<b: INT>",
            '{"c": 1}',
            "column a.c: found no such column in the schema. Columns: b",
        ),
        ("a STRUCT<b: INT>", '{"b": 1, "B": 1}', "column a.B: it is also there as 'b'"),
        ("a VOID", "1", "column a: found 1, wanted void: null."),
        ("b INT", "1", "column a: found no such column in the schema. Columns: b."),
        ("a INT, b INT NOT NULL", "1", "column b: found null or nothing, wanted int NOT NULL."),
        ("a STRING", "[" + '"x",' * 50 + '"x"]', "…, wanted string"),
    ],
)
def test_values_that_do_not_fit_are_refused(ddl: str, value: str, message: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        read_one(ddl, f'{{"a": {value}}}')
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the line is not JSON: Expecting value"),
        ("[1]", "the line is not a JSON object of the topic's columns."),
        ('{"a": NaN}', 'NaN is no number of JSON; write "NaN" in quotes'),
        ('{"a": 1, "a": 2}', "an object has 'a' twice"),
        ('{"a": ' + "[" * 100_000, "the line is not JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "the line is not JSON"),
        ('{"_partition": -1}', "_partition must be an integer of at least 0, got -1."),
        ('{"_timestamp": 5}', "_timestamp must be ISO 8601 text, got 5."),
    ],
)
def test_lines_that_are_no_rows_are_refused(line: str, message: str) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        read_one("a DOUBLE", line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_place_of_a_row_is_no_column() -> None:
    reader = JsonReader(SchemaVersion(1, parse_ddl("a INT")))
    line = '{"_topic": "t", "_partition": 2, "_offset": 7, "_timestamp": "1970-01-01", "a": 1}'
    assert reader.read(line) == JsonRow((1,), partition=2, timestamp=0)
    assert reader.read(b'{"a": null}') == JsonRow((None,))


def test_no_rows_are_a_batch_too() -> None:
    reader = JsonReader(SchemaVersion(1, parse_ddl("a INT, b STRING")))
    assert reader.batch([]).schema == reader.schema.arrow
    assert reader.batch([]).num_rows == 0


@pytest.mark.parametrize("number", [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1])
@pytest.mark.parametrize("kind", [UTC, pa.timestamp("us"), pa.duration("us")], ids=str)
def test_the_ends_of_time_come_back(kind: pa.DataType, number: int) -> None:
    schema = SchemaVersion(1, from_arrow(pa.schema([("a", kind)])))
    rows = TypedRows(schema, [pa.array([number], kind)], 1)
    (row,) = json_rows(rows)
    assert read(schema, json.dumps(row)).column(0).cast(pa.int64()).to_pylist() == [number]


@pytest.mark.parametrize("days", [-(2**31), -719_529, -719_164, 2**31 - 1])
def test_the_ends_of_dates_come_back(days: int) -> None:
    schema = SchemaVersion(1, parse_ddl("a DATE"))
    rows = TypedRows(schema, [pa.array([days], pa.int32()).cast(pa.date32())], 1)
    (row,) = json_rows(rows)
    assert read(schema, json.dumps(row)).column(0).cast(pa.int32()).to_pylist() == [days]


def test_a_map_with_a_key_twice_keeps_both() -> None:
    schema = SchemaVersion(1, parse_ddl("a MAP<STRING, INT>"))
    rows = TypedRows(schema, [pa.array([[("x", 1), ("x", 2)]], schema.fields[0].type)], 1)
    (row,) = json_rows(rows)
    assert row == {"a": [{"key": "x", "value": 1}, {"key": "x", "value": 2}]}
    assert read(schema, json.dumps(row)).column(0).equals(rows.column(0))


def test_every_float32_has_a_text_of_its_own() -> None:
    schema = SchemaVersion(1, parse_ddl("a FLOAT"))
    bits = np.random.default_rng(7).integers(0, 2**32, 2_000, dtype=np.uint32)
    values = [float(value) for value in bits.view(np.float32) if math.isfinite(value)]
    rows = TypedRows(schema, [pa.array(values, pa.float32())], len(values))
    lines = [json.dumps(row) for row in json_rows(rows)]
    assert read(schema, *lines).column(0).equals(rows.column(0))
    assert json_rows(TypedRows(schema, [pa.array([0.1], pa.float32())], 1)) == [{"a": 0.1}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


@given(JSON, schemas(most=2, depth=2))
def test_any_json_is_a_row_or_an_error(value: Any, schema: pa.Schema) -> None:
    version = SchemaVersion(1, from_arrow(schema))
    line = json.dumps({schema.names[0]: value})
    try:
        rows = read(version, line)
    except StorageError as error:
        shown = str(error)
    else:
        shown = ""
        assert json_rows(rows)[0].keys() == set(schema.names)
    assert "\n" not in shown


def test_a_decimal_of_38_digits_is_exact() -> None:
    text = "-" + "9" * 28 + "." + "9" * 10
    assert read_one("a DECIMAL(38,10)", f'{{"a": {text}}}') == {"a": text}
    assert Decimal(text) == Decimal(read_one("a DECIMAL(38,10)", f'{{"a": "{text}"}}')["a"])


@pytest.mark.parametrize("name", ["t", "n", "d"])
def test_nanoseconds_of_pandas_are_refused_not_cut(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    reader = JsonReader(
        SchemaVersion(1, parse_ddl("t TIMESTAMP, n TIMESTAMP_NTZ, d INTERVAL DAY TO SECOND"))
    )
    place = "tnd".index(name)
    in_utc = partial(pandas.Timestamp, tz="UTC")
    make = {"t": in_utc, "n": pandas.Timestamp, "d": pandas.Timedelta}[name]
    assert reader.values({name: make(-2000)})[place] == -2
    for wrong in (make(1999), make(-1), pandas.NaT):
        with pytest.raises(SchemaMismatchError, match=f"column {name}: found "):
            reader.values({name: wrong})
