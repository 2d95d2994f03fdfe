"""File operations in several steps: their order, and what each crash leaves."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from storage_core.errors import LockTimeoutError, TopicNotFoundError
from storage_core.io.durable import (
    create_file,
    make_directories,
    read_file,
    remove_tree,
    replace_file,
    write_all,
)
from storage_core.io.locks import ensure_lock_file, locked
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.processes import wait_until


@pytest.mark.row(12)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_short_writes_are_continued(tmp_path: Path, size: int) -> None:
    vfs = faulty(tmp_path)
    vfs.short_writes = size
    fd = vfs.open("a", "create")
    end = write_all(vfs, fd, [b"abc", b"", b"defgh", memoryview(b"ij")], 5)
    assert end == 15
    assert (tmp_path / "a").read_bytes() == bytes(5) + b"abcdefghij"
    vfs.close(fd)


@pytest.mark.row(12)
def test_interrupted_writes_are_continued(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    vfs.short_writes = 2
    vfs.fail("pwritev", errno.EINTR, nth=2, times=3)
    fd = vfs.open("a", "create")
    assert write_all(vfs, fd, [b"abcdef"], 0) == 6
    assert (tmp_path / "a").read_bytes() == b"abcdef"
    vfs.close(fd)


@pytest.mark.row(12)
def test_write_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    vfs.short_writes = 0
    fd = vfs.open("a", "create")
    with pytest.raises(OSError, match="wrote no byte"):
        write_all(vfs, fd, [b"abc"], 0)
    vfs.close(fd)


def test_more_buffers_than_the_system_takes_are_written(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    fd = vfs.open("a", "create")
    assert write_all(vfs, fd, [b"%04d" % i for i in range(5000)], 0) == 20_000
    assert (tmp_path / "a").read_bytes() == b"".join(b"%04d" % i for i in range(5000))
    vfs.close(fd)


@pytest.mark.row(2)
def test_replace_syncs_data_before_the_name_and_the_name_before_returning(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    replace_file(vfs, "a", b"new")
    kinds = [
        call.kind for call in vfs.calls if call.kind in ("pwritev", "fsync", "rename", "fsync_dir")
    ]
    assert kinds == ["pwritev", "fsync", "rename", "fsync_dir"]


def test_replace_that_crashes_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    total = faulty(tmp_path)
    replace_file(total, "a", b"old")
    for count in range(total.changes + 1):
        vfs = faulty(tmp_path)
        replace_file(vfs, "a", b"old")
        vfs.changes, vfs.crash_after = 0, count
        try:
            replace_file(vfs, "a", b"new")
        except CrashError:
            assert (tmp_path / "a").read_bytes() in (b"old", b"new")
        else:
            assert (tmp_path / "a").read_bytes() == b"new"


def test_read_file_gives_none_for_nothing_and_stops_at_its_limit(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    assert read_file(vfs, "a", 10) is None
    create_file(vfs, "a", b"0123456789abc")
    assert read_file(vfs, "a", 10) == b"0123456789"


@pytest.mark.row(2)
def test_directories_are_made_durable_from_the_top(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    make_directories(vfs, "a/b/c")
    steps = [(call.kind, call.path) for call in vfs.calls if call.kind in ("mkdir", "fsync_dir")]
    assert steps == [
        ("mkdir", "a"), ("fsync_dir", ""),
        ("mkdir", "a/b"), ("fsync_dir", "a"),
        ("mkdir", "a/b/c"), ("fsync_dir", "a/b"),
    ]  # fmt: skip
    make_directories(vfs, "a/b/c")


@pytest.mark.row(27)
def test_remove_tree_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").touch()
    (root / "a/link").symlink_to(outside)
    vfs = faulty(root)
    remove_tree(vfs, "a")
    remove_tree(vfs, "a")
    assert os.listdir(root) == []
    assert os.listdir(outside) == ["keep"]


def test_lock_without_its_file_says_the_topic_is_gone(tmp_path: Path) -> None:
    with pytest.raises(TopicNotFoundError), locked(faulty(tmp_path), "t/lock", 10):
        pass


def test_lock_times_out_and_is_free_afterwards(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    ensure_lock_file(vfs, "lock")
    ensure_lock_file(vfs, "lock")
    with locked(vfs, "lock", 10):
        with pytest.raises(LockTimeoutError) as caught, locked(vfs, "lock", 30):
            pass
        assert caught.value.path == "lock"
        assert "30 ms" in str(caught.value)
    with locked(vfs, "lock", 0):
        pass


def test_waiting_for_a_lock_that_is_replaced_starts_again_on_the_new_file(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    ensure_lock_file(vfs, "lock")
    waiting, same = threading.Event(), []

    def wait() -> None:
        with locked(vfs, "lock", 5000) as fd:
            found = vfs.stat("lock")
            same.append(found is not None and vfs.fstat(fd).identity == found.identity)

    with locked(vfs, "lock", 10):
        vfs.hook = lambda kind, _: waiting.set() if kind == "open:write" else None
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(5)
        wait_until(lambda: vfs.calls[-1].kind == "open:write")
        create_file(vfs, "new", b"")
        vfs.rename("new", "lock")
    thread.join(5)
    assert same == [True]
