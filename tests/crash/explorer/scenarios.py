"""What the crash explorer plays: small stories of every part of the engine that writes.

The fixed ones each show one thing. ``by_chance`` mixes them, as many different ones as there are
seeds, so that a long run goes on finding new states.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from tests.crash.explorer.explorer import Explorer, Scenario
from tests.crash.explorer.invariants import CONFIG, History, World, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import TYPED
from tests.crash.explorer.typed_stories import (
    columns_of_many_writers,
    large_rows,
    maintained_rows,
    new_columns,
    typed_topic,
)
from tests.support.faulty_vfs import CrashError

BIG = 1400
_STEPS = "append append append commit commit abort roll roll retain merge recompress reopen".split()
FOUR = {("t", 0): 2, ("t", 1): 1, ("u", 0): 1, ("u", 1): 2}


class Story(NamedTuple):
    """A scenario, the topics it needs with their partitions, and their settings."""

    play: Scenario
    topics: dict[str, int]
    settings: dict[str, Any]


def appends(world: World) -> None:
    """Small and large ones, so that segments roll on the way."""
    for number in range(8):
        world.append("t", number % 2, b"%d" % number, (b"large-%d" % number).ljust(BIG, b"."))


def handlers(world: World) -> None:
    """Single records through the queue of a handler, whose thread writes them in batches."""
    with world.handler("t", 0) as first, world.handler("t", 1) as second:
        for number in range(3):
            world.publish(first, *(b"%d-%d" % (number, at) for at in range(3)))
            world.publish(second, (b"large-%d" % number).ljust(BIG, b"."))
        first.rotate_segment()
        world.publish(first, b"behind the roll")


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
    world.abort(world.stage("gone", 1, FOUR))
    world.append("t", 0, b"before")
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
    world.history.deleting.discard("u")
    world.commit(world.stage("app", 2, {("t", 0): 1, ("u", 0): 1}))


def lazy_topic(world: World) -> None:
    """Appends that wait for a sync, or never get one, and a commit after them."""
    world.append_lazily("t", 0, b"lazy-1")
    world.append_lazily("t", 1, b"lazy-2")
    world.commit(world.stage("app", 1, {("t", 0): 2, ("t", 1): 1}))


def without_syncs(world: World) -> None:
    """Segments that nobody syncs; a commit makes them durable, and more come after it."""
    for number in range(5):
        world.append_lazily("t", 0, (b"early-%d" % number).ljust(BIG, b"."))
    world.append_lazily("t", 1, b"early")
    world.commit(world.stage("app", 1, {("t", 0): 1, ("t", 1): 4}, size=BIG))
    for number in range(6):
        world.append_lazily("t", number % 2, (b"late-%d" % number).ljust(2 * BIG, b"."))
    world.store.merge()
    world.commit(world.stage("app", 2, {("t", 0): 1}))
    world.append_lazily("t", 0, b"last")


def syncs_from_now_on(world: World) -> None:
    """A topic without syncs gets them: from then on everything counts."""
    for number in range(4):
        world.append_lazily("t", number % 2, (b"lazy-%d" % number).ljust(2 * BIG, b"."))
    world.store.alter_topic("t", fsync="batch")
    for partition in range(2):
        world.mark_durable("t", partition, 2)
        world.append("t", partition, b"synced-%d" % partition)


def by_chance(seed: int, *, lazy: bool) -> Scenario:
    """Some steps in some order; the same for the same seed."""

    def play(world: World) -> None:
        rng = Random(seed)
        versions = dict.fromkeys(("app", "other"), 0)
        places = [("t", 0), ("t", 1), ("u", 0)]
        add = world.append_lazily if lazy else world.append
        for number in range(rng.randrange(4, 9)):
            step = rng.choice(_STEPS)
            size = rng.choice((8, 8, 600, BIG))
            topic, partition = rng.choice(places)
            if step == "append":
                marks = (b"%d-%d" % (number, at) for at in range(rng.randrange(1, 4)))
                add(topic, partition, *(mark.ljust(size, b".") for mark in marks))
            elif step == "roll":
                world.store.roll(topic, partition)
            elif step == "retain":
                world.store.alter_topic("t", retention_bytes=rng.choice((1, 4096)))
                world.store.retain()
            elif step == "merge":
                world.store.merge()
            elif step == "recompress":
                world.store.recompress(compression="zstd")
            elif step == "reopen":
                world.reopen()
            else:
                chosen = rng.sample(places, rng.randrange(1, 4))
                app = rng.choice(list(versions))
                versions[app] += 1
                counts = {place: rng.randrange(1, 5) for place in chosen}
                staged = world.stage(app, versions[app], counts, size)
                if step == "abort":
                    world.abort(staged)
                else:
                    world.commit(staged)

    return play


SMALL = {"segment_bytes": 4096, "frame_bytes": 1024}
STORIES: dict[str, Story] = {
    "appends": Story(appends, {"t": 2}, {"segment_bytes": 4096, "index_interval_bytes": 0}),
    "handlers": Story(handlers, {"t": 2}, {"segment_bytes": 4096}),
    "commits": Story(commits, {"t": 2, "u": 2}, {}),
    "large commits": Story(large_commits, {"t": 2}, SMALL),
    "aborts": Story(aborts, {"t": 2, "u": 2}, {}),
    "retention": Story(retention, {"t": 2}, SMALL),
    "topics": Story(topics_come_and_go, {"t": 1, "u": 2}, {}),
    "no syncs": Story(without_syncs, {"t": 2}, {**SMALL, "fsync": "none"}),
    "syncs again": Story(syncs_from_now_on, {"t": 2}, {**SMALL, "fsync": "none"}),
    "typed topic": Story(typed_topic, {}, {}),
    "new columns": Story(new_columns, {"t": 2}, TYPED),
    "columns of many": Story(columns_of_many_writers, {"t": 2}, TYPED),
    "large rows": Story(large_rows, {"t": 2}, {**SMALL, **TYPED}),
    "maintained rows": Story(maintained_rows, {"t": 2}, {**SMALL, **TYPED}),
    "interval": Story(lazy_topic, {"t": 2}, {"fsync": "interval", "fsync_interval_ms": 3_600_000}),
}


def story_by_chance(seed: int) -> Story:
    """One of endless many: steps and settings by chance."""
    rng = Random(~seed)
    settings: dict[str, Any] = {
        "segment_bytes": rng.choice((4096, 8192)),
        "frame_bytes": rng.choice((1024, 4096)),
        "index_interval_bytes": rng.choice((0, 4096)),
        "compression": rng.choice(("none", "lz4")),
    }
    lazy = rng.random() < 0.2
    if lazy:
        fsync = rng.choice(("interval", "none"))
        settings |= {"fsync": fsync, "fsync_interval_ms": 3_600_000}
    return Story(by_chance(seed, lazy=lazy), {"t": 2, "u": 1}, settings)


def explore(name: str, explorer: Explorer) -> None:
    """Play one of the fixed stories, or with ``chance N`` one of the others."""
    story = STORIES.get(name) or story_by_chance(int(name.removeprefix("chance ")))
    explorer.run(name, new_store(story.topics, **story.settings), story.play)


def explore_successor(explorer: Explorer, where: Callable[[str, str], bool] | None = None) -> None:
    """Kill a committer at every call; another process goes on, and then the power fails."""
    steps: list[tuple[str, str]] = []
    commit_and_die(None, steps)
    for calls, step in enumerate(steps):
        if where is None or where(*step):
            left, history = commit_and_die(calls, [])
            name = f"successor of one killed at call {calls}"
            explorer.run(name, left, go_on, history=history)


def commit_and_die(calls: int | None, steps: list[tuple[str, str]]) -> tuple[MemoryVfs, History]:
    """The files and the history as a committer leaves them that is killed after ``calls`` calls."""
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
