"""Several processes and threads on one store: who waits, who sees what, who recovers whom."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core.errors import LockTimeoutError
from tests.support.processes import Processes
from tests.support.stores import TOPIC, errors, make_store, offsets, reopen, values


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.row(31)
def test_two_processes_append_two_hundred_times_each(tmp_path: Path, processes: Processes) -> None:
    make_store(tmp_path).close()
    children = {
        name: processes.start("append_times", tmp_path, name=name, times=200) for name in "xy"
    }
    acked: dict[int, bytes] = {}
    for name, child in children.items():
        *starts, last = child.lines()
        assert (len(starts), last) == (200, "done")
        assert starts == sorted(starts, key=int)
        acked |= {int(start): f"{name}-{at}".encode() for at, start in enumerate(starts)}
    store = reopen(tmp_path)
    assert offsets(store) == list(range(400))
    assert dict(enumerate(values(store))) == acked
    assert errors(store) == []


def test_threads_append_to_one_partition(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="none", segment_bytes=8192)
    acked: dict[int, bytes] = {}

    def append(name: str) -> None:
        for number in range(100):
            value = f"{name}-{number}".encode()
            acked[store.append(TOPIC, 0, [value]).start] = value

    run_together(*((append, name) for name in "wxyz"))
    assert dict(enumerate(values(store))) == acked
    assert len(acked) == 400
    assert errors(store) == []


def test_threads_append_to_partitions_of_their_own(tmp_path: Path) -> None:
    store = make_store(tmp_path, 4)

    def append(partition: int) -> None:
        for number in range(25):
            store.append(TOPIC, partition, [b"%d-%d" % (partition, number)])

    run_together(*((append, partition) for partition in range(4)))
    for partition in range(4):
        assert values(store, partition) == [b"%d-%d" % (partition, n) for n in range(25)]
    assert errors(store) == []


def run_together(*calls: tuple[object, ...]) -> None:
    failures: list[BaseException] = []

    def guarded(function: object, *arguments: object) -> None:
        try:
            function(*arguments)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_processes_that_boot_a_store_at_once_agree_on_it(
    tmp_path: Path, processes: Processes
) -> None:
    for number in range(5):
        path = tmp_path / str(number)
        children = [processes.start("open_and_append", path, name=f"p{n}") for n in range(4)]
        assert sorted(int(child.line()) for child in children) == [0, 1, 2, 3]
        assert sorted(values(reopen(path))) == [b"p0", b"p1", b"p2", b"p3"]
        assert errors(reopen(path)) == []


def test_reader_in_another_process_sees_new_records_without_reopening(
    tmp_path: Path, processes: Processes
) -> None:
    store = make_store(tmp_path)
    child = processes.start("follow", tmp_path)
    assert child.line() == "ready"
    for number in range(20):
        store.append(TOPIC, 0, [b"%d" % number])
        if number % 5 == 4:
            store.roll(TOPIC, 0)
        child.say("read")
        assert child.line() == f"{number + 1} {number}"
    child.close()


@pytest.mark.row(31)
def test_lock_timeout_names_the_process_that_holds_it(tmp_path: Path, processes: Processes) -> None:
    make_store(tmp_path, 2).close()
    child = processes.start("hold", tmp_path)
    assert child.line() == "held"
    store = reopen(tmp_path, lock_timeout_ms=50)
    with pytest.raises(LockTimeoutError, match=f"process {child.pid}") as caught:
        store.append(TOPIC, 0, [b"a"])
    assert caught.value.path == "topics/t/0/lock"
    assert store.append(TOPIC, 1, [b"other partitions work"]).start == 0
    assert values(store) == []
    child.say("let go")
    assert child.line() == "released"
    store.append(TOPIC, 0, [b"a"])


def test_lock_timeout_names_the_process_that_recovers(tmp_path: Path, processes: Processes) -> None:
    make_store(tmp_path).append(TOPIC, 0, [b"a"])
    child = processes.start("recover_slowly", tmp_path)
    assert child.line() == "recovering"
    with pytest.raises(LockTimeoutError, match=f"process {child.pid}"):
        reopen(tmp_path, lock_timeout_ms=50).append(TOPIC, 0, [b"b"])
    child.say("go on")
    while child.line() == "recovering":
        child.say("go on")
    store = reopen(tmp_path)
    assert store.append(TOPIC, 0, [b"c"]).start == 2
    assert values(store) == [b"a", b"late", b"c"]


@pytest.mark.row(32)
def test_lock_of_a_killed_process_is_free_and_the_next_owner_recovers(
    tmp_path: Path, processes: Processes
) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
    child = processes.start("hold", tmp_path)
    assert child.line() == "held"
    child.kill()
    store = reopen(tmp_path, lock_timeout_ms=5000)
    assert values(store) == [b"a"]
    assert store.append(TOPIC, 0, [b"b"]).start in (1, 2)
    # The crashed process had written a whole frame that nobody acknowledged: kept or not, not torn.
    assert values(store) in ([b"a", b"b"], [b"a", b"half", b"b"])
    assert errors(store) == []


@pytest.mark.row(32)
def test_lock_of_a_stopped_process_is_never_stolen(tmp_path: Path, processes: Processes) -> None:
    make_store(tmp_path).close()
    child = processes.start("hold", tmp_path)
    assert child.line() == "held"
    child.signal(signal.SIGSTOP)
    try:
        store = reopen(tmp_path, lock_timeout_ms=100)
        before = time.monotonic()
        with pytest.raises(LockTimeoutError, match=f"process {child.pid}"):
            store.append(TOPIC, 0, [b"a"])
        assert time.monotonic() - before < 5
    finally:
        child.signal(signal.SIGCONT)
    child.say("let go")
    assert child.line() == "released"
    assert store.append(TOPIC, 0, [b"a"]).start == 1


def test_waiting_writer_gets_its_turn(tmp_path: Path, processes: Processes) -> None:
    make_store(tmp_path).close()
    child = processes.start("hold", tmp_path)
    assert child.line() == "held"
    thread = threading.Timer(0.2, child.say)
    thread.start()
    assert reopen(tmp_path).append(TOPIC, 0, [b"a"]).start == 1
    thread.join()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_user_who_is_not_root_recovers_a_sealed_segment(processes: Processes) -> None:
    """Outside of pytest's directories, which only their owner may enter."""
    path = Path(tempfile.mkdtemp(prefix="cursus-user-"))
    try:
        make_store(path).close()
        for file in [path, *path.rglob("*")]:
            os.chown(file, 65534, 65534)
        child = processes.start("as_user", path, user=65534)
        assert child.lines() == ["done"]
        assert values(reopen(path)) == [b"a", b"b"]
        assert errors(reopen(path)) == []
    finally:
        shutil.rmtree(path)
