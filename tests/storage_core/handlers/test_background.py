"""Background maintenance of a DiskManager: only if asked for, and over at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage_core import DiskManager, Store, StoreConfig
from storage_core.handlers.background import Maintainer
from tests.support.store_lives import contents, in_segments, numbered
from tests.support.stores import TOPIC, names, offsets, overwrite, segment


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def manager_of(path: Path, **settings: Any) -> DiskManager:
    return DiskManager(StoreConfig(log_dir=str(path), **settings))


def test_a_manager_maintains_its_logs_if_asked_to(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(10)).close()
    with manager_of(tmp_path, maintenance_interval_ms=10, merge_below_bytes=4096) as manager:
        handler = manager.get_handler(TOPIC, 0)
        eventually(lambda: len(names(tmp_path, ".log")) == 2)
        handler.append(b"beside it").result(10)
    assert len(offsets(Store.open(tmp_path))) == 32
    assert threading.active_count() == 1 or "cursus-maintenance" not in {
        thread.name for thread in threading.enumerate()
    }


def test_nothing_is_done_unless_asked_for(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(10), retention_bytes=0, merge_below_bytes=4096).close()
    with manager_of(tmp_path) as manager:
        manager.get_handler(TOPIC, 0)
        assert "cursus-maintenance" not in {thread.name for thread in threading.enumerate()}
    assert len(names(tmp_path, ".log")) == 11


def test_a_round_does_what_each_topic_asks_for(tmp_path: Path) -> None:
    store = in_segments(
        tmp_path,
        numbered(10, size=200),
        cleanup_policy="delete,compact",
        merge_below_bytes=4096,
        cold_compression="zstd",
        cold_after_ms=0,
    )
    store.create_topic("old", retention_bytes=0)
    for _ in range(2):
        store.append("old", 0, [b"x"])
        store.roll("old", 0)
    Maintainer(store).maintain()
    assert offsets(store) == [28, 29, 30]
    assert len(names(tmp_path, ".log")) == 2
    assert store.offsets("old", 0).start == 1
    assert store.recompress(TOPIC, compression="zstd", dry_run=True) == []


def test_a_failure_is_logged_and_the_next_topic_gets_its_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = in_segments(tmp_path, numbered(9), merge_below_bytes=4096)
    store.create_topic("u", retention_bytes=0)
    for _ in range(2):
        store.append("u", 0, [b"x"])
        store.roll("u", 0)
    before = contents(store, end=3)
    overwrite(segment(tmp_path, 6), lambda data: data.__setitem__(90, data[90] ^ 1))
    with caplog.at_level(logging.INFO, "storage_core"):
        Maintainer(store).maintain()
        Maintainer(store).scrub()
    assert "maintenance of topic 't' failed" in caplog.text
    assert f"scrub: t-0: topics/t/0/segments/{6:020d}.log is damaged" in caplog.text
    assert store.offsets("u", 0).start == 1
    assert contents(store, end=3) == before


def test_a_scrub_that_sleeps_is_ended_at_once(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(3, size=5000)).close()
    manager = manager_of(tmp_path, scrub_interval_ms=10, scrub_bytes_per_second=1)
    manager.get_handler(TOPIC, 0)
    time.sleep(0.1)
    begin = time.monotonic()
    manager.close_all_handlers()
    assert time.monotonic() - begin < 5


def test_a_mistake_of_ours_is_logged_too_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = in_segments(tmp_path, numbered(3), cleanup_policy="compact")
    store.create_topic("u", retention_bytes=0)
    for _ in range(2):
        store.append("u", 0, [b"x"])
        store.roll("u", 0)

    def compact(*_: object, **__: object) -> None:
        raise IndexError("of an empty list")

    monkeypatch.setattr(store, "compact", compact)
    Maintainer(store).maintain()
    assert "maintenance of topic 't' failed" in caplog.text
    assert "of an empty list" in caplog.text
    assert store.offsets("u", 0).start == 1
