"""Several of our processes on one partition of a broker's directory."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import CommitUnknownError
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.processes import Processes
from tests.support.stores import TOPIC, columns_of, errors, values

LAYOUTS = ["cursus", "cursus-broker", "rustlog"]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def make(path: Path, layout: str) -> Store:
    config = StoreConfig(segment_bytes=4096)
    store = Store.open(path, layout=layout, create=True, config=config)
    store.create_topic("t")
    return store


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_writers_never_overwrite_each_other(
    tmp_path: Path, processes: Processes, layout: str
) -> None:
    store = make(tmp_path, layout)
    names = ("a", "b")
    children = [processes.start("append_times", tmp_path, name=name, times=60) for name in names]
    claimed = [int(line) for child in children for line in child.lines() if line != "done"]
    assert sorted(claimed) == list(range(120))
    found = values(store)
    assert len(found) == 120
    for name in names:
        own = [value for value in found if value.startswith(name.encode() + b"-")]
        assert own == [f"{name}-{number}".encode() for number in range(60)]
    assert errors(store) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_killed_writer_loses_nothing_it_acknowledged(
    tmp_path: Path, processes: Processes, layout: str
) -> None:
    store = make(tmp_path, layout)
    child = processes.start("append_forever", tmp_path, name="w", batch=40, segment_bytes=4096)
    acknowledged = [child.line() for _ in range(8)]
    child.signal(signal.SIGSTOP)
    assert len(values(store)) >= 320
    acknowledged += child.kill()
    start, end, number = map(int, acknowledged[-1].split())
    found = values(store)
    assert found[start:end] == [b"w-%d" % number] * 40
    written = store.append("t", 0, [b"next"])
    assert values(store)[written.start] == b"next"
    assert errors(store) == []


@pytest.mark.slow
def test_a_reader_that_has_mapped_a_file_lives_while_an_interrupted_commit_is_finished(
    tmp_path: Path,
) -> None:
    config = StoreConfig(segment_bytes=1 << 20)
    with Store.open(tmp_path, layout="cursus", create=True, config=config) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"a"])
    vfs = faulty(tmp_path)
    dying = Store(vfs, config, "cursus")
    stage = dying.stage("job")
    stage.write(TOPIC, 0, columns_of([b"c" * 1000] * 3000))
    vfs.fail("pwritev", errno.EIO, path=".log", nth=3)
    with pytest.raises(CommitUnknownError):
        dying.commit("job", stage.finish())
    child = get_context("spawn").Process(target=_read_while_it_is_finished, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 0


def _read_while_it_is_finished(root: Path) -> None:
    """Where a file is cut that is mapped, the reader dies of SIGBUS."""
    config = StoreConfig(segment_bytes=1 << 20)
    reading, writing = faulty(root), faulty(root)
    mapped: list[str] = []

    def die(kind: str, path: str) -> None:
        if kind == "pwritev" and path.endswith(".log"):
            raise CrashError

    def finish_it_meanwhile(kind: str, path: str) -> None:
        if kind == "map":
            mapped.append(path)
        elif kind == "close" and path in mapped and writing.hook is None:
            writing.hook = die  # after the rewind
            with pytest.raises(CrashError):
                Store(writing, config, "cursus").repair()

    reading.hook = finish_it_meanwhile
    assert values(Store(reading, config, "cursus")) == [b"a"]
    assert writing.hook is not None
