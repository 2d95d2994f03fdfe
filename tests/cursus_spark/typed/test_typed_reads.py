"""Batch reads of typed topics: the rows that were written, with their columns, through Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from cursus_spark.datasource import CursusDataSource
from cursus_spark.typed.spark_types import arrow_fields
from storage_core import Store
from storage_core.schema.fields import from_arrow
from tests.support.spark.dataframes import Log, one_line_error
from tests.support.spark.typed_frames import (
    every_type,
    frame_of,
    same_rows,
    typed_topic,
)
from tests.support.typed.typed_topics import commit_table

ROWS = every_type(range(3000))


@pytest.fixture
def store(log: Log) -> Store:
    return log.store(create=True)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_topic_gives_what_was_written(log: Log, store: Store, compression: str) -> None:
    store.create_topic("t", 3, schema=ROWS.schema, compression=compression, segment_bytes=200_000)
    for start in range(0, 3000, 300):
        store.append_table("t", ROWS.slice(start, 300), partition=start // 300 % 3)
    found, wanted = log.read("t"), frame_of(log.spark, ROWS)
    same_rows(found, wanted)
    assert [field.nullable for field in found.schema] == [field.nullable for field in ROWS.schema]


def test_columns_that_only_spark_knows(log: Log, store: Store) -> None:
    ddl = "id BIGINT, v VARIANT, span INTERVAL DAY TO HOUR, name STRING COLLATE UNICODE_CI"
    schema = t.StructType.fromDDL(ddl)
    assert isinstance(schema, t.StructType)
    store.create_topic("t", schema=from_arrow(*arrow_fields(schema)))
    rows = log.spark.sql(
        "SELECT id, parse_json(concat('[', id, ']')) v, INTERVAL '1 02' DAY TO HOUR span, "
        "CAST('Ab' AS STRING COLLATE UNICODE_CI) name FROM range(5)"
    )
    store.append_table("t", rows.toArrow())
    same_rows(log.read("t"), rows)
    assert log.read("t").filter("name = 'aB'").count() == 5


def test_metadata_columns_follow_or_are_named(log: Log, store: Store) -> None:
    typed_topic(store, "t", ROWS.slice(0, 20).select(["id", "text"]), partitions=2)
    store.append_table("t", ROWS.slice(20, 5).select(["id", "text"]), partition=1)
    rows = log.read("t", includeMetadata=True).sort("id").collect()
    places = [(row._topic, row._partition, row._offset) for row in rows]
    assert places == [("t", 0, n) for n in range(20)] + [("t", 1, n) for n in range(5)]
    assert all(row._timestamp is not None for row in rows)
    some = log.read("t", "_OFFSET long, id long NOT NULL, _partition int NOT NULL")
    assert some.filter("_partition = 1").sort("_offset").collect() == [
        (n, 20 + n, 1) for n in range(5)
    ]


def test_a_projection_in_any_case_order_and_depth(log: Log, store: Store) -> None:
    typed_topic(store, "t", ROWS.slice(0, 50))
    wanted = frame_of(log.spark, ROWS.slice(0, 50))
    same_rows(log.read("t", "TEXT string, id long"), wanted.selectExpr("text TEXT", "id"))
    inner = log.read("t", "id long, pair struct<T: string>, `a.b c` string, `größe` int")
    expected = "if(pair is null, null, named_struct('T', pair.t)) pair"
    same_rows(inner, wanted.selectExpr("id", expected, "`a.b c`", "`Größe` `größe`"))
    wider = log.read("t", "id long, tiny long, real double, price decimal(20,5)")
    casts = "double(real) real", "cast(price AS decimal(20,5)) price"
    same_rows(wider, wanted.selectExpr("id", "bigint(tiny) tiny", *casts))


def test_a_value_that_does_not_fit_a_narrower_type_is_an_error(log: Log, store: Store) -> None:
    typed_topic(store, "t", pa.table({"n": pa.array([1, 2**40]), "x": pa.array([0.5, 0.1])}))
    assert one_line_error(lambda: log.read("t", "n int").collect()).startswith(
        "[CURSUS_SCHEMA_MISMATCH] topic 't', column n: found a value of bigint that does not fit "
    )
    assert one_line_error(lambda: log.read("t", "x float").collect()) == (
        "[CURSUS_SCHEMA_MISMATCH] topic 't', column x: found a value of double that does not fit "
        "float: a double has more digits than a float. Read it with the topic's newest schema."
    )
    assert log.read("t", "n int, x float", where="n < 5 and x = 0.5").collect() == [(1, 0.5)]


def test_older_rows_have_null_in_new_columns_and_wider_numbers(log: Log, store: Store) -> None:
    before = pa.table({"id": pa.array([1, 2], pa.int32()), "s": [{"a": 1}, None]})
    typed_topic(store, "t", before)
    inner = pa.struct([("a", pa.int64()), ("b", pa.string())])
    rows = pa.table(
        {"id": [2**40], "s": pa.array([{"a": 2, "b": "x"}], inner), "new": pa.array([3.5])}
    )
    commit_table(store, "t", rows)
    assert log.read("t").schema.simpleString() == (
        "struct<id:bigint,s:struct<a:bigint,b:string>,new:double>"
    )
    assert log.read("t").sort("id").collect() == [
        (1, (1, None), None), (2, None, None), (2**40, (2, "x"), 3.5)
    ]  # fmt: skip
    assert log.read("t", where="new is null and s.b is null and id < 2").collect() == [
        (1, (1, None), None)
    ]


def test_several_topics_are_one_table(log: Log, store: Store) -> None:
    typed_topic(store, "a", ROWS.slice(0, 10).select(["id", "text"]))
    typed_topic(store, "b", ROWS.slice(10, 10).select(["id", "text"]))
    both = log.read("a,b", includeMetadata=True).sort("id").collect()
    assert [(row.id, row._topic) for row in both] == [(n, "ab"[n // 10]) for n in range(20)]
    typed_topic(store, "c", pa.table({"ID": pa.array([7], pa.int32()), "more": ["x"]}))
    merged = log.read("a,c", mergeSchema=True, where="id = 7")
    assert sorted(merged.collect(), key=lambda row: row.more or "") == [
        (7, ROWS["text"][7].as_py(), None), (7, None, "x")
    ]  # fmt: skip
    store.create_topic("records")
    assert one_line_error(lambda: log.read("a,records")).startswith("[CURSUS_KINDS_DIFFER] ")


def test_options_of_ranges_work_as_for_records(log: Log, store: Store) -> None:
    table = (
        ROWS.slice(0, 100)
        .select(["id"])
        .append_column("at", pa.array([1000 * n for n in range(100)], pa.timestamp("ms", tz="UTC")))
    )
    store.create_topic("t", 2, schema=table.schema, timestamp_column="at")
    store.append_table("t", table, partition=1)

    def ids(**options: object) -> list[int]:
        return sorted(row.id for row in log.read("t", "id long", **options).collect())

    offsets = {"startingOffsets": '{"t":{"1":5}}', "endingOffsets": '{"t":{"1":9}}'}
    assert ids(**offsets) == [5, 6, 7, 8]
    assert ids(startingTimestamp=90_000, startingOffsetsByTimestampStrategy="latest") == list(
        range(90, 100)
    )
    assert ids(endingTimestamp=3_500) == [0, 1, 2, 3]
    assert ids(assign=json.dumps({"t": [0]}), subscribe=None) == []
    assert log.read("t", maxRecordsPerPartition=7).rdd.getNumPartitions() == 15
    assert ids(minPartitions=9) == list(range(100))


def test_a_batch_is_planned_with_the_schema_of_its_time(log: Log, store: Store) -> None:
    typed_topic(store, "t", ROWS.slice(0, 5).select(["id"]))
    frame = log.read("t")
    assert frame.count() == 5
    store.alter_topic("t", add_columns=pa.schema([("new", pa.int64())]))
    store.append_table("t", pa.table({"id": [9], "new": [9]}))
    assert frame.collect() == [(n,) for n in range(5)]
    assert log.read("t").filter("new = 9").collect() == [(9, 9)]


def test_a_topic_with_2000_columns(log: Log, store: Store) -> None:
    names = [f"column {n}" for n in range(2000)]
    typed_topic(store, "t", pa.table({name: [n, None] for n, name in enumerate(names)}))
    rows = log.read("t", where="`column 1234` = 1234").collect()
    assert rows == [tuple(range(2000))]
    assert log.read("t", "`COLUMN 7` long").collect() == [(7,), (None,)]


def test_an_empty_topic_and_an_empty_frame(log: Log, store: Store) -> None:
    store.create_topic("t", schema=ROWS.schema)
    assert log.read("t").count() == 0
    store.append_table("t", ROWS.slice(0, 0))
    assert log.read("t", where="id > 5").collect() == []


def test_rows_larger_than_a_batch(log: Log, store: Store) -> None:
    typed_topic(store, "t", pa.table({"id": [1, 2], "text": ["x" * 3_000_000, None]}))
    assert log.read("t").selectExpr("sum(length(text))").collect() == [(3_000_000,)]


def test_a_catalog_table_of_a_typed_topic(log: Log, store: Store) -> None:
    typed_topic(store, "t", ROWS.slice(0, 5).select(["id", "text"]))
    options = f"path '{log.path}', subscribe 't', where 'id > 2'"
    log.spark.sql(f"CREATE TABLE typed_reads USING cursus OPTIONS ({options})")
    try:
        assert log.spark.sql("SELECT id FROM typed_reads ORDER BY id").collect() == [(3,), (4,)]
    finally:
        log.spark.sql("DROP TABLE typed_reads")


def test_the_driver_needs_no_rows_for_the_columns(store: Store) -> None:
    typed_topic(store, "t", ROWS.slice(0, 5))
    source = CursusDataSource({"path": store.path, "subscribe": "t"})
    (task,) = source.reader(source.schema()).partitions()
    assert task.versions == {"t": 1}  # type: ignore[attr-defined]
