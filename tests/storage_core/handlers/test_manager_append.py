"""``DiskManager.append``: the partition by key or in turn, errors for one record alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import DiskManager, Store, StoreConfig, partition_for_keys
from storage_core.errors import InvalidRecordError, RecordTooLargeError, TopicNotFoundError
from storage_core.format.partitioner import partition_for_key
from storage_core.layouts.registry import LAYOUTS, READ_ONLY


def manager(path: Path, **settings: object) -> DiskManager:
    return DiskManager(StoreConfig.from_mapping({"log_dir": str(path), **settings}))


def values(store: Store, topic: str, partition: int) -> list[bytes | None]:
    return [v for batch in store.read(topic, partition) for v in batch["value"].to_pylist()]


def test_one_key_has_the_partition_that_a_column_of_keys_has() -> None:
    keys = [bytes(range(n % 251)) * (1 + n // 200) for n in range(700)]
    keys += [b"", "größe".encode(), b"\xff" * 7, b"x" * 512, b"x" * 513, b"y" * 4099]
    for partitions in (1, 2, 3, 16, 1000):
        found = [partition_for_key(key, partitions) for key in keys]
        assert found == partition_for_keys(keys, partitions).tolist()


def test_keys_choose_the_partition_and_text_is_utf8(tmp_path: Path) -> None:
    keys = [f"customer-{n % 17}" for n in range(200)]
    wanted = partition_for_keys(keys, 3).tolist()
    with manager(tmp_path) as found:
        found.store.create_topic("taps", 3)
        futures = [found.append("taps", f"{n}", keys[n]) for n in range(200)]
        for n, future in enumerate(futures):
            assert future.result() == wanted[:n].count(wanted[n])
    store = Store.open(tmp_path)
    for partition in range(3):
        mine = [str(n).encode() for n in range(200) if wanted[n] == partition]
        assert values(store, "taps", partition) == mine


def test_records_without_a_key_take_turns(tmp_path: Path) -> None:
    with manager(tmp_path, disk_flush_batch_size=10) as found:
        found.store.create_topic("taps", 2)
        for n in range(40):
            found.append("taps", b"%d" % n)
    store = Store.open(tmp_path)
    assert [store.offsets("taps", partition).end for partition in (0, 1)] == [20, 20]


def test_headers_and_time_are_stored(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 18, 12, tzinfo=UTC)
    with manager(tmp_path) as found:
        found.store.create_topic("taps")
        found.append("taps", None, b"k", headers={"from": "web"}, timestamp=moment).result()
        table = found.store.scan("taps").to_table()
    row = table.to_pylist()[0]
    assert (row["key"], row["value"], row["timestamp"]) == (b"k", None, moment)
    assert row["headers"] == [{"key": "from", "value": b"web"}]


def test_a_refused_record_refuses_no_other(tmp_path: Path) -> None:
    with manager(tmp_path, max_record_bytes=1024, linger_ms=3_600_000) as found:
        found.store.create_topic("taps", 2)
        first = found.append("taps", b"good", b"k")
        with pytest.raises(InvalidRecordError, match="key must be bytes, text or None, got int"):
            found.append("taps", b"x", 5)  # type: ignore[arg-type]
        with pytest.raises(
            InvalidRecordError, match="value must be bytes, text or None, got float"
        ):
            found.append("taps", 1.5)  # type: ignore[arg-type]
        with pytest.raises(RecordTooLargeError, match="max_record_bytes=1024"):
            found.append("taps", bytes(2000))
        with pytest.raises(TopicNotFoundError, match="tap"):
            found.append("tap", b"mistyped")
        assert found.store.topics() == ["taps"], "a mistyped name makes no topic"
        assert found.append("taps", b"too", b"k").result() == first.result() + 1


def test_a_typed_topic_says_which_method_takes_rows(tmp_path: Path) -> None:
    with manager(tmp_path) as found:
        found.store.create_topic("typed", schema=pa.schema([("id", pa.int64())]))
        with pytest.raises(InvalidRecordError, match=r"is a typed topic.*Use append_row"):
            found.append("typed", b"x")


def test_added_partitions_and_recreated_topics_are_seen(tmp_path: Path) -> None:
    with manager(tmp_path) as found, Store.open(tmp_path, create=True) as other:
        other.create_topic("taps")
        found.append("taps", b"x", b"k").result()
        other.add_partitions("taps", 7)
        keys = [b"%d" % n for n in range(50)]
        for key in keys:
            found.append("taps", key, key)
        found.close_all_handlers()
        wanted = partition_for_keys(keys, 7).tolist()
        ends = [wanted.count(partition) for partition in range(7)]
        assert list(other.visible_ends("taps")) == [ends[0] + 1, *ends[1:]]
        other.delete_topic("taps")
        with pytest.raises(TopicNotFoundError):
            found.append("taps", b"x")
        other.create_topic("taps", 2)
        assert found.append("taps", b"new", b"k").result() == 0


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in READ_ONLY])
def test_every_layout_takes_records(tmp_path: Path, layout: str) -> None:
    with manager(tmp_path, layout=layout, linger_ms=1) as found:
        found.store.create_topic("taps", 2)
        futures = [found.append("taps", b"%d" % n) for n in range(30)]
        assert [future.result() for future in futures] == list(range(30))
        assert values(found.store, "taps", 0) == [b"%d" % n for n in range(30)]
