"""Failed system calls: nothing acknowledged is lost, nothing doubtful is trusted, all is typed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DiskFullError, ReadFailedError, StorageError, WriteFailedError
from storage_core.format.lock_state import CLEAN, SYNC_FAILED, unpack
from tests.support.faulty_vfs import CHANGES, FaultyVfs, faulty
from tests.support.stores import (
    T0,
    TOPIC,
    errors,
    lock_file,
    make_store,
    offsets,
    on,
    refused,
    reopen,
    segment,
    values,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with the acknowledged records a and b."""
    with make_store(tmp_path, 2, segment_bytes=4096, index_interval_bytes=0) as store:
        store.append(TOPIC, 0, [b"a", b"b"])
    return tmp_path


def opened(path: Path) -> tuple[FaultyVfs, Store]:
    vfs = faulty(path)
    vfs.real_syncs = False
    return vfs, on(vfs)


@pytest.mark.row(8)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_fails_the_append_and_a_later_one_succeeds(path: Path, number: int) -> None:
    vfs, store = opened(path)
    vfs.fail("pwritev", number, path=".log")
    with pytest.raises(DiskFullError) as caught:
        store.append(TOPIC, 0, [b"c"])
    assert (caught.value.topic, caught.value.partition) == (TOPIC, 0)
    assert values(store) == [b"a", b"b"]
    assert store.append(TOPIC, 0, [b"d"]).start == 2
    assert values(store) == [b"a", b"b", b"d"]
    assert errors(store) == []


def test_disk_that_fills_in_the_middle_of_a_frame_leaves_nothing_of_it(path: Path) -> None:
    vfs, store = opened(path)
    vfs.short_writes = 100
    vfs.fail("pwritev", errno.ENOSPC, path=".log", nth=2)
    with pytest.raises(DiskFullError):
        store.append(TOPIC, 0, [b"c"])
    vfs.short_writes = None
    assert store.append(TOPIC, 0, [b"d"]).start == 2
    assert values(store) == [b"a", b"b", b"d"]
    assert errors(store) == []


def test_append_that_failed_never_shows_up_later_so_it_can_be_tried_again(path: Path) -> None:
    vfs, store = opened(path)
    vfs.fail("pwritev", errno.ENOSPC, path="watermark")
    with pytest.raises(DiskFullError):
        store.append(TOPIC, 0, [b"c" * 3000, b"d" * 3000])
    assert values(store) == [b"a", b"b"]
    store.append(TOPIC, 0, [b"e"])
    assert values(store) == [b"a", b"b", b"e"]
    assert errors(store) == []


@pytest.mark.row(10)
def test_failed_write_closes_the_partition_until_the_store_is_opened_again(path: Path) -> None:
    vfs, store = opened(path)
    vfs.fail("pwritev", errno.EIO, path=".log")
    with pytest.raises(WriteFailedError, match="Input/output error"):
        store.append(TOPIC, 0, [b"c"])
    for _ in range(2):
        with pytest.raises(WriteFailedError, match="open the store again"):
            store.append(TOPIC, 0, [b"d"])
    assert store.append(TOPIC, 1, [b"other partitions work"]).start == 0
    assert values(store) == [b"a", b"b"]
    again = reopen(path)
    assert again.append(TOPIC, 0, [b"e"]).start == 2
    assert values(again) == [b"a", b"b", b"e"]
    assert errors(again) == []


@pytest.mark.row(11)
@pytest.mark.parametrize("drop", [True, False], ids=["pages lost", "pages kept"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_failed_sync_is_marked_never_retried_and_the_tail_is_copied(
    path: Path, drop: bool, number: int
) -> None:
    vfs, store = opened(path)
    vfs.fail("fsync", number, path=".log", drop_unsynced=drop)
    inode = segment(path).stat().st_ino
    with pytest.raises(WriteFailedError):
        store.append(TOPIC, 0, [b"c"])
    syncs = [call for call in vfs.calls if call.kind == "fsync" and call.path.endswith(".log")]
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"d"])
    assert len(syncs) == 1
    assert unpack(lock_file(path).read_bytes()).condition == SYNC_FAILED
    assert values(store) == [b"a", b"b"]

    again = reopen(path)
    again.append(TOPIC, 0, [b"e"])
    assert segment(path).stat().st_ino != inode
    assert unpack(lock_file(path).read_bytes()).condition == CLEAN
    assert values(again) == ([b"a", b"b", b"e"] if drop else [b"a", b"b", b"c", b"e"])
    assert errors(again) == []


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_sync_that_fails_in_recovery_is_not_retried_either(path: Path, kind: str) -> None:
    vfs, store = opened(path)
    vfs.boot = os.urandom(16)
    if kind == "file":
        vfs.fail("fsync", errno.EIO, path=".log")
    else:
        vfs.fail("fsync_dir", errno.EIO, path="segments")
    inode = segment(path).stat().st_ino
    with pytest.raises(WriteFailedError):
        store.append(TOPIC, 0, [b"c"])
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"c"])
    assert unpack(lock_file(path).read_bytes()).condition == SYNC_FAILED
    again = reopen(path)
    again.append(TOPIC, 0, [b"d"])
    assert segment(path).stat().st_ino != inode
    assert values(again) == [b"a", b"b", b"d"]


