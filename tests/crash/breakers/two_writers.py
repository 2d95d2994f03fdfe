"""Two writers take turns: at every call of one, the other tries to do all of its own work.

Locks must let the second in whole, or turn it away; whatever it gets done at whichever call of the
first, both find their records where they were promised. So it is if the second deletes the topic
and makes another of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa

from storage_core import Store, StoreConfig
from storage_core.errors import (
    CommitUnknownError,
    LockTimeoutError,
    SchemaMismatchError,
    StorageError,
    TopicNotFoundError,
)
from tests.crash.explorer.explorer import recover
from tests.crash.explorer.invariants import CONFIG, History, World, check_recovered, look, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import TYPED, wanted
from tests.support.faulty_vfs import CHANGES, FaultyVfs
from tests.support.stores import errors

HURRIED = StoreConfig(checkpoint_interval_ms=86_400_000, lock_timeout_ms=1)
BOTH = {("t", 0): 1, ("t", 1): 1}


def first(world: World) -> None:
    world.append("t", 0, b"first 0")
    world.append("t", 1, b"first 1")
    world.commit(world.stage("app", 1, BOTH))
    world.append("t", 0, b"first 2")


class Second:
    """Comes in once, at a given call of the first writer."""

    def __init__(self, vfs: MemoryVfs, history: History, at: int) -> None:
        self._left = at
        self.world = World(vfs, history, HURRIED)
        self.world.jobs = 100
        self._staged = self.world.stage("app", 1, BOTH)
        self.turned_away = 0

    @property
    def waits(self) -> bool:
        """Whether its call has not come yet."""
        return self._left > 0

    def __call__(self, kind: str, path: str) -> None:  # noqa: ARG002
        self._left -= 1
        if self._left:
            return
        for partition in (1, 0):
            try:
                self.world.append("t", partition, b"second %d" % partition)
            except LockTimeoutError:
                self.turned_away += 1
        # The same version as the first writer's: a zombie and its successor.
        with suppress(LockTimeoutError, CommitUnknownError):
            self.world.commit(self._staged)


def take_turns(at: int) -> int | None:
    """The second comes at call ``at``; how often it was turned away, None after the last call.

    Raises:
        AssertionError: something that was acknowledged is not where it was said to be.
    """
    vfs = new_store({"t": 2})
    history = History()
    second = Second(vfs, history, at)
    watched: Any = FaultyVfs(vfs, hook=second)
    first(World(watched, history, CONFIG))
    view = look(vfs)
    for (topic, partition, offset), value in history.acked.items():
        start, values = view[topic, partition]
        there = values[offset - start : offset - start + 1]
        assert there == [value], f"call {at}: {topic}-{partition}@{offset} holds {there}"
    left = vfs.kill()
    check_recovered(left, recover(left, history, Random(at)), history)
    return None if second.waits else second.turned_away


def two_writers() -> int:
    """Let the second come at every call; how often it was turned away in all."""
    at, turned_away = 1, 0
    while (found := take_turns(at)) is not None:
        turned_away += found
        at += 1
    return turned_away


class ColumnWriter:
    """Brings a column with rows, once, at a given changing call of the first writer."""

    def __init__(self, vfs: MemoryVfs, history: History, at: int, kind: pa.DataType | None) -> None:
        self.left = at
        self.refused = 0
        self._world = World(vfs, history, HURRIED)
        self._kind = kind

    def __call__(self, kind: str, path: str) -> None:  # noqa: ARG002
        self.left -= kind in CHANGES
        if self.left or kind not in CHANGES:
            return
        name = "b" if self._kind is None else "a"
        try:
            staged = self._world.stage("second", 1, BOTH, columns=name, kind=self._kind)
            self._world.commit(staged)
        except (LockTimeoutError, CommitUnknownError):
            pass
        except SchemaMismatchError:
            self.refused += 1


def add_columns_at_once(at: int, kind: pa.DataType | None) -> tuple[bool, int]:
    """The second comes at call ``at``; whether that was the last, and how many were refused.

    Raises:
        AssertionError: a row or a column that was acknowledged is lost, or half there.
    """
    vfs, history, refused = new_store({"t": 2}, **TYPED), History(), 0
    second = ColumnWriter(vfs, history, at, kind)
    watched: Any = FaultyVfs(vfs, hook=second)
    world = World(watched, history, CONFIG)
    try:
        world.commit(world.stage("first", 1, {("t", 1): 1}, columns="a"))
    except SchemaMismatchError as error:
        assert "another writer" in str(error) or "wanted" in str(error), error  # noqa: PT017
        refused += 1
    watched.hook = None
    world.append("t", 0, b"after")
    left = vfs.kill()
    check_recovered(left, recover(left, history, Random(at)), history)
    return second.left > 0, refused + second.refused


def two_column_writers() -> int:
    """Two writers add columns at once: different ones, and one of two types; refusals in all."""
    refusals = 0
    for kind in (None, pa.string()):
        at, ended, found = 1, False, 0
        while not ended:
            ended, refused = add_columns_at_once(at, kind)
            # Of two types only one can be; different columns are never in the way.
            assert refused <= (kind is not None), f"call {at}: {refused} were refused"
            found, at = found + refused, at + 1
        assert bool(found) == (kind is not None)
        refusals += found
    return refusals


class Watched(FaultyVfs):
    """Lets the other one in before locks are taken, too."""

    def try_lock(self, fd: int) -> bool:
        if self.hook is not None:
            self.hook("lock", self._path(fd))
        return super().try_lock(fd)


class Maker:
    """Deletes the topic and recreates it at a given call, and appends at every later one."""

    def __init__(self, vfs: MemoryVfs, at: int) -> None:
        self._vfs = vfs
        self._left = at
        self.store = Store(vfs, HURRIED)
        self.acked: dict[int, bytes] = {}
        self.deleted: set[bytes] = set()
        """What was there when the topic was deleted."""

    @property
    def waits(self) -> bool:
        """Whether its call has not come yet."""
        return self._left > 0

    def __call__(self, kind: str, path: str) -> None:  # noqa: ARG002
        self._left -= 1
        with suppress(LockTimeoutError, CommitUnknownError, TopicNotFoundError):
            if self._left == 0:
                self.deleted = values_of(self._vfs)
                self.store.delete_topic("t")
                self.store.create_topic("t", 2)
            elif self._left < 0:
                value = b"maker %d" % self._left
                self.acked[self.store.append("t", 0, [value]).start] = value


def values_of(vfs: MemoryVfs) -> set[bytes]:
    return {value for _, found in look(vfs).values() for value in found}


def recreate(at: int, act: Callable[[World], object]) -> bool:
    """The topic is recreated at call ``at`` of what another does; False after the last call.

    Raises:
        AssertionError: something that was acknowledged is not there, and was not deleted.
    """
    vfs = new_store({"t": 2})
    maker, history = Maker(vfs, at), History()
    watched: Any = Watched(vfs, hook=maker)
    with suppress(StorageError):
        act(World(watched, history, CONFIG))
    watched.hook = None
    there = values_of(vfs)
    for offset, value in maker.acked.items():
        _, found = look(vfs)["t", 0]
        assert found[offset : offset + 1] == [value], f"call {at}: t-0@{offset} is {found}"
    lost = set(history.acked.values()) - there - maker.deleted
    assert not lost, f"call {at}: {lost} was acknowledged"
    return not maker.waits


def recreated() -> int:
    """Let the topic be recreated at every call of an append and of a commit; how many there are."""
    calls = 0
    for act in (
        lambda world: world.append("t", 0, b"first"),
        lambda world: world.commit(world.stage("app", 1, BOTH)),
    ):
        at = 1
        while recreate(at, act):
            at += 1
        calls += at
    return calls


def recreated_columns() -> int:
    """The topic is recreated at every call of a writer that registers a column; how many.

    Raises:
        AssertionError: the new topic has something of the deleted one.
    """
    at = 1
    while True:
        vfs = new_store({"t": 2}, **TYPED)
        left, maker = at, Store(vfs, HURRIED)

        def recreate_once(kind: str, path: str) -> None:  # noqa: ARG001
            nonlocal left
            left -= 1
            if left == 0:
                with suppress(LockTimeoutError):
                    maker.delete_topic("t")  # noqa: B023
                    maker.create_topic("t", 2, **TYPED)  # noqa: B023

        watched: Any = Watched(vfs, hook=recreate_once)
        with suppress(StorageError):
            Store(watched, CONFIG).register_schema("t", wanted("a"), add=True)
        maker.alter_topic("t", add_columns=wanted("b"))
        assert errors(maker) == [], f"call {at}"
        if left > 0:
            return at
        at += 1
