"""Reads of a running broker's directory, while it writes, rolls, deletes and compacts."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from storage_core.errors import DataLossError, OffsetOutOfRangeError, StorageError
from tests.kafka.cases import START_MS, Case, Sent, World, send
from tests.kafka.making import world_of
from tests.support.brokers.kafka_directories import Record, read

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
_READING_S = 12


@contextmanager
def in_background(action: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Run an action in a thread until the block ends, and raise what it raises."""
    stop, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            action(stop)
        except BaseException as error:
            raised.append(error)
            stop.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()
    assert not raised, raised


def numbered(first: int, count: int, keys: int = 10**9) -> list[Sent]:
    """Records whose value tells their number, and whose key repeats."""
    return [
        Sent(b"%d" % (number % keys), b"%d" % number, START_MS + number, [("n", b"%d" % number)])
        for number in range(first, first + count)
    ]


def produce_until(world: World, topic: str, keys: int = 10**9) -> Callable[[threading.Event], None]:
    """One producer, so the number of a record is its offset."""

    def produce(stop: threading.Event) -> None:
        producers = [world.client.producer(compression_type=it) for it in ("none", "zstd", "lz4")]
        sent = 0
        while not stop.is_set():
            count = 1 + sent % 17
            send(producers[sent % 3], topic, numbered(sent, count, keys))
            sent += count

    return produce


def require_numbered(found: list[Record]) -> None:
    for it in found:
        number = b"%d" % it.offset
        assert (it.value, it.headers) == (number, (("n", number),))
        assert it.timestamp == START_MS + it.offset


def test_a_read_beside_the_broker_gives_a_run_of_its_records(tmp_path: Path) -> None:
    """One store stays open, another is opened for every read; the end never goes back."""
    case = Case("live", "", lambda _: None)
    with world_of(tmp_path, case) as world:
        world.client.create_topic("n", internal_segment_bytes=30_000, index_interval_bytes=500)
        with in_background(produce_until(world, "n")) as stop:
            _read_for_a_while(world, stop)


def _read_for_a_while(world: World, stop: threading.Event) -> None:
    end, reads = 0, 0
    store: Store | None = None
    begun = time.monotonic()
    while time.monotonic() - begun < _READING_S and not stop.is_set():
        if store is None:
            if "n 0 " in (world.data / "replication-offset-checkpoint").read_text():
                store = Store.open(world.data)
            continue
        for each in (store, Store.open(world.data)):
            found = read(each, "n", 0)
            assert [it.offset for it in found] == list(range(len(found)))
            require_numbered(found)
            assert len(found) >= end
            end = len(found)
            reads += 1
    assert reads > 4
    assert end > 500


def test_segments_that_the_broker_deletes_or_compacts_are_an_error_or_change_nothing(
    tmp_path: Path,
) -> None:
    settings = {
        "log.cleaner.backoff.ms": 50,
        "log.retention.check.interval.ms": 100,
        "log.initial.task.delay.ms": 100,
        "log.segment.delete.delay.ms": 0,
    }
    case = Case("live", "", lambda _: None, settings)
    with world_of(tmp_path, case) as world:
        client = world.client
        client.create_topic("deleted", internal_segment_bytes=8_000, retention_bytes=30_000)
        client.create_topic(
            "compacted",
            internal_segment_bytes=8_000,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=0.01,
        )
        with (
            in_background(produce_until(world, "deleted")) as first,
            in_background(produce_until(world, "compacted", keys=50)) as second,
        ):
            outcomes = _read_both(world, first, second)
    assert outcomes["deleted"] > 3
    assert outcomes["compacted"] > 3


def _read_both(world: World, *stops: threading.Event) -> dict[str, int]:
    """Reads that ended well, by topic. No other error than of lost data may come."""
    done = {"deleted": 0, "compacted": 0}
    begun = time.monotonic()
    while time.monotonic() - begun < _READING_S and not any(it.is_set() for it in stops):
        for topic in done:
            done[topic] += _read_once(world, topic)
    return done


def _read_once(world: World, topic: str) -> bool:
    try:
        with Store.open(world.data) as store:
            if topic not in store.topics() or not store.visible_ends(topic)[0]:
                return False
            found = read(store, topic, 0)
    except (DataLossError, OffsetOutOfRangeError):
        assert topic == "deleted"
        return False
    require_numbered(found)
    offsets = [it.offset for it in found]
    if topic == "deleted" and found:
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
    # A record whose key came again above the high watermark file may be compacted already.
    assert offsets == sorted(set(offsets))
    return True


def test_a_killed_broker_leaves_what_it_acknowledged(tmp_path: Path) -> None:
    """Its files, read before it starts again, have every acknowledged record."""
    case = Case("killed", "", lambda _: None)
    acknowledged: list[int] = []

    def produce(stop: threading.Event) -> None:
        producer = world.client.producer(linger_ms=0, batch_num_messages=7, message_timeout_ms=5000)
        number = 0
        while not stop.is_set():
            for it in numbered(number, 50):
                producer.produce("n", it.value, key=it.key, on_delivery=delivered, partition=0)
            number += 50
            producer.flush(0.05)
        producer.purge()
        producer.flush(5)

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged.append(message.offset())

    (tmp_path / "work").mkdir()
    with world_of(tmp_path / "work", case) as world:
        world.client.create_topic("n", internal_segment_bytes=30_000, preallocate="true")
        with in_background(produce):
            while len(acknowledged) < 2000:
                time.sleep(0.05)
            world.kill()
        killed = tmp_path / "killed"
        shutil.copytree(world.data, killed)
        world.start()
        seen = world.client.consume("n", 0, "read_uncommitted")
    with Store.open(killed, isolation="log_end") as store:
        assert store.check() == []
        found = read(store, "n", 0)
    offsets = [it.offset for it in found]
    assert offsets == [it["offset"] for it in seen["records"]]
    assert set(acknowledged) <= set(offsets)
    with pytest.raises(StorageError), Store.open(killed) as store:
        store.append("n", 0, [b"ours"])
