"""The registry of handlers."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from storage_core import DiskHandler, DiskManager, Store, StoreConfig
from storage_core.errors import (
    CollectedError,
    ConfigError,
    InvalidNameError,
    LayoutMismatchError,
    StoreClosedError,
    WriteFailedError,
)
from storage_core.vfs import PosixVfs
from tests.support.paths import ROOT


def manager(path: Path, **settings: Any) -> DiskManager:
    return DiskManager(StoreConfig(log_dir=str(path / "deep" / "logs"), **settings))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "cursus" in thread.name]


def test_handlers_are_made_on_first_use_with_directory_topic_and_partition(tmp_path: Path) -> None:
    with manager(tmp_path) as found:
        assert not (tmp_path / "deep").exists()
        assert found.get_handler("orders", 2).write_direct(b"x") == 0
        assert found.get_handler("orders", 4).append(b"y").result() == 0
        assert found.get_handler("orders", 0).topic == "orders"
        assert sorted(found.handlers) == ["orders_0", "orders_2", "orders_4"]
    with Store.open(tmp_path / "deep" / "logs") as store:
        assert store.visible_ends("orders") == (0, 0, 1, 0, 1)


def test_there_is_one_handler_for_a_partition(tmp_path: Path) -> None:
    found: list[DiskHandler] = []
    start = threading.Barrier(8)
    with manager(tmp_path) as registry:

        def get() -> None:
            start.wait()
            found.append(registry.get_handler("t", 1))

        workers = [threading.Thread(target=get) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(set(map(id, found))) == 1
        assert found[0] is registry.handlers["t_1"]
        assert registry.get_handler("t", 0) is not found[0]


def test_closing_all_writes_logs_empties_and_leaves_no_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = threads()
    registry = manager(tmp_path, linger_ms=3_600_000, fsync="interval")
    handlers = [registry.get_handler("t", partition) for partition in range(3)]
    futures = [handler.append(b"x") for handler in handlers]
    assert len(threads()) > len(before)
    with caplog.at_level(logging.INFO, "storage_core"):
        registry.close_all_handlers()
    for partition in range(3):
        assert f"t_{partition}" in caplog.text
    assert all(future.result(timeout=0) == 0 for future in futures)
    assert all(handler.state == "closed" for handler in handlers)
    assert registry.handlers == {}
    assert threads() == before
    registry.close_all_handlers()
    with pytest.raises(StoreClosedError):
        handlers[0].append(b"late")


def test_handlers_can_be_had_again_after_closing(tmp_path: Path) -> None:
    with manager(tmp_path) as registry:
        first = registry.get_handler("t", 0)
        first.write_direct(b"a")
        first.close()
        second = registry.get_handler("t", 0)
        assert second is not first
        assert second.write_direct(b"b") == 1
        registry.close_all_handlers()
        assert registry.get_handler("t", 0).write_direct(b"c") == 2


def test_a_poisoned_partition_recovers_after_closing_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PosixVfs.fsync

    def fail(self: PosixVfs, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            raise OSError(errno.EIO, "Input/output error")
        real(self, fd)

    registry = manager(tmp_path)
    registry.get_handler("t", 0).write_direct(b"safe")
    with monkeypatch.context() as patch:
        patch.setattr(PosixVfs, "fsync", fail)
        with pytest.raises(WriteFailedError):
            registry.get_handler("t", 0).write_direct(b"lost")
    with pytest.raises(WriteFailedError):
        registry.get_handler("t", 0).append(b"lost")
    registry.close_all_handlers()
    assert registry.get_handler("t", 0).append(b"new").result() >= 1
    registry.close_all_handlers()


def test_a_callback_may_ask_for_a_handler_while_all_are_closed(tmp_path: Path) -> None:
    registry = manager(tmp_path, linger_ms=3_600_000)
    found: list[DiskHandler] = []
    future = registry.get_handler("t", 0).append(b"x")
    future.add_done_callback(lambda _: found.append(registry.get_handler("t", 0)))
    registry.close_all_handlers()
    assert found[0].write_direct(b"y") == 1
    registry.close_all_handlers()


def test_errors_while_closing_are_raised_together_and_everything_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: PosixVfs, fd: int) -> None:
        raise OSError(errno.EIO, f"Input/output error on {fd}")

    before = threads()
    registry = manager(tmp_path, linger_ms=3_600_000)
    futures = [registry.get_handler("t", partition).append(b"x") for partition in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(PosixVfs, "fsync", fail)
        with pytest.raises(CollectedError) as caught:
            registry.close_all_handlers()
    assert len(caught.value.errors) >= 2
    assert all(isinstance(future.exception(), WriteFailedError) for future in futures)
    assert registry.handlers == {}
    assert threads() == before


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [("../x", 0, InvalidNameError), ("t", -1, ConfigError), ("t", "0", ConfigError)],
)
def test_impossible_partitions_are_refused(
    tmp_path: Path, topic: str, partition: Any, error: type[Exception]
) -> None:
    with manager(tmp_path) as registry, pytest.raises(error):
        registry.get_handler(topic, partition)


@pytest.mark.parametrize("layout", ["native", "cursus", "cursus-broker", "rustlog"])
def test_the_layout_of_a_new_directory_is_the_configured_one(tmp_path: Path, layout: Any) -> None:
    with manager(tmp_path, layout=layout) as registry:
        assert registry.get_handler("t", 1).append(b"x").result() == 0
    with Store.open(tmp_path / "deep" / "logs") as store:
        assert store.layout == layout
    other = "native" if layout != "native" else "rustlog"
    with (
        manager(tmp_path, layout=other) as registry,
        pytest.raises(LayoutMismatchError),
    ):
        registry.get_handler("t", 1)


@pytest.mark.parametrize(("count", "size"), [(10, 10), (4000, 1024)])
def test_a_program_that_forgets_to_close_keeps_what_it_appended(
    tmp_path: Path, count: int, size: int
) -> None:
    """Also where there is so much that threads would share the work: Python starts none then."""
    code = (
        "import sys\n"
        "from storage_core import DiskManager, StoreConfig\n"
        "config = StoreConfig(log_dir=sys.argv[1], linger_ms=3600000, frame_records=100,\n"
        "    disk_flush_batch_size=100000, channel_buffer_size=100000)\n"
        "handler = DiskManager(config).get_handler('t', 0)\n"
        "for _ in range(int(sys.argv[2])): handler.append(b'r' * int(sys.argv[3]))\n"
    )
    arguments = [str(tmp_path / "s"), str(count), str(size)]
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=True)
    with Store.open(tmp_path / "s") as store:
        assert store.offsets("t", 0).end == count


def test_a_task_can_be_finished_while_the_program_ends(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "from storage_core import Store, make_columns\n"
        "def end():\n"
        "    with Store.open(sys.argv[1], create=True) as store:\n"
        "        store.create_topic('t', 3)\n"
        "        stage = store.stage('job')\n"
        "        for partition in range(3):\n"
        "            stage.write('t', partition, make_columns([b'r' * 1024] * 3000, None, None,\n"
        "                None, now_us=1, max_record_bytes=None))\n"
        "        store.commit('job', stage.finish())\n"
        "atexit.register(end)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], cwd=ROOT, check=True)
    with Store.open(tmp_path / "s") as store:
        assert store.visible_ends("t") == (3000,) * 3