def test_full_disk_noticed_by_a_sync_on_the_way_is_a_failed_sync_too(path: Path) -> None:
    vfs, store = opened(path)
    vfs.fail("fsync", errno.ENOSPC, path=".log")
    with pytest.raises(DiskFullError):
        store.append(TOPIC, 0, [b"c" * 2000, b"d" * 4000])
    assert unpack(lock_file(path).read_bytes()).condition == SYNC_FAILED
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"e"])
    again = reopen(path)
    again.append(TOPIC, 0, [b"f"])
    assert values(again)[:2] == [b"a", b"b"]
    assert errors(again) == []


@pytest.mark.row(11)
def test_directory_sync_that_fails_for_a_new_segment_is_marked(path: Path) -> None:
    vfs, store = opened(path)
    store.roll(TOPIC, 0)
    vfs.fail("fsync_dir", errno.EIO, path="segments")
    with pytest.raises(WriteFailedError):
        store.append(TOPIC, 0, [b"c"])
    assert unpack(lock_file(path).read_bytes()).condition == SYNC_FAILED
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"c"])
    again = reopen(path)
    assert again.append(TOPIC, 0, [b"d"]).start == 2
    assert values(again) == [b"a", b"b", b"d"]
    assert errors(again) == []


def test_disk_too_full_to_mark_a_failed_sync_still_closes_the_partition(path: Path) -> None:
    vfs, store = opened(path)
    vfs.fail("fsync", errno.EIO, path=".log")
    vfs.fail("pwritev", errno.EIO, path="/lock", nth=2, times=99)
    with pytest.raises(WriteFailedError):
        store.append(TOPIC, 0, [b"c"])
    vfs.faults.clear()
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"d"])


@pytest.mark.row(12)
@pytest.mark.parametrize("size", [1, 7, 64, 100])
def test_short_writes_are_continued(path: Path, size: int) -> None:
    vfs, store = opened(path)
    vfs.short_writes = size
    store.append(TOPIC, 0, [b"c" * 500, b"d"])
    assert values(store) == [b"a", b"b", b"c" * 500, b"d"]
    assert errors(store) == []


@pytest.mark.row(14)
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("open", errno.EMFILE),
        ("open", errno.ENFILE),
        ("open", errno.ENOMEM),
        ("listdir", errno.EMFILE),
        ("listdir", errno.ENOMEM),
        ("map", errno.ENOMEM),
        ("pread", errno.ENOMEM),
    ],
)
def test_process_without_handles_or_memory_changes_nothing(
    path: Path, kind: str, number: int
) -> None:
    counting, store = opened(path)
    store.append(TOPIC, 0, [b"c" * 4000])
    values(store)
    calls = sum(call.kind.partition(":")[0] == kind for call in counting.calls)
    assert calls
    before = values(reopen(path))
    for nth in range(1, calls + 1):
        vfs, store = opened(path)
        store.topic(TOPIC)
        vfs.fail(kind, number, nth=nth)
        if not refused(StorageError, store.append, TOPIC, 0, [b"%d" % nth]):
            before.append(b"%d" % nth)
        # Whatever of the calls is left now fails a read: as an error, never as an end.
        with suppress(StorageError):
            assert values(store) == before, nth
        vfs.faults.clear()
        assert values(store) == before, nth
        store.append(TOPIC, 0, [b"again"])
        before.append(b"again")
        assert values(reopen(path)) == before, nth
    assert errors(reopen(path)) == []


@pytest.mark.row(13)
def test_failed_read_is_never_the_end_of_the_log(tmp_path: Path) -> None:
    with make_store(tmp_path, index_interval_bytes=0) as store:
        for number in range(4):
            store.append(TOPIC, 0, [b"%d" % number], timestamps=[T0 + number])
            if number == 1:
                store.roll(TOPIC, 0)
    counting, store = opened(tmp_path)
    read_everything(store)
    reads = [call for call in counting.calls if call.kind not in CHANGES and call.kind != "close"]
    assert len(reads) > 20
    for kind in sorted({call.kind for call in reads}):
        for nth in range(1, sum(call.kind == kind for call in reads) + 1):
            vfs, store = opened(tmp_path)
            fault = vfs.fail(kind, errno.EIO, nth=nth)
            failed = refused(ReadFailedError, read_everything, store)
            # A listing that is remembered longer this time makes fewer calls than were counted.
            assert failed == (fault.seen >= nth), (kind, nth)
            vfs.faults.clear()
            read_everything(store)


