"""Stories in which call n fails, for every n: what was acknowledged stays, every error is typed.

After each failure come a power cut at once, and a kill after which another process recovers, a
reader looks and then the power is cut.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from storage_core import Store
from storage_core.errors import StorageError
from tests.crash.explorer.disk import lost
from tests.crash.explorer.explorer import recover
from tests.crash.explorer.invariants import (
    CONFIG,
    History,
    Transaction,
    World,
    check_recovered,
    has_no_syncs,
    look,
    new_store,
)
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.scenarios import BIG, SMALL, Story
from tests.crash.explorer.typed_rows import TYPED
from tests.support.faulty_vfs import FaultyVfs
from tests.support.stores import errors

_CUTS = 30
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EINTR": errno.EINTR}


class StubbornWorld(World):
    """Goes on after errors, as an application may; what failed is not acknowledged."""

    def append(self, topic: str, partition: int, *values: bytes) -> None:
        with suppress(StorageError):
            super().append(topic, partition, *values)

    def commit(self, txn: Transaction) -> None:
        try:
            super().commit(txn)
        except StorageError:
            # As Spark does.
            with suppress(StorageError):
                self.store.abort(txn.job, app=txn.app)


def appends(world: World) -> None:
    world.append("t", 0, b"a")
    world.append("t", 0, b"b".ljust(BIG, b"."), b"c".ljust(BIG, b"."), b"d".ljust(BIG, b"."))
    world.append("t", 0, b"e")


def rolls(world: World) -> None:
    world.append("t", 0, b"a")
    with suppress(StorageError):
        world.store.roll("t", 0)
    world.append("t", 0, b"b")


def commits(world: World) -> None:
    world.append("t", 0, b"a")
    world.commit(world.stage("app", 1, {("t", 0): 4, ("t", 1): 1}, size=BIG))
    world.append("t", 1, b"b")
    world.commit(world.stage("app", 2, {("t", 0): 1}))


def aborts(world: World) -> None:
    world.abort(world.stage("gone", 1, {("t", 0): 1, ("t", 1): 1}))
    world.append("t", 0, b"a")


def retention(world: World) -> None:
    for number in range(3):
        world.append("t", 0, (b"%d" % number).ljust(2 * BIG, b"."))
    with suppress(StorageError):
        world.store.alter_topic("t", retention_bytes=1)
    with suppress(StorageError):
        world.store.retain()
    world.append("t", 0, b"after")


def topics(world: World) -> None:
    with suppress(StorageError):
        world.store.create_topic("u", 1)
        world.append("u", 0, b"a")
    with suppress(StorageError):
        world.store.add_partitions("t", 3)
    world.append("t", 0, b"b")


def handlers(world: World) -> None:
    with suppress(StorageError), world.handler("t", 0) as handler:
        world.publish(handler, b"a", b"b")
        handler.rotate_segment()
        world.publish(handler, b"c")
    world.append("t", 0, b"d")


def reopens(world: World) -> None:
    world.append("t", 0, b"a")
    with suppress(StorageError):
        world.store.close()
    world.store = Store(world.vfs, CONFIG)
    world.append("t", 0, b"b")


def merges(world: World) -> None:
    for value in (b"a", b"b"):
        world.append("t", 0, value)
        with suppress(StorageError):
            world.store.roll("t", 0)
    with suppress(StorageError):
        world.store.merge("t")
    world.append("t", 0, b"c")


def recompresses(world: World) -> None:
    world.append("t", 0, b"a".ljust(BIG, b"."))
    with suppress(StorageError):
        world.store.roll("t", 0)
    with suppress(StorageError):
        world.store.recompress("t", compression="zstd")
    world.append("t", 0, b"b")


def deletes_records(world: World) -> None:
    world.append("t", 0, b"a", b"b", b"c")
    with suppress(StorageError):
        world.store.delete_records("t", {0: 1})
    world.append("t", 0, b"d")


def deletes_topics(world: World) -> None:
    world.append("t", 0, b"a")
    world.append("u", 0, b"b")
    world.history.deleting.add("u")
    with suppress(StorageError):
        world.store.delete_topic("u")
    world.append("t", 0, b"c")


def groups(world: World) -> None:
    world.append("t", 0, b"a", b"b")
    for offset in (1, 2):
        with suppress(StorageError):
            world.commit_offset("group", "t", 0, offset)
    world.append("t", 0, b"c")


def unsynced(world: World) -> None:
    """Sealed segments that only the commit after them syncs."""
    with suppress(StorageError):
        for value in (b"a", b"b"):
            world.append_lazily("t", 0, value.ljust(2 * BIG, b"."))
    world.commit(world.stage("app", 1, {("t", 0): 1}))
    world.commit(world.stage("app", 2, {("t", 0): 1}))


def columns(world: World) -> None:
    """Rows that bring a column, a column that comes by hand, and rows with both."""
    world.append("t", 0, b"a")
    with suppress(StorageError):
        world.commit(world.stage("app", 1, {("t", 0): 1, ("t", 1): 1}, columns="a"))
    with suppress(StorageError):
        world.add_columns("t", "b")
    world.append("t", 1, b"b")


def typed_topics(world: World) -> None:
    """A typed topic that is made, and gets a row and a column."""
    with suppress(StorageError):
        world.create("u", 1, **TYPED)
        world.append("u", 0, b"a")
        world.commit(world.stage("app", 1, {("u", 0): 1}, columns="a"))
    world.append("t", 0, b"b")


STORIES: dict[str, Story] = {
    name.__name__: Story(name, {"t": 2}, SMALL)
    for name in (appends, rolls, commits, aborts, retention, topics, handlers, reopens)
}
STORIES |= {
    name.__name__: Story(name, {"t": 1}, SMALL)
    for name in (merges, recompresses, deletes_records, groups)
}
STORIES["deletes_topics"] = Story(deletes_topics, {"t": 1, "u": 1}, SMALL)
STORIES["typed_topics"] = Story(typed_topics, {"t": 1}, SMALL)
STORIES["columns"] = Story(columns, {"t": 2}, {**SMALL, **TYPED})
TYPED_STORIES = ("typed_topics", "columns")
STORIES["unsynced"] = Story(unsynced, {"t": 1}, {**SMALL, "fsync": "none"})


class Fault(NamedTuple):
    """Which call fails, and how: an error's name, ``short``, or what becomes of unsynced pages."""

    nth: int
    how: str


