"""Handlers whose disk, callbacks or process fail: every future hears of it, once."""

from __future__ import annotations

import errno
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import CollectedError, StorageError, WriteFailedError
from storage_core.handlers.disk_handler import DiskHandler
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.handler_helpers import NEVER_MS, handler_on, new_handler, stored
from tests.support.processes import wait_until


def test_errors_of_a_rotation_are_raised_together(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    handler = handler_on(vfs, linger_ms=NEVER_MS)
    vfs.fail("fsync", errno.EIO, path=".log")
    future = handler.append(b"lost")
    with pytest.raises(CollectedError) as caught:
        handler.rotate_segment()
    assert len(caught.value.errors) == 2
    assert all(str(error) in str(caught.value) for error in caught.value.errors)
    assert isinstance(future.exception(), WriteFailedError)
    assert handler.state == "active"
    handler.close()


@pytest.mark.parametrize(
    ("kind", "error"), [("fsync", errno.EIO), ("pwritev", errno.EIO), ("pwritev", errno.ENOSPC)]
)
def test_a_failed_write_fails_its_futures_and_poisons_the_handler(
    tmp_path: Path, kind: str, error: int
) -> None:
    vfs = faulty(tmp_path)
    handler = handler_on(vfs, linger_ms=NEVER_MS)
    assert handler.append(b"safe").result() == 0
    vfs.fail(kind, error, path=".log")
    futures = [handler.append(b"lost") for _ in range(3)]
    for future in futures:
        with pytest.raises(WriteFailedError):
            future.result()
    for again in (handler.append, handler.write_direct):
        with pytest.raises(WriteFailedError, match="is closed for writing since") as caught:
            again(b"later")
        assert isinstance(caught.value.__cause__, WriteFailedError)
    with pytest.raises(WriteFailedError):
        handler.flush()
    assert handler.read_messages(0, 10).next_offset == 1
    handler.close()
    with Store.open(tmp_path) as store, DiskHandler(store, "t", 0) as fresh:
        offset = fresh.write_direct(b"new")
        assert stored(tmp_path)[offset] == b"new"
    assert stored(tmp_path)[0] == b"safe"


def test_closing_says_when_it_could_not_write_what_was_queued(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    handler = handler_on(vfs, linger_ms=NEVER_MS)
    vfs.fail("fsync", errno.EIO, path=".log")
    future = handler.append(b"lost")
    with pytest.raises(WriteFailedError):
        handler.close()
    assert isinstance(future.exception(), WriteFailedError)
    handler.close()


def test_a_callback_that_tries_to_end_the_thread_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(_: Future[int]) -> None:
        raise SystemExit

    with new_handler(tmp_path, linger_ms=20) as handler:
        futures = [handler.append(b"x") for _ in range(3)]
        seen: list[int] = []
        futures[0].add_done_callback(leave)
        futures[1].add_done_callback(lambda future: seen.append(future.result()))
        wait_until(lambda: seen == [1])
        assert handler.append(b"y").result(timeout=30) == 3
    assert "the flush thread failed" in caplog.text


def test_a_process_that_dies_inside_a_write_leaves_no_future_waiting(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    handler = handler_on(vfs, linger_ms=NEVER_MS)
    vfs.crash_after = vfs.changes + 1
    with pytest.raises(CrashError):
        handler.append(b"x").result(timeout=30)
    vfs.crash_after = None
    handler.close()


def test_a_failed_sync_by_interval_fails_the_futures_that_waited_for_it(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    settings: dict[str, Any] = {"fsync": "interval", "fsync_interval_ms": 100}
    handler = handler_on(vfs, topic_settings=settings, linger_ms=0)
    handler.write_direct(b"x")
    vfs.fail("fsync", errno.EIO, path=".log")
    with pytest.raises(WriteFailedError):
        handler.append(b"y").result(timeout=30)
    with pytest.raises(WriteFailedError):
        handler.append(b"z")
    handler.close()


@pytest.mark.parametrize(
    ("layout", "bad"),
    [
        ("rustlog", {"value": None}),
        ("rustlog", {"value": bytes(11 << 20)}),
        ("cursus-broker", {"value": b"x", "headers": {"seq": b"abc"}}),
        ("cursus-broker", {"value": b"x", "key": b"k" * 70_000}),
    ],
    ids=["null", "large", "header", "key"],
)
def test_a_record_that_a_layout_cannot_store_leaves_its_neighbours_alone(
    tmp_path: Path, layout: str, bad: dict[str, Any]
) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as store:
        store.create_topic("t")
        with DiskHandler(store, "t", 0, StoreConfig(linger_ms=NEVER_MS)) as handler:
            if layout == "cursus-broker":  # records like the bad one, but sound
                handler.append(b"w", headers={"seq": b"1"}).result()
                handler.append(b"w", b"k").result()
            before = handler.append(b"before")
            with pytest.raises(StorageError):
                handler.append(**bad)
            after = handler.append(b"after")
            assert after.result(30) == before.result(30) + 1
