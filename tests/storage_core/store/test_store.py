"""The store as its users see it: opening, closing, and trees that are not as we left them."""

from __future__ import annotations

import errno
import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import (
    LayoutMismatchError,
    LayoutNotFoundError,
    NotWritableError,
    StorageError,
    StoreClosedError,
    UnsafeFileError,
    UnsafeFilesystemError,
)
from tests.support.faulty_vfs import faulty
from tests.support.stores import TOPIC, lock_file, make_store, on, reopen, values


def test_missing_and_empty_directories_need_create(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(LayoutNotFoundError, match="create=True"):
            Store.open(path)
    assert not (tmp_path / "missing").exists()
    assert Store.open(tmp_path / "a/b/c", create=True).topics() == []
    assert Store.open(tmp_path / "a/b/c").layout == "native"


def test_directory_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").touch()
    with pytest.raises(LayoutNotFoundError, match=r"thesis\.odt"):
        Store.open(tmp_path, create=True)
    assert os.listdir(tmp_path) == ["thesis.odt"]


def test_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises((LayoutNotFoundError, LayoutMismatchError), match="parquet"):
        Store.open(tmp_path, layout="parquet", create=True)


def test_opening_again_with_create_keeps_the_store(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
    identity = (tmp_path / "meta/broker.id").read_bytes()
    assert values(Store.open(tmp_path, create=True)) == [b"a"]
    assert (tmp_path / "meta/broker.id").read_bytes() == identity


def test_reading_changes_no_file(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a", b"b"])
        store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [b"c"])
    vfs = faulty(tmp_path)
    store = on(vfs)
    assert values(store) == [b"a", b"b", b"c"]
    store.offset_for_timestamp(TOPIC, 0, 0)
    store.check()
    store.topics()
    store.segments(TOPIC, 0)
    store.close()
    assert vfs.changes == 0


def test_close_lets_go_of_everything_although_a_flush_fails(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000).close()
    vfs = faulty(tmp_path)
    # Maps of earlier tests' stores hold descriptors until they are collected.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    vfs.fail("fsync", errno.EIO, path=".log")
    with pytest.raises(StorageError):
        store.close()
    store.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert values(reopen(tmp_path)) == [b"a"]


def test_closed_store_still_reads_but_refuses_to_write(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    store.close()
    store.close()
    assert values(store) == [b"a"]
    calls: list[Callable[[], object]] = [
        lambda: store.append(TOPIC, 0, [b"b"]),
        lambda: store.create_topic("u"),
        lambda: store.roll(TOPIC, 0),
        lambda: store.retain(),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


def test_pickled_store_carries_where_and_how_but_no_handles(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    copy = pickle.loads(pickle.dumps(store))
    assert copy.config == store.config
    assert copy.append(TOPIC, 0, [b"b"]).start == 1
    assert values(store) == [b"a", b"b"]


@pytest.mark.row(28)
def test_store_that_we_may_not_write_reads_and_says_so(tmp_path: Path) -> None:
    make_store(tmp_path).append(TOPIC, 0, [b"a"])
    vfs = faulty(tmp_path)
    vfs.may_write = False
    store = on(vfs)
    assert values(store) == [b"a"]
    with pytest.raises(NotWritableError):
        store.append(TOPIC, 0, [b"b"])
    with pytest.raises(NotWritableError):
        store.create_topic("u")
    assert vfs.changes == 0


@pytest.mark.row(33)
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse"])
def test_file_systems_whose_locks_may_not_hold_are_refused_for_writing(
    tmp_path: Path, kind: str
) -> None:
    make_store(tmp_path).append(TOPIC, 0, [b"a"])
    vfs = faulty(tmp_path)
    vfs.kind_of_filesystem = kind
    store = on(vfs)
    assert values(store) == [b"a"]
    with pytest.raises(UnsafeFilesystemError, match="allow_unsafe_fs"):
        store.append(TOPIC, 0, [b"b"])
    allowed = Store(vfs, StoreConfig(allow_unsafe_fs=True))
    assert allowed.append(TOPIC, 0, [b"b"]).start == 1


@pytest.mark.row(33)
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", ""])
def test_local_file_systems_are_fine(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.kind_of_filesystem = kind
    assert on(vfs).append(TOPIC, 0, [b"a"]).start == 0


@pytest.mark.row(27)
@pytest.mark.parametrize("what", ["link", "fifo", "directory"])
@pytest.mark.parametrize(
    "where",
    [
        "topics/t/0/segments/00000000000000000000.log",
        "topics/t/0/lock",
        "topics/t/watermark",
        "topics/t/topic.json",
        "meta/broker.id",
    ],
)
def test_planted_files_are_refused_without_hanging(tmp_path: Path, where: str, what: str) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    make_store(root).append(TOPIC, 0, [b"a"])
    file = root / where
    if what == "link":
        file.rename(outside)
        file.symlink_to(outside)
    else:
        file.unlink()
        os.mkfifo(file) if what == "fifo" else file.mkdir()
    before = outside.read_bytes() if what == "link" else b""
    store = reopen(root)
    with pytest.raises(UnsafeFileError):
        store.append(TOPIC, 0, [b"b"])
    if what == "link":
        assert outside.read_bytes() == before


@pytest.mark.row(27)
def test_link_in_the_place_of_a_partition_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root).append(TOPIC, 0, [b"a"])
    (root / "topics/t/0").rename(tmp_path / "moved")
    (root / "topics/t/0").symlink_to(tmp_path / "moved")
    store = reopen(root)
    calls: list[Callable[[], object]] = [
        lambda: store.append(TOPIC, 0, [b"b"]),
        lambda: values(store),
    ]
    for call in calls:
        with pytest.raises(UnsafeFileError):
            call()


def test_missing_lock_file_is_a_typed_error(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    lock_file(tmp_path).unlink()
    with pytest.raises(StorageError, match="lock"):
        store.append(TOPIC, 0, [b"a"])


def test_check_of_a_sound_store_finds_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path, 2)
    assert store.check() == []
    for partition in (0, 1):
        store.append(TOPIC, partition, [b"a"])
        store.roll(TOPIC, partition)
        store.append(TOPIC, partition, [b"b"])
    assert store.check() == []
