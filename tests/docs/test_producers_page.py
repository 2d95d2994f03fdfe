"""``docs/producers.md`` says what handlers really do when they wait, fail and create."""

from __future__ import annotations

import asyncio
import fcntl
import re
import time
from pathlib import Path

import pytest

from storage_core import DiskManager, StoreConfig
from storage_core.errors import LockTimeoutError, TopicNotFoundError, WriteFailedError
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "producers.md").read_text()
LINGER_MS = 400


def test_every_code_of_the_page_has_an_entry_in_troubleshooting() -> None:
    entries = (ROOT / "docs" / "troubleshooting.md").read_text()
    codes = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", PAGE))
    assert "RECORD_INVALID" in codes
    assert [code for code in codes if f"### `[CURSUS_{code}]`" not in entries] == []


def test_append_wants_a_topic_and_a_handler_makes_one(tmp_path: Path) -> None:
    with DiskManager(StoreConfig(log_dir=str(tmp_path / "log"))) as manager:
        with pytest.raises(TopicNotFoundError):
            manager.append("t", b"x")
        manager.get_handler("t", 2).append(b"x").result()
        assert manager.store.topic("t").partitions == 3


def test_a_lock_timeout_closes_the_handler_until_there_is_a_new_one(tmp_path: Path) -> None:
    config = StoreConfig(log_dir=str(tmp_path / "log"), lock_timeout_ms=100, linger_ms=1)
    with DiskManager(config) as manager:
        manager.store.create_topic("t")
        assert manager.append("t", b"first").result() == 0
        with (tmp_path / "log/topics/t/0/lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            refused = manager.append("t", b"second")
            assert isinstance(refused.exception(), LockTimeoutError)
        with pytest.raises(WriteFailedError, match="is closed for writing"):
            manager.append("t", b"third")
        manager.close_all_handlers()
        assert manager.append("t", b"third").result() == 1


def test_who_awaits_a_future_waits_for_the_linger(tmp_path: Path) -> None:
    config = StoreConfig(log_dir=str(tmp_path / "log"), linger_ms=LINGER_MS)
    with DiskManager(config) as manager:
        manager.store.create_topic("t")
        manager.append("t", b"first").result()

        async def awaited() -> int:
            return await asyncio.wrap_future(manager.append("t", b"x"))

        begun = time.monotonic()
        asyncio.run(awaited())
        assert time.monotonic() - begun >= LINGER_MS / 2000
