"""Which partition a row goes to, what a write makes, and writes that are repeated."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from cursus_spark import partition_by_key
from storage_core import partition_for_keys
from tests.support.spark.dataframes import TOPIC, Log, first, one_line_error

pytestmark = pytest.mark.matrix


def test_task_i_owns_partition_i_modulo_n(log: Log) -> None:
    rows = log.spark.range(0, 40, 1, 8).selectExpr("cast(spark_partition_id() as string) value")
    log.write(rows, numPartitions=3)
    found = log.read(schema="value string, partition int").distinct().collect()
    assert {(int(row.value), row.partition) for row in found} == {
        (task, task % 3) for task in range(8)
    }


def test_the_order_inside_a_task_is_kept(log: Log) -> None:
    rows = log.spark.range(0, 30_000, 1, 1).selectExpr(
        "cast(id as string) value", "cast(id % 7 as string) key"
    )
    log.write(rows, numPartitions=3)
    found = log.read(schema="partition int, offset long, value string").collect()
    for partition in range(3):
        kept = sorted((row.offset, int(row.value)) for row in found if row.partition == partition)
        assert [offset for offset, _ in kept] == list(range(len(kept)))
        assert [number for _, number in kept] == sorted(number for _, number in kept)


def test_keys_go_where_kafka_sends_them_and_a_partition_column_wins(log: Log) -> None:
    keys = [f"key-{number}" for number in range(50)]
    explicit = [number % 5 if number % 10 == 0 else None for number in range(50)]
    rows = list(zip(keys, keys, explicit, strict=True))
    log.write(log.frame(rows, "key string, value string, partition int"), numPartitions=5)
    chosen = partition_for_keys(pa.array([key.encode() for key in keys]), 5).tolist()
    expected = {
        key: place if place is not None else kafka
        for key, place, kafka in zip(keys, explicit, chosen, strict=True)
    }
    found = log.read(schema="key string, partition int").collect()
    assert {row.key: row.partition for row in found} == expected


def test_partition_by_key_gives_each_partition_one_owner(log: Log) -> None:
    rows = log.spark.range(0, 1000, 1, 4).selectExpr("string(id) key", "string(id) value")
    laid_out = partition_by_key(rows, 3)
    owners = laid_out.select(sf.spark_partition_id().alias("task"), "partition").distinct()
    assert sorted(tuple(row) for row in owners.collect()) == [(0, 0), (1, 1), (2, 2)]
    log.write(laid_out, numPartitions=3)
    log.write(rows, "plain", numPartitions=3)
    places = []
    for topic in (TOPIC, "plain"):
        found = log.read(topic, schema="key string, partition int").collect()
        places.append({row.key: row.partition for row in found})
    assert places[0] == places[1]


def test_the_topic_column_spreads_rows_over_topics(log: Log) -> None:
    rows = log.frame([("a", "t1"), ("b", "t2"), ("c", "t1")], "value string, topic string")
    log.write(rows, None, numPartitions=2)
    assert (log.texts("t1"), log.texts("t2")) == (["a", "c"], ["b"])
    assert log.store().topic("t1").partitions == 2
    log.write(rows, "all")
    assert log.texts("all") == ["a", "b", "c"]


def test_compression_is_the_options_for_this_write_alone(log: Log) -> None:
    rows = log.spark.range(2000).selectExpr("repeat('x', 500) value").coalesce(1)
    for codec in ("none", "lz4", "zstd"):
        log.write(rows, codec, compression=codec)
    sizes = {
        codec: sum(file.stat().st_size for file in (log.path / "topics" / codec).rglob("*.log"))
        for codec in ("none", "lz4", "zstd")
    }
    assert sizes["none"] > 10 * max(sizes["lz4"], sizes["zstd"])
    assert log.read(None, subscribePattern=".*").count() == 6000


def test_a_topics_own_limit_of_a_record_rules(log: Log) -> None:
    store = log.create(max_record_bytes=100)
    store.create_topic("large", max_record_bytes=32 << 20)
    found = one_line_error(lambda: log.write(log.values("x" * 101)))
    assert found.startswith("[CURSUS_RECORD_TOO_LARGE] record 0 of the append has 101 bytes")
    log.write(log.spark.sql("SELECT repeat('x', 20 << 20) AS value"), "large")
    assert first(log.read("large").selectExpr("length(value) n")).n == 20 << 20
    log.write(log.values("x" * 100))
    assert log.read().count() == 1


def test_times_outside_what_can_be_printed_are_refused(log: Log) -> None:
    rows = log.spark.sql("SELECT 'v' value, timestamp_micros(300000000000000000) timestamp")
    error = one_line_error(lambda: log.write(rows))
    assert error.startswith(
        "[CURSUS_RECORD_INVALID] timestamp 300000000000000000: outside the years"
    )


def test_a_timestamp_is_an_instant_whatever_the_zone_of_the_session(log: Log) -> None:
    zone = str(log.spark.conf.get("spark.sql.session.timeZone"))
    try:
        log.spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
        log.write(log.spark.sql("SELECT 'v' value, timestamp'2026-01-01T00:00:00Z' timestamp"))
    finally:
        log.spark.conf.set("spark.sql.session.timeZone", zone)
    row = next(row for batch in log.store().read(TOPIC, 0) for row in batch.to_pylist())
    assert row["timestamp"] == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_a_version_that_was_committed_adds_nothing(log: Log) -> None:
    for version, value in ((0, "a"), (0, "twice"), (5, "b"), (4, "older"), (6, "c")):
        log.write(log.values(value), txnAppId="job", txnVersion=version)
    log.write(log.values("another application"), txnAppId="job2", txnVersion=0)
    log.write(log.values("another topic"), "other", txnAppId="job", txnVersion=0)
    assert log.texts() == ["a", "another application", "b", "c"]
    assert log.texts("other") == ["another topic"]


def test_an_older_version_is_written_in_exact_mode_only(log: Log) -> None:
    for version, value in ((20261116, "today"), (20261115, "late"), (20261115, "twice")):
        log.write(log.values(value), txnAppId="job", txnVersion=version, txnMode="exact")
    log.write(log.values("older"), txnAppId="job", txnVersion=20261114)
    assert log.texts() == ["late", "today"]


def test_a_failed_write_leaves_nothing_behind(log: Log) -> None:
    log.write(log.values("before"), numPartitions=2)
    # In one task: another one could still be staging when Spark gives the job up.
    rows = log.spark.range(0, 20_000, 1, 1).selectExpr(
        "string(id) value", "if(id = 15000, raise_error('bad row'), 0) partition"
    )
    with pytest.raises(Exception, match="bad row"):
        log.write(rows)
    assert log.texts() == ["before"]
    assert list((log.path / "staging").iterdir()) == []
    log.write(log.values("after"))
    assert log.texts() == ["after", "before"]
