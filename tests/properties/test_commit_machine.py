"""Two writers driven by chance on disks that lose power, beside a model of the promises."""

from __future__ import annotations

import gc
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from storage_core import Store
from storage_core.errors import RecoveryNeededError
from tests.crash.explorer.disk import Choice, Item
from tests.crash.explorer.exploration import quickly
from tests.crash.explorer.explorer import recover
from tests.crash.explorer.invariants import (
    CONFIG,
    History,
    Transaction,
    World,
    check_recovered,
    check_view,
    look,
    new_store,
    retained,
)
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError
from tests.support.sizes import MACHINE_EXAMPLES, MACHINE_STEPS, SEED
from tests.support.stores import rows

PLACES = [("t", 0), ("t", 1), ("u", 0)]
WRITERS = st.integers(0, 1)
SIZES = st.sampled_from([8, 8, 700, 1400])
SEEDS = st.integers(0, 1 << 32)
# Without its high watermark a topic shows nothing until a writer has worked it out again.
HINTS = (".idx", ".timeidx", ".stats", "checkpoint.json", "watermark")


@seed(SEED)
class CommitMachine(RuleBasedStateMachine):
    """``history`` is the model: what was acknowledged, seen and given up."""

    @initialize(frame_bytes=st.sampled_from([1024, 4096]), interval=st.sampled_from([0, 4096]))
    def create(self, frame_bytes: int, interval: int) -> None:
        self.vfs = new_store(
            {"t": 2, "u": 1},
            segment_bytes=4096,
            frame_bytes=frame_bytes,
            index_interval_bytes=interval,
        )
        self.history = History()
        self.versions = {"app": 0, "other": 0}
        self.count = 0
        self.open(self.vfs)

    def open(self, vfs: MemoryVfs) -> None:
        """New processes on these files."""
        self.vfs = vfs
        self.worlds = [World(vfs, self.history, CONFIG) for _ in range(2)]
        for number, world in enumerate(self.worlds):
            self.count += 1
            world.jobs = 1000 * self.count + 500 * number

    def values(self, count: int, size: int) -> list[bytes]:
        self.count += 1
        return [(b"%d-%d" % (self.count, n)).ljust(size, b".") for n in range(count)]

    @rule(writer=WRITERS, place=st.sampled_from(PLACES), count=st.integers(1, 3), size=SIZES)
    def append(self, writer: int, place: tuple[str, int], count: int, size: int) -> None:
        self.worlds[writer].append(*place, *self.values(count, size))

    def staged(
        self, writer: int, places: list[tuple[str, int]], app: str, size: int
    ) -> Transaction:
        self.versions[app] += 1
        return self.worlds[writer].stage(app, self.versions[app], dict.fromkeys(places, 2), size)

    @rule(
        writer=WRITERS,
        places=st.lists(st.sampled_from(PLACES), min_size=1, unique=True),
        app=st.sampled_from(["app", "other"]),
        size=SIZES,
    )
    def commit(self, writer: int, places: list[tuple[str, int]], app: str, size: int) -> None:
        self.worlds[writer].commit(self.staged(writer, places, app, size))

    @rule(writer=WRITERS, data=st.data())
    def commit_again(self, writer: int, data: st.DataObject) -> None:
        """A version that is in the ledger, or after one that is, adds nothing."""
        if self.history.committed:
            app, version = data.draw(st.sampled_from(sorted(self.history.committed)))
            world = self.worlds[writer]
            again = world.stage(app, version, {("t", 0): 1})
            done = [
                txn for txn in self.history.transactions if (txn.app, txn.version) == (app, version)
            ]
            if any(("t", 0) in txn.values or ("t", 1) in txn.values for txn in done):
                result = world.store.commit(again.job, again.parts, app=app, version=version)
                assert result.skipped

    @rule(writer=WRITERS, places=st.lists(st.sampled_from(PLACES), min_size=1, unique=True))
    def abort(self, writer: int, places: list[tuple[str, int]]) -> None:
        self.worlds[writer].abort(self.staged(writer, places, "app", 8))

    @rule(writer=WRITERS, place=st.sampled_from(PLACES))
    def roll(self, writer: int, place: tuple[str, int]) -> None:
        self.worlds[writer].store.roll(*place)

    @rule(writer=WRITERS, limit=st.sampled_from([1, 4096]))
    def retain(self, writer: int, limit: int) -> None:
        store = self.worlds[writer].store
        store.alter_topic("t", retention_bytes=limit)
        store.retain()
        for partition in (0, 1):
            self.history.starts["t", partition] = store.start_offset("t", partition)
        # Reported by the records around them, which will be gone one day, too.
        self.history.unseen |= retained(look(self.vfs), self.history)

    @rule(writer=WRITERS, place=st.sampled_from(PLACES), data=st.data())
    def read(self, writer: int, place: tuple[str, int], data: st.DataObject) -> None:
        """A store that was opened long ago shows what a new one does, whatever it remembers."""
        store, view = self.worlds[writer].store, look(self.vfs)
        if place not in view:
            with pytest.raises(RecoveryNeededError):
                store.read(*place)
            return
        first, shown = view[place]
        bounds = store.offsets(*place)
        last = bounds.end
        assert bounds.start == min(first, last)
        assert last == first + len(shown) or (last < first and not shown)
        start = data.draw(st.integers(bounds.start, last), "start")
        end = data.draw(st.integers(start, last + 1), "end")
        found = rows(store.read(*place, start=start, end=end))
        due = range(start, min(end, last))
        assert [row["offset"] for row in found] == list(due)
        assert [row["value"] for row in found] == [shown[offset - first] for offset in due]
        if found:
            row = found[data.draw(st.integers(0, len(found) - 1), "row")]
            assert store.offset_for_timestamp(*place, row["timestamp"]) == self.first_since(
                place, row["timestamp"]
            )

    def first_since(self, place: tuple[str, int], moment: datetime) -> int:
        """The first offset that is not older, by looking at all of them in a new store."""
        everything = rows(Store(self.vfs, CONFIG).read(*place))
        return int(next(row["offset"] for row in everything if row["timestamp"] >= moment))

    @rule(writer=WRITERS)
    def reopen(self, writer: int) -> None:
        self.worlds[writer].reopen()

    @rule(seed=SEEDS)
    def corrupt_a_hint(self, seed: int) -> None:
        rng = Random(seed)
        hints = [file for path, file in self.vfs.top.files().items() if path.endswith(HINTS)]
        if hints:
            file = rng.choice(hints)
            at = rng.randrange(len(file.data) + 1)
            file.data = file.synced = rng.choice(
                (b"", file.data[:at], file.data[:at] + rng.randbytes(9) + file.data[at + 9 :])
            )
            file.sectors, file.sizes = {}, []
            self.open(self.vfs)

    @rule(seed=SEEDS, likely=st.sampled_from([0.0, 0.5, 1.0]))
    def lose_power(self, seed: int, likely: float) -> None:
        rng = Random(seed)

        def choose(items: Any) -> Choice:
            kept: dict[Item, int] = {}
            for item in items:
                kept[item] = rng.randrange(1, item.ages) if rng.random() < likely else 0
            return kept

        # Never an id there was before, as two draws of one seed would make it.
        self.open(self.vfs.power_cut(choose, b"%016d" % self.count))
        store = recover(self.vfs, self.history, rng)
        check_recovered(self.vfs, store, self.history)

    @rule(
        calls=st.integers(0, 90),
        cut=st.booleans(),
        seed=SEEDS,
        places=st.lists(st.sampled_from(PLACES), min_size=1, unique=True),
        size=SIZES,
    )
    def die(
        self, calls: int, cut: bool, seed: int, places: list[tuple[str, int]], size: int
    ) -> None:
        """Both processes are killed in the middle of a commit; others go on, or the power fails."""
        self.vfs.crash_after = self.vfs.calls + calls
        with suppress(CrashError):
            self.worlds[0].commit(self.staged(0, places, "app", size))
        self.vfs.crash_after = None
        if cut:
            self.lose_power(seed, Random(seed).choice((0.0, 0.5, 1.0)))
        else:
            self.open(self.vfs.kill())

    @invariant()
    def readers_see_what_they_may(self) -> None:
        if hasattr(self, "vfs"):
            view = look(self.vfs)
            check_view(view, self.history)
            for place, (start, values) in view.items():
                seen = {(*place, start + n): value for n, value in enumerate(values)}
                self.history.seen |= seen

    @invariant()
    def one_that_always_looks_sees_the_same(self) -> None:
        """The second store looks at everything after every step, so its caches are never cold.

        Those of the first are filled by ``read`` alone.
        """
        if hasattr(self, "vfs"):
            # A folder that changed just now proves nothing: caches are trusted a moment later.
            self.vfs.now += 1_000_000
            store = self.worlds[1].store
            for place, (start, values) in look(self.vfs).items():
                found = rows(store.read(*place, columns=("offset", "value")))
                assert [row["offset"] for row in found] == list(range(start, start + len(values)))
                assert [row["value"] for row in found] == values

    def teardown(self) -> None:
        if hasattr(self, "vfs"):
            self.open(self.vfs.kill())
            store = recover(self.vfs, self.history, Random(0))
            check_recovered(self.vfs, store, self.history)
        # ``quickly`` lets the collector wait, and 5,000 dropped worlds would take 10 GB.
        gc.collect(0)


