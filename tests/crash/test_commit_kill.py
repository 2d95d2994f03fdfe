"""Committers of real processes on real files, killed at every call."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store
from tests.crash.breakers.commit_tasks import COMMIT, WITH_COLUMNS, open_quickly, stage, values_of
from tests.crash.explorer.typed_rows import TYPED, read_marks
from tests.support.processes import Processes
from tests.support.stores import errors, values


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    with Store.open(path, create=True) as store:
        store.create_topic("t", 2, segment_bytes=4096)
        store.create_topic("u", 1)
        store.create_topic("v", 2, **TYPED)
        store.append("t", 0, [b"first"])
        store.append("u", 0, [b"first"])
    return path


def committed(store: Store) -> list[bool]:
    """Of every record of the commit, whether it is there; asserts that none is there twice."""
    found = []
    for (topic, partition), count in WITH_COLUMNS.items():
        there = rows_of(store, topic, partition)
        for value in values_of("app", 1, topic, partition, count):
            value += b"+a" if topic == "v" else b""
            assert there.count(value) <= 1
            found.append(value in there)
    return found


def rows_of(store: Store, topic: str, partition: int) -> list[bytes]:
    """All that a reader sees; rows of a typed topic with the columns that they have."""
    return read_marks(store, topic, partition, 0, store.offsets(topic, partition).end)[1]


@pytest.mark.row(39)
def test_commit_killed_at_any_call_is_whole_or_nothing(
    original: Path, tmp_path: Path, processes: Processes
) -> None:
    points = []
    for calls in range(200):
        path = tmp_path / str(calls)
        shutil.copytree(original, path)
        child = processes.start("commit_and_die", path, calls=calls)
        (said,) = child.lines()
        child.close()
        check_left(path, calls)
        shutil.rmtree(path)
        if said == "done":
            break
        points.append(said)
    assert len(points) > 50
    assert any("link" in point for point in points)
    assert any(point.startswith("unlink meta/intents") for point in points)


def check_left(path: Path, calls: int) -> None:
    store, _ = open_quickly(str(path))
    before = committed(store)
    for topic in ("t", "u", "v"):
        ends = [rows_of(store, topic, p) for p in range(store.topic(topic).partitions)]
        here = [value.startswith(b"app:") for end in ends for value in end]
        wanted = sum(count for (name, _), count in WITH_COLUMNS.items() if name == topic)
        assert sum(here) in (0, wanted), calls
    schema = store.schema("v")
    assert schema is not None
    assert ("a" in schema.names) == any(here), f"killed at {calls}: rows or columns alone"
    if calls % 3 == 0:
        store.abort("job", app="app")
    elif calls % 3 == 1:
        store.append("u", 0, [b"another writer"])
    after = committed(store) if calls % 3 < 2 else None
    parts = stage(store, "again", "app", 1, WITH_COLUMNS)
    result = store.commit("again", parts, app="app", version=1)
    if after is not None:
        assert len(set(after)) == 1, calls
        assert result.skipped == after[0], calls
    assert all(committed(store)), calls
    assert not any(before) or result.skipped
    assert errors(store) == []
    assert store.offsets("t", 0).end == 1 + COMMIT["t", 0]
    left = list((path / "staging").iterdir())
    # Killed before its commit point, or after the last step, it stays until the sweep.
    assert left == [] or calls % 3


def test_append_of_another_process_comes_after_a_commit_that_was_decided(
    original: Path, tmp_path: Path, processes: Processes
) -> None:
    """Killed right after the commit point, before anything was applied."""
    path = tmp_path / "store"
    for calls in range(100):
        shutil.copytree(original, path)
        child = processes.start("commit_and_die", path, calls=calls)
        (said,) = child.lines()
        child.close()
        if list((path / "meta" / "intents").glob("*.json")):
            break
        shutil.rmtree(path)
    assert said == "fsync_dir meta/intents"
    store, _ = open_quickly(str(path))
    assert values(store, 1) == []
    assert store.append("t", 1, [b"behind"]).start == 1
    assert values(store, 1) == [*values_of("app", 1, "t", 1, 1), b"behind"]
    assert all(committed(store))
    assert list((path / "meta" / "intents").iterdir()) == []
