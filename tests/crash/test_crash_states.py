"""Power cuts at every call of small scenarios: thousands of disks, each recovered and checked.

The numbers of a run (seed, states, violations) are printed with ``-s`` and on failure. Another seed
is taken from ``CRASH_SEED``, more states per call from ``CRASH_SAMPLES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.crash.explorer import Explorer
from tests.crash.invariants import CONFIG, History, World, new_store
from tests.crash.recording import MemoryVfs
from tests.faults import CrashError

SEED = int(os.environ.get("CRASH_SEED", "20240917"))
SAMPLES = int(os.environ.get("CRASH_SAMPLES", "6"))
BIG = 1400
FOUR = {("t", 0): 2, ("t", 1): 1, ("u", 0): 1, ("u", 1): 2}


def appends(world: World) -> None:
    """Small and large ones, so that segments roll on the way."""
    for number in range(8):
        world.append("t", number % 2, b"%d" % number, (b"large-%d" % number).ljust(BIG, b"."))


def commits(world: World) -> None:
    world.append("t", 0, b"before")
    world.commit(world.stage("app", 1, FOUR))
    world.append("t", 1, b"between")
    world.commit(world.stage("app", 2, {("t", 0): 1, ("u", 1): 1}))
    world.append("u", 0, b"after")


def large_commits(world: World) -> None:
    """Parts that pass the segment size become segments as they are."""
    world.append("t", 0, b"before")
    world.commit(world.stage("app", 1, {("t", 0): 5, ("t", 1): 1}, size=BIG))
    world.append("t", 0, b"between")
    world.commit(world.stage("other", 7, {("t", 0): 1, ("t", 1): 4}, size=BIG))
    world.append("t", 1, b"after")


def aborts(world: World) -> None:
    given_up = world.stage("gone", 1, FOUR)
    world.append("t", 0, b"before")
    world.history.aborted.update(value for part in given_up.values.values() for value in part)
    world.store.abort(given_up.job, app="gone")
    world.commit(world.stage("app", 1, {("t", 0): 1, ("t", 1): 1}))


def retention(world: World) -> None:
    for number in range(6):
        world.append("t", 0, (b"%d" % number).ljust(BIG, b"."))
    world.store.alter_topic("t", retention_bytes=4096)
    world.store.retain()
    world.commit(world.stage("app", 1, {("t", 0): 3, ("t", 1): 1}, size=BIG))
    world.store.retain()


def topics_come_and_go(world: World) -> None:
    world.commit(world.stage("app", 1, {("t", 0): 1, ("u", 0): 1}))
    world.history.deleting.add("u")
    world.store.delete_topic("u")
    world.history.forget("u")
    world.store.create_topic("u", 2)
    world.commit(world.stage("app", 2, {("t", 0): 1, ("u", 0): 1}))


def lazy_topic(world: World) -> None:
    """Appends that wait for a sync, or never get one, and a commit behind them."""
    world.history.tried.update((b"lazy-1", b"lazy-2"))
    world.store.append("t", 0, [b"lazy-1"])
    world.store.append("t", 1, [b"lazy-2"])
    world.commit(world.stage("app", 1, {("t", 0): 2, ("t", 1): 1}))


SCENARIOS: dict[str, tuple[Callable[[World], None], dict[str, int], dict[str, Any]]] = {
    "appends": (appends, {"t": 2}, {"segment_bytes": 4096, "index_interval_bytes": 0}),
    "commits": (commits, {"t": 2, "u": 2}, {}),
    "large commits": (large_commits, {"t": 2}, {"segment_bytes": 4096, "frame_bytes": 1024}),
    "aborts": (aborts, {"t": 2, "u": 2}, {}),
    "retention": (retention, {"t": 2}, {"segment_bytes": 4096, "frame_bytes": 1024}),
    "topics": (topics_come_and_go, {"t": 1, "u": 2}, {}),
    "interval": (lazy_topic, {"t": 2}, {"fsync": "interval", "fsync_interval_ms": 3_600_000}),
}


def explore(name: str, explorer: Explorer) -> None:
    scenario, topics, settings = SCENARIOS[name]
    explorer.run(name, new_store(topics, **settings), scenario)


def explore_successor(explorer: Explorer, where: Callable[[str, str], bool] | None = None) -> None:
    """Kill a committer at every call; somebody else goes on, and then the power fails."""
    steps: list[tuple[str, str]] = []
    commit_and_die(None, steps)
    for calls, step in enumerate(steps):
        if where is None or where(*step):
            left, history = commit_and_die(calls, [])
            name = f"successor of one killed at call {calls}"
            explorer.run(name, left, go_on, history=history)


def commit_and_die(calls: int | None, steps: list[tuple[str, str]]) -> tuple[MemoryVfs, History]:
    """The files and the history as a committer leaves them that dies after so many calls."""
    vfs = new_store({"t": 2, "u": 1})
    world = World(vfs, History(), CONFIG)
    world.append("t", 0, b"first")
    transaction = world.stage("app", 1, {("t", 0): 2, ("t", 1): 1, ("u", 0): 1})
    vfs.crash_after = None if calls is None else vfs.calls + calls
    vfs.hook = lambda kind, path: steps.append((kind, path))
    with suppress(CrashError):
        world.commit(transaction)
    return vfs.kill(), world.history


def go_on(world: World) -> None:
    world.append("t", 1, b"an append")
    world.commit(world.stage("other", 1, {("t", 0): 1, ("u", 0): 1}))


def check(explorer: Explorer, capsys: pytest.CaptureFixture[str], name: str) -> None:
    found = explorer.report
    with capsys.disabled():
        print(
            f"\n[crash states] {name}: seed {SEED}, {found.states} states, {found.nested} crashes "
            f"in recovery, {len(found.violations)} violations"
        )
    assert found.violations == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state_recovers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    explorer = Explorer(Random(SEED), SAMPLES)
    explore(name, explorer)
    check(explorer, capsys, name)


def test_whoever_goes_on_after_a_killed_commit_recovers(capsys: pytest.CaptureFixture[str]) -> None:
    explorer = Explorer(Random(SEED), samples=1, likely=0.04)
    explore_successor(explorer)
    check(explorer, capsys, "successor")
