"""What the crash explorer plays with typed topics: rows, columns, and commits that bring both."""

from __future__ import annotations

from tests.crash.explorer.invariants import World
from tests.crash.explorer.typed_rows import TYPED

_LARGE = 700


def typed_topic(world: World) -> None:
    """A topic that is made, gets rows, a column without rows, and rows with it."""
    world.create("t", 2, **TYPED)
    world.append("t", 0, b"first")
    world.append("t", 1, b"second", b"third")
    world.add_columns("t", "a")
    world.append("t", 0, b"with a")


def new_columns(world: World) -> None:
    """Commits that bring columns, with and without rows for partition 0."""
    world.append("t", 0, b"before")
    world.commit(world.stage("app", 1, {("t", 1): 2}, columns="a"))
    world.append("t", 1, b"between")
    world.commit(world.stage("app", 2, {("t", 0): 1, ("t", 1): 1}, columns="b"))
    world.append("t", 0, b"after")


def columns_of_many_writers(world: World) -> None:
    """Jobs that add columns at once, one that is given up, and a column that comes by hand."""
    first = world.stage("one", 1, {("t", 1): 1}, columns="a")
    world.abort(world.stage("gone", 1, {("t", 0): 1}, columns="x"))
    second = world.stage("two", 1, {("t", 0): 1}, columns="b")
    world.commit(second)
    world.add_columns("t", "c")
    world.commit(first)
    world.append("t", 0, b"after")


def large_rows(world: World) -> None:
    """Parts with a new column that become segments as they are; segments that roll."""
    world.append("t", 0, b"before")
    world.commit(world.stage("app", 1, {("t", 0): 5, ("t", 1): 1}, size=_LARGE, columns="a"))
    world.store.roll("t", 0)
    world.append("t", 0, b"after")


def maintained_rows(world: World) -> None:
    """Rows of two schema versions in several segments, which are merged, rewritten and dropped."""
    for number in range(2):
        world.append("t", 0, b"old-%d" % number)
        world.store.roll("t", 0)
    world.commit(world.stage("app", 1, {("t", 0): 1, ("t", 1): 1}, columns="a"))
    world.store.roll("t", 0)
    world.append("t", 0, b"active")
    world.store.merge("t")
    world.store.recompress("t", compression="zstd")
    world.store.delete_records("t", {0: 1})
    world.append("t", 0, b"after")