@dataclass
class Failing:
    """A hook that lets some calls fail, by their number."""

    vfs: MemoryVfs
    faults: Mapping[int, str]
    calls: list[str] = field(default_factory=list)

    def __call__(self, kind: str, path: str) -> None:
        self.calls.append(kind)
        how = self.faults.get(len(self.calls))
        if how is None or how == "short":
            return
        if how in ("pages lost", "pages kept") and kind == "fsync":
            file = self.vfs.top.files()[path]
            file.drop_pages() if how == "pages lost" else file.keep_pages_only()
        number = ERRORS.get(how, errno.EIO)
        raise OSError(number, os.strerror(number), path)


class FailingVfs(FaultyVfs):
    """Writes that fail short take a single byte."""

    def pwritev(self, fd: int, buffers: Any, position: int) -> int:
        assert isinstance(self.hook, Failing)
        short = self.hook.faults.get(len(self.hook.calls) + 1) == "short"
        self.short_writes = 1 if short else None
        return super().pwritev(fd, buffers, position)


def play(base: MemoryVfs, story: Story, *faults: Fault) -> tuple[MemoryVfs, History, Failing]:
    """Play a story with some failing calls."""
    vfs = base.kill()
    hook = Failing(vfs, dict(faults))
    files: Any = FailingVfs(vfs, hook=hook)
    world = StubbornWorld(files, History(), CONFIG)
    with suppress(StorageError):
        story.play(world)
    return vfs, world.history, hook


def aftermath(vfs: MemoryVfs, history: History, rng: Random) -> None:
    """What must hold after a power cut, and after a kill, a successor and a power cut."""
    cut = vfs.power_cut(lost, rng.randbytes(16))
    check_recovered(cut, recover(cut, history, rng), history)
    left = vfs.kill()
    store = recover(left, history, rng)
    check_recovered(left, store, history)
    assert errors(store) == []
    for place, (start, values) in look(left).items():
        if not has_no_syncs(store, place[0]):
            history.seen |= {(*place, start + n): value for n, value in enumerate(values)}
    cut = left.power_cut(lost, rng.randbytes(16))
    check_recovered(cut, recover(cut, history, rng), history)


