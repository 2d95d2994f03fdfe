"""Power cuts and kills at every call of the operations that maintain a log.

Merging, recompressing and deleting are explored like everything else: what was acknowledged stays
at its offset. Compaction makes holes, so it has its own explorer: after every crash, and for every
reader at every call, each key's last value is there, and nothing that was never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from storage_core import Store, UpkeepProgress
from tests.crash.disk import Choose, kept
from tests.crash.explorer import Explorer, choices
from tests.crash.invariants import CONFIG, World, new_store
from tests.crash.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError
from tests.support.sizes import MAINTENANCE_SAMPLES, SEED
from tests.support.stores import rows

SMALL: dict[str, Any] = {"segment_bytes": 4096, "frame_bytes": 1024}
BIG = 1400


def small_segments(world: World, count: int = 5) -> None:
    for number in range(count):
        world.append("t", 0, b"%d" % number, b"%d again" % number)
        world.store.roll("t", 0)
    world.append("t", 0, b"active")


def merges(world: World) -> None:
    small_segments(world)
    assert world.store.merge("t")[0].segments_before == 5
    world.append("t", 0, b"behind")


def merges_beside_commits(world: World) -> None:
    world.commit(world.stage("app", 1, {("t", 0): 3, ("t", 1): 1}, size=BIG))
    small_segments(world, 3)
    world.store.merge("t")
    world.commit(world.stage("app", 2, {("t", 0): 1, ("t", 1): 1}))


def recompresses(world: World) -> None:
    for number in range(4):
        world.append("t", 0, (b"%d" % number).ljust(BIG, b"."))
        world.store.roll("t", 0)
    world.append("t", 0, b"active")
    assert world.store.recompress("t", compression="zstd")[0].segments_before == 4
    world.append("t", 0, b"behind")


def deletes(world: World) -> None:
    """Whole segments, a cut one, and all there is."""
    small_segments(world, 4)
    for offset in (3, 6, 9):
        world.store.delete_records("t", {0: offset})
        assert world.store.offsets("t", 0).start == offset
    world.append("t", 0, b"behind")


def deletes_all_and_commits(world: World) -> None:
    """The empty segment that is left may be all there is when a staged file takes its name."""
    small_segments(world, 2)
    world.store.delete_records("t", {0: 5})
    world.commit(world.stage("app", 1, {("t", 0): 5, ("t", 1): 1}, size=BIG))
    world.append("t", 0, b"behind")


def merges_beside_a_deletion(world: World) -> None:
    """Another process deletes what is being merged, while the new file is written."""
    small_segments(world, 4)
    deleted = False

    def delete(now: UpkeepProgress) -> None:
        nonlocal deleted
        if not deleted and now.done_bytes == now.total_bytes:
            deleted = True
            world.store.alter_topic("t", retention_bytes=0)
            assert world.store.retain("t")

    world.store.merge("t", progress=delete)
    assert world.store.offsets("t", 0).start == 8
    world.append("t", 0, b"behind")


SCENARIOS: dict[str, tuple[Callable[[World], None], dict[str, Any]]] = {
    "merge": (merges, {}),
    "merge and commits": (merges_beside_commits, SMALL),
    "recompress": (recompresses, {"segment_bytes": 1 << 20}),
    "delete_records": (deletes, {}),
    "delete_records and a commit": (deletes_all_and_commits, SMALL),
    "merge beside a deletion": (merges_beside_a_deletion, {}),
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state_of_an_operation_recovers(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, settings = SCENARIOS[name]
    explorer = Explorer(Random(SEED), MAINTENANCE_SAMPLES, likely=0.7)
    explorer.run(name, new_store({"t": 2}, **settings), scenario)
    found = explorer.report
    with capsys.disabled():
        print(
            f"\n[crash states] {name}: seed {SEED}, {found.states} states, {found.nested} crashes "
            f"in recovery, {len(found.violations)} violations"
        )
    assert found.violations == []
    assert found.states > 100


Records = dict[int, tuple[bytes | None, bytes | None]]


def records_of(store: Store) -> Records:
    found = rows(store.read("t", 0))
    return {row["offset"]: (row["key"], row["value"]) for row in found}


def check_compacted(seen: Records, written: Records, upto: int) -> None:
    """Nothing is there that was not written; each key has its last value, or what is left of it."""
    assert all(written[offset] == record for offset, record in seen.items())
    last = {key: offset for offset, (key, _) in written.items() if offset < upto}
    for offset, (key, value) in written.items():
        stays = key is None or offset >= upto or (last[key] == offset and value is not None)
        assert offset in seen or not stays, f"offset {offset} of {key!r} is gone"


class CompactionExplorer:
    """Cuts the power at every call while a keyed topic is compacted, and recovers."""

    def __init__(
        self,
        rng: Random,
        samples: int,
        opened: Callable[[MemoryVfs], Store],
        *,
        first_only: bool = False,
    ) -> None:
        self.rng, self.samples, self.opened = rng, samples, opened
        self.first_only = first_only
        self.states, self.violations = 0, list[str]()

    def run(
        self, vfs: MemoryVfs, written: Records, upto: int, work: Callable[[Store], None]
    ) -> None:
        calls = 0

        def explore(kind: str, path: str) -> None:
            nonlocal calls
            calls += 1
            vfs.hook = None
            where = f"call {calls} ({kind} {path})"
            with self._guarded(where):
                check_compacted(records_of(self.opened(vfs)), written, upto)
            for cut in self._cuts(vfs, self.samples) if self.rng.random() < 0.6 else ():
                with self._guarded(f"{where}, cut"):
                    self._recover(cut, written, upto, work)
            with self._guarded(f"{where}, killed"):
                self._recover(vfs.kill(), written, upto, work)
            vfs.hook = explore

        vfs.hook = explore
        work(self.opened(vfs))
        explore("end", "")

    def _cuts(self, vfs: MemoryVfs, samples: int) -> Iterator[MemoryVfs]:
        for choice in choices(vfs.unsynced(), self.rng, samples):
            choose: Choose = lambda _, choice=choice: choice  # type: ignore[misc]  # noqa: E731
            yield vfs.power_cut(choose, self.rng.randbytes(16))

    def _recover(
        self, vfs: MemoryVfs, written: Records, upto: int, work: Callable[[Store], None]
    ) -> None:
        self.states += 1
        if self.rng.random() < 0.3:
            vfs.crash_after = self.rng.randrange(1, 60)
            try:
                work(self.opened(vfs))
            except CrashError:
                vfs = self.rng.choice([*self._cuts(vfs, 3)])
            vfs.crash_after = None
        store = self.opened(vfs)
        store.append("t", 0, [])
        check_compacted(records_of(store), written, upto)
        assert [found for found in store.check() if found.severity == "error"] == []
        work(store)
        left = records_of(store)
        check_compacted(left, written, upto)
        keyed = [key for offset, (key, _) in left.items() if key is not None and offset < upto]
        assert len(keyed) == len(set(keyed)), "a key is there twice after all is done"

    @contextmanager
    def _guarded(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.violations.append(f"{where}: {type(error).__name__}: {error}")
            if self.first_only:
                raise AssertionError(self.violations[0]) from error


def compacted_at_every_crash(
    store: Store, gone: bytes | None, explorer: CompactionExplorer, work: Callable[[Store], None]
) -> None:
    """Fill a topic with few keys, the last value of one of them ``gone``, and explore ``work``."""
    written: Records = {}
    for number in range(4):
        keys = [b"a", None, b"b%d" % (number % 2), b"gone"]
        values = [b"%d-%d" % (number, n) for n in range(3)] + [b"x" if number < 2 else gone]
        first = store.append("t", 0, values, keys=keys).start
        written |= {first + n: (keys[n], values[n]) for n in range(4)}
        store.roll("t", 0)
    last = store.append("t", 0, [b"active"], keys=[b"a"]).start
    written[last] = (b"a", b"active")
    vfs = store.vfs
    assert isinstance(vfs, MemoryVfs)
    explorer.run(vfs.power_cut(kept, vfs.boot), written, last, work)


def tell(explorer: CompactionExplorer, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(
            f"\n[crash states] {name}: seed {SEED}, {explorer.states} states, "
            f"{len(explorer.violations)} violations"
        )


@pytest.mark.row(1, 4)
@pytest.mark.timeout(0)
def test_every_crash_state_of_a_compaction_keeps_the_last_of_each_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def opened(vfs: MemoryVfs) -> Store:
        return Store(vfs, CONFIG)

    def work(store: Store) -> None:
        store.compact("t", min_dirty_ratio=0)
        store.compact("t", min_dirty_ratio=0)
        store.merge("t")

    explorer = CompactionExplorer(Random(SEED), MAINTENANCE_SAMPLES, opened)
    vfs = new_store({"t": 1}, cleanup_policy="compact", delete_retention_ms=0)
    compacted_at_every_crash(opened(vfs), None, explorer, work)
    tell(explorer, "compaction", capsys)
    assert explorer.violations == []
    assert explorer.states > 100


def compacted_broker(rng: Random, samples: int, *, first_only: bool = False) -> CompactionExplorer:
    """The same in a cursus broker's directory, which keeps no null values."""
    config = CONFIG.override({"cleanup_policy": "compact"})

    def opened(vfs: MemoryVfs) -> Store:
        return Store(vfs, config, "cursus-broker")

    def work(store: Store) -> None:
        store.compact("t", min_dirty_ratio=0)

    store = opened(MemoryVfs())
    store.create_topic("t")
    explorer = CompactionExplorer(rng, samples, opened, first_only=first_only)
    compacted_at_every_crash(store, b"y", explorer, work)
    return explorer


@pytest.mark.timeout(0)
def test_every_crash_state_of_a_compacted_broker_directory_can_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    explorer = compacted_broker(Random(SEED), MAINTENANCE_SAMPLES)
    tell(explorer, "compaction of a broker's directory", capsys)
    assert explorer.violations == []
    assert explorer.states > 100
