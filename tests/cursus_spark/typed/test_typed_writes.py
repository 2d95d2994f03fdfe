"""DataFrames of any columns written to typed topics by Spark, and what the store has then."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cursus_spark.typed.spark_types import struct_type
from storage_core import Store
from tests.support.spark.dataframes import TOPIC, Log, one_line_error
from tests.support.stores import errors

EVERY_TYPE = """
SELECT * FROM VALUES
  (1L, true, 1Y, 1S, 1, 1.5F, 2.5D, 12345678901234567890123456789012345678BD,
   0.00000000000000000000000000000000000001BD, 'text', X'00FF', date'1582-10-04',
   timestamp'1969-12-31T23:59:59.999999Z', timestamp_ntz'2300-01-01T00:00:00.000001',
   interval '1 02:03:04.5' day to second, interval '3' hour),
  (2L, false, -128Y, -32768S, -2147483648, float('NaN'), double('-0.0'), -1BD, -0.5BD, '', X'',
   date'9999-12-31', timestamp'9999-12-31T23:59:59.999999Z', timestamp_ntz'0001-01-01T00:00:00',
   interval '-106751991' day, interval '-1' hour),
  (3L, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)
AS t(id, bool, byte, short, int, float, double, `decimal 38`, `small.decimal`, string, binary, date,
     ts, ntz, span, hours)
"""
NESTED = """
SELECT *, named_struct('ä', ts, 'list', array(span, null), 'deep',
                       map(id, array(named_struct('d', `decimal 38`, 'b', binary)))) AS `a.b c`,
       if(id = 1, null, array(map('k', ntz), map())) AS maps, array() AS nothing, null AS void,
       parse_json('{"a": [1, null, "x"]}') AS variant, array(parse_json(string(id))) AS variants,
       array(cast(null AS variant), null) AS no_variants,
       string COLLATE UNICODE_CI AS collated, cast(null AS struct<x: int>) AS no_struct
FROM every
"""


def stored(log: Log, topic: str = TOPIC) -> pa.Table:
    with log.store() as store:
        return store.scan(topic).to_table()


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {"zone": "session.timeZone", "large": "execution.arrow.useLargeVarTypes"}
    wanted = {f"spark.sql.{names[key]}": value for key, value in values.items()}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def assert_equal(found: pa.Table, rows: DataFrame) -> None:
    """The same values as Spark's own; NaN equals NaN, and -0.0 is not 0.0."""
    expected = rows.toArrow()
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name


@pytest.mark.parametrize(("large", "codec"), [("false", "none"), ("true", "zstd")])
def test_every_type_is_stored_as_spark_has_it(log: Log, large: str, codec: str) -> None:
    log.spark.sql(EVERY_TYPE).createOrReplaceTempView("every")
    rows = log.spark.sql(NESTED).coalesce(1)
    with settings(log.spark, large=large, zone="America/Los_Angeles"):
        log.write(rows, compression=codec)
    # Spark's toArrow fails for array() and for variants that are null.
    assert_equal(stored(log).drop(["nothing", "no_variants"]), rows.drop("nothing", "no_variants"))
    assert stored(log)["nothing"].to_pylist() == [[], [], []]
    assert stored(log)["no_variants"].to_pylist() == [[None, None]] * 3
    with log.store() as store:
        version = store.schema(TOPIC)
        assert version is not None
        assert struct_type(version.fields).simpleString() == rows.schema.simpleString()


def test_columns_are_matched_by_name_in_any_case_and_missing_ones_are_null(log: Log) -> None:
    log.write(log.frame([(1, "a", 1.5)], "id long, user string, amount double"))
    log.write(log.frame([(2.5, 2)], "AMOUNT float, Id int"))
    log.write(log.frame([("c", 3)], "user string, id long"))
    assert stored(log).to_pylist() == [
        {"id": 1, "user": "a", "amount": 1.5},
        {"id": 2, "user": None, "amount": 2.5},
        {"id": 3, "user": "c", "amount": None},
    ]


