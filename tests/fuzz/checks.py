"""What must hold of a log directory in which some bytes were changed, whatever they were.

Reading gives right records or a typed error. For a native store *right* is what was written, since
every byte is under a checksum; for a broker's rows, which carry none, it is what a plain reader
finds, written from the tables of the layouts. Writing may be refused, in typed errors too.
"""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import Any

from storage_core import Store, StoreConfig
from storage_core.errors import StorageError
from tests.crash.explorer.recording import MemoryVfs
from tests.fuzz.decoders import decode
from tests.fuzz.mutations import mutated, with_another_field, with_right_checksums
from tests.fuzz.trees import KINDS, TREES, files_of, loaded
from tests.support.brokers.broker_directories import plain_read
from tests.support.stores import T0

CONFIG = StoreConfig(lock_timeout_ms=50)
_DECODERS_ALONE = 0.85
"""Most inputs go to a decoder, which is quick; the others to a whole directory."""
TOPICS = {"native": ("t", "buried")} | dict.fromkeys(KINDS, ("orders",))
Records = dict[tuple[str, int], dict[int, tuple[Any, ...]]]


class WrongRecordError(Exception):
    """A reader got something that nobody wrote."""


def read_everything(store: Store, *, strict: bool) -> Records:
    """All records of all partitions; without ``strict`` what came before an error counts too."""
    found: Records = {}
    for topic in store.topics():
        for partition in range(store.topic(topic).partitions):
            here = found[topic, partition] = {}
            try:
                for batch in store.read(topic, partition):
                    batch.validate(full=True)
                    # Python has no word for every moment that a forged frame may name.
                    for row in batch.drop_columns(["timestamp"]).to_pylist():
                        here[row["offset"]] = (row["key"], row["value"], row["headers"])
            except StorageError:
                if strict:
                    raise
    return found


@cache
def written(tree: str) -> Records:
    """What the files of a tree hold."""
    return read_everything(Store(loaded(files_of(tree)), CONFIG, tree), strict=True)


def compare(found: Records, expected: Records) -> None:
    for place, records in found.items():
        for offset, record in records.items():
            if expected.get(place, {}).get(offset) != record:
                raise WrongRecordError(f"{place}@{offset}: {record!r}")


def plain_records(tree: str, files: dict[str, bytes]) -> Records:
    """What a plain reader finds in the files of a broker."""
    logs = sorted(path for path in files if path.endswith(".log"))
    numbered = [(int(re.findall(r"\d+", path)[-1]), files[path]) for path in logs]
    found: Records = {}
    for offset, *record in plain_read(KINDS[tree], numbered).records:
        headers = record[2] and [{"key": key, "value": value} for key, value in record[2]]
        found.setdefault(("orders", 0), {})[offset] = (record[0], record[1], headers)
    return found


def changed_files(tree: str, rng: Random) -> tuple[str, dict[str, bytes], bool]:
    """One file of a tree changed: its name, all files, and whether its checksums are right."""
    files = dict(files_of(tree))
    path = rng.choice([path for path, data in files.items() if data])
    data = files[path]
    if rng.random() < 0.01:
        del files[path]
        return path, files, False
    forged = rng.random() < 0.4
    if forged and path.endswith((".log", ".frames")) and tree == "native":
        files[path] = with_right_checksums(data, rng)
    elif forged and path.endswith((".json", "broker.id")):
        files[path] = with_another_field(data, rng)
    else:
        forged = False
        files[path] = mutated(data, rng)
    return path, files, forged


def check(seed: int, number: int) -> None:
    """Make and judge one input; the same for the same seed and number.

    Raises:
        WrongRecordError: a reader got something that nobody wrote.
        Exception: anything but a typed error.
    """
    rng = Random(f"{seed} {number}")
    if rng.random() < _DECODERS_ALONE:
        decode(rng)
        return
    tree = TREES[0] if rng.random() < 0.55 else rng.choice(TREES[1:])
    path, files, forged = changed_files(tree, rng)
    vfs = loaded(files)
    try:
        found = read_everything(Store(vfs, CONFIG, tree), strict=False)
    except StorageError:
        found = {}
    since = first_since(vfs, tree)
    if tree == "native" and not forged:
        # A segment whose deletion marker is gone is one that was not deleted.
        if path in files or not path.endswith(".tomb"):
            compare(found, written(tree))
        # A file that is gone is missed by who reads or writes what it held, not by who asks for
        # the first record of a time: the next one may be the answer.
        if path in files and since not in ((), first_written_since(tree)):
            raise WrongRecordError(f"the first record since a moment is {since}")
    elif tree != "native" and path.endswith(".log"):
        compare(found, plain_records(tree, files))
    elif tree != "native" and ".cursus-spark" not in path and not path.endswith(".journal"):
        compare(found, written(tree))
    if rng.random() < 0.25:
        write(vfs, tree, rng)


def first_since(vfs: MemoryVfs, tree: str) -> tuple[int | None, ...]:
    """The answer to a question of time; nothing if that is an error."""
    try:
        return (Store(vfs, CONFIG, tree).offset_for_timestamp(TOPICS[tree][0], 0, T0 + 5),)
    except StorageError:
        return ()


@cache
def first_written_since(tree: str) -> tuple[int | None, ...]:
    return first_since(loaded(files_of(tree)), tree)


def write(vfs: MemoryVfs, tree: str, rng: Random) -> None:
    """Whatever a writer does with such files, its errors are typed."""
    store = Store(vfs, CONFIG, tree)
    try:
        act = rng.randrange(5)
        if act < 2:
            store.append(rng.choice(TOPICS[tree]), rng.randrange(2), [b"more"])
        elif act < 4:
            store.repair()
        else:
            store.create_topic("new")
        list(store.check())
        store.committed_offsets("readers")
    except StorageError:
        return
