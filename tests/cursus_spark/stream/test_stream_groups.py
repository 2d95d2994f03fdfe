"""The consumer group of a stream: positions mirrored into the store, and started from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from tests.support.spark.micro_batches import TOPIC, MicroBatches, payloads, texts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a topic of two partitions and five records."""
    made = Store.open(tmp_path / "log", create=True)
    made.create_topic(TOPIC, 2)
    made.append(TOPIC, 0, payloads(0, 5))
    return made


def query(store: Store, **options: Any) -> MicroBatches:
    return MicroBatches(Path(store.path), consumerGroup="readers", **options)


def test_finished_batches_are_mirrored_into_the_group(store: Store) -> None:
    stream = query(store, maxOffsetsPerTrigger=2)
    assert stream.plan_next()
    stream.run_logged()
    assert store.committed_offsets("readers") == {}
    stream.finish()
    assert store.committed_offsets("readers") == {TOPIC: {0: 2, 1: 0}}
    stream.drain()
    assert store.committed_offsets("readers") == {TOPIC: {0: 5, 1: 0}}


def test_the_last_batch_of_a_run_is_mirrored_though_spark_commits_it_only_with_the_next(
    store: Store,
) -> None:
    stream = query(store).available_now()
    assert stream.plan_next()
    stream.run_logged()
    assert not stream.plan_next()  # the last thing an AvailableNow run asks
    assert store.committed_offsets("readers") == {TOPIC: {0: 5, 1: 0}}


def test_an_idle_stream_does_not_write_its_group_again(store: Store) -> None:
    stream = query(store)
    stream.drain()
    (file,) = (Path(store.path) / "meta" / "consumer-offsets").glob("*.json")
    written = file.stat().st_mtime_ns
    assert stream.drain() == []
    assert file.stat().st_mtime_ns == written


def test_a_new_query_starts_where_the_group_stands(store: Store) -> None:
    query(store).drain()
    store.append(TOPIC, 0, payloads(5, 7))
    store.append(TOPIC, 1, payloads(0, 1, "other "))
    again = query(store, startingOffsets="group")
    assert again.drain() == [["5", "6", "other 0"]]


def test_a_group_that_never_read_starts_at_the_first_record(store: Store) -> None:
    assert query(store, startingOffsets="group").drain() == [texts(0, 5)]


def test_positions_of_a_recreated_topic_are_not_taken_for_those_of_the_old_one(
    store: Store,
) -> None:
    stream = query(store, failOnDataLoss="false")
    assert stream.plan_next()
    stream.run_logged()
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC)
    stream.finish()
    assert store.committed_offsets("readers") == {}
    store.append(TOPIC, 0, payloads(0, 2, "new "))
    assert query(store, startingOffsets="group").drain() == [["new 0", "new 1"]]
