"""A handler beside others: a committer that was killed, a store that is closed before it."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import CommitUnknownError, StoreClosedError, WriteFailedError
from storage_core.handlers.disk_handler import DiskHandler
from tests.support.faulty_vfs import faulty
from tests.support.handler_helpers import NEVER_MS
from tests.support.processes import wait_until
from tests.support.stores import TOPIC, columns_of, make_store, reopen, segment, values


def leave_interrupted_commit(path: Path) -> None:
    vfs = faulty(path)
    dying = Store(vfs, StoreConfig())
    stage = dying.stage("job")
    stage.write(TOPIC, 0, columns_of([b"committed"]))
    parts = stage.finish()
    vfs.fail("pwritev", errno.EIO, path=".log")
    with pytest.raises(CommitUnknownError):
        dying.commit("job", parts)


def test_sending_a_segment_finishes_the_commit_of_a_crashed_writer(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=NEVER_MS).close()
    store = reopen(tmp_path, linger_ms=0)
    with DiskHandler(store, TOPIC, 0) as handler:
        handler.append(b"1")
        handler.flush()
        store.append(TOPIC, 0, [b"2"])  # not through the handler, and held back
        leave_interrupted_commit(tmp_path)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            sent = handler.send_current_segment(ours)
            assert segment(tmp_path).read_bytes().startswith(theirs.recv(1 << 20))
        assert sent > 0
        assert values(reopen(tmp_path)) == [b"1", b"2", b"committed"]


def test_what_closing_the_store_made_visible_is_not_reported_as_failed(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=NEVER_MS).close()
    store = reopen(tmp_path, linger_ms=0)
    handler = DiskHandler(store, TOPIC, 0)
    handler.append(b"1")
    handler.flush()
    size = segment(tmp_path).stat().st_size
    written = handler.append(b"2")
    handler.read_messages(0, 1)
    wait_until(lambda: segment(tmp_path).stat().st_size > size)
    store.close()
    assert values(reopen(tmp_path)) == [b"1", b"2"]
    handler.close()
    assert written.result(timeout=10) == 1


def test_what_a_closed_store_never_got_is_reported_as_failed(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    store = reopen(tmp_path, linger_ms=NEVER_MS)
    handler = DiskHandler(store, TOPIC, 0)
    written = handler.append(b"1")
    store.close()
    with pytest.raises(Exception, match=r"the store .* is closed"):
        handler.close()
    assert isinstance(written.exception(timeout=10), StoreClosedError)
    assert values(reopen(tmp_path)) == []


def test_what_closing_the_store_could_not_sync_is_reported_as_failed(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=NEVER_MS).close()
    vfs = faulty(tmp_path)
    store = Store(vfs, StoreConfig(linger_ms=0))
    handler = DiskHandler(store, TOPIC, 0)
    handler.append(b"1")
    handler.flush()
    size = segment(tmp_path).stat().st_size
    written = handler.append(b"2")
    handler.read_messages(0, 1)
    wait_until(lambda: segment(tmp_path).stat().st_size > size)
    vfs.fail("fsync", errno.EIO, path=".log")
    with pytest.raises(WriteFailedError):
        store.close()
    with pytest.raises(WriteFailedError):
        handler.close()
    assert written.exception(timeout=10) is not None
    assert values(reopen(tmp_path)) == [b"1"]
