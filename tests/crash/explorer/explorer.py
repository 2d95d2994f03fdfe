"""Plays a scenario in memory, cuts the power at every call, recovers with the real engine.

A *state* is what one power cut leaves on the disk, with what was acknowledged and seen before it.
States that were looked at already are not looked at again, so the numbers count distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from random import Random

from storage_core import Store, StoreConfig
from storage_core.errors import InvalidCommitError, TopicNotFoundError
from tests.crash.explorer.disk import Choice, Choose, Item, kept, lost
from tests.crash.explorer.invariants import (
    CONFIG,
    History,
    View,
    World,
    append,
    check_recovered,
    check_view,
    has_no_syncs,
    logs,
    look,
)
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import COLUMNS, nothing, schema_of, shown
from tests.support.faulty_vfs import CrashError

Scenario = Callable[[World], None]
_DEEPEST = 2
"""Crashes inside the recovery of a crash inside recovery."""
_WRITES_ON = 0.05
"""How likely another writes after a recovery, and loses power again."""
_WENT_ON = _DEEPEST + 1
"""The depth of what was cut after that: nobody writes on there, or with many samples each such
state would lead to more than one other, without end."""


def choices(items: Sequence[Item], rng: Random, samples: int) -> Iterator[Choice]:
    """Ways a power cut may choose: all of them if they are few, else those that teach most.

    Nothing, everything, everything but one item, one item alone, a first part of what was done,
    and mixtures.
    """
    locks = {item: item.ages - 1 for item in items if item.of_lock and rng.random() < 0.5}
    items = [item for item in items if not item.of_lock]
    total = 1
    for item in items:
        total *= item.ages
        if total > samples:
            break
    else:
        for ages in product(*(range(item.ages) for item in items)):
            yield locks | dict(zip(items, ages, strict=True))
        return
    newest = locks | dict(kept(items))
    yield lost(items)
    yield newest
    for number in range(samples - 2):
        item = rng.choice(items)
        if number % 5 == 0:
            yield {**newest, item: rng.randrange(item.ages - 1)}
        elif number % 5 == 1:
            yield {**locks, item: rng.randrange(1, item.ages)}
        elif number % 5 == 2:
            yield locks | {item: newest[item] for item in items[: items.index(item)]}
        else:
            likely = rng.choice((0.1, 0.5, 0.9))
            chosen = {item: rng.randrange(item.ages) for item in items if rng.random() < likely}
            yield locks | chosen


def recover(vfs: MemoryVfs, history: History, rng: Random) -> Store:
    """Recover every partition in some order, as writers would; a reader looks at every change."""
    store = Store(vfs, CONFIG)
    vfs.hook = _reader(vfs, history)
    recover_partitions(store, rng)
    vfs.hook = None
    check_view(look(vfs), history)
    return store


def _reader(vfs: MemoryVfs, history: History) -> Callable[[str, str], None]:
    published = True

    def observe(kind: str, path: str) -> None:
        nonlocal published
        if published:
            check_view(look(vfs), history)
        published = kind in ("pwritev", "rename") and path.endswith("watermark")

    return observe


def recover_partitions(store: Store, rng: Random) -> None:
    """Append nothing to every partition, in some order."""
    places = [(topic, p) for topic in store.topics() for p in range(store.topic(topic).partitions)]
    rng.shuffle(places)
    for topic, partition in places:
        store.append_columns(topic, partition, nothing(store, topic))


def places(view: View) -> list[tuple[str, int]]:
    """The partitions that records are appended to."""
    return [place for place in view if place[1] != COLUMNS]


def state_digest(vfs: MemoryVfs, history: History) -> int:
    """Of the files and of what was acknowledged and seen; the same in every process."""
    digest = blake2b(digest_size=8)
    for path, file in sorted(vfs.top.files().items()):
        if not path.endswith("lock"):
            digest.update(b"%s\0%d\0" % (path.encode(), len(file.data)))
            digest.update(file.data)
    digest.update(repr((sorted(history.acked), sorted(history.seen))).encode())
    return int.from_bytes(digest.digest(), "big")


@dataclass
class Report:
    """What an exploration did."""

    distinct: set[int] = field(default_factory=set)
    """The states, by a digest that is the same in every process."""
    calls: int = 0
    nested: int = 0
    killed: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def states(self) -> int:
        return len(self.distinct)

    def add(self, other: Report) -> None:
        self.distinct |= other.distinct
        self.calls += other.calls
        self.nested += other.nested
        self.killed += other.killed
        self.violations += other.violations


@dataclass
class Explorer:
    """Cuts the power at every call of a scenario, ``samples`` times each."""

    rng: Random
    samples: int = 6
    likely: float = 1.0
    """How likely a call is looked at."""
    kill_every: int = 4
    """A process is killed before every Nth call."""
    again: float = 1.0
    """How likely a state is recovered a second time, after another power cut."""
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
            self.report.calls += 1
            vfs.hook = None
            where = f"{name}, call {at} ({kind} {path})"
            self._guarded(where, lambda: self._observe(vfs, history, shown))
            if kind == "end" or self.rng.random() < self.likely:
                self._cut(vfs, history, where, self.samples)
                if at % self.kill_every == 0 or kind == "end":
                    self._killed(vfs, history.copy(), f"{where}, killed")
            vfs.hook = explore

        vfs.hook = explore
        scenario(world)
        explore("end", "")

    def _cut(
        self, vfs: MemoryVfs, history: History, where: str, samples: int, depth: int = 0
    ) -> None:
        """Cut the power in several ways, and look at each disk that is new."""
        tried: set[frozenset[tuple[Item, int]]] = set()
        for number, choice in enumerate(choices(vfs.unsynced(), self.rng, samples)):
            key = frozenset((item, age) for item, age in choice.items() if age)
            if key in tried:
                continue
            tried.add(key)
            chosen: Choose = lambda _, choice=choice: choice  # type: ignore[misc]  # noqa: E731
            left = vfs.power_cut(chosen, self.rng.randbytes(16))
            self._state(left, history, f"{where}, cut {number}", depth)

    def _observe(self, vfs: MemoryVfs, history: History, shown: dict[str, bytes]) -> None:
        """Let a reader look whenever a high watermark or the start changed."""
        now = {
            path: file.data
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
        store = Store(vfs, CONFIG)
        for place, (start, values) in view.items():
            if has_no_syncs(store, place[0]):
                continue
            history.seen |= {(*place, start + n): value for n, value in enumerate(values)}

    def _killed(self, vfs: MemoryVfs, history: History, where: str) -> None:
        """Kill, let another process recover and a reader look, then cut the power."""
        self.report.killed += 1
        left = vfs.kill()
        self._guarded(where, lambda: self._observe_recovery(left, history))
        self._cut(left, history, where, self.samples)

    def _observe_recovery(self, vfs: MemoryVfs, history: History) -> None:
        vfs.crash_after = self.rng.choice((None, self.rng.randrange(120)))
        try:
            store = recover(vfs, history, self.rng)
            view = check_recovered(vfs, store, history)
            for topic, partition in places(view) if self.rng.random() < 0.5 else ():
                self._append(store, history, topic, partition)
        except CrashError:
            self.report.nested += 1
        vfs.crash_after = vfs.hook = None
        self._observe(vfs, history, {})

    def _append(self, store: Store, history: History, topic: str, partition: int) -> None:
        """What another process writes that comes after a kill."""
        mark = b"later-%d" % len(history.tried)
        (value,) = shown(schema_of(store, topic), [mark])
        history.tried.add(value)
        start = append(store, topic, partition, [mark])
        if store.topic(topic).config(CONFIG).fsync == "batch":
            history.acked[topic, partition, start] = value

    def _state(self, vfs: MemoryVfs, history: History, where: str, depth: int) -> None:
        """Recover one state, perhaps with a second crash on the way, and check it."""
        digest = state_digest(vfs, history)
        if digest in self.report.distinct:
            return
        self.report.distinct.add(digest)
        self._guarded(where, lambda: self._check(vfs, history.copy(), where, depth))

    def _check(self, vfs: MemoryVfs, history: History, where: str, depth: int) -> None:
        if depth < _DEEPEST and self.rng.random() < 0.2:
            vfs.crash_after = self.rng.randrange(1, 60)
            try:
                recover(vfs, history, self.rng)
            except CrashError:
                self.report.nested += 1
                vfs.crash_after = vfs.hook = None
                self._cut(vfs, history, f"{where}, crashed again", self.samples // 2, depth + 1)
                vfs = vfs.power_cut(kept, self.rng.randbytes(16))
            vfs.crash_after = vfs.hook = None
        if self.rng.random() < 0.15:
            self._try_again(Store(vfs, CONFIG), history)
        store = recover(vfs, history, self.rng)
        view = check_recovered(vfs, store, history)
        if self.rng.random() < self.again:
            self._recover_again(vfs, history, view)
        if history.transactions and self.rng.random() < 0.3:
            self._try_again(store, history)
            check_recovered(vfs, store, history)
        if self.rng.random() < _WRITES_ON and depth < _WENT_ON:
            for topic, partition in places(view):
                self._append(store, history, topic, partition)
                self._cut(vfs, history, f"{where}, went on", self.samples // 4, _WENT_ON)

    def _recover_again(self, vfs: MemoryVfs, history: History, view: View) -> None:
        """Recovering twice is recovering once; a reader watches some of it only, as it costs."""
        again = vfs.power_cut(kept, self.rng.randbytes(16))
        if self.rng.random() < 0.1:
            repeated = recover(again, history, self.rng)
            assert check_recovered(again, repeated, history) == view, "I5"
        else:
            recover_partitions(Store(again, CONFIG), self.rng)
            assert look(again) == view, "I5"
        assert logs(again) == logs(vfs), "I5"

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
