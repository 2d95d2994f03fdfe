"""Several processes commit, append and delete at once, and a reader looks all the time."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from storage_core import Store
from storage_core.errors import DataLossError, OffsetOutOfRangeError
from tests.crash.breakers.commit_tasks import COMMIT, open_quickly
from tests.support.processes import Child, Processes
from tests.support.sizes import COMMITS, SEED, WRITERS
from tests.support.stores import errors, rows, values

TIMES = 50  # in brokers' directories, where a commit costs more
Places = dict[str, list[list[tuple[str, int]]]]
NATIVE_PLACES: Places = {
    "x": [[("t", 0), ("t", 1), ("u", 0)], [("t", 1), ("t", 2)]],
    "y": [[("t", 0), ("t", 2)], [("u", 0), ("u", 1), ("t", 1)]],
    "z": [[("u", 0), ("u", 1)], [("t", 0), ("t", 1), ("t", 2), ("u", 1)]],
}
APPENDED_PLACES: Places = {"a": [[("t", 0)]], "b": [[("u", 1)], [("t", 1)]]}
KEPT = 20  # records that stay of the topic from which others are deleted
ONE_TOPIC: Places = {name: [[("t", 0), ("t", 1)], [("t", 1), ("t", 2)]] for name in "xy"}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def look(store: Store, topic: str, ends: tuple[int, ...], starts: list[int]) -> Counter[str]:
    """The commits of which something is new in a snapshot, each with how many partitions."""
    found: Counter[str] = Counter()
    for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
        assert end >= start, f"the end of {topic}-{partition} went back from {start} to {end}"
        new = rows(store.read(topic, partition, start=start, end=end))
        assert [row["offset"] for row in new] == list(range(start, end)), (topic, partition)
        for row in new:
            name, version, *_ = row["value"].decode().split(":")
            found[f"{name}:{version}"] += 1
        starts[partition] = end
    return found


def watch(
    path: Path,
    topics: dict[str, int],
    places: Places,
    times: int = TIMES,
    disturb: Callable[[], None] = lambda: None,
) -> int:
    """Read snapshots until all commits were seen; each must hold whole commits only."""
    store, _ = open_quickly(str(path))
    starts = {topic: [0] * partitions for topic, partitions in topics.items()}
    looks, left, deadline = 0, dict.fromkeys(places, times), time.monotonic() + 60 + times
    while any(left.values()):
        assert time.monotonic() < deadline, left
        looks += 1
        disturb()
        for topic in topics:
            seen = look(store, topic, store.visible_ends(topic), starts[topic])
            for commit, count in seen.items():
                name, _, version = commit.partition(":")
                chosen = places[name][int(version) % len(places[name])]
                assert count == sum(at[0] == topic for at in chosen), (commit, topic)
                left[name] -= chosen[-1][0] == topic
    return looks


def start(
    processes: Processes,
    path: Path,
    places: Places,
    times: int = TIMES,
    task: str = "commit_times",
) -> list[Child]:
    return [
        processes.start(task, path, name=name, times=times, places=chosen)
        for name, chosen in places.items()
    ]


class StopAndGo:
    """Stops one process after the other for a moment, wherever it is."""

    def __init__(self, children: list[Child]) -> None:
        self._children = children
        self._chance = Random(SEED)
        self._stopped: Child | None = None
        self.stops = 0

    def __call__(self) -> None:
        if self._stopped is not None:
            self._stopped.signal(signal.SIGCONT)
            self._stopped = None
        elif self._chance.random() < 0.3:
            self._stopped = self._chance.choice(self._children)
            self._stopped.signal(signal.SIGSTOP)
            self.stops += 1
            time.sleep(0.01)


class LosingReader:
    """Reads a topic while its oldest records are deleted: what it sees has no gap but that."""

    def __init__(self, path: Path, topic: str) -> None:
        self._store, _ = open_quickly(str(path))
        self._topic = topic
        self._start = self._next = self.looks = 0

    def __call__(self) -> None:
        bounds = self._store.offsets(self._topic, 0)
        start, end = bounds.start, bounds.end
        assert start >= self._start, "the start of a log went back"
        assert end >= self._next, "the end of a log went back"
        first = max(start, self._next)
        try:
            found = rows(self._store.read(self._topic, 0, start=first, end=end))
        except (DataLossError, OffsetOutOfRangeError):
            assert self._store.offsets(self._topic, 0).start > first, "refused what is there"
            return
        assert [row["offset"] for row in found] == list(range(first, end))
        assert [row["value"].split(b":")[1] for row in found] == [
            b"%d" % offset for offset in range(first, end)
        ]
        self._start, self._next, self.looks = start, end, self.looks + 1


@pytest.mark.row(31, 32, 41)
@pytest.mark.timeout(0)
def test_commits_of_processes_that_are_stopped_and_continued_are_seen_whole(
    tmp_path: Path, processes: Processes
) -> None:
    topics = {"t": 3, "u": 2}
    with Store.open(tmp_path, create=True) as store:
        for topic, partitions in topics.items():
            store.create_topic(topic, partitions, segment_bytes=16384)
        store.create_topic("lossy", 1, retention_bytes=4096)
    shapes = list(NATIVE_PLACES.values())
    committed = {f"w{number}": shapes[number % len(shapes)] for number in range(WRITERS)}
    appended = {**APPENDED_PLACES, "lossy": [[("lossy", 0)]]}
    children = start(processes, tmp_path, committed, COMMITS)
    children += start(processes, tmp_path, appended, COMMITS, task="append_in_turn")
    deleting = processes.start("delete_after", tmp_path, topic="lossy", until=COMMITS, keep=KEPT)
    stop_and_go, losing = StopAndGo([*children, deleting]), LosingReader(tmp_path, "lossy")

    def disturb() -> None:
        stop_and_go()
        losing()

    places = committed | APPENDED_PLACES
    assert watch(tmp_path, topics, places, COMMITS, disturb) > 10
    for child in (*children, deleting):
        child.signal(signal.SIGCONT)
    assert [child.lines() for child in children] == [["done"]] * len(children)
    (rounds,) = deleting.lines()
    assert int(rounds) > 1
    assert stop_and_go.stops > 3
    assert losing.looks > 10
    check_history(tmp_path, topics, places, COMMITS)
    left = open_quickly(str(tmp_path))[0].offsets("lossy", 0)
    assert left.end == COMMITS
    assert left.start >= COMMITS - KEPT


def check_history(path: Path, topics: dict[str, int], places: Places, times: int) -> None:
    """All commits are there once, each process's in their order, and nothing is left over."""
    total = sum(len(chosen[n % len(chosen)]) for chosen in places.values() for n in range(times))
    store, _ = open_quickly(str(path))
    assert sum(sum(store.visible_ends(topic)) for topic in topics) == total
    for topic, partitions in topics.items():
        for partition in range(partitions):
            found = values(store, partition, topic)
            assert len(set(found)) == len(found)
            for name in places:
                mine = [int(v.split(b":")[1]) for v in found if v.startswith(name.encode() + b":")]
                assert mine == sorted(mine)
    assert errors(store) == []
    assert list((path / "meta" / "intents").iterdir()) == []
    assert list((path / "staging").iterdir()) == []


