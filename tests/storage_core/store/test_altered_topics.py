"""A topic whose settings change while it is written: nobody waits for it, nothing is forgotten."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from storage_core import OffsetRange, StagedPart, Store, StoreConfig
from storage_core.engine.native import NativeEngine
from storage_core.errors import DamagedMetadataError, DiskFullError
from storage_core.handlers.disk_handler import DiskHandler
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.handler_helpers import NEVER_MS
from tests.support.stores import TOPIC, columns_of, make_store, on, reopen, segment, values

HELD_BACK: dict[str, Any] = {"fsync": "interval", "fsync_interval_ms": NEVER_MS}


def staged_job(store: Store, *partitions: int) -> list[StagedPart]:
    stage = store.stage("job")
    for partition in partitions:
        stage.write(TOPIC, partition, columns_of([b"committed"]))
    return list(stage.finish())


def test_who_holds_one_partition_gets_the_next_beside_an_append_to_the_altered_topic(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path, partitions=2)
    held = store.partition_log(TOPIC, 0)
    store.partition_log(TOPIC, 1)
    found: list[object] = []
    with held.exclusive():  # type: ignore[attr-defined]
        store.alter_topic(TOPIC, retention_ms=10**9)
        appending = threading.Thread(target=store.append, args=(TOPIC, 0, [b"a"]), daemon=True)
        appending.start()
        appending.join(0.2)
        assert appending.is_alive(), "the partition is not held"
        asking = threading.Thread(
            target=lambda: found.append(store.partition_log(TOPIC, 1)), daemon=True
        )
        asking.start()
        asking.join(20)
        assert found, "a commit would wait here for an append that waits for it"
    appending.join(20)
    assert values(store) == [b"a"]


def test_what_was_held_back_is_flushed_although_the_topic_was_altered(tmp_path: Path) -> None:
    store = make_store(tmp_path, **HELD_BACK)
    for value in (b"shown", b"held", b"back"):
        store.append(TOPIC, 0, [value])
    store.alter_topic(TOPIC, compression="zstd")
    store.retain()
    assert values(store) == [b"shown"]
    store.flush()
    assert values(reopen(tmp_path)) == [b"shown", b"held", b"back"]


def test_what_was_held_back_is_flushed_although_a_later_append_failed(tmp_path: Path) -> None:
    make_store(tmp_path, segment_bytes=4096, **HELD_BACK).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.append(TOPIC, 0, [b"shown"])
    store.append(TOPIC, 0, [b"held" * 400])
    vfs.fail("open:create", errno.ENOSPC, path=".log")
    with pytest.raises(DiskFullError):
        store.append(TOPIC, 0, [b"no room" * 400])
    store.close()
    assert values(reopen(tmp_path)) == [b"shown", b"held" * 400]


def test_a_handler_that_holds_back_finishes_the_commit_of_a_crashed_one(tmp_path: Path) -> None:
    make_store(tmp_path, **HELD_BACK).close()
    with DiskHandler(reopen(tmp_path, linger_ms=0), TOPIC, 0) as handler:
        handler.append(b"first")
        handler.flush()
        second = handler.append(b"second")
        handler.read_messages(0, 1)
        vfs = faulty(tmp_path)
        dying = Store(vfs, StoreConfig())
        parts = staged_job(dying, 0)
        vfs.hook = die_when_decided
        with pytest.raises(CrashError):
            dying.commit("job", parts)
        handler.flush()
        assert second.result(20) in (1, 2)
    assert sorted(values(reopen(tmp_path))) == [b"committed", b"first", b"second"]


def die_when_decided(kind: str, path: str) -> None:
    if kind == "pwritev" and path.endswith(".log"):
        raise CrashError


def test_a_commit_makes_durable_what_no_policy_synced_before_it(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="none", segment_bytes=4096).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    for _ in range(4):
        store.append(TOPIC, 0, [b"plain" * 400])
    parts = staged_job(store, 0)
    store.commit("job", parts)
    synced = {Path(call.path).name for call in vfs.calls if call.kind == "fsync"}
    logs = {path.name for path in segment(tmp_path).parent.glob("*.log")}
    assert len(logs) > 2
    assert logs <= synced


def test_a_topic_that_gets_syncs_is_synced_then(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="none", segment_bytes=4096).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    for _ in range(4):
        store.append(TOPIC, 0, [b"plain" * 400])
    assert not [call for call in vfs.calls if call.kind == "fsync" and ".log" in call.path]
    store.alter_topic(TOPIC, fsync="batch")
    synced = {Path(call.path).name for call in vfs.calls if call.kind == "fsync"}
    assert {path.name for path in segment(tmp_path).parent.glob("*.log")} <= synced
    assert store.append(TOPIC, 0, [b"on"]) == OffsetRange(4, 5)


def test_a_topic_with_damaged_settings_does_not_keep_others_from_repair(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a", b"b"])
    store.create_topic("damaged")
    store.close()
    (tmp_path / "topics/damaged/topic.json").write_text("{}")
    (tmp_path / "topics/t/watermark").unlink()
    with pytest.raises(DamagedMetadataError, match="damaged"):
        reopen(tmp_path).repair()
    assert (tmp_path / "topics/t/watermark").exists()


def test_who_still_had_the_old_log_hands_what_it_held_back_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, **HELD_BACK)
    store.append(TOPIC, 0, [b"shown"])
    engine = store._engine
    assert isinstance(engine, NativeEngine)
    go_on = engine.guarded

    def after_others(action: Any) -> Any:
        """The first append has its log and does not hold it yet."""
        monkeypatch.setattr(engine, "guarded", go_on)
        with reopen(tmp_path) as other:
            other.alter_topic(TOPIC, retention_ms=10**9)
        store.append(TOPIC, 0, [b"second"])
        store.flush()
        return go_on(action)

    monkeypatch.setattr(engine, "guarded", after_others)
    store.append(TOPIC, 0, [b"third"])
    store.flush()
    assert values(reopen(tmp_path)) == [b"shown", b"second", b"third"]
    store.close()
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [link for link in links if link.startswith(f"{tmp_path}/topics")] == []
