"""When appends are durable and visible: after every one, by interval, or never by us."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from storage_core import OffsetRange
from storage_core.errors import StorageError
from tests.support.faulty_vfs import faulty
from tests.support.processes import wait_until
from tests.support.stores import TOPIC, errors, make_store, on, reopen, values


def test_batch_policy_syncs_before_it_returns(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    steps = [
        call.kind
        for call in vfs.calls
        if call.kind in ("fsync", "rename", "pwritev") and "lock" not in call.path
    ]
    assert steps[-3:] == ["pwritev", "fsync", "pwritev"], "records, their sync, a slot"


def test_none_policy_never_syncs_a_log(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="none", segment_bytes=4096).close()
    vfs = faulty(tmp_path)
    with on(vfs) as store:
        for _ in range(5):
            store.append(TOPIC, 0, [b"a" * 2000])
        assert len(values(store)) == 5
    assert not [call for call in vfs.calls if call.kind == "fsync" and call.path.endswith(".log")]
    assert errors(reopen(tmp_path)) == []


def test_interval_policy_shows_records_only_after_the_sync(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    assert store.append(TOPIC, 0, [b"a"]) == OffsetRange(0, 1)
    assert store.append(TOPIC, 0, [b"b"]) == OffsetRange(1, 2)
    other = reopen(tmp_path)
    assert values(other) == [b"a"]
    store.flush()
    assert values(other) == [b"a", b"b"]
    store.append(TOPIC, 0, [b"c"])
    assert values(other) == [b"a", b"b"]
    store.close()
    assert values(other) == [b"a", b"b", b"c"]


def test_interval_policy_shows_the_first_records_on_a_machine_that_has_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000).close()
    vfs = faulty(tmp_path)
    monkeypatch.setattr(vfs, "monotonic", lambda: 1.0)
    on(vfs).append(TOPIC, 0, [b"a"])
    assert values(reopen(tmp_path)) == [b"a"]


def test_interval_policy_syncs_by_itself(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=20).close()
    before = threading.active_count()
    with reopen(tmp_path) as store:
        for number in range(3):
            store.append(TOPIC, 0, [b"%d" % number])
        wait_until(lambda: len(values(store)) == 3)
    assert threading.active_count() == before


def test_interval_policy_hands_unsynced_records_to_the_next_writer(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    other = reopen(tmp_path)
    assert other.append(TOPIC, 0, [b"c"]).start == 2
    assert values(other) == [b"a", b"b", b"c"]
    store.close()
    assert values(other) == [b"a", b"b", b"c"]


def test_interval_policy_rolls_with_everything_synced(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    store.roll(TOPIC, 0)
    assert values(store) == [b"a", b"b"]


def test_failed_background_sync_of_one_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    make_store(tmp_path, 2, fsync="interval", fsync_interval_ms=3_600_000).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    for partition in (0, 1):
        store.append(TOPIC, partition, [b"a"])
        store.append(TOPIC, partition, [b"b"])
    vfs.fail("fsync", errno.EIO, path="t/0/segments")
    with pytest.raises(StorageError, match="t-0"):
        store.flush()
    assert values(store, 0) == [b"a"]
    assert values(store, 1) == [b"a", b"b"]
