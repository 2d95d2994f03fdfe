"""Where a stream stands: offsets that survive crashes, and positions that only go forward."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cursus_spark.errors import CursusError
from cursus_spark.options.parse import parse_read_options
from cursus_spark.read.reader import CursusReader
from cursus_spark.schema import read_schema
from storage_core import Store
from storage_core.vfs import PosixVfs
from tests.support.faulty_vfs import FaultyVfs
from tests.support.spark.micro_batches import TOPIC, MicroBatches, payloads, texts
from tests.support.stores import after_reboot


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one topic of two partitions."""
    made = Store.open(tmp_path / "log", create=True)
    made.create_topic(TOPIC, 2)
    return made


def query(store: Store, topic: str | None = TOPIC, **options: Any) -> MicroBatches:
    return MicroBatches(Path(store.path), topic, **options)


def test_the_initial_offset_is_a_symbol_and_the_first_end_carries_the_start(store: Store) -> None:
    store.append(TOPIC, 0, payloads(0, 3))
    stream = query(store, startingOffsets="latest")
    assert stream.reader.initialOffset() == {"start": "latest", "v": 1}
    store.append(TOPIC, 0, payloads(3, 5))
    assert stream.trigger() == []
    uuid = str(store.topic(TOPIC).uuid)
    positions = {TOPIC: {"0": 5, "1": 0}}
    assert stream.position() == {"from": positions, "id": {TOPIC: uuid}, "pos": positions, "v": 1}
    store.append(TOPIC, 0, payloads(5, 6))
    assert stream.trigger() == ["5"]
    assert "from" not in stream.position()


def test_keys_of_an_offset_are_sorted_and_nothing_new_gives_the_same_text_back(
    store: Store,
) -> None:
    store.add_partitions(TOPIC, 12)
    store.create_topic("a")
    stream = query(store, subscribe=f"{TOPIC},a")
    store.append(TOPIC, 11, payloads(0, 1))
    assert stream.trigger() == ["0"]
    assert stream.offsets[0] == json.dumps(json.loads(stream.offsets[0]), sort_keys=True)
    assert not stream.plan_next()
    assert not stream.restart().plan_next()


def test_records_that_arrive_between_the_calls_of_the_first_batch_are_read(store: Store) -> None:
    """Each call of a naive ``initialOffset`` would say another ``latest``."""
    store.append(TOPIC, 0, payloads(0, 3))
    stream = query(store, startingOffsets="latest")
    assert stream.plan_next()
    store.append(TOPIC, 0, payloads(3, 4))
    stream.restart()  # killed in batch 0; the records after the start are not lost
    assert stream.run_logged() == []
    stream.finish()
    assert stream.trigger() == ["3"]


def test_a_logged_batch_is_planned_alike_after_a_restart_with_other_options(store: Store) -> None:
    store.append(TOPIC, 0, payloads(0, 10))
    stream = query(store, maxOffsetsPerTrigger=4)
    assert stream.plan_next()
    store.append(TOPIC, 0, payloads(10, 20))
    store.append(TOPIC, 1, payloads(0, 5, "late "))
    store.create_topic("other")
    stream.restart(startingOffsets="latest", maxOffsetsPerTrigger=100, subscribe="other")
    assert [row["value"].decode() for row in stream.run_logged()] == texts(0, 4)


def test_a_query_restarted_on_fewer_topics_forgets_the_others_and_reads_on(store: Store) -> None:
    store.create_topic("other")
    store.append(TOPIC, 0, payloads(0, 2))
    store.append("other", 0, payloads(0, 2, "other "))
    stream = query(store, subscribe=f"{TOPIC},other")
    assert stream.drain() == [["0", "1", "other 0", "other 1"]]
    store.append(TOPIC, 0, payloads(2, 3))
    store.append("other", 0, payloads(2, 3, "other "))
    stream.restart(subscribe=TOPIC)
    assert stream.drain() == [["2"]]
    assert set(stream.position()["pos"]) == {TOPIC}


def test_a_topic_added_on_restart_is_read_from_its_start(store: Store) -> None:
    store.create_topic("other")
    store.append("other", 0, payloads(0, 2))
    stream = query(store)
    stream.drain()
    assert stream.restart(subscribe=f"{TOPIC},other", startingOffsets="latest").drain() == [
        texts(0, 2)
    ]


