"""Several of our processes on one partition of a broker's directory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from tests.processes import Processes
from tests.stores import errors, values

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
