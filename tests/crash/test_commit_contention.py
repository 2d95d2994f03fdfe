"""Several processes commit at once, and a reader looks all the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store
from tests.crash.commit_tasks import COMMIT, open_quickly
from tests.processes import Child, Processes
from tests.stores import errors, rows, values

TIMES = 50
Places = dict[str, list[list[tuple[str, int]]]]
NATIVE_PLACES: Places = {
    "x": [[("t", 0), ("t", 1), ("u", 0)], [("t", 1), ("t", 2)]],
    "y": [[("t", 0), ("t", 2)], [("u", 0), ("u", 1), ("t", 1)]],
    "z": [[("u", 0), ("u", 1)], [("t", 0), ("t", 1), ("t", 2), ("u", 1)]],
}
ONE_TOPIC: Places = {name: [[("t", 0), ("t", 1)], [("t", 1), ("t", 2)]] for name in "xy"}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def look(store: Store, topic: str, ends: tuple[int, ...], starts: list[int]) -> Counter[str]:
    """The commits of which something is new in a snapshot, each with how many partitions."""
    found: Counter[str] = Counter()
    for partition, end in enumerate(ends):
        for row in rows(store.read(topic, partition, start=starts[partition], end=end)):
            name, version, *_ = row["value"].decode().split(":")
            found[f"{name}:{version}"] += 1
        starts[partition] = end
    return found


def watch(path: Path, topics: dict[str, int], places: Places) -> int:
    """Read snapshots until all commits were seen; each must hold whole commits only."""
    store, _ = open_quickly(str(path))
    starts = {topic: [0] * partitions for topic, partitions in topics.items()}
    looks, left, deadline = 0, dict.fromkeys(places, TIMES), time.monotonic() + 60
    while any(left.values()):
        assert time.monotonic() < deadline, left
        looks += 1
        for topic in topics:
            seen = look(store, topic, store.visible_ends(topic), starts[topic])
            for commit, count in seen.items():
                name, _, version = commit.partition(":")
                chosen = places[name][int(version) % len(places[name])]
                assert count == sum(at[0] == topic for at in chosen), (commit, topic)
                left[name] -= chosen[-1][0] == topic
    return looks


def start(processes: Processes, path: Path, places: Places) -> list[Child]:
    return [
        processes.start("commit_times", path, name=name, times=TIMES, places=chosen)
        for name, chosen in places.items()
    ]


def test_commits_of_three_processes_are_seen_whole(tmp_path: Path, processes: Processes) -> None:
    topics = {"t": 3, "u": 2}
    with Store.open(tmp_path, create=True) as store:
        for topic, partitions in topics.items():
            store.create_topic(topic, partitions)
    children = start(processes, tmp_path, NATIVE_PLACES)
    assert watch(tmp_path, topics, NATIVE_PLACES) > 10
    assert [child.lines() for child in children] == [["done"]] * 3
    total = sum(len(chosen[n % 2]) for chosen in NATIVE_PLACES.values() for n in range(TIMES))
    store, _ = open_quickly(str(tmp_path))
    assert sum(sum(store.visible_ends(topic)) for topic in topics) == total
    for topic, partitions in topics.items():
        for partition in range(partitions):
            found = values(store, partition, topic)
            assert len(set(found)) == len(found)
            for name in NATIVE_PLACES:  # each process's commits stand in their order
                mine = [int(v.split(b":")[1]) for v in found if v.startswith(name.encode())]
                assert mine == sorted(mine)
    assert errors(store) == []
    assert list((tmp_path / "meta" / "intents").iterdir()) == []
    assert list((tmp_path / "staging").iterdir()) == []


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


def test_zombie_and_successor_commit_the_same_version_once(
    tmp_path: Path, processes: Processes
) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic("t", 2)
        store.create_topic("u", 1)
    for round_ in range(5):
        app = f"app-{round_}"
        children = [
            processes.start("commit_as_told", tmp_path, job=f"{app}-{name}", app=app)
            for name in ("zombie", "successor", "third")
        ]
        assert [child.line() for child in children] == ["staged"] * 3
        for child in children:
            child.say("go")
        assert sorted(child.line() for child in children) == ["False", "True", "True"]
    store, _ = open_quickly(str(tmp_path))
    for (topic, partition), count in COMMIT.items():
        assert store.offsets(topic, partition).end == 5 * count
