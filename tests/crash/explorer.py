"""Plays a scenario in memory, cuts the power at every call, recovers with the real engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from storage_core import Store, StoreConfig
from storage_core.errors import InvalidCommitError, TopicNotFoundError
from tests.crash.disk import Choose
from tests.crash.invariants import CONFIG, History, World, check_recovered, check_view, logs, look
from tests.crash.recording import MemoryVfs
from tests.faults import CrashError

Scenario = Callable[[World], None]


def kept(ages: int) -> int:
    """Everything reached the disk."""
    return ages - 1


def lost(ages: int) -> int:  # noqa: ARG001
    """Nothing reached the disk that was not synced."""
    return 0


def choices(rng: Random, samples: int) -> Iterable[Choose]:
    """Ways a power cut may choose: all, nothing, all but little, little, any."""
    yield lost
    yield kept
    for _ in range(samples):
        likely = rng.choice((0.1, 0.5, 0.9))
        yield lambda ages, p=likely: rng.randrange(1, ages) if rng.random() < p else 0  # type: ignore[misc]


def recover(vfs: MemoryVfs, history: History, rng: Random) -> Store:
    """Recover every partition in some order, as writers would; a reader looks at every change."""
    published = True

    def observe(kind: str, path: str) -> None:
        nonlocal published
        if published:
            check_view(look(vfs), history)
        published = kind == "rename" and path.endswith("watermark")

    store = Store(vfs, CONFIG)
    vfs.hook = observe
    places = [(topic, p) for topic in store.topics() for p in range(store.topic(topic).partitions)]
    rng.shuffle(places)
    for topic, partition in places:
        store.append(topic, partition, [])
    vfs.hook = None
    check_view(look(vfs), history)
    return store


@dataclass
class Report:
    """What an exploration did."""

    states: int = 0
    distinct: set[bytes] = field(default_factory=set)
    nested: int = 0
    violations: list[str] = field(default_factory=list)


@dataclass
class Explorer:
    """Cuts the power at every call of a scenario, so many times each."""

    rng: Random
    samples: int = 3
    likely: float = 1.0
    """How likely a call is looked at."""
    report: Report = field(default_factory=Report)

    def run(
        self,
        name: str,
        vfs: MemoryVfs,
        scenario: Scenario,
        config: StoreConfig = CONFIG,
        history: History | None = None,
    ) -> None:
        """Play a scenario to its end; what is wrong stands in the report."""
        world = World(vfs, history or History(), config)
        history = world.history
        shown: dict[str, bytes] = {}
        at = 0

        def explore(kind: str, path: str) -> None:
            nonlocal at
            at += 1
            vfs.hook = None
            self._guarded(f"{name}, call {at}", lambda: self._observe(vfs, history, shown))
            looked_at = kind == "end" or self.rng.random() < self.likely
            for number, choose in enumerate(choices(self.rng, self.samples) if looked_at else ()):
                where = f"{name}, call {at} ({kind} {path}), choice {number}"
                self._state(vfs.power_cut(choose, self.rng.randbytes(16)), history.copy(), where)
            if looked_at and at % 4 == 0:
                self._killed(vfs, history.copy(), f"{name}, killed at call {at} ({kind} {path})")
            vfs.hook = explore

        vfs.hook = explore
        scenario(world)
        explore("end", "")

    def _observe(self, vfs: MemoryVfs, history: History, shown: dict[str, bytes]) -> None:
        """Let a reader look whenever a watermark or the start changed."""
        now = {
            path: bytes(file.data)
            for path, file in vfs.top.files().items()
            if path.endswith(("watermark", ".tomb"))
        }
        if now == shown:
            return
        shown.clear()
        shown.update(now)
        view = look(vfs)
        check_view(view, history)
        # A deletion that is not durable yet may be undone: only then may the start go back.
        for place, (start, _) in look(vfs.power_cut(lost, vfs.boot)).items():
            history.starts[place] = start
        for place, (start, values) in view.items():
            history.seen |= {(*place, start + n): value for n, value in enumerate(values)}

    def _killed(self, vfs: MemoryVfs, history: History, where: str) -> None:
        """Kill, let somebody else recover and a reader look, then cut the power."""
        left = vfs.kill()
        self._guarded(where, lambda: self._observe_recovery(left, history))
        for choose in (lost, *choices(self.rng, 1)):
            self._state(left.power_cut(choose, self.rng.randbytes(16)), history, where + ", cut")

    def _observe_recovery(self, vfs: MemoryVfs, history: History) -> None:
        vfs.crash_after = self.rng.choice((None, self.rng.randrange(120)))
        try:
            check_recovered(vfs, recover(vfs, history, self.rng), history)
        except CrashError:
            self.report.nested += 1
        vfs.crash_after = vfs.hook = None
        self._observe(vfs, history, {})

    def _state(self, vfs: MemoryVfs, history: History, where: str) -> None:
        """Recover one state, perhaps with a second crash on the way, and check it."""
        files = vfs.top.files()
        digest = hashlib.blake2b(repr(sorted(history.acked)).encode())
        for path in sorted(files):
            if not path.endswith("lock"):
                digest.update(path.encode() + b"\0" + files[path].data)
        if digest.digest() in self.report.distinct:
            return
        self.report.distinct.add(digest.digest())
        self.report.states += 1
        self._guarded(where, lambda: self._check(vfs, history))

    def _check(self, vfs: MemoryVfs, history: History) -> None:
        if self.rng.random() < 0.3:
            vfs.crash_after = self.rng.randrange(1, 60)
            try:
                recover(vfs, history, self.rng)
            except CrashError:
                self.report.nested += 1
                choose = self.rng.choice((lost, kept))
                vfs = vfs.power_cut(choose, self.rng.randbytes(16))
            vfs.crash_after = vfs.hook = None
        if self.rng.random() < 0.3:
            self._try_again(Store(vfs, CONFIG), history)
        store = recover(vfs, history, self.rng)
        view = check_recovered(vfs, store, history)
        if self.rng.random() < 0.2:
            again = vfs.power_cut(kept, self.rng.randbytes(16))
            repeated = recover(again, history, self.rng)
            assert check_recovered(again, repeated, history) == view, "I5"
            assert logs(again) == logs(vfs), "I5"
        self._try_again(store, history)
        check_recovered(vfs, store, history)

    def _try_again(self, store: Store, history: History) -> None:
        """What a driver does that heard no answer: commit once more, or give up."""
        for txn in history.transactions:
            if self.rng.random() < 0.5:
                # Without its staging there is nothing to try.
                with suppress(InvalidCommitError, TopicNotFoundError):
                    store.commit(txn.job, txn.parts, app=txn.app, version=txn.version)
            else:
                store.abort(txn.job, app=txn.app)

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            self.report.violations.append(f"{where}: {type(error).__name__}: {error}")
