"""Small things that are durable once they are said to be: settings, partitions, groups, identity.

The power is cut before every call of each, in several ways: what is there then is the old or the
new, never damage, and writers go on. After it only the new may be there. The same for a process
that comes after one that was killed at any of those calls.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

from storage_core import Store
from storage_core.errors import TopicExistsError
from storage_core.metadata import identity
from storage_core.metadata.identity import first_boot
from tests.crash.explorer.disk import Choose
from tests.crash.explorer.explorer import choices
from tests.crash.explorer.invariants import CONFIG, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError

_SAMPLES = 12


class Promise(NamedTuple):
    """What is done, once it is done again without harm, and what must be there afterwards."""

    files: Callable[[], MemoryVfs]
    act: Callable[[MemoryVfs], None]
    read: Callable[[MemoryVfs], object]


def commit_offsets(vfs: MemoryVfs) -> None:
    Store(vfs, CONFIG).commit_offsets("readers", {"t": {0: 0}})


def alter(vfs: MemoryVfs) -> None:
    Store(vfs, CONFIG).alter_topic("t", retention_bytes=5)


def grow(vfs: MemoryVfs) -> None:
    Store(vfs, CONFIG).add_partitions("t", 3)


def boot(vfs: MemoryVfs) -> None:
    first_boot(vfs, CONFIG)
    with suppress(TopicExistsError):
        Store(vfs, CONFIG).create_topic("t", 2)


def settings(vfs: MemoryVfs) -> object:
    store = Store(vfs, CONFIG)
    return [
        (topic, store.topic(topic).partitions, store.topic(topic).config(CONFIG))
        for topic in store.topics()
    ]


def who(vfs: MemoryVfs) -> object:
    """The store's name, and its topics."""
    found = identity.read(vfs)
    topics = settings(vfs) if vfs.stat("topics") is not None else []
    return found and (found.uuid, topics)


def with_topic() -> MemoryVfs:
    return new_store({"t": 2})


def committed(vfs: MemoryVfs) -> object:
    return Store(vfs, CONFIG).committed_offsets("readers")


PROMISES = {
    "offsets of a group": Promise(with_topic, commit_offsets, committed),
    "a setting": Promise(with_topic, alter, settings),
    "more partitions": Promise(with_topic, grow, settings),
    "the first boot": Promise(MemoryVfs, boot, who),
}


def keep(name: str, *, killed: bool = False) -> int:
    """Cut the power at every call of one promise; how many disks were looked at.

    Raises:
        AssertionError: a promise was not kept.
    """
    promise = PROMISES[name]
    found = 0
    for calls in range(_calls_of(promise) if killed else 1):
        vfs = promise.files()
        first = promise.read(vfs)
        if killed:
            vfs.crash_after = vfs.calls + calls
            with suppress(CrashError):
                promise.act(vfs)
            vfs = vfs.kill()
        run_name = f"{name}, killed at {calls}" if killed else name
        found += _keep(promise, vfs, run_name, first)
    return found


def _calls_of(promise: Promise) -> int:
    vfs = promise.files()
    before = vfs.calls
    promise.act(vfs)
    return vfs.calls - before


def _keep(promise: Promise, vfs: MemoryVfs, where: str, first: object) -> int:
    rng, at = Random(0), 0
    seen: list[tuple[str, object]] = []

    def explore(kind: str, path: str) -> None:
        nonlocal at
        at += 1
        vfs.hook = None
        for choice in choices(vfs.unsynced(), rng, _SAMPLES):
            chosen: Choose = lambda _, choice=choice: choice  # type: ignore[misc]  # noqa: E731
            left = vfs.power_cut(chosen, rng.randbytes(16))
            seen.append((f"{where}, call {at} ({kind} {path})", promise.read(left)))
            # Who comes next gets it done, and can write.
            promise.act(left)
            store = Store(left, CONFIG)
            for topic in store.topics():
                for partition in range(store.topic(topic).partitions):
                    store.append(topic, partition, [b"next"])
        vfs.hook = explore

    before = promise.read(vfs)
    vfs.hook = explore
    promise.act(vfs)
    during, seen[:] = list(seen), []
    explore("end", "")
    vfs.hook = None
    after = promise.read(vfs)
    for run_name, value in during:
        assert value in (first, before, after) or first is None, f"{run_name}: {value}"
    for run_name, value in seen:
        assert value == after, f"{run_name}: {value}, not {after}"
    return len(during) + len(seen)