def test_a_partition_added_while_the_query_runs_is_read_from_its_start(store: Store) -> None:
    stream = query(store, startingOffsets="latest")
    assert stream.drain() == [[]]
    store.add_partitions(TOPIC, 3)
    store.append(TOPIC, 2, payloads(0, 3))
    assert stream.drain() == [texts(0, 3)]


def test_new_topics_under_a_pattern_are_found_and_those_that_vanish_while_looking_are_not_there(
    store: Store,
) -> None:
    stream = query(store, None, subscribePattern="ord.*")
    assert stream.drain() == [[]]
    store.create_topic("orders-eu")
    store.create_topic("clicks")
    store.append("orders-eu", 0, payloads(0, 2))
    store.append("clicks", 0, payloads(0, 2, "not asked for "))
    assert stream.drain() == [texts(0, 2)]


@pytest.mark.parametrize(
    ("text", "missing"), [('{"orders":{"0":1}}', "orders-1"), ("{}", "orders-0, orders-1")]
)
def test_json_that_leaves_out_partitions_of_a_new_stream_is_refused(
    store: Store, text: str, missing: str
) -> None:
    store.append(TOPIC, 1, payloads(2, 4))
    with pytest.raises(CursusError, match="OFFSETS_INVALID") as caught:
        query(store, startingOffsets=text).drain()
    expected = f"Option 'startingOffsets' leaves out {missing}. Name every partition, or add a "
    assert expected in str(caught.value)


