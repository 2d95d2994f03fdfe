"""Small batches reach Spark with their plan, on every release: no task asks Python for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from cursus_spark.compat import READ_LIMITS_REACH_SOURCES
from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_stream_read_options
from cursus_spark.read.typed_topics import check_columns
from cursus_spark.stream.reader import CursusStreamReader
from storage_core import Store
from tests.support.spark.micro_batches import payloads, texts
from tests.support.spark.streams import Streams, finish
from tests.support.spark.typed_frames import every_type, typed_topic

pytestmark = [pytest.mark.matrix, pytest.mark.slow]


class NoTaskReads(CursusStreamReader):
    """The source, of which no task may read."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError(f"a task reads {partition}")


class PlannerOnlySource(CursusDataSource):
    """``.format("planner-only")``."""

    @classmethod
    def name(cls) -> str:
        return "planner-only"

    def streamReader(self, schema: StructType) -> NoTaskReads:  # noqa: N802
        options = parse_stream_read_options(self.options)
        typed, where = check_columns(options, schema)
        return NoTaskReads(options, schema, typed=typed, where=where)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries whose batches come with their plans, or fail."""
    spark.dataSource.register(PlannerOnlySource)
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("in", 2)
        for partition in (0, 1):
            store.append("in", partition, payloads(0, 6, f"{partition}:"), keys=[b"k"] * 6)
    made = Streams(spark, tmp_path / "log", "planner-only")
    yield made
    made.stop()


def collected(streams: Streams, rows: DataFrame, name: str) -> tuple[list[Row], list[Any]]:
    """All rows of a query, each batch read twice, and its progress."""
    found: list[Row] = []

    def call(batch: DataFrame, _: int) -> None:
        rows, count = batch.collect(), batch.count()
        assert count == len(rows)
        found.extend(rows)

    query = streams.each(rows, call, name)
    finish(query)
    return found, [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]


def test_records_come_with_the_plan_and_the_progress_still_shows_the_lag(streams: Streams) -> None:
    limits = {"maxOffsetsPerTrigger": 4} if READ_LIMITS_REACH_SOURCES else {}
    rows = streams.read("in", includeHeaders="true", **limits)
    found, progress = collected(streams, rows, "records")
    assert sorted(row.value.decode() for row in found) == texts(0, 6, "0:") + texts(0, 6, "1:")
    assert {(row.topic, row.partition, row.key, row.headers) for row in found} == {
        ("in", number, b"k", None) for number in (0, 1)
    }
    if READ_LIMITS_REACH_SOURCES:
        assert [each["numInputRows"] for each in progress[:3]] == [8, 8, 8], "each is read twice"
        assert progress[0]["latestOffset"]["pos"] == {"in": {"0": 6, "1": 6}}
    with streams.store() as store:
        store.append("in", 1, payloads(6, 8, "1:"))
    found, _ = collected(streams, rows, "records")
    assert [row.value.decode() for row in found] == texts(6, 8, "1:")


def test_a_state_and_an_empty_batch_come_with_the_plan(streams: Streams) -> None:
    counted = streams.read("in").groupBy("partition").agg(sf.count("*").alias("n"))
    found: dict[int, int] = {}

    def call(batch: DataFrame, _: int) -> None:
        found.update({row.partition: row.n for row in batch.collect()})

    for total in (6, 7):
        query = counted.writeStream.outputMode("update").foreachBatch(call)
        query = query.option("checkpointLocation", streams.checkpoint("state"))
        finish(query.trigger(availableNow=True).start())
        assert found == {0: total, 1: 6}
        with streams.store() as store:
            store.append("in", 0, [b"one more"])


def test_typed_rows_are_those_that_tasks_read_whatever_their_types(streams: Streams) -> None:
    every = every_type(range(60))
    with streams.store() as store:
        typed_topic(store, "typed", every.drop_columns(["counts"]))
        typed_topic(store, "numbers", every.select(["id", "counts"]))
    handed, _ = collected(streams, streams.read("typed"), "handed")
    streams.format = "cursus"
    by_tasks, _ = collected(streams, streams.read("typed", inlineBatchBytes=0), "by-tasks")
    assert len(by_tasks) == 60
    assert list(map(repr, handed)) == list(map(repr, by_tasks))
    found, _ = collected(streams, streams.read("numbers"), "numbers")
    assert {"k": 2, "l": None} in [row.counts for row in found], "Spark cannot take this one"


def test_columns_that_cannot_be_handed_over_are_read_by_tasks(
    streams: Streams, spark: SparkSession
) -> None:
    """A catalog table has its options in the metadata of its columns."""
    streams.format = "cursus"
    options = f"OPTIONS (path '{streams.path}', subscribe 'in', startingOffsets 'earliest')"
    spark.sql(f"CREATE TABLE inline_stream USING cursus {options}")
    try:
        found, _ = collected(streams, spark.readStream.table("inline_stream"), "table")
    finally:
        spark.sql("DROP TABLE inline_stream")
    assert len(found) == 12
