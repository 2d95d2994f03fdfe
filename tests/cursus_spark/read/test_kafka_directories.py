"""A Kafka broker's log directory through Spark gives what Kafka's consumers got of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from storage_core.types import IsolationLevel
from tests.support.brokers.broker_directories import snapshot
from tests.support.brokers.kafka_directories import DATA, Record, copied, partitions
from tests.support.spark.dataframes import Log, one_line_error
from tests.support.spark.streams import Streams, finish

TYPES = ("CreateTime", "LogAppendTime")


def as_record(row: Row) -> Record:
    """A row of a read with headers, in the session's zone UTC."""
    seconds = row.timestamp.astimezone(UTC).timestamp()
    return Record(
        row.offset,
        round(1000 * seconds),
        TYPES[row.timestampType],
        None if row.key is None else bytes(row.key),
        None if row.value is None else bytes(row.value),
        tuple((key, None if value is None else bytes(value)) for key, value in row.headers or ()),
    )


def seen(case: str, topic: str, isolation: str) -> dict[int, list[Record]]:
    """What consumers got of each partition, up to the high watermark in the file."""
    found = {}
    for it in partitions(case):
        if it.topic == topic:
            records = it.seen(isolation).records
            end = it.in_file if isolation != "log_end" else None
            found[it.number] = [each for each in records if end is None or each.offset < end]
    return found


def by_partition(rows: list[Row]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(as_record(row))
    return {number: sorted(records) for number, records in found.items()}


@pytest.mark.parametrize("isolation", get_args(IsolationLevel))
def test_a_batch_has_the_records_of_a_consumer(spark: SparkSession, isolation: str) -> None:
    """Committed, aborted and open transactions in two partitions of several segments."""
    log = Log(spark, DATA / "transactions")
    rows = log.read("payments", isolation=isolation, includeHeaders="true").collect()
    assert {row.topic for row in rows} == {"payments"}
    assert by_partition(rows) == seen("transactions", "payments", isolation)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, copied("lagging", tmp_path))
    yield made
    made.stop()


def test_a_stream_goes_on_where_the_high_watermark_file_goes(streams: Streams) -> None:
    before, rows = snapshot(streams.path), list[Row]()

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(batch.collect())

    for end in (None, 36):
        if end is not None:
            high = streams.path / "replication-offset-checkpoint"
            high.write_text(f"0\n1\norders 0 {end}\n")
            before = snapshot(streams.path)
        finish(streams.each(streams.read("orders", includeHeaders="true"), take, "one"))
        due = seen("lagging", "orders", "log_end" if end else "read_committed")
        assert by_partition(rows) == due
    assert len(rows) == len({row.offset for row in rows})
    assert snapshot(streams.path) == before


def test_a_write_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, copied("lagging", tmp_path))
    before = snapshot(log.path)
    found = one_line_error(lambda: log.write(log.values("mine")))
    assert found.startswith("[CURSUS_NOT_WRITABLE] layout kafka is only read")
    assert snapshot(log.path) == before