def test_merged_columns_appear_with_their_rows(log: Log) -> None:
    log.write(log.frame([(1, (1,))], "id int, ctx struct<a: int>"))
    rows = log.frame(
        [(1 << 40, (2, "x"), ["n"])], "id long, ctx struct<a: int, b: string>, n array<string>"
    )
    merging = {"mergeSchema": "true", "mergeSchema.typeWidening": "true"}
    found = one_line_error(lambda: log.write(rows))
    assert found.startswith(f"[CURSUS_SCHEMA_MISMATCH] topic '{TOPIC}', column id: found bigint,")
    failing = rows.selectExpr("id", "ctx", "if(id > 0, raise_error('bad row'), n) n")
    with pytest.raises(Exception, match="bad row"):
        log.write(failing, **merging)
    assert stored(log).to_pylist() == [{"id": 1, "ctx": {"a": 1}}]
    log.write(rows, **merging)
    assert stored(log).to_pylist() == [
        {"id": 1, "ctx": {"a": 1, "b": None}, "n": None},
        {"id": 1 << 40, "ctx": {"a": 2, "b": "x"}, "n": ["n"]},
    ]
    with log.store() as store:
        assert errors(store) == []


def test_key_columns_choose_the_partition_as_append_table_does(log: Log) -> None:
    rows = log.spark.range(0, 20_000, 1, 2).selectExpr(
        "id", "string(id % 101) user", "id % 7 shop", "timestamp_micros(-id) at"
    )
    log.write(rows, keyColumns="user,shop", timestampColumn="at", numPartitions=5)
    with log.store() as store:
        topic = store.topic(TOPIC)
        assert (topic.key_columns, topic.timestamp_column) == (("user", "shop"), "at")
        version = store.schema(TOPIC)
        assert version is not None
        store.create_topic("other", 5, schema=version.arrow, key_columns=topic.key_columns)
        store.append_table("other", store.scan(TOPIC).to_table())
        wanted = ["id", "at", "_timestamp"]
        for partition in range(5):
            mine = store.scan(TOPIC, partitions=[partition], columns=wanted).to_table()
            theirs = store.scan("other", partitions=[partition], columns=wanted).to_table()
            assert mine.num_rows > 3000
            assert mine["at"].to_pylist() == mine["_timestamp"].to_pylist()
            assert sorted(mine["id"].to_pylist()) == sorted(theirs["id"].to_pylist())
            for task in (0, 1):  # the order inside a task is kept
                ids = [each for each in mine["id"].to_pylist() if each // 10_000 == task]
                assert ids == sorted(ids)


def test_without_key_columns_task_i_owns_partition_i_modulo_n(log: Log) -> None:
    rows = log.spark.range(0, 40, 1, 8).selectExpr("spark_partition_id() task")
    log.write(rows, numPartitions=3)
    with log.store() as store:
        table = store.scan(TOPIC, columns=["task", "_partition"]).to_table()
    found = {(row["task"], row["_partition"]) for row in table.to_pylist()}
    assert found == {(task, task % 3) for task in range(8)}


def test_an_empty_dataframe_creates_the_topic(log: Log) -> None:
    rows = log.spark.range(0).selectExpr("id", "string(id) AS name")
    log.write(rows, numPartitions=2)
    table = stored(log)
    assert (table.num_rows, table.column_names) == (0, ["id", "name"])
    log.write(rows.selectExpr("id", "1 AS more"), mergeSchema="true")
    assert stored(log).column_names == ["id", "name"], "columns come with rows"
    assert log.store().topic(TOPIC).partitions == 2


def test_two_thousand_columns_and_rows_larger_than_a_frame(log: Log) -> None:
    wide = log.spark.range(0, 20, 1, 1).selectExpr(*(f"id + {n} AS `c {n}`" for n in range(2000)))
    log.write(wide, "wide", keyColumns="c 0", numPartitions=2)
    table = stored(log, "wide")
    assert (table.num_rows, table.num_columns) == (20, 2000)
    assert sorted(table["c 1999"].to_pylist()) == list(range(1999, 2019))
    with log.store() as store:
        store.create_topic(
            "large", schema=pa.schema({"text": pa.string()}), max_record_bytes=64 << 20
        )
    log.write(log.spark.sql("SELECT repeat('x', 20 << 20) AS text"), "large")
    assert len(stored(log, "large")["text"][0].as_py()) == 20 << 20
    error = one_line_error(
        lambda: log.write(log.spark.sql("SELECT repeat('x', 20 << 20) AS `c 0`"), "small")
    )
    assert error.startswith("[CURSUS_RECORD_TOO_LARGE] ")


def test_a_real_null_in_a_not_null_column_publishes_nothing(log: Log) -> None:
    log.create(schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    log.write(log.spark.range(3))
    rows = log.spark.range(0, 30_000, 1, 2).selectExpr("nullif(id, 29999) AS id")
    assert one_line_error(lambda: log.write(rows)) == (
        f"[CURSUS_SCHEMA_MISMATCH] topic '{TOPIC}', column id: found a null in row 4999, wanted "
        "bigint NOT NULL. Fill or drop the nulls."
    )
    assert stored(log).num_rows == 3


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("interval '1-2' year to month", "has type interval year to month, which a topic can't"),
        ("array(time'10:00')", "has type time(6), which a topic can't store. Cast it to string"),
    ],
)
def test_types_that_cannot_be_stored_are_refused_by_name(
    log: Log, column: str, message: str
) -> None:
    rows = log.spark.range(1).selectExpr("id", f"{column} AS x")
    found = one_line_error(lambda: log.write(rows))
    assert found.startswith("[CURSUS_TYPE_UNSUPPORTED] Column 'x")
    assert message in found
    assert not log.path.exists()