@pytest.mark.parametrize("layout", ["rustlog", "cursus", "cursus-broker"])
def test_commits_to_a_brokers_directory_are_seen_whole(
    layout: str, tmp_path: Path, processes: Processes
) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as store:
        store.create_topic("t", 3)
    children = start(processes, tmp_path, ONE_TOPIC)
    watch(tmp_path, {"t": 3}, ONE_TOPIC)
    assert [child.lines() for child in children] == [["done"]] * 2
    store, _ = open_quickly(str(tmp_path))
    assert sum(store.visible_ends("t")) == 2 * 2 * TIMES


@pytest.mark.row(38, 42)
def test_zombie_and_successor_commit_the_same_version_once(
    tmp_path: Path, processes: Processes
) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic("t", 2)
        store.create_topic("u", 1)
    for round_ in range(5):
        app = f"app-{round_}"
        children = [
            processes.start("commit_on_command", tmp_path, job=f"{app}-{name}", app=app)
            for name in ("zombie", "successor", "third")
        ]
        assert [child.line() for child in children] == ["staged"] * 3
        for child in children:
            child.say("go")
        assert sorted(child.line() for child in children) == ["False", "True", "True"]
    store, _ = open_quickly(str(tmp_path))
    for (topic, partition), count in COMMIT.items():
        assert store.offsets(topic, partition).end == 5 * count
