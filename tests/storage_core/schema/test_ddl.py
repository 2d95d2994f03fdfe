"""Columns read from Spark's DDL and written as DDL."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.errors import InvalidSchemaError, StorageError
from storage_core.schema.ddl import parse_ddl, to_ddl
from storage_core.schema.fields import SchemaVersion, from_arrow
from tests.support.typed.random_schemas import schemas


def test_a_schema_of_every_kind() -> None:
    fields = parse_ddl(
        "id BIGINT NOT NULL, tags array<string>,\n `a ``b.c` Struct<x: INT NOT NULL, y DEC(5, 2)>, "
        "m MAP<INT, TIMESTAMP_NTZ>, größe DECIMAL, at TIMESTAMP, d INTERVAL DAY TO SECOND"
    )
    assert SchemaVersion(1, fields).arrow == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("tags", pa.list_(pa.field("element", pa.string()))),
            pa.field(
                "a `b.c",
                pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.decimal128(5, 2))]),
            ),
            pa.field("m", pa.map_(pa.int32(), pa.timestamp("us"))),
            pa.field("größe", pa.decimal128(10, 0)),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("d", pa.duration("us")),
        ]
    )
    assert [field.id for field in fields] == [1, 2, 4, 7, 10, 11, 12]
    assert to_ddl(fields) == (
        "id BIGINT NOT NULL, tags ARRAY<STRING>, "
        "`a ``b.c` STRUCT<x: INT NOT NULL, y: DECIMAL(5,2)>, "
        "m MAP<INT, TIMESTAMP_NTZ>, `größe` DECIMAL(10,0), at TIMESTAMP, d INTERVAL DAY TO SECOND"
    )


def test_types_that_arrow_does_not_tell_apart_keep_their_names() -> None:
    text = (
        "a STRING COLLATE UNICODE_CI, b CHAR(5), c VARCHAR(3), d INTERVAL HOUR, "
        "e INTERVAL DAY TO MINUTE, f VARIANT, g ARRAY<VARIANT>, h STRING COLLATE de_CI, i STRUCT<>"
    )
    fields = parse_ddl(text.replace("UNICODE", "unicode"))
    assert [field.annotation for field in fields] == [
        "string collate UNICODE_CI",
        "char(5)",
        "varchar(3)",
        "interval hour",
        "interval day to minute",
        "variant",
        "",
        "string collate de_CI",
        "",
    ]
    assert to_ddl(fields) == text
    assert to_ddl([replace(fields[0], annotation="x\n; DROP")]) == "a STRING"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 1: found the end, expected the name of a column"),
        ("id", "at character 3: found the end, expected a type, such as BIGINT"),
        ("id BIGNIT, a INT", "at character 4: found 'BIGNIT, a INT', expected a type"),
        ("id INT,", "at character 8: found the end, expected the name"),
        ("id INT a INT", "at character 8: found 'a INT', expected a comma, NOT NULL or the end"),
        ("id INT NOT", "at character 11: found the end, expected NULL"),
        ("id INT COMMENT 'x'", "at character 8: found \"COMMENT 'x'\", expected a comma"),
        ("a b INT", "at character 3: found 'b INT', expected a type"),
        ("1a INT", "at character 1: found '1a INT', expected the name of a column; put unusual"),
        ("a.b INT", "at character 2: found '.b INT', expected a type"),
        ("`a INT", "at character 1: found '`a INT', expected the name"),
        ("a ARRAY<INT", "at character 12: found the end, expected >"),
        ("a ARRAY", "at character 8: found the end, expected <"),
        ("a MAP<INT>", "at character 10: found '>', expected ,"),
        (
            "a MAP<VOID, INT>",
            "at character 7: found 'VOID, INT>', expected the type of a map's keys",
        ),
        ("a STRUCT<b: INT c: INT>", "at character 17: found 'c: INT>', expected ,"),
        ("a DECIMAL(39)", "at character 11: found '39)', expected a number of digits from 1 to 38"),
        ("a DECIMAL(3,4)", "at character 13: found '4)', expected a scale from 0 to 3"),
        ("a DECIMAL(3,-1)", "at character 13: found '-1)', expected a scale"),
        ("a VARCHAR(0)", "at character 11: found '0)', expected a length of 1 or more"),
        ("a CHAR", "at character 7: found the end, expected ("),
        ("a INTERVAL YEAR", "at character 12: found 'YEAR', expected DAY, HOUR, MINUTE or SECOND"),
        ("a INTERVAL SECOND TO DAY", "at character 22: found 'DAY', expected a unit smaller than"),
        ("a TIME(6)", "at character 3: found 'TIME(6)', expected a type"),
        ("a `INT`", "at character 3: found '`INT`', expected a type"),
        ("a INT; b INT", "at character 6: found '; b INT', expected a comma"),
        ("a " + "x" * 50, f"found '{'x' * 30}…', expected a type"),
        ("a " + "ARRAY<" * 200, "expected at most 100 levels of nesting"),
        ("a INT, A INT", "columns a and A differ only in case"),
        ("_offset INT", "column _offset: the names"),
        ("a VOID NOT NULL", "column a: VOID cannot be NOT NULL"),
        ("s STRUCT<a: INT, a: INT>", "column s.a is there twice"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        parse_ddl(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(schemas(most=4, depth=3))
def test_written_columns_are_read_back(schema: pa.Schema) -> None:
    fields = from_arrow(schema)
    text = to_ddl(fields)
    again = parse_ddl(text)
    # Only what DDL cannot say may be lost: that elements and values are not null.
    assert to_ddl(again) == text
    assert [(field.name, field.nullable) for field in again] == [
        (field.name, field.nullable) for field in fields
    ]


@given(st.text(st.sampled_from("aI`<>(),: 9\nÄ;'") | st.characters(), max_size=30))
def test_any_text_is_columns_or_an_error(text: str) -> None:
    try:
        fields = parse_ddl(text)
    except StorageError as error:
        shown = str(error)
    else:
        shown = to_ddl(fields)
        assert to_ddl(parse_ddl(shown)) == shown
    assert shown.isprintable() or not text.isprintable()