@pytest.mark.row(1, 3, 17, 21, 31)
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_whatever_writers_and_disks_do_the_model_holds() -> None:
    with quickly(SEED):
        run_state_machine_as_test(
            CommitMachine,
            settings=settings(
                max_examples=MACHINE_EXAMPLES,
                stateful_step_count=MACHINE_STEPS,
                deadline=None,
                database=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )


def test_retention_that_finishes_an_interrupted_commit_may_take_its_first_records() -> None:
    with quickly(SEED):
        machine = CommitMachine()
        machine.create(frame_bytes=1024, interval=0)
        machine.commit(app="app", places=[("t", 0)], size=700, writer=0)
        machine.die(calls=15, cut=False, places=[("t", 0)], seed=0, size=1400)
        machine.retain(limit=1, writer=0)
        assert machine.history.starts["t", 0] == 3
        machine.readers_see_what_they_may()
        machine.teardown()


def test_what_retention_took_unseen_is_remembered_when_the_records_around_it_are_gone() -> None:
    with quickly(SEED):
        machine = CommitMachine()
        machine.create(frame_bytes=1024, interval=0)
        machine.append(count=2, place=("t", 0), size=700, writer=0)
        machine.readers_see_what_they_may()
        machine.die(calls=64, cut=False, places=[("t", 0), ("u", 0)], seed=0, size=1400)
        for _ in range(2):
            machine.retain(limit=1, writer=0)
            machine.readers_see_what_they_may()
            machine.append(count=3, place=("t", 0), size=1400, writer=0)
            machine.readers_see_what_they_may()
        assert machine.history.unseen
        machine.teardown()


def test_a_start_above_a_watermark_that_a_power_cut_took_back_is_not_taken_for_a_lower_one() -> (
    None
):
    with quickly(SEED):
        machine = CommitMachine()
        machine.create(frame_bytes=1024, interval=0)
        machine.retain(limit=1, writer=0)
        machine.append(count=3, place=("t", 0), size=1400, writer=1)
        machine.reopen(writer=0)
        machine.retain(limit=1, writer=0)
        assert machine.history.starts["t", 0] == 2
        machine.lose_power(likely=0.0, seed=0)
        machine.teardown()
