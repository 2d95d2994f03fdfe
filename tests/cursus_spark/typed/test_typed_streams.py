"""Streams over typed topics: rows, restarts, limits, losses, and columns that change meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from storage_core import Store
from tests.support.spark.streams import Streams, finish, needs_read_limits, until
from tests.support.spark.typed_frames import (
    every_type,
    frame_of,
    same_rows,
    typed_topic,
)
from tests.support.typed.typed_topics import commit_table

ROWS = every_type(range(60))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "log", create=True)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, tmp_path / "log")
    yield made
    made.stop()


class Sink:
    """What every batch of a query had."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:  # noqa: ARG002 - Spark's signature
        self.batches.append(rows.collect())

    @property
    def ids(self) -> list[int]:
        return sorted(row.id for rows in self.batches for row in rows)


def run(streams: Streams, name: str, **options: Any) -> Sink:
    sink = Sink()
    finish(streams.each(streams.read("t", **options), sink, name))
    return sink


def test_a_stream_reads_what_was_written(
    streams: Streams, store: Store, spark: SparkSession
) -> None:
    typed_topic(store, "t", ROWS)
    compared = []

    def compare(rows: DataFrame, batch: int) -> None:
        same_rows(rows, frame_of(spark, ROWS))
        compared.append(batch)

    finish(streams.each(streams.read("t"), compare, "all"))
    assert compared == [0]


def test_a_restart_reads_what_is_new(streams: Streams, store: Store) -> None:
    typed_topic(store, "t", ROWS.select(["id", "text"]))
    assert run(streams, "q").ids == list(range(60))
    store.append_table("t", pa.table({"id": [100, 101]}))
    assert run(streams, "q").ids == [100, 101]


@needs_read_limits
@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 25}, {"maxBytesPerTrigger": 1}])
def test_limits_and_the_group_work_as_for_records(
    streams: Streams, store: Store, limit: dict[str, int]
) -> None:
    typed_topic(store, "t", ROWS.select(["id"]), partitions=2)
    store.append_table("t", ROWS.slice(0, 40).select(["id"]), partition=1)
    sink = run(streams, "q", consumerGroup="readers", where="id >= 30", **limit)
    assert sink.ids == sorted([*range(30, 60), *range(30, 40)])
    assert store.committed_offsets("readers") == {"t": {0: 60, 1: 40}}
    if "maxOffsetsPerTrigger" in limit:
        assert len(sink.batches) == 4  # they count the rows before where


def test_where_and_metadata_in_a_stream(streams: Streams, store: Store) -> None:
    typed_topic(store, "t", ROWS.select(["id", "number"]), partitions=2)
    sink = run(streams, "q", where="number > 50000 and _partition = 0", includeMetadata=True)
    (rows,) = sink.batches
    assert [(row.id, row._offset) for row in rows] == [(n, n) for n in range(51, 60) if n % 5 != 4]
    with pytest.raises(Exception, match=re.escape("[CURSUS_PREDICATE_INVALID] where: ")):
        streams.read("t", where="nmber > 5")


def started(streams: Streams, sink: Sink, **options: Any) -> StreamingQuery:
    query = streams.each(streams.read("t", **options), sink, "q", {"processingTime": "0 seconds"})
    until(lambda: len(sink.ids) == 2, query)
    return query


WIDER = pa.table({"id": [3, 4], "n": pa.array([30, 40]), "new": ["x", None]})


@pytest.fixture
def small(store: Store) -> Store:
    typed_topic(store, "t", pa.table({"id": [1, 2], "n": pa.array([10, 20], pa.int32())}))
    return store


def test_a_running_stream_keeps_its_columns_and_a_restart_takes_the_new_ones(
    streams: Streams, small: Store
) -> None:
    sink = Sink()
    query = started(streams, sink)
    commit_table(small, "t", WIDER)
    query.processAllAvailable()
    query.stop()
    assert [row for rows in sink.batches for row in rows] == [(1, 10), (2, 20), (3, 30), (4, 40)]
    small.append_table("t", pa.table({"id": [5], "n": [2**40], "new": ["y"]}))
    again = run(streams, "q")
    assert again.batches == [[(5, 2**40, "y")]]


def test_a_running_stream_fails_at_a_value_that_its_type_cannot_hold(
    streams: Streams, small: Store
) -> None:
    sink = Sink()
    query = started(streams, sink)
    commit_table(small, "t", pa.table({"id": [5], "n": [2**40]}))
    with pytest.raises(Exception, match=r"\[CURSUS_SCHEMA_MISMATCH\] topic 't', column n: found a"):
        finish(query)
    assert run(streams, "q").batches == [[(5, 2**40)]]


def test_a_running_stream_may_end_at_new_columns(streams: Streams, small: Store) -> None:
    sink = Sink()
    query = started(streams, sink, schemaEvolutionMode="fail")
    commit_table(small, "t", WIDER)
    with pytest.raises(Exception, match=r"\[CURSUS_SCHEMA_CHANGED\] Topic 't': column n became"):
        finish(query)
    assert run(streams, "q", schemaEvolutionMode="fail").batches == [[(3, 30, "x"), (4, 40, None)]]


def test_lost_rows_are_an_error_or_are_skipped(streams: Streams, store: Store) -> None:
    store.create_topic("t", schema=pa.schema([("id", pa.int64())]), segment_bytes=4096)
    store.append_table("t", ROWS.select(["id"]))
    assert run(streams, "q").ids == list(range(60))
    store.append_table("t", pa.table({"id": [60, 61]}))
    store.roll("t", 0)
    store.append_table("t", pa.table({"id": [62]}))
    store.delete_records("t", {0: 62})
    with pytest.raises(
        Exception, match=r"\[CURSUS_DATA_LOSS\] t-0: records 60 to 61 are no longer"
    ):
        run(streams, "q")
    assert run(streams, "q", failOnDataLoss=False).ids == [62]
