"""Long work that a power cut interrupts, and another process takes up again.

A conversion goes on where its target ends; a merge puts one segment in the place of several; the
log of a topic without syncs ends at its first bad place, and what stands after it is set aside.
The power is cut at every call of these. Each raises an ``AssertionError``, or the engine's own
error, when something was lost or invented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random

from storage_core import Store, convert
from tests.crash.explorer.disk import Choice, Item, kept, lost
from tests.crash.explorer.explorer import choices, recover
from tests.crash.explorer.invariants import CONFIG, History, World, check_recovered, new_store
from tests.crash.explorer.recording import MemoryVfs

_SAMPLES = 8
Ways = Callable[[list[Item], Random], Iterator[Choice]]


def _ways(items: list[Item], rng: Random) -> Iterator[Choice]:
    """Nothing, everything, everything but one change, and some more."""
    yield lost(items)
    newest = kept(items)
    yield newest
    for item in items:
        yield {**newest, item: 0}
    yield from choices(items, rng, _SAMPLES)


def _ways_of_names(items: list[Item], rng: Random) -> Iterator[Choice]:
    """The same, and every run of changed names lost between others that are kept."""
    yield from _ways(items, rng)
    newest, names = kept(items), [item for item in items if item.what < 0]
    for first, end in combinations(range(len(names) + 1), 2):
        yield {**newest, **dict.fromkeys(names[first:end], 0)}


def cut_in_many_ways(
    vfs: MemoryVfs, check: Callable[[MemoryVfs], None], ways: Ways = _ways
) -> Counter[str]:
    """Let the power fail before every call from now on, and look at what each cut leaves.

    Returns how many there were, which grows.
    """
    rng, cuts = Random(0), Counter[str]()

    def cut(kind: str, path: str) -> None:  # noqa: ARG001
        vfs.hook = None
        for choice in ways(vfs.unsynced(), rng):
            cuts["power"] += 1
            check(vfs.power_cut(lambda _, choice=choice: choice, rng.randbytes(16)))  # type: ignore[misc]
        vfs.hook = cut

    vfs.hook = cut
    return cuts


def _values(store: Store, start: int) -> list[bytes]:
    batches = store.read("t", 0, start=start)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


class Source(Store):
    """With a path of its own: all files in memory have the same."""

    @property
    def path(self) -> str:
        return "/source"


def conversions() -> int:
    """Records are counted again in a native target; the power fails at any call of it.

    Not into a broker's directory: there it may leave an end that is damaged, which the comparison
    at the end of a conversion finds.
    """
    source = new_store({"t": 1})
    values = [b"%d" % number for number in range(6)]
    for value in values:
        Store(source, CONFIG).append("t", 0, [value])
    Store(source, CONFIG).delete_records("t", {0: 2})

    def run(vfs: MemoryVfs) -> None:
        target = Store(vfs, CONFIG)
        convert(Source(source, CONFIG), target, renumber=True)
        assert _values(target, 0) == values[2:]

    vfs = new_store({})
    cuts = cut_in_many_ways(vfs, run)
    run(vfs)
    return cuts.total()


def merges() -> int:
    """Small segments become one; a cut takes every single change of it, or any run of names."""
    vfs, history = new_store({"t": 1}), History()
    world = World(vfs, history, CONFIG)
    for number in range(4):
        world.append("t", 0, b"%d" % number)
        world.store.roll("t", 0)

    def check(disk: MemoryVfs) -> None:
        then = history.copy()
        check_recovered(disk, recover(disk, then, Random(0)), then)

    cuts = cut_in_many_ways(vfs, check, _ways_of_names)
    world.store.merge("t")
    vfs.hook = None
    return cuts.total()


def set_aside(bad: int) -> int:
    """Of four sealed segments that nobody synced one is bad; a commit comes after what is left."""
    vfs, history = new_store({"t": 1}, fsync="none", index_interval_bytes=0), History()
    world = World(vfs, history, CONFIG)
    for number in range(4):
        world.append_lazily("t", 0, b"%d" % number)
        world.append_lazily("t", 0, b"%d again" % number)
        world.store.roll("t", 0)
    world.append_lazily("t", 0, b"open")
    path = f"topics/t/0/segments/{2 * bad:020}.log"
    number = vfs.top.files()[path].number

    def all_but_one(items: list[Item]) -> Choice:
        return {item: age for item, age in kept(items).items() if item.what != number}

    left = vfs.power_cut(all_but_one, b"the second boot.")  # type: ignore[arg-type]

    def check(disk: MemoryVfs) -> None:
        then = history.copy()
        store = recover(disk, then, Random(0))
        view = check_recovered(disk, store, then)
        start, values = view["t", 0]
        for offset in range(start, start + len(values)):
            assert _values(store, offset) == values[offset - start :], f"from {offset} on"

    cuts = cut_in_many_ways(left, check)
    world = World(left, history, CONFIG)
    for version in range(1, 4):
        world.commit(world.stage("app", version, {("t", 0): 2}))
        if version == 2:
            world.store.roll("t", 0)
    left.hook = None
    check(left.power_cut(lost, b"the last boot..."))
    return cuts.total()
