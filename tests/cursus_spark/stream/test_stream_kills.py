"""Workers of a query killed at every step of source and sink: each record arrives exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.spark.killing import SINK_STEPS, SOURCE_STEPS, Deaths, KillingDataSource
from tests.support.spark.micro_batches import payloads, texts
from tests.support.spark.streams import Streams, finish
from tests.support.stores import errors

pytestmark = pytest.mark.slow


@pytest.fixture
def deaths(tmp_path: Path) -> Deaths:
    return Deaths(str(tmp_path / "deaths"))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path, deaths: Deaths) -> Iterator[Streams]:
    """Queries that can be killed, over a topic ``in`` of two partitions."""
    spark.dataSource.register(KillingDataSource)
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("in", 2)
    made = Streams(spark, tmp_path / "log", "cursus-killing", {"deaths": deaths.directory})
    yield made
    made.stop()


def run_until_done(streams: Streams, source: str, sink: str, deaths: Deaths, **options: int) -> int:
    """Start the copy again until it ends by itself; return how often a kill ended it."""
    failures = 0
    streams.options = {"deaths": deaths.directory}
    while True:
        armed = deaths.armed()
        # A batch that a task was reading is handed over by the planner when it is planned again.
        size = "0" if "in read" in armed else "1m"
        rows = streams.read(source, inlineBatchBytes=size, **options).select("value", "partition")
        query = streams.write(rows, sink, numPartitions=2)
        with suppress(StreamingQueryException):
            finish(query)
            return failures
        assert deaths.armed() != armed, f"it failed, but nobody was killed: {query.exception()}"
        failures += 1


def fill(streams: Streams, records: int) -> None:
    with streams.store() as store:
        for partition in (0, 1):
            store.append("in", partition, payloads(0, records, f"{partition}:"))


def assert_arrived(streams: Streams, topic: str, records: int) -> None:
    """Every record once, in the order of its partition, in a store that is sound."""
    for partition in (0, 1):
        assert streams.values(topic, partition) == texts(0, records, f"{partition}:")
    with streams.store() as store:
        assert errors(store) == []
        assert list((Path(store.path) / "meta" / "intents").iterdir()) == []


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_worker_killed_at_any_step_costs_no_record_and_doubles_none(
    streams: Streams, deaths: Deaths
) -> None:
    fill(streams, 32)
    for step in SOURCE_STEPS + SINK_STEPS:
        # Some later than the first time: between two batches, between two partitions.
        deaths.arm(step, nth=2 if step in ("before latest offset", "in read", "after apply") else 1)
    failures = run_until_done(streams, "in", "out", deaths, maxOffsetsPerTrigger=8)
    assert deaths.armed() == []
    assert failures >= len(SINK_STEPS), "reader and writer of one batch may both have been killed"
    assert_arrived(streams, "out", 32)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_chain_of_queries_killed_at_every_step_without_an_abort_is_exactly_once(
    streams: Streams, tmp_path: Path
) -> None:
    """Nobody tidies up after a kill: the next writer finds and finishes what was decided."""
    fill(streams, 16)
    kills = {
        ("in", "middle"): ("before stage", "after intent", "after ledger"),
        ("middle", "out"): ("after stage", "after apply", "before commit log"),
    }
    for (source, sink), steps in kills.items():
        deaths = Deaths(str(tmp_path / f"deaths-{sink}"))
        deaths.never_abort()
        for step in steps:
            deaths.arm(step)
        assert run_until_done(streams, source, sink, deaths, maxOffsetsPerTrigger=8) == len(steps)
        assert_arrived(streams, sink, 16)


@pytest.mark.chaos
@pytest.mark.parametrize("step", ["after plan", "before stage"])
def test_the_start_of_a_query_holds_across_a_kill_in_its_first_batch(
    streams: Streams, deaths: Deaths, step: str
) -> None:
    with streams.store() as store:
        store.append("in", 0, payloads(0, 5))
        deaths.arm(step)
        rows = streams.read("in", startingOffsets="latest").select("value")
        with pytest.raises(StreamingQueryException):
            finish(streams.write(rows, "out", numPartitions=2))
        store.append("in", 0, payloads(5, 8))
    finish(streams.write(rows, "out", numPartitions=2))
    assert streams.values("out") == texts(5, 8)