@pytest.mark.row(13)
def test_a_lookup_by_time_that_cannot_list_the_segments_is_typed(path: Path) -> None:
    for look in (Store.offset_for_timestamp, Store.end_of_older):
        vfs, store = opened(path)
        vfs.fail("stat", errno.EIO, path="segments")
        with pytest.raises(ReadFailedError, match="topic 't'"):
            look(store, TOPIC, 0, T0)


def read_everything(store: Store) -> None:
    assert offsets(store) == [0, 1, 2, 3]
    assert offsets(store, start=1) == [1, 2, 3]
    assert store.offset_for_timestamp(TOPIC, 0, T0 + 1) == 1
    assert store.offset_for_timestamp(TOPIC, 0, T0 + 3) == 3


@pytest.mark.row(15)
def test_error_from_close_is_a_write_error(path: Path) -> None:
    vfs, store = opened(path)
    vfs.fail("close", errno.EIO, path=".log")
    with pytest.raises(WriteFailedError):
        store.roll(TOPIC, 0)
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"c"])
    again = reopen(path)
    again.append(TOPIC, 0, [b"d"])
    assert values(again) == [b"a", b"b", b"d"]
    assert errors(again) == []


def test_close_of_a_store_that_fails_is_typed_and_lets_go_of_the_other_files(path: Path) -> None:
    vfs, store = opened(path)
    store.append(TOPIC, 0, [b"c"])
    store.append(TOPIC, 1, [b"d"])
    vfs.fail("close", errno.EIO, path="t/0/segments")
    with pytest.raises(WriteFailedError, match="closing"):
        store.close()
    assert [call.path for call in vfs.calls if call.kind == "close"][-1].startswith("topics/t/")
    assert vfs._paths == {}
    assert values(reopen(path)) == [b"a", b"b", b"c"]


def test_metadata_that_cannot_be_read_stops_retention_with_a_typed_error(path: Path) -> None:
    vfs, store = opened(path)
    store.alter_topic(TOPIC, retention_bytes=1)
    for kind in ("stat", "open:read", "pread"):
        vfs.fail(kind, errno.EIO, path="topic.json")
        with pytest.raises(StorageError):
            on(vfs).retain()
        vfs.faults.clear()
    assert values(reopen(path)) == [b"a", b"b"]


def test_close_that_fails_after_a_failed_sync_hides_neither(path: Path) -> None:
    vfs, store = opened(path)
    vfs.fail("fsync", errno.EIO, path=".log")
    vfs.fail("close", errno.EIO, path=".log")
    with pytest.raises(WriteFailedError):
        store.append(TOPIC, 0, [b"c"])
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        store.append(TOPIC, 0, [b"d"])
    assert unpack(lock_file(path).read_bytes()).condition == SYNC_FAILED


def test_append_that_is_done_stays_done_although_the_word_cannot_be_marked_clean(
    path: Path,
) -> None:
    vfs, store = opened(path)
    vfs.fail("pwritev", errno.EIO, path="t/0/lock", nth=2)
    assert store.append(TOPIC, 0, [b"c"]).start == 2
    assert store.append(TOPIC, 0, [b"d"]).start == 3
    assert values(store) == [b"a", b"b", b"c", b"d"]


def work(store: Store, done: list[bytes]) -> None:
    """Appends that roll on the way, a roll on request, and one more append."""
    for value in (b"c", b"d" * 3000, b"e" * 3000):
        store.append(TOPIC, 0, [value])
        done.append(value)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"f"])
    done.append(b"f")


@pytest.mark.row(8, 10)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_any_failed_call_loses_nothing_acknowledged_and_invents_nothing(
    tmp_path: Path, number: int
) -> None:
    counting, store = opened(prepared(tmp_path / "whole"))
    work(store, [])
    total = len(counting.calls)
    assert total > 60
    for nth in range(1, total + 1):
        path = prepared(tmp_path / str(nth))
        vfs, store = opened(path)
        vfs.hook = fail_call(nth, number)
        acked = [b"a", b"b"]
        with suppress(StorageError):
            work(store, acked)
        vfs.hook = None
        seen = values(store)
        again = reopen(path)
        again.append(TOPIC, 0, [b"last"])
        left = values(again)
        # All that was acknowledged, then at most the one append whose outcome was an error.
        assert left[: len(acked)] == acked, nth
        assert left[len(acked) :] in ([b"last"], [following(acked), b"last"]), nth
        assert left[: len(seen)] == seen, nth
        assert errors(again) == [], nth


def prepared(path: Path) -> Path:
    if not (original := path.parent / "original").exists():
        with make_store(original, segment_bytes=4096, index_interval_bytes=0) as store:
            store.append(TOPIC, 0, [b"a", b"b"])
    shutil.copytree(original, path)
    return path


def following(acked: list[bytes]) -> bytes:
    return [b"c", b"d" * 3000, b"e" * 3000, b"f", b"-"][len(acked) - 2]


def fail_call(nth: int, number: int) -> Callable[[str, str], None]:
    """Fail the ``nth`` call of any kind from now on."""
    seen = 0

    def fail(_: str, path: str) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            raise OSError(number, os.strerror(number), path)

    return fail