def test_json_that_leaves_out_partitions_is_logged_where_spark_does_not_say_what_is_new(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark 4.1 calls ``latestOffset()`` without arguments, in a new query and in an old one."""
    store.append(TOPIC, 1, payloads(2, 4))
    stream = query(store, startingOffsets='{"orders":{"0":0}}')
    assert stream.reader.latestOffset() == stream.reader.latestOffset()
    (line,) = caplog.messages
    assert line.startswith(
        "[CURSUS_OFFSETS_INVALID] Option 'startingOffsets' leaves out orders-1. Name every "
    )
    assert line.endswith(" A new query skips their records.")
    caplog.clear()
    query(store, startingOffsets='{"orders":{"0":0,"*":"earliest"}}').reader.latestOffset()
    assert caplog.messages == []


def test_a_default_for_other_partitions_reads_their_backlog(store: Store) -> None:
    store.append(TOPIC, 0, payloads(0, 2))
    store.append(TOPIC, 1, payloads(2, 4))
    stream = query(store, startingOffsets='{"orders":{"0":1,"*":"earliest"}}')
    assert stream.drain() == [texts(1, 4)]
    both = query(
        store,
        startingOffsets="earliest",
        startingOffsetsByTimestamp='{"orders":{"0":9223372036854775807}}',
        startingOffsetsByTimestampStrategy="latest",
    )
    assert both.drain() == [texts(2, 4)]
    named = query(store, startingOffsets='{"orders":{"0":1,"1":2}}')
    assert named.drain()[0] == ["1"]
    store.add_partitions(TOPIC, 3)
    store.append(TOPIC, 2, payloads(4, 5))
    assert named.restart().drain() == [["4"]]


def test_a_pattern_that_matches_no_topic_is_logged_once_per_run(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query(store, None, subscribePattern="order")
    stream.drain()
    stream.drain()
    assert [record.getMessage() for record in caplog.records] == [
        f"Option 'subscribePattern' matches no topic of {store.path}: 'order'. Topics found: "
        f"{TOPIC}."
    ]
    caplog.clear()
    stream = stream.restart()
    stream.drain()
    stream.drain()
    assert len(caplog.records) == 1


def test_a_pattern_of_a_batch_that_matches_no_topic_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    batch = {"path": str(store.path), "subscribePattern": "order"}
    CursusReader(parse_read_options(batch), read_schema(include_headers=False)).partitions()
    assert "matches no topic" in caplog.text


@pytest.mark.parametrize("text", ['{"v":2,"id":{},"pos":{}}', '{"pos":{}}', "[]"])
def test_an_offset_of_another_source_is_refused(store: Store, text: str) -> None:
    stream = query(store)
    with pytest.raises(CursusError, match="CURSUS_CHECKPOINT_INVALID"):
        stream.reader.latestOffset(json.loads(text), stream.reader.getDefaultReadLimit())


def test_an_end_that_goes_back_is_an_error_and_not_a_second_reading(store: Store) -> None:
    store.append(TOPIC, 0, payloads(0, 5))
    stream = query(store)
    stream.drain()
    ahead = json.loads(stream.offsets[-1])
    ahead["pos"][TOPIC]["0"] = 8
    stream.offsets.append(json.dumps(ahead))
    stream.committed = 2
    with pytest.raises(CursusError, match=r"DATA_LOSS\] orders-0: .* changed from 8 to 5\."):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == []
    store.append(TOPIC, 0, payloads(5, 6))
    assert stream.drain() == [["5"]]


@pytest.mark.row(35)
def test_after_a_reboot_the_stream_waits_for_the_recovery_and_says_so_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(TOPIC, 0, payloads(0, 5))
    old = (Path(store.path) / "topics" / TOPIC / "watermark").read_bytes()
    store.append(TOPIC, 0, payloads(5, 8))
    stream = query(store)
    assert stream.drain() == [texts(0, 8)]
    # The power goes: the records were synced, the newest high watermark was not.
    (Path(store.path) / "topics" / TOPIC / "watermark").write_bytes(old)
    stream.restart().reader.planner._store = after_reboot(Path(store.path))
    with caplog.at_level(logging.WARNING):
        assert stream.drain() == [] == stream.drain()
    (warning,) = [text for text in caplog.messages if "RECOVERY_NEEDED" in text]
    assert "orders-0 ends at 5, but the stream is at 8" in warning
    rebooted = after_reboot(Path(store.path))
    rebooted.append(TOPIC, 0, payloads(8, 9))
    assert stream.drain() == [["8"]]


def test_a_lost_watermark_makes_the_stream_wait_too(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(TOPIC, 0, payloads(0, 2))
    stream = query(store)
    stream.drain()
    store.close()
    for lost in ("topics/orders/watermark", "meta/checkpoint.json"):
        (Path(store.path) / lost).unlink()
    assert stream.drain() == []
    assert "orders-0 has no high watermark" in caplog.text
    with Store.open(store.path) as writer:
        writer.append(TOPIC, 0, payloads(2, 3))
    assert stream.drain() == [["2"]]


def test_a_logged_batch_is_not_cut_short_by_an_end_that_is_too_old(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be committed with the records it did not see, and these never read."""
    watermark = Path(store.path) / "topics" / TOPIC / "watermark"
    store.append(TOPIC, 0, payloads(0, 5))
    old = watermark.read_bytes()
    store.append(TOPIC, 0, payloads(5, 8))
    stream = query(store)
    assert stream.plan_next()
    watermark.write_bytes(old)
    stream.restart().reader.planner._store = after_reboot(Path(store.path))
    monkeypatch.setattr("cursus_spark.stream.micro_batch._PATIENCE_S", 0.2)
    with pytest.raises(CursusError, match=r"RECOVERY_NEEDED.* orders-0 ends at 5"):
        stream.run_logged()
    monkeypatch.setattr(
        "cursus_spark.stream.micro_batch.time.sleep",
        lambda _: after_reboot(Path(store.path)).repair(),
    )
    assert [row["value"].decode() for row in stream.run_logged()] == texts(0, 8)


@pytest.mark.parametrize("segments", [1, 40])
def test_an_idle_poll_reads_no_data_and_costs_the_same_whatever_the_number_of_segments(
    tmp_path: Path, segments: int
) -> None:
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic(TOPIC, 2)
        for number in range(segments):
            store.append(TOPIC, 0, payloads(number, number + 1))
            store.roll(TOPIC, 0)
    stream = MicroBatches(tmp_path / "log")
    stream.drain()
    calls: list[tuple[str, str]] = []
    vfs = FaultyVfs(PosixVfs(tmp_path / "log"), hook=lambda kind, path: calls.append((kind, path)))
    stream.reader.planner._store = Store(vfs, store.config)
    stream.drain()
    calls.clear()
    assert stream.drain() == []
    assert not [path for _, path in calls if "segments" in path]
    assert {kind.partition(":")[0] for kind, _ in calls} <= {"stat", "open", "pread", "close"}
    assert len(calls) <= 8
