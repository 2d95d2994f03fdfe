"""A thread that keeps the root open: one directory for one operation, then the current one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import IdentityError, TopicNotFoundError
from storage_core.io.durable import create_file, read_file
from storage_core.vfs import PosixVfs
from storage_core.vfs.portable import Portable
from storage_core.vfs.remote import UrlVfs
from tests.support.stores import TOPIC, make_store, reopen, values


@pytest.mark.parametrize("system", [None, Portable()], ids=["linux", "portable"])
def test_all_calls_inside_reach_the_directory_that_was_there_at_the_start(
    tmp_path: Path, system: Portable | None
) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for directory in (root, other):
        directory.mkdir()
        (directory / "name").write_text(directory.name)
    vfs = PosixVfs(root, system)
    seen_by_another: list[bytes | None] = []
    with vfs.anchored(), vfs.anchored():
        root.rename(tmp_path / "moved")
        other.rename(root)
        assert read_file(vfs, "name", 99) == b"root"
        vfs.mkdir("below")
        create_file(vfs, "below/file", b"")
        assert vfs.stat("below/file") is not None
        worker = threading.Thread(target=lambda: seen_by_another.append(read_file(vfs, "name", 99)))
        worker.start()
        worker.join()
    assert seen_by_another == [b"other"]
    assert read_file(vfs, "name", 99) == b"other"
    assert (tmp_path / "moved/below/file").exists()
    assert not (root / "below").exists()


def test_a_missing_root_is_what_each_call_says(tmp_path: Path) -> None:
    vfs = PosixVfs(tmp_path / "gone")
    with vfs.anchored():
        assert vfs.stat("topics") is None
        with pytest.raises(FileNotFoundError):
            vfs.open("name", "read")


def test_anchors_leave_no_descriptor_open(tmp_path: Path) -> None:
    vfs = PosixVfs(tmp_path)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError), vfs.anchored():
            vfs.open("nothing", "read")
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_store_that_is_replaced_between_two_appends_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(tmp_path / "other").close()
    with make_store(root) as store:
        store.append(TOPIC, 0, [b"first"])
        root.rename(tmp_path / "moved")
        (tmp_path / "other").rename(root)
        with pytest.raises(IdentityError):
            store.append(TOPIC, 0, [b"second"])
    assert values(reopen(root)) == []
    assert values(reopen(tmp_path / "moved")) == [b"first"]


def test_a_topic_that_is_deleted_between_two_appends_is_noticed(tmp_path: Path) -> None:
    with make_store(tmp_path) as store, Store.open(tmp_path) as other:
        store.append(TOPIC, 0, [b"first"])
        other.delete_topic(TOPIC)
        with pytest.raises(TopicNotFoundError):
            store.append(TOPIC, 0, [b"second"])
        other.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"third"])
        assert values(other) == [b"third"]


def test_a_store_at_a_url_has_no_root_to_open() -> None:
    with UrlVfs("s3://bucket/log").anchored():
        pass