def test_a_version_that_was_committed_adds_neither_rows_nor_columns(log: Log) -> None:
    rows = log.frame([(1,)], "id long")
    for _ in range(2):
        log.write(rows, txnAppId="job", txnVersion=3)
    more = log.frame([(2, "x")], "id long, name string")
    log.write(more, txnAppId="job", txnVersion=3, mergeSchema="true")
    assert stored(log).to_pylist() == [{"id": 1}]
    log.write(more, txnAppId="job", txnVersion=2, mergeSchema="true", txnMode="exact")
    assert stored(log).to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "x"}]


def test_sql_inserts_rows_into_a_typed_topic(log: Log) -> None:
    options = f"path = '{log.path}', topic = '{TOPIC}'"
    log.spark.sql("CREATE TABLE typed_orders (id BIGINT, name STRING, at TIMESTAMP) USING cursus")
    try:
        log.spark.sql(
            f"INSERT INTO typed_orders WITH ({options}, keyColumns = 'id', numPartitions = 2) "
            "SELECT 1L, 'a', timestamp'2026-01-01T00:00:00Z'"
        )
        log.spark.sql(f"INSERT INTO typed_orders WITH ({options}) (name, id) SELECT 'b', 2L")
        log.spark.sql(f"INSERT INTO typed_orders WITH ({options}) BY NAME SELECT 3L AS id")
        writer = log.spark.sql("SELECT 4L id, 'd' name, null at").writeTo("typed_orders")
        writer.option("path", str(log.path)).option("topic", TOPIC).append()
    finally:
        log.spark.sql("DROP TABLE typed_orders")
    found = sorted(stored(log).to_pylist(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["name"]) for row in found] == [(1, "a"), (2, "b"), (3, None), (4, "d")]
    assert found[0]["at"] == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_records_topics_are_written_as_before(log: Log, tmp_path: Path) -> None:
    log.spark.sql(f"CREATE TABLE kafka_orders USING cursus OPTIONS (path '{log.path}', topic 'r')")
    try:
        log.spark.sql(
            f"INSERT INTO kafka_orders WITH (path = '{log.path}', topic = 'r') "
            "BY NAME SELECT CAST('v' AS BINARY) AS value"
        )
    finally:
        log.spark.sql("DROP TABLE kafka_orders")
    with Store.open(tmp_path / "log") as store:
        assert not store.topic("r").is_typed
    assert log.texts("r") == ["v"]
