"""Typed topics with every type that Spark can write and read, made without Spark."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from storage_core import Store

UTC = datetime.UTC
_PAIR = pa.struct([pa.field("n", pa.int64(), nullable=False), pa.field("t", pa.string())])
EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("number", pa.int32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("exact", pa.decimal128(38, 10)),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("took", pa.duration("us")),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("counts", pa.map_(pa.string(), pa.field("value", pa.int32()))),
        ("pair", _PAIR),
        ("deep", pa.list_(pa.field("element", pa.struct([("m", pa.map_(pa.int32(), _PAIR))])))),
        ("a.b c", pa.string()),
        ("Größe", pa.int32()),
        ("nothing", pa.null()),
    ]
)


def _row(number: int) -> dict[str, object]:
    at = datetime.datetime(1999, 5, 6, 7, 8, 9, 10, tzinfo=UTC) + datetime.timedelta(number)
    pair = {"n": number, "t": None if number % 2 else "é"}
    return {
        "id": number, "tiny": number % 100, "small": -number, "number": number * 1000,
        "real": number / 8, "double": [math.nan, -0.0, math.inf, number / 3][number % 4],
        "price": Decimal(number) / 4, "exact": Decimal(10**27 + number), "flag": number % 3 == 0,
        "text": "x" * (number % 7), "raw": bytes([number % 256]), "day": at.date(), "at": at,
        "local": datetime.datetime(1, 1, 2) + datetime.timedelta(number),
        "took": datetime.timedelta(microseconds=-number), "tags": ["a", None][: number % 3],
        "counts": [("k", number), ("l", None)][: number % 3], "pair": pair,
        "deep": [{"m": [(1, pair)]}, {"m": None}, None][: number % 4], "a.b c": str(number),
        "Größe": number,
    }  # fmt: skip


def every_type(rows: Iterable[int]) -> pa.Table:
    """Rows of every type; every fifth has only its id."""
    made = [{"id": number} if number % 5 == 4 else _row(number) for number in rows]
    return pa.Table.from_pylist(made, EVERY_TYPE)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows through Spark alone, which takes times without a zone for times with one."""
    frame = spark.createDataFrame(table)
    for field in table.schema:
        if field.type == pa.timestamp("us"):
            frame = frame.withColumn(field.name, frame[f"`{field.name}`"].cast("timestamp_ntz"))
    return frame


def typed_topic(store: Store, topic: str, table: pa.Table, partitions: int = 1) -> None:
    """A new topic with the columns of a table, and its rows in partition 0."""
    store.create_topic(topic, partitions, schema=table.schema)
    store.append_table(topic, table, partition=0)


def same_rows(found: DataFrame, wanted: DataFrame, key: str = "id") -> None:
    """Equal schemas and rows, whatever their order. NaN equals itself, as texts do."""
    schemas = found.schema.simpleString(), wanted.schema.simpleString()
    assert schemas[0] == schemas[1], schemas
    left, right = ([str(row) for row in each.sort(key).collect()] for each in (found, wanted))
    assert len(left) == len(right), (len(left), len(right))
    for pair in zip(left, right, strict=True):
        assert pair[0] == pair[1], pair
