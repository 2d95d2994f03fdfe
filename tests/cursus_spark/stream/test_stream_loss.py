"""Topics that are deleted, recreated or aged out under a stream: an error, or a warning and on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursus_spark.errors import CursusError
from storage_core import Store
from tests.support.spark.micro_batches import TOPIC, MicroBatches, payloads, texts

RECREATED = r"DATA_LOSS\] Topic 'orders' was deleted and created again since the checkpoint\."
DELETED = r"DATA_LOSS\] Topic 'orders' was deleted\."


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a topic of five records."""
    made = Store.open(tmp_path / "log", create=True)
    made.create_topic(TOPIC)
    made.append(TOPIC, 0, payloads(0, 5))
    return made


def query(store: Store, **options: Any) -> MicroBatches:
    return MicroBatches(Path(store.path), **options)


def recreate(store: Store, records: int, prefix: str = "new ") -> None:
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC)
    store.append(TOPIC, 0, payloads(0, records, prefix))


def age_out(store: Store, topic: str = TOPIC) -> None:
    """Drop everything but the active segment."""
    store.roll(topic, 0)
    store.append(topic, 0, [b"active"])
    store.alter_topic(topic, retention_bytes=1)
    store.retain(topic)


def test_a_missing_topic_is_an_error_of_the_first_batch(store: Store) -> None:
    with pytest.raises(CursusError, match=r"TOPIC_NOT_FOUND.*Topics found: orders"):
        MicroBatches(Path(store.path), "ordres").trigger()


