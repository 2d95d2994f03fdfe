"""Power cuts and kills at every call of what we write into a broker's directory.

Rows carry no checksums, and there is no high watermark, so the promise is smaller than in a native
store: what was acknowledged stays at its offset with its bytes, a commit is on all its partitions
or on none, and what nobody was promised is the end of the log at most: a power cut in the middle of
a plain append may leave a damaged end, but never one that takes something else with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from storage_core import Store
from storage_core.brokers.engine import BrokerEngine
from storage_core.brokers.log import RowLog
from storage_core.engine.base import BaseEngine
from storage_core.errors import DamagedLogError, ForeignRecordsError, InvalidCommitError
from tests.crash.explorer.broker_stories import CONFIG, Answers, Place, Story, Writer
from tests.crash.explorer.disk import Choice, Choose, Item, kept, lost
from tests.crash.explorer.explorer import choices
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError
from tests.support.stores import columns_of

# Whoever recovers may have another limit: a commit that is redone then takes fewer files.
LARGER = CONFIG.override({"segment_bytes": 1 << 20})
View = dict[Place, tuple[int, list[bytes]]]
"""Start and values of every partition."""


@dataclass
class BrokerExplorer:
    """Cuts the power and kills at every call of a story."""

    layout: str
    rng: Random
    samples: int
    likely: float = 1.0
    """How likely a call is looked at."""
    states: int = 0
    violations: list[str] = field(default_factory=list)

    def run(self, story: Story) -> None:
        made = MemoryVfs()
        Store(made, CONFIG, self.layout).create_topic("t", 2)
        vfs, answers = made.power_cut(kept, made.boot), Answers()
        calls = 0

        def explore(kind: str, path: str) -> None:
            nonlocal calls
            calls += 1
            vfs.hook = None
            where = f"call {calls} ({kind} {path})"
            if kind == "end" or self.likely == 1 or self.rng.random() < self.likely:
                self._cut(vfs, answers, where)
                self._killed(vfs, answers.copy(), f"{where}, killed")
            vfs.hook = explore

        vfs.hook = explore
        story(Writer(vfs, self.layout, answers))
        explore("end", "")

    def _cut(self, vfs: MemoryVfs, answers: Answers, where: str) -> None:
        for number, choice in enumerate(self._choices(vfs)):
            choose: Choose = lambda _, choice=choice: choice  # type: ignore[misc]  # noqa: E731
            left = vfs.power_cut(choose, self.rng.randbytes(16))
            self._guarded(f"{where}, cut {number}", partial(self._check, left, answers.copy()))

    def _choices(self, vfs: MemoryVfs) -> Iterator[Choice]:
        """Nothing, everything, and what a power cut may leave in between."""
        items: list[Item] = vfs.unsynced()
        yield lost(items)
        yield kept(items)
        yield from choices(items, self.rng, self.samples)

    def _killed(self, vfs: MemoryVfs, answers: Answers, where: str) -> None:
        """Another comes after a kill, writes, perhaps is killed too; then the power is cut."""
        left = vfs.kill()
        left.crash_after = self.rng.choice((None, None, self.rng.randrange(60)))

        def write_on() -> None:
            writer = Writer(left, self.layout, answers)
            try:
                if self.rng.random() < 0.3:
                    writer.create("u", 2)
                for topic in writer.store.topics():
                    for partition in range(writer.store.topic(topic).partitions):
                        size = self.rng.choice((1, 3000))
                        value = b"later %d" % sum(map(len, answers.tried.values()))
                        writer.append(topic, partition, value.ljust(size, b"."))
            except CrashError:
                pass
            left.crash_after = None

        self._guarded(where, write_on)
        self._cut(left, answers, where)

    def _check(self, vfs: MemoryVfs, answers: Answers, depth: int = 0) -> None:
        self.states += 1
        if self.rng.random() < 0.3:
            vfs.crash_after = self.rng.randrange(1, 40)
            try:
                self._recover(vfs, answers)
            except CrashError:
                vfs.crash_after = None
                vfs = self._power_cut(vfs)
            vfs.crash_after = None
        store = self._recover(vfs, answers)
        found = self._look(store)
        self._check_records(found, answers)
        self._check_description(vfs, answers)
        self._write_on(store, found, answers)
        if depth < 2 and self.rng.random() < 0.4:
            self._check(self._power_cut(vfs), answers, depth + 1)

    def _power_cut(self, vfs: MemoryVfs) -> MemoryVfs:
        choice = self.rng.choice(list(self._choices(vfs)))
        return vfs.power_cut(lambda _: choice, self.rng.randbytes(16))

    def _write_on(self, store: Store, found: View, answers: Answers) -> None:
        """Whoever comes later can write where the log ends, unless its end is damaged."""
        for (topic, partition), (start, values) in found.items():
            tried = answers.tried.setdefault((topic, partition), [])
            value = b"next %d" % len(tried)
            value = value.ljust(self.rng.choice((1, 3000)), b".")
            try:
                written = store.append(topic, partition, [value])
            except DamagedLogError:
                assert tried, f"{topic}-{partition} is closed, and nobody appended to it"
                continue
            tried.append(value)
            # Not at the end if the broker's high watermark hides what nobody was promised.
            assert written.start >= start + len(values), f"{topic}-{partition} goes on too early"
            answers.acked[topic, partition, written.start] = value

    def _recover(self, vfs: MemoryVfs, answers: Answers) -> Store:
        """As a writer does that comes next; some drivers try their commit again, or give up."""
        store = Store(vfs, self.rng.choice((CONFIG, LARGER)), self.layout)
        for job in answers.jobs:
            if self.rng.random() < 0.2:
                try:
                    store.commit(job.job, job.parts, app="app", version=job.version)
                except InvalidCommitError:
                    continue
            elif self.rng.random() < 0.2:
                store.abort(job.job, app="app")
        engine = store._engine
        assert isinstance(engine, BaseEngine)
        engine.committer.finish_pending()
        return store

    def _look(self, store: Store) -> View:
        found: View = {}
        for topic in store.topics():
            for partition, end in enumerate(store.visible_ends(topic)):
                start = store.start_offset(topic, partition)
                values = list[bytes]()
                for batch in store.read(topic, partition, start=start, end=end):
                    first = batch.column("offset").to_pylist()
                    assert first == list(
                        range(start + len(values), start + len(values) + len(first))
                    )
                    values += batch.column("value").to_pylist()
                found[topic, partition] = (start, values)
        return found

    def _check_records(self, found: View, answers: Answers) -> None:
        for topic, partitions in answers.topics.items():
            there = sum(place[0] == topic for place in found)
            assert there >= partitions, f"{topic} has {there} partitions"
        for (topic, partition, offset), value in answers.acked.items():
            start, values = found.get((topic, partition), (0, []))
            if offset < start:
                assert start <= answers.starts.get((topic, partition), 0), f"starts at {start}"
                continue
            here = values[offset - start] if offset < start + len(values) else None
            assert here == value, f"{topic}-{partition}@{offset}: {here!r}, not {value!r}"
        everything = [value for _, values in found.values() for value in values]
        for job in answers.jobs:
            count = {everything.count(value) for values in job.values.values() for value in values}
            assert count in ({0}, {1}), f"{job.job} is there in part, or twice: {count}"
        assert answers.gone.isdisjoint(everything), "what was given up or deleted is there again"

    def _check_description(self, vfs: MemoryVfs, answers: Answers) -> None:
        """A cursus broker does not start over topics that it cannot name."""
        file = vfs.top.files().get("__topic_metadata.json")
        if file is not None:
            described = {entry["name"]: entry for entry in json.loads(file.data)["topics"]}
            for topic, partitions in answers.topics.items():
                assert described[topic]["partitions"] >= partitions, f"{topic} is not described"

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            self.violations.append(f"{where}: {type(error).__name__}: {error}")


def names_alone(items: Sequence[Item]) -> Choice:
    """All names reached the disk, and nothing of what they lead to."""
    return {item: item.ages - 1 for item in items if item.what < 0}


def killed_makers(layout: str) -> None:
    """Who makes a topic is killed at any call; another makes sure of it, and commits to it.

    Raises:
        AssertionError: a power cut took what the other was promised, or a commit counts twice.
    """
    calls, done = 0, False
    while not done:
        vfs = MemoryVfs()
        vfs.crash_after = calls
        with suppress(CrashError):
            Store(vfs, CONFIG, layout).create_topic("u", 2)
            done = True
        vfs = vfs.kill()
        if Store(vfs, CONFIG, layout).topics():
            beside = vfs.kill()
            Store(beside, CONFIG, layout).append("u", 0, [b"acknowledged"])
            left = Store(beside.power_cut(lost, b"the next boot..."), CONFIG, layout)
            assert left.offsets("u", 0).end == 1, f"killed at {calls}: a record is lost"
        answers = Answers()
        writer = Writer(vfs, layout, answers)
        writer.create("u", 2)
        left = Store(vfs.power_cut(lost, b"the next boot..."), CONFIG, layout)
        there = left.topic("u").partitions
        assert there >= answers.topics["u"], f"killed at {calls}: {there} partitions are left"
        job, again = (writer.stage(1, {("u", 0): [value]}) for value in (b"once", b"twice"))
        writer.commit(job)
        for choose in (lost, names_alone):
            left = Store(vfs.power_cut(choose, b"the next boot..."), CONFIG, layout)
            repeated = left.commit(again.job, again.parts, app="app", version=1)
            assert repeated.skipped, f"killed at {calls}: the commit counts twice"
        calls += 1


def deleted_topics(layout: str) -> None:
    """What was deleted does not come back.

    Raises:
        AssertionError: it did.
    """
    vfs = MemoryVfs()
    writer = Writer(vfs, layout, Answers())
    writer.create("u", 1)
    writer.append("u", 0, b"old")
    writer.store.delete_topic("u")
    left = Store(vfs.power_cut(lost, b"the next boot..."), CONFIG, layout)
    assert left.topics() == []


def rewound_commits(layout: str) -> None:
    """A commit over several files is interrupted; who finishes it is killed, and then the power.

    Every single change of names since the last sync is lost alone, and kept alone.

    Raises:
        AssertionError, StorageError: the commit is not there once, as a whole.
    """
    records = [(b"%d" % number).ljust(2000, b".") for number in range(5)]
    vfs = MemoryVfs()
    writer = Writer(vfs, layout, Answers())
    writer.create("u", 1)
    writer.append("u", 0, b"before")
    job = writer.stage(1, {("u", 0): records})

    def die(kind: str, path: str) -> None:
        """All records are in the files, and the ledger does not have the commit."""
        if kind == "rename" and "/ledger/" in path:
            raise CrashError(f"crashed before {kind} {path}")

    vfs.hook = die
    with suppress(CrashError):
        writer.commit(job)
    calls, done = 0, False
    while not done:
        first = vfs.kill()
        first.crash_after = first.calls + calls
        with suppress(CrashError):
            Store(first, LARGER, layout).repair()
            done = True
        second = first.kill()
        _lose_names(second, layout, [b"before", *records])
        Store(second, LARGER, layout).repair()
        _lose_names(second, layout, [b"before", *records])
        calls += 1


def _lose_names(vfs: MemoryVfs, layout: str, expected: list[bytes]) -> None:
    def without(item: Item, items: Sequence[Item]) -> Choice:
        return {**kept(items), item: 0}

    def alone(item: Item, _: Sequence[Item]) -> Choice:
        return {item: item.ages - 1}

    names = list[Item]()

    def choose(items: Sequence[Item]) -> Choice:
        names.extend(item for item in items if item.what < 0)
        return kept(items)

    vfs.power_cut(choose, b"the next boot...")
    for item in names:
        for cut in (partial(without, item), partial(alone, item)):
            left = Store(vfs.power_cut(cut, b"the next boot..."), LARGER, layout)
            left.repair()
            batches = left.read("u", 0)
            values = [value for batch in batches for value in batch["value"].to_pylist()]
            assert values == expected, f"{len(values)} records are left"


def foreign_records(layout: str) -> None:
    """A commit is killed at any call, a broker appends, and then our next writer comes.

    Raises:
        AssertionError: a record of the broker is gone.
    """
    calls, done = 0, False
    while not done:
        vfs = MemoryVfs()
        writer = Writer(vfs, layout, Answers())
        writer.create("u", 1)
        writer.append("u", 0, b"before")
        job = writer.stage(1, {("u", 0): [b"ours".ljust(2000, b".")] * 3})
        vfs.crash_after = vfs.calls + calls
        with suppress(CrashError):
            writer.commit(job)
            done = True
        left = vfs.kill()
        _append_as_broker(Store(left, CONFIG, layout), b"theirs")
        with suppress(ForeignRecordsError):
            Store(left, CONFIG, layout).repair()
        engine = Store(left, CONFIG, layout)._engine
        assert isinstance(engine, BrokerEngine)
        for intent in engine.commits.intents.pending():
            engine.commits.intents.remove(intent)
        batches = Store(left, CONFIG, layout).read("u", 0)
        found = [value for batch in batches for value in batch["value"].to_pylist()]
        assert b"theirs" in found, f"killed at {calls}: the record of the broker is gone"
        calls += 1


def _append_as_broker(store: Store, value: bytes) -> None:
    """A broker knows nothing of our intents: it cuts a torn record and appends."""
    log = store.partition_log("u", 0)
    assert isinstance(log, RowLog)
    with log.exclusive(past_barrier=True):
        log._find_target()
        log._target = log._files.append(log._target, columns_of([value]), sync=True)


def rolls_after_a_kill(layout: str) -> None:
    """A writer is killed at any call; the next one needs a new file, and then the power is cut.

    Raises:
        AssertionError: what the killed writer left went, and the record after it stayed.
    """
    first, second, third = b"a" * 900, b"b" * 2500, b"c" * 3500
    calls, done = 0, False
    while not done:
        vfs = MemoryVfs()
        store = Store(vfs, CONFIG, layout)
        store.create_topic("t")
        store.append("t", 0, [first])
        vfs.crash_after = vfs.calls + calls
        with suppress(CrashError):
            store.append("t", 0, [second])
            done = True
        left = vfs.kill()
        Store(left, CONFIG, layout).append("t", 0, [third])
        cut = Store(left.power_cut(lost, b"a second boot..."), CONFIG, layout)
        found = [value for batch in cut.read("t", 0) for value in batch["value"].to_pylist()]
        assert found in ([first, third], [first, second, third]), f"killed at {calls}"
        calls += 1


def unsynced_records(layout: str) -> None:
    """A power cut must not take records without syncs, and leave later ones that were synced.

    Raises:
        AssertionError: it does, or a commit is not durable.
    """
    for later in (_append_later, _commit_later):
        vfs = MemoryVfs()
        config = CONFIG.override({"fsync": "none"})
        store = Store(vfs, config, layout)
        store.create_topic("t")
        records = [b"%d".ljust(900, b".") % number for number in range(12)]
        for record in records:
            store.append("t", 0, [record])
        later(Store(vfs, CONFIG if later is _append_later else config, layout))
        left = Store(vfs.power_cut(lost, b"a second boot..."), CONFIG, layout)
        found = [value for batch in left.read("t", 0) for value in batch["value"].to_pylist()]
        assert found == [*records, b"later"], f"{layout}, {later.__name__}: {len(found)} are left"


def _append_later(store: Store) -> None:
    store.append("t", 0, [b"later"])


def _commit_later(store: Store) -> None:
    stage = store.stage("job")
    stage.write("t", 0, columns_of([b"later"]))
    store.commit("job", stage.finish())


SHORT: dict[str, Callable[[str], None]] = {
    "killed makers": killed_makers,
    "deleted topics": deleted_topics,
    "rewound commits": rewound_commits,
    "foreign records": foreign_records,
    "rolls after a kill": rolls_after_a_kill,
    "unsynced records": unsynced_records,
}
