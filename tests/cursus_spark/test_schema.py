"""Columns read and written: projections, sink checks, Arrow types, the memory of catalog tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cursus_spark import schema as s
from cursus_spark.errors import CursusError

AVAILABLE = "Available: key, value, topic, partition, offset, timestamp, timestampType, headers."
WHOLE_ROWS = (
    'Use selectExpr("to_json(struct(*)) AS value"), or write the columns as they are to a new, '
    "typed topic."
)
NESTED = "array<struct<key:string,value:binary>>"


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns_are_those_of_the_kafka_source() -> None:
    found = s.read_schema(include_headers=False).simpleString()
    assert found == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert all(field.nullable for field in s.read_schema(include_headers=True))


def test_headers_come_last_when_asked_for() -> None:
    last = s.read_schema(include_headers=True).fields[-1]
    assert (last.name, last.dataType.simpleString()) == ("headers", NESTED)


@pytest.mark.parametrize(
    "schema",
    [
        s.read_schema(include_headers=True),
        struct(offset=LongType()),
        struct(value=StringType(), key=StringType()),
        struct(timestampType=IntegerType(), headers=s.HEADERS, value=BinaryType()),
        StructType([StructField("offset", LongType(), nullable=False)]),
    ],
)
def test_projection_takes_any_columns_in_any_order(schema: StructType) -> None:
    s.check_projection(schema)
    assert s.arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            struct(foo=StringType()),
            f"[CURSUS_COLUMN_UNKNOWN] Column 'foo' in .schema(...) is not a cursus column. "
            f"{AVAILABLE}",
        ),
        (
            struct(Value=StringType()),
            f"[CURSUS_COLUMN_UNKNOWN] Column 'Value' in .schema(...) is not a cursus column. "
            f"{AVAILABLE}",
        ),
        (StructType([]), f"[CURSUS_SCHEMA_EMPTY] .schema(...) names no column. {AVAILABLE}"),
        (
            struct(offset=IntegerType()),
            "[CURSUS_COLUMN_TYPE] Column 'offset' in .schema(...): unsupported type int. "
            "offset must be a bigint.",
        ),
        (
            struct(value=DoubleType()),
            "[CURSUS_COLUMN_TYPE] Column 'value' in .schema(...): unsupported type double. "
            "value must be a string or binary.",
        ),
        (
            struct(headers=ArrayType(StringType())),
            "[CURSUS_COLUMN_TYPE] Column 'headers' in .schema(...): unsupported type "
            f"array<string>. headers must be an {NESTED}.",
        ),
        (
            struct(timestamp=TimestampNTZType()),
            "[CURSUS_COLUMN_TYPE] Column 'timestamp' in .schema(...): unsupported type "
            "timestamp_ntz. timestamp must be a timestamp.",
        ),
        (
            StructType([StructField("key", BinaryType(), nullable=False)]),
            "[CURSUS_COLUMN_TYPE] Column 'key' in .schema(...) is declared NOT NULL, but its "
            "values may be null. Remove NOT NULL.",
        ),
        (
            StructType([StructField("value", StringType()), StructField("value", BinaryType())]),
            "[CURSUS_COLUMN_DUPLICATE] Column 'value' is named 2 times in .schema(...). "
            "Name it once.",
        ),
    ],
)
def test_projection_refuses_what_is_not_a_column(schema: StructType, message: str) -> None:
    with pytest.raises(CursusError) as caught:
        s.check_projection(schema)
    assert str(caught.value) == message


def test_projection_refuses_headers_that_promise_values() -> None:
    item = StructType(
        [StructField("key", StringType()), StructField("value", BinaryType(), nullable=False)]
    )
    with pytest.raises(CursusError, match="declared NOT NULL"):
        s.check_projection(struct(headers=ArrayType(item)))


def test_arrow_schema_has_the_types_spark_checks_for() -> None:
    schema = s.arrow_schema(s.read_schema(include_headers=True))
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("partition").type == pa.int32()
    assert schema.field("headers").type.value_type.field("value").type == pa.binary()


def test_arrow_schema_leaves_the_memory_of_the_catalog_out() -> None:
    schema = s.with_origin(s.read_schema(include_headers=False), {"path": "/p"})
    assert s.arrow_schema(schema).field("key").metadata is None


def test_sink_says_where_the_columns_are() -> None:
    rows = struct(
        topic=StringType(), value=BinaryType(), headers=s.HEADERS, key=StringType(),
        partition=IntegerType(), timestamp=TimestampType(),
    )  # fmt: skip
    assert s.sink_columns(rows, topic=None) == s.SinkColumns(
        value=1, key=3, topic=0, partition=4, timestamp=5, headers=2
    )
    assert s.sink_columns(struct(value=StringType()), topic="t") == s.SinkColumns(value=0)


def test_sink_takes_what_was_read_and_text_of_any_collation() -> None:
    found = s.sink_columns(s.read_schema(include_headers=True), topic=None)
    assert (found.value, found.topic, found.headers) == (1, 2, 7)
    s.sink_columns(struct(value=StringType("UTF8_LCASE")), topic="t")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            struct(id=LongType(), name=StringType()),
            "[CURSUS_VALUE_MISSING] Required attribute 'value' not found. Columns: id, name. "
            + WHOLE_ROWS,
        ),
        (
            struct(value=IntegerType()),
            "[CURSUS_COLUMN_TYPE] value attribute unsupported type int. value must be a string "
            "or binary.",
        ),
        (
            struct(value=StringType(), key=NullType()),
            "[CURSUS_COLUMN_TYPE] key attribute unsupported type void. key must be a string or "
            "binary.",
        ),
        (
            struct(value=StringType(), topic=BinaryType()),
            "[CURSUS_COLUMN_TYPE] topic attribute unsupported type binary. topic must be a string.",
        ),
        (
            struct(value=StringType(), partition=LongType()),
            "[CURSUS_COLUMN_TYPE] partition attribute unsupported type bigint. partition must be "
            "an int.",
        ),
        (
            struct(value=StringType(), timestamp=TimestampNTZType()),
            "[CURSUS_COLUMN_TYPE] timestamp attribute unsupported type timestamp_ntz. timestamp "
            "must be a timestamp.",
        ),
        (
            struct(value=StringType(), headers=ArrayType(StringType())),
            "[CURSUS_COLUMN_TYPE] headers attribute unsupported type array<string>. headers must "
            f"be an {NESTED}.",
        ),
        (
            struct(value=StringType(), foo=StringType()),
            "[CURSUS_COLUMN_UNKNOWN] Column 'foo' can't be written to a records topic. Writable: "
            f"key, value, topic, partition, timestamp, headers. {WHOLE_ROWS}",
        ),
        (
            StructType([StructField("value", StringType()), StructField("value", BinaryType())]),
            "[CURSUS_COLUMN_DUPLICATE] Column 'value' is named 2 times in the rows to write. "
            "Name it once.",
        ),
        (
            struct(value=StringType()),
            "[CURSUS_TOPIC_REQUIRED] topic option required when no 'topic' attribute is present. "
            'Use .option("topic", "..."). (Options given in CREATE TABLE do not reach INSERT; use '
            "INSERT INTO t WITH (path = '...', topic = '...').)",
        ),
    ],
)
def test_sink_refuses_other_rows(schema: StructType, message: str) -> None:
    with pytest.raises(CursusError) as caught:
        s.sink_columns(schema, topic=None)
    assert str(caught.value) == message


def test_overwrite_is_refused() -> None:
    s.refuse_overwrite(False)
    with pytest.raises(CursusError) as caught:
        s.refuse_overwrite(True)
    assert str(caught.value) == (
        "[CURSUS_APPEND_ONLY] Overwrite is not supported: a cursus topic is append-only. Use "
        '.mode("append").'
    )


def test_output_mode_complete_is_refused_with_what_to_do_instead() -> None:
    s.refuse_complete_mode(False)
    with pytest.raises(CursusError) as caught:
        s.refuse_complete_mode(True)
    assert str(caught.value) == (
        "[CURSUS_APPEND_ONLY] Output mode complete is not supported: every batch would replace all "
        'records, and a cursus topic is append-only. Use outputMode("append"), with '
        "withWatermark(...) if you aggregate, or append each result in foreachBatch."
    )


def test_catalog_tables_remember_their_options_in_a_column() -> None:
    options = {"path": "/data/log", "topic": "orders"}
    schema = s.with_origin(s.read_schema(include_headers=False), options)
    assert schema.fields[0].metadata == {"cursus": options}
    # The catalog keeps schemas as JSON.
    kept = StructType.fromJson(schema.jsonValue())
    assert s.origin(kept) == options
    assert kept.simpleString() == s.read_schema(include_headers=False).simpleString()
    s.check_projection(kept)


def test_a_plain_schema_remembers_nothing() -> None:
    assert s.origin(s.read_schema(include_headers=True)) == {}
    annotated = StructType([StructField("value", BinaryType(), True, {"cursus": "text"})])
    assert s.origin(annotated) == {}