@pytest.mark.parametrize("records", [2, 9], ids=["fewer", "more"])
def test_a_recreated_topic_is_noticed_however_many_records_it_has(
    store: Store, records: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query(store)
    stream.drain()
    recreate(store, records)
    with pytest.raises(CursusError, match=RECREATED):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.drain() == [texts(0, records, "new ")]
    assert caplog.text.count("created again") == 1
    store.append(TOPIC, 0, payloads(0, 1, "then "))
    assert stream.drain() == [["then 0"]]


def test_a_recreated_topic_is_read_within_the_limits(store: Store) -> None:
    stream = query(store, maxOffsetsPerTrigger=2, failOnDataLoss="false")
    assert stream.trigger() == texts(0, 2)
    recreate(store, 5)
    assert stream.drain() == [["new 0", "new 1"], ["new 2", "new 3"], ["new 4"]]


def test_a_deleted_topic_is_noticed_and_with_leave_dropped_and_found_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query(store)
    stream.drain()
    store.delete_topic(TOPIC)
    with pytest.raises(CursusError, match=DELETED):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.drain() == [[]]
    assert stream.drain() == []
    assert caplog.text.count("was deleted") == 1
    store.create_topic(TOPIC)
    store.append(TOPIC, 0, payloads(0, 2))
    assert stream.drain() == [texts(0, 2)]


@pytest.mark.parametrize("again", [False, True])
def test_a_logged_batch_whose_topic_is_gone_is_not_passed_over_in_silence(
    store: Store, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query(store)
    assert stream.plan_next()
    store.delete_topic(TOPIC)
    if again:
        store.create_topic(TOPIC)
    with pytest.raises(CursusError, match=RECREATED if again else DELETED):
        stream.restart().run_logged()
    assert stream.restart(failOnDataLoss="false").run_logged() == []
    assert "DATA_LOSS" in caplog.text


def test_retention_that_overtakes_a_slow_stream_is_an_error_with_both_bounds(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query(store, maxOffsetsPerTrigger=2)
    assert stream.trigger() == texts(0, 2)
    age_out(store)
    lost = r"DATA_LOSS\] orders-0: records 2 to 4 are no longer in the log \(it now starts at 5\)"
    with pytest.raises(CursusError, match=lost):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.drain() == [["active"]]
    assert "records 2 to 4 are no longer in the log" in caplog.text


def test_retention_between_planning_and_reading_is_an_error(store: Store) -> None:
    stream = query(store)
    assert stream.plan_next()
    age_out(store)
    with pytest.raises(CursusError, match="records 0 to 4 are no longer in the log"):
        stream.run_logged()
    assert stream.restart(failOnDataLoss="false").run_logged() == []


def test_retention_between_the_bounds_and_the_listing_is_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(TOPIC, 0, payloads(5, 8))
    stream = query(store)
    assert stream.plan_next()
    reading = stream.reader.planner.store()
    listed = reading.segments

    def segments(*arguments: Any, **named: Any) -> Any:
        age_out(store)
        return listed(*arguments, **named)

    monkeypatch.setattr(reading, "segments", segments)
    with pytest.raises(CursusError, match="records 0 to 7 are no longer in the log"):
        stream.run_logged()


def test_a_new_partition_that_has_lost_its_start_is_a_loss(store: Store) -> None:
    stream = query(store)
    stream.drain()
    store.create_topic("more")
    store.append("more", 0, payloads(0, 3))
    age_out(store, "more")
    stream.restart(subscribe=f"{TOPIC},more")
    with pytest.raises(CursusError, match="more-0: records 0 to 2 are no longer in the log"):
        stream.trigger()
    assert stream.restart(failOnDataLoss="false").drain() == [["active"]]


def test_a_topic_recreated_between_two_polls_is_never_taken_for_the_old_one(store: Store) -> None:
    """The uuid of one and the ends of the other would read the new topic from the middle."""
    stream = query(store, failOnDataLoss="false")
    stream.drain()
    reading = stream.reader.planner.store()
    ends, left = reading.visible_ends, [lambda: recreate(store, 8)]

    def visible_ends(topic: str) -> tuple[int, ...]:
        if left:
            left.pop()()
        return ends(topic)

    reading.visible_ends = visible_ends  # type: ignore[method-assign]
    assert stream.drain() == [texts(0, 8, "new ")]


def test_an_available_now_run_leaves_a_recreated_topic_to_the_next_one(store: Store) -> None:
    stream = query(store, maxOffsetsPerTrigger=3, failOnDataLoss="false").available_now()
    assert stream.trigger() == texts(0, 3)
    recreate(store, 4)
    assert stream.drain() == [[]]
    assert stream.restart(maxOffsetsPerTrigger=10).available_now().drain() == [texts(0, 4, "new ")]


def test_losses_are_the_same_where_spark_does_not_say_where_the_stream_stands(
    store: Store,
) -> None:
    """Spark 4.1 calls ``latestOffset()`` without arguments."""
    stream = query(store)
    start = stream.reader.initialOffset()
    end = stream.reader.latestOffset()
    assert end["from"] == {TOPIC: {"0": 0}}
    assert stream.reader.latestOffset() == end
    assert len(stream.reader.partitions(start, end)) == 1
    recreate(store, 9)
    latest = stream.reader.latestOffset()
    with pytest.raises(CursusError, match=RECREATED):
        stream.reader.partitions(end, latest)
    store.delete_topic(TOPIC)
    with pytest.raises(CursusError, match=DELETED):
        stream.reader.partitions(latest, json.loads(json.dumps(stream.reader.latestOffset())))


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
@pytest.mark.parametrize("old", [False, True], ids=["Spark", "Spark 4.1"])
def test_damage_in_a_brokers_directory_is_an_error_and_no_end(
    tmp_path: Path, layout: str, old: bool
) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as made:
        made.create_topic(TOPIC)
        made.append(TOPIC, 0, payloads(0, 10, "record "))
    (file,) = tmp_path.rglob("*.log")
    data = bytearray(file.read_bytes())
    at = data.index(b"record 5")
    data[at - 4 : at] = b"\xff" * 4
    file.write_bytes(data)
    running = query(Store.open(tmp_path, layout=layout), layout=layout)
    if old:
        running.reader.latestOffset()
        with pytest.raises(CursusError, match="CURSUS_LOG_DAMAGED"):
            running.reader.latestOffset()
        return
    assert running.trigger() == texts(0, 5, "record ")
    with pytest.raises(CursusError, match="CURSUS_LOG_DAMAGED"):
        running.trigger()