def faults_of(calls: list[str]) -> Iterator[Fault]:
    """Every way in which every call may fail."""
    for nth, kind in enumerate(calls, 1):
        for how in ERRORS:
            yield Fault(nth, how)
        if kind == "pwritev":
            yield Fault(nth, "short")
        if kind == "fsync":
            yield Fault(nth, "pages lost")
            yield Fault(nth, "pages kept")


def sweep(
    name: str, chosen: Callable[[Fault, str], bool] = lambda *_: True
) -> tuple[int, list[str]]:
    """Fail every call of a story in every way; how many that were, and what went wrong."""
    story = STORIES[name]
    base = new_store(story.topics, **story.settings)
    calls = play(base, story)[2].calls
    injected, violations = 0, list[str]()
    for fault in faults_of(calls):
        if chosen(fault, calls[fault.nth - 1]):
            injected += 1
            violations += _try(name, base, calls, fault)
    return injected, violations


def sweep_pairs(name: str, pairs: int, seed: int) -> tuple[int, list[str]]:
    """Let two calls of a story fail, by chance, ``times`` times."""
    story, rng = STORIES[name], Random(f"{seed} {name}")
    base = new_store(story.topics, **story.settings)
    calls = play(base, story)[2].calls
    every, violations = list(faults_of(calls)), list[str]()
    for _ in range(pairs):
        first, second = rng.sample(every, 2)
        # After a failure fewer calls may come, or others: the second is drawn near the first.
        near = Fault(min(first.nth + rng.randrange(1, 20), len(calls)), second.how)
        violations += _try(name, base, calls, first, near)
    return pairs, violations


def _try(name: str, base: MemoryVfs, calls: list[str], *faults: Fault) -> list[str]:
    try:
        vfs, history, _ = play(base, STORIES[name], *faults)
        aftermath(vfs, history, Random(faults[0].nth))
    except Exception as error:
        where = ", ".join(f"call {nth} ({calls[nth - 1]}) {how}" for nth, how in faults)
        return [f"{name}, {where}: {type(error).__name__}: {error}"]
    return []


def cuts_after_a_failure(name: str) -> tuple[int, list[str]]:
    """Let the disk be full at every call of a story, and cut the power at every call after it."""
    story = STORIES[name]
    base = new_store(story.topics, **story.settings)
    calls = play(base, story)[2].calls
    known, violations = set[int](), list[str]()
    for nth in range(1, len(calls) + 1):
        for behind, (cut, history) in enumerate(_cuts_after(base, story, nth)):
            files = frozenset((path, file.data) for path, file in cut.top.files().items())
            if (state := hash((files, frozenset(history.acked)))) in known:
                continue
            known.add(state)
            try:
                check_recovered(cut, recover(cut, history, Random(nth)), history)
            except Exception as error:
                where = f"{name}, full at call {nth}, cut {behind} calls behind"
                violations.append(f"{where}: {type(error).__name__}: {error}")
    return len(known), violations


def _cuts_after(base: MemoryVfs, story: Story, nth: int) -> list[tuple[MemoryVfs, History]]:
    """What the disk holds, and what was promised, before each call after the one that fails."""
    vfs = base.kill()
    found: list[tuple[MemoryVfs, History]] = []

    class Cutting(Failing):
        def __call__(self, kind: str, path: str) -> None:
            if len(self.calls) >= nth and len(found) < _CUTS:
                found.append((vfs.power_cut(lost, b"%016d" % nth), world.history.copy()))
            super().__call__(kind, path)

    files: Any = FailingVfs(vfs, hook=Cutting(vfs, {nth: "ENOSPC"}))
    world = StubbornWorld(files, History(), CONFIG)
    with suppress(StorageError):
        story.play(world)
    return found


def failing_syncs() -> list[str]:
    """Only syncs fail, and pages stay readable that the disk never gets."""
    return [
        violation
        for name in ("appends", "rolls")
        for violation in sweep(name, lambda fault, _: fault.how.startswith("pages"))[1]
    ]
