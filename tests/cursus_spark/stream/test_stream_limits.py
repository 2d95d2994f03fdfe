"""How much a micro-batch takes: limits record by record, and the frozen end of AvailableNow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cursus_spark.compat import ReadAllAvailable, ReadMaxRows
from storage_core import Store
from tests.support.spark.micro_batches import TOPIC, MicroBatches, joined, payloads, texts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one topic of three partitions."""
    made = Store.open(tmp_path / "log", create=True)
    made.create_topic(TOPIC, 3)
    return made


def query(store: Store, **options: Any) -> MicroBatches:
    return MicroBatches(Path(store.path), **options)


def fill(store: Store, *counts: int) -> list[list[str]]:
    """Append to partitions 0, 1, … and return what each holds."""
    for partition, count in enumerate(counts):
        if count:
            store.append(TOPIC, partition, payloads(0, count, f"{partition}:"))
    return [texts(0, count, f"{partition}:") for partition, count in enumerate(counts)]


def by_partition(batch: list[str]) -> list[int]:
    return [sum(value.startswith(f"{partition}:") for value in batch) for partition in range(3)]


@pytest.mark.parametrize("most", range(1, 15))
def test_max_offsets_is_kept_to_the_record_and_shared_by_backlog(store: Store, most: int) -> None:
    written = fill(store, 8, 4, 1)
    stream = query(store, maxOffsetsPerTrigger=most)
    batches = stream.drain()
    partitions_with_a_backlog = 3
    assert all(len(batch) <= max(most, partitions_with_a_backlog) for batch in batches)
    assert all(len(batch) == most for batch in batches[:-1] if most >= 3)
    assert all(by_partition(batches[0])), "every partition with a backlog moves on"
    for partition, values in enumerate(written):
        read = [value for batch in batches for value in batch if value[0] == str(partition)]
        assert read == values


def test_shares_follow_the_backlogs(store: Store) -> None:
    fill(store, 80, 20, 0)
    assert by_partition(query(store, maxOffsetsPerTrigger=10).trigger() or []) == [8, 2, 0]


def test_max_bytes_is_soft_but_near_and_every_partition_moves_on(tmp_path: Path) -> None:
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic(TOPIC, 2, frame_records=10, index_interval_bytes=1024)
        for partition in (0, 1):
            for first in range(0, 400, 10):
                store.append(TOPIC, partition, [b"x" * 100] * 10, keys=payloads(first, first + 10))
    stream = MicroBatches(tmp_path / "log", maxBytesPerTrigger="20k")
    sizes = [len(batch) for batch in stream.drain()]
    assert sum(sizes) == 800
    one_interval_each = 2 * 20
    assert all(100 < size <= 200 + one_interval_each for size in sizes[:-1]), sizes


def test_a_byte_limit_below_one_record_still_moves_on(store: Store) -> None:
    written = fill(store, 5, 3)
    batches = query(store, maxBytesPerTrigger=1).drain()
    assert sorted(joined(batches)) == sorted(written[0] + written[1])


def test_both_limits_hold_together(store: Store) -> None:
    fill(store, 9)
    stream = query(store, maxBytesPerTrigger="1g", maxOffsetsPerTrigger=4)
    assert [len(batch) for batch in stream.drain()] == [4, 4, 1]


def test_once_ignores_the_limits(store: Store) -> None:
    fill(store, 9, 9)
    stream = query(store, maxOffsetsPerTrigger=4, minOffsetsPerTrigger=2)
    assert len(stream.trigger(everything=True) or []) == 18


def test_the_default_limit_says_whether_there_is_one(store: Store) -> None:
    assert isinstance(query(store).reader.getDefaultReadLimit(), ReadAllAvailable)
    limited = query(store, maxOffsetsPerTrigger=7).reader.getDefaultReadLimit()
    assert limited == ReadMaxRows(7)
    assert not isinstance(
        query(store, maxBytesPerTrigger=7).reader.getDefaultReadLimit(), ReadAllAvailable
    )


def test_a_batch_waits_for_the_minimum(store: Store) -> None:
    stream = query(store, minOffsetsPerTrigger=5, maxTriggerDelay="10m")
    assert stream.trigger() == []
    fill(store, 2, 2)
    assert stream.trigger() is None
    assert stream.trigger() is None
    store.append(TOPIC, 2, payloads(0, 1))
    assert len(stream.trigger() or []) == 5


def test_a_batch_waits_no_longer_than_the_delay(store: Store) -> None:
    stream = query(store, minOffsetsPerTrigger=100, maxTriggerDelay="300ms")
    assert stream.trigger() == []
    fill(store, 2)
    begin = time.monotonic()
    assert stream.trigger() is None
    while (found := stream.trigger()) is None:
        assert time.monotonic() < begin + 60
        time.sleep(0.01)
    assert found == ["0:0", "0:1"]
    assert time.monotonic() - begin >= 0.25


def test_the_first_batch_after_a_restart_does_not_wait(store: Store) -> None:
    """Else a query that is started often, or fails often, would never read a slow topic."""
    stream = query(store, minOffsetsPerTrigger=5, maxTriggerDelay="10m")
    assert stream.trigger() == []
    fill(store, 2)
    assert stream.trigger() is None
    assert stream.restart().trigger() == texts(0, 2, "0:")
    fill(store, 1)
    assert stream.trigger() is None


def test_available_now_reads_what_was_there_when_its_first_batch_was_planned(
    store: Store,
) -> None:
    fill(store, 10)
    stream = query(store, maxOffsetsPerTrigger=4).available_now()
    fill(store, 2)  # after the preparation, before the first batch
    batches = []
    while (found := stream.trigger()) is not None:
        batches.append(found)
        fill(store, 3)
        store.add_partitions(TOPIC, 3 + len(batches))
        store.append(TOPIC, 2 + len(batches), payloads(0, 1, "new:"))
        assert len(batches) < 20
    assert joined(batches) == texts(0, 10, "0:") + texts(0, 2, "0:")
    arrived = stream.restart(maxOffsetsPerTrigger=1000).available_now().drain()
    added = len(batches)
    assert sorted(joined(arrived)) == sorted(texts(0, 3, "0:") * added + ["new:0"] * added)


def test_available_now_ignores_the_minimum(store: Store) -> None:
    fill(store, 3)
    stream = query(store, minOffsetsPerTrigger=100)
    assert stream.trigger() == texts(0, 3, "0:")
    fill(store, 2)
    assert stream.restart().available_now().drain() == [texts(0, 2, "0:")]


def test_available_now_does_not_compare_a_logged_batch_with_its_target(store: Store) -> None:
    """A batch that was logged before partitions were added is run as it was."""
    fill(store, 4)
    stream = query(store).available_now()
    assert stream.plan_next()
    store.add_partitions(TOPIC, 5)
    store.append(TOPIC, 4, payloads(0, 2, "4:"))
    assert stream.restart().available_now().drain() == [texts(0, 4, "0:"), texts(0, 2, "4:")]
