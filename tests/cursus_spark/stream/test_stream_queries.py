"""Real queries over real topics: triggers, arrivals, changes under way, state, progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from cursus_spark.compat import READ_LIMITS_REACH_SOURCES
from cursus_spark.stream.lag_listener import lag_of
from storage_core import Store
from tests.support.spark.micro_batches import payloads, texts
from tests.support.spark.streams import Streams, finish, needs_read_limits, until

pytestmark = [pytest.mark.matrix, pytest.mark.slow]

SECOND = 1_000_000


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries over a topic ``in`` of one partition."""
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("in")
    made = Streams(spark, tmp_path / "log")
    yield made
    made.stop()


class Batches:
    """What ``foreachBatch`` was given, as values by batch."""

    def __init__(self) -> None:
        self.values: dict[int, list[str]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        found = rows.select(sf.col("value").cast("string")).collect()
        self.values[batch] = [row[0] for row in found]

    def all(self) -> list[str]:
        return [value for batch in sorted(self.values) for value in self.values[batch]]


@needs_read_limits
def test_available_now_takes_batches_of_the_limit_and_leaves_what_arrives_meanwhile(
    streams: Streams,
) -> None:
    seen = Batches()
    with streams.store() as store:
        store.append("in", 0, payloads(0, 10))

        def call(rows: DataFrame, batch: int) -> None:
            seen(rows, batch)
            store.append("in", 0, payloads(100 * (batch + 1), 100 * (batch + 1) + 2))

        finish(streams.each(streams.read("in", maxOffsetsPerTrigger=4), call, "now"))
    assert list(seen.values.values()) == [texts(0, 4), texts(4, 8), texts(8, 10)]
    later = Batches()
    finish(streams.each(streams.read("in"), later, "now"))
    assert later.all() == [*texts(100, 102), *texts(200, 202), *texts(300, 302)]


@needs_read_limits
def test_once_takes_everything_in_one_batch(streams: Streams) -> None:
    with streams.store() as store:
        store.append("in", 0, payloads(0, 10))
    seen = Batches()
    rows = streams.read("in", maxOffsetsPerTrigger=4)
    finish(streams.each(rows, seen, "once", {"once": True}))
    assert list(seen.values.values()) == [texts(0, 10)]


def test_a_running_query_reads_what_arrives_new_partitions_and_new_topics(
    streams: Streams,
) -> None:
    seen = Batches()
    rows = streams.read(None, subscribePattern="in.*")
    query = streams.each(rows, seen, "always", {"processingTime": "0 seconds"})
    with streams.store() as store:
        for number in range(5):
            store.append("in", 0, payloads(number, number + 1))
            until(lambda number=number: str(number) in seen.all(), query)  # type: ignore[misc]
        store.add_partitions("in", 2)
        store.append("in", 1, payloads(0, 2, "partition "))
        until(lambda: "partition 1" in seen.all(), query)
        store.create_topic("in-2")
        store.append("in-2", 0, payloads(0, 2, "topic "))
        until(lambda: "topic 1" in seen.all(), query)
        # The end of the log in the progress shows how far behind the query is, since PySpark 4.2.
        if READ_LIMITS_REACH_SOURCES:
            until(lambda: "in-2" in str(_source(query).get("latestOffset")), query)
    query.stop()
    assert seen.all() == texts(0, 5) + texts(0, 2, "partition ") + texts(0, 2, "topic ")


def _source(query: StreamingQuery) -> dict[str, Any]:
    """The source's part of the last progress."""
    progress = query.lastProgress
    found: dict[str, Any] = {} if progress is None else json.loads(progress.json)["sources"][0]
    return found


def test_what_the_streaming_page_says_is_not_there(streams: Streams) -> None:
    with streams.store() as store:
        store.append("in", 0, payloads(0, 10))
    rows = streams.read("in").select("value")
    with pytest.raises(PySparkException, match="cursus does not support continuous processing"):
        streams.write(rows, "out", trigger={"continuous": "1 second"})
    query = streams.each(rows, Batches(), "metrics")
    finish(query)
    assert "offsetsBehindLatest" not in query.recentProgress[0].json
    assert query.recentProgress[0].sources[0].metrics == {}


@needs_read_limits
def test_the_progress_shows_how_far_behind_each_partition_is(streams: Streams) -> None:
    with streams.store() as store:
        store.add_partitions("in", 2)
        store.append("in", 0, payloads(0, 10))
    query = streams.each(streams.read("in", maxOffsetsPerTrigger=4), Batches(), "behind")
    finish(query)
    first, *_, last = (lag_of(progress) for progress in query.recentProgress)
    assert first is not None
    assert first.partitions == {("in", 0): 6, ("in", 1): 0}
    assert last is not None
    assert last.records == 0


def test_losses_end_a_query_in_one_line_or_are_passed_over_when_asked(streams: Streams) -> None:
    rows = streams.read("in").select("value")
    with streams.store() as store:
        store.append("in", 0, payloads(0, 3))
        finish(streams.write(rows, "out"))
        store.delete_topic("in")
        store.create_topic("in")
        store.append("in", 0, payloads(0, 5, "new "))
    with pytest.raises(StreamingQueryException) as caught:
        finish(streams.write(rows, "out"))
    assert "[CURSUS_DATA_LOSS] Topic 'in' was deleted and created again" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    goes_on = streams.read("in", failOnDataLoss="false").select("value")
    finish(streams.write(goes_on, "out"))
    assert streams.values("out") == texts(0, 3) + texts(0, 5, "new ")


@needs_read_limits
def test_a_windowed_aggregation_with_a_watermark_over_the_timestamp(streams: Streams) -> None:
    with streams.store() as store:
        stamps = [second * SECOND for second in (1, 2, 11, 12, 13, 21, 60)]
        store.append("in", 0, payloads(0, len(stamps)), timestamps=stamps)
    counted = (
        streams.read("in", maxOffsetsPerTrigger=3)
        .withWatermark("timestamp", "5 seconds")
        .groupBy(sf.window("timestamp", "10 seconds"))
        .count()
        .select(sf.concat_ws(" ", sf.unix_timestamp("window.start"), "count").alias("value"))
    )
    finish(streams.write(counted, "out"))
    assert sorted(streams.values("out")) == ["0 2", "10 3", "20 1"]


def test_a_join_of_two_streams(streams: Streams) -> None:
    with streams.store() as store:
        store.create_topic("names")
        store.append("in", 0, payloads(0, 4), keys=payloads(0, 4, "k"))
        store.append("names", 0, payloads(2, 6, "name "), keys=payloads(2, 6, "k"))
    left = streams.read("in").select("key", sf.col("value").cast("string").alias("number"))
    right = streams.read("names").select("key", sf.col("value").cast("string").alias("name"))
    joined = left.join(right, "key").select(sf.concat_ws("=", "number", "name").alias("value"))
    finish(streams.write(joined, "out"))
    assert sorted(streams.values("out")) == ["2=name 2", "3=name 3"]


@needs_read_limits  # on 4.1 the last position is written when the next batch starts
def test_positions_of_the_group_are_in_the_store_when_a_run_ends(streams: Streams) -> None:
    rows = streams.read("in", consumerGroup="billing").select("value")
    with streams.store() as store:
        store.append("in", 0, payloads(0, 3))
        finish(streams.write(rows, "out"))
        assert store.committed_offsets("billing") == {"in": {0: 3}}
        store.append("in", 0, payloads(3, 5))
    again = streams.read("in", consumerGroup="billing", startingOffsets="group").select("value")
    finish(streams.write(again, "other"))
    assert streams.values("other") == texts(3, 5)


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_query_over_a_brokers_directory_while_a_writer_appends_to_it(
    streams: Streams, tmp_path: Path, layout: str
) -> None:
    broker = Streams(streams.spark, tmp_path / layout, running=streams.running)
    with Store.open(broker.path, layout=layout, create=True) as store:
        for topic in ("in", "out"):
            store.create_topic(topic)
        store.append("in", 0, payloads(0, 2))
        rows = broker.read("in", layout=layout).select("value")
        always = {"processingTime": "0 seconds"}
        query = broker.write(rows, "out", trigger=always, layout=layout)
        for number in range(2, 6):
            store.append("in", 0, payloads(number, number + 1))
            until(lambda number=number: str(number) in broker.values("out"), query)  # type: ignore[misc]
    query.stop()
    assert broker.values("out") == texts(0, 6)
