"""What child processes of the commit tests do: commit and die, or commit beside each other."""

from __future__ import annotations

import os
import signal
from typing import Any, TextIO

from storage_core import StagedPart, Store, StoreConfig
from storage_core.store.open_directory import open_files
from tests.crash.explorer.typed_rows import made, wanted
from tests.support.faulty_vfs import CHANGES, FaultyVfs

COMMIT = {("t", 0): 2, ("t", 1): 1, ("u", 0): 1}
"""What a commit of these tests adds; the part of t-0 is large enough to become segments."""

WITH_COLUMNS = {**COMMIT, ("v", 0): 1, ("v", 1): 1}
"""The same with a typed topic, which gets a column."""


def values_of(name: str, version: int, topic: str, partition: int, count: int) -> list[bytes]:
    """Values that say which commit they belong to."""
    size = 3000 if count > 1 else 1
    return [
        f"{name}:{version}:{topic}:{partition}:{number}:".encode().ljust(size, b".")
        for number in range(count)
    ]


def open_quickly(path: str, **settings: Any) -> tuple[Store, FaultyVfs]:
    """A store on real files, without the cost of real syncs."""
    config = StoreConfig(**settings)
    real, layout = open_files(path, "auto", create=False, config=config)
    vfs = FaultyVfs(real, real_syncs=False)
    return Store(vfs, config, layout), vfs


Counts = dict[tuple[str, int], int]


def stage(store: Store, job: str, name: str, version: int, counts: Counts) -> list[StagedPart]:
    """Stage the records of a commit."""
    staging = store.stage(job)
    for (topic, partition), count in counts.items():
        schema = None
        if store.topic(topic).is_typed:
            schema = store.register_schema(topic, wanted("a"), add=True)
        for value in values_of(name, version, topic, partition, count):
            staging.write(topic, partition, made(schema, [value]))
    return staging.finish()


def commit_and_die(talk: TextIO, path: str, calls: int) -> None:
    """Commit version 1 of ``app``, and kill this process at the given changing call."""
    store, vfs = open_quickly(path)
    parts = stage(store, "job", "app", 1, WITH_COLUMNS)
    left = calls

    def die(kind: str, at: str) -> None:
        nonlocal left
        if kind in CHANGES:
            if left == 0:
                talk.write(f"{kind} {at}\n")
                talk.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    vfs.hook = die
    store.commit("job", parts, app="app", version=1)
    talk.write("done\n")
    talk.flush()


def commit_times(
    talk: TextIO, path: str, name: str, times: int, places: list[list[tuple[str, int]]]
) -> None:
    """Commit ``count`` versions, each to the next list of partitions."""
    store, _ = open_quickly(path)
    for version in range(times):
        chosen = places[version % len(places)]
        counts = {(str(topic), int(partition)): 1 for topic, partition in chosen}
        parts = stage(store, f"{name}-{version}", name, version, counts)
        result = store.commit(f"{name}-{version}", parts, app=name, version=version)
        assert not result.skipped
    talk.write("done\n")
    talk.flush()


def append_in_turn(
    talk: TextIO, path: str, name: str, times: int, places: list[list[tuple[str, int]]]
) -> None:
    """Append ``count`` single records without a commit, each to the next partition."""
    store, _ = open_quickly(path)
    for version in range(times):
        ((topic, partition),) = places[version % len(places)]
        store.append(topic, partition, values_of(name, version, topic, partition, 1))
    talk.write("done\n")
    talk.flush()


def delete_after(talk: TextIO, path: str, topic: str, until: int, keep: int) -> None:
    """Delete all but the newest ``keep`` records again and again, until the log ends at ``until``.

    By size and by offset, with a roll before, so that whole segments and parts of them go.
    """
    store, _ = open_quickly(path)
    end = turn = 0
    while end < until:
        end = store.offsets(topic, 0).end
        store.roll(topic, 0)
        store.retain(topic)
        if end - keep > store.offsets(topic, 0).start:
            store.delete_records(topic, {0: end - keep})
        turn += 1
    talk.write(f"{turn}\n")
    talk.flush()


def commit_on_command(talk: TextIO, path: str, job: str, app: str) -> None:
    """Stage, wait for a line, commit version 1 of ``app``; say whether it was there before."""
    store, _ = open_quickly(path)
    parts = stage(store, job, job, 1, COMMIT)
    talk.write("staged\n")
    talk.flush()
    talk.readline()
    result = store.commit(job, parts, app=app, version=1)
    talk.write(f"{result.skipped}\n")
    talk.flush()


TASKS = (append_in_turn, commit_and_die, commit_on_command, commit_times, delete_after)
