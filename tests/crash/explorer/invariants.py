"""What must hold of a store at every moment and after every crash, and who did what to it.

The invariants, by the numbers of the design: I1 what was acknowledged is there once, at its offset;
I2 a transaction is on all its partitions or on none, for every reader; I3 nothing else is there; I4
offsets are dense; I5 recovering twice is recovering once; I6 what was seen stays; I7 a transaction
is in the log if and only if it is in the ledger; I8 nobody appends before a commit that is decided;
I9 nobody sees what a power cut can take; I10 the
start never goes back; I11 a registered schema version keeps its columns, and a field id its name.
Published columns are looked at as a partition of their own: see ``typed_rows.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from storage_core import SchemaVersion, StagedPart, Store, StoreConfig, UpkeepReport
from storage_core.commit.intents import Intents
from storage_core.engine.native import NativeEngine
from storage_core.errors import DamagedLogError, RecoveryNeededError, TopicNotFoundError
from storage_core.handlers.disk_handler import DiskHandler
from storage_core.metadata.identity import first_boot
from tests.crash.explorer.disk import kept
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import (
    COLUMNS,
    columns_in,
    made,
    read_marks,
    schema_of,
    shown,
    table,
    wanted,
)

Place = tuple[str, int]
View = dict[Place, tuple[int, list[bytes]]]
"""Start offset and values of every partition that can be read."""
CONFIG = StoreConfig(checkpoint_interval_ms=86_400_000, lock_timeout_ms=50)


@dataclass(frozen=True)
class Transaction:
    """A commit that was tried: what it adds where, and what is needed to try it again."""

    app: str
    version: int
    job: str
    values: dict[Place, list[bytes]]
    parts: tuple[StagedPart, ...] = ()


@dataclass
class History:
    """What happened so far, as far as anybody outside can know."""

    acked: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    unsynced: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    """What a power cut may take until a commit comes after it."""
    seen: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    starts: dict[Place, int] = field(default_factory=dict)
    tried: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    transactions: tuple[Transaction, ...] = ()
    committed: set[tuple[str, int]] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    groups: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    """How far a group has come: the last offset that was acknowledged, and the last one tried."""
    unseen: set[bytes] = field(default_factory=set)
    """Records of commits that retention took before anybody saw them."""
    allowed: dict[Place, int] = field(default_factory=dict)
    """The largest start that retention or a deletion was asked for: none may lie after it."""
    registered: dict[tuple[str, int], SchemaVersion] = field(default_factory=dict)
    """The schema versions that writers were given, published or not."""

    def forget(self, topic: str) -> None:
        """Nothing of a topic that is gone is expected any more; one of its name may come."""
        self.acked = {at: value for at, value in self.acked.items() if at[0] != topic}
        self.seen = {at: value for at, value in self.seen.items() if at[0] != topic}
        self.starts = {at: start for at, start in self.starts.items() if at[0] != topic}
        self.allowed = {at: start for at, start in self.allowed.items() if at[0] != topic}
        self.registered = {at: found for at, found in self.registered.items() if at[0] != topic}
        self.transactions = ()

    def copy(self) -> History:
        copied = {
            name: value.copy() for name, value in vars(self).items() if name != "transactions"
        }
        return replace(self, **copied)


def _below(vfs: Any) -> MemoryVfs:
    """The files without a backend over them that fails: looking is no part of a story."""
    found: MemoryVfs = getattr(vfs, "inner", vfs)
    return found


def _intents(vfs: Any) -> Intents:
    engine = Store(_below(vfs), CONFIG)._engine
    assert isinstance(engine, NativeEngine)
    return engine.commits.intents


class WatchedStore(Store):
    """Writes down what it is asked to delete, before it does."""

    def __init__(self, vfs: MemoryVfs, config: StoreConfig, history: History) -> None:
        super().__init__(vfs, config)
        self._history = history

    def retain(
        self, topic: str | None = None, *, dry_run: bool = False
    ) -> dict[tuple[str, int], list[int]]:
        for path in logs(_below(self.vfs)):
            _, name, partition, *_, base = path.removesuffix(".log").split("/")
            if topic in (None, name):
                self._allow(name, int(partition), int(base))
        # A crashed writer's commit is finished first, and what it adds may be old at once.
        for intent in _intents(self.vfs).pending():
            for part in intent.partitions:
                self._allow(part.topic, part.partition, part.end)
        return super().retain(topic, dry_run=dry_run)

    def delete_records(
        self, topic: str, before: Mapping[int, int], **named: Any
    ) -> list[UpkeepReport]:
        for partition, offset in before.items():
            self._allow(topic, partition, offset)
        return super().delete_records(topic, before, **named)

    def _allow(self, topic: str, partition: int, start: int) -> None:
        allowed = self._history.allowed
        allowed[topic, partition] = max(start, allowed.get((topic, partition), 0))


class World:
    """The hands of a scenario: everything it does is written into the history."""

    def __init__(self, vfs: MemoryVfs, history: History, config: StoreConfig) -> None:
        self.vfs = vfs
        self.history = history
        self.config = config
        self.store: Store = WatchedStore(vfs, config, history)
        self.jobs = 0
        looking = Store(_below(vfs), CONFIG)
        for topic in looking.topics():
            if looking.topic(topic).is_typed:
                self.acknowledge_columns(topic)

    def create(self, topic: str, partitions: int, **settings: Any) -> None:
        """Make a typed topic. Readers see it before it is durable: until then it may go again."""
        self.history.tried.update(columns_in(topic, settings["schema"]))
        self.history.deleting.add(topic)
        self.store.create_topic(topic, partitions, **settings)
        self.history.deleting.discard(topic)
        self.acknowledge_columns(topic)

    def append(self, topic: str, partition: int, *values: bytes) -> None:
        marks = shown(self._schema(topic), values)
        self.history.tried.update(marks)
        start = append(self.store, topic, partition, values)
        assert not _intents(self.vfs).naming(topic, partition), "I8"
        for offset, mark in enumerate(marks, start):
            self.history.acked[topic, partition, offset] = mark

    def append_lazily(self, topic: str, partition: int, *values: bytes) -> None:
        """Append where the topic's policy lets a power cut take what was not synced."""
        self.history.tried.update(values)
        written = self.store.append(topic, partition, list(values))
        for offset, value in zip(range(written.start, written.end), values, strict=True):
            self.history.unsynced[topic, partition, offset] = value

    def add_columns(self, topic: str, *names: str) -> None:
        """Give a typed topic columns, without rows."""
        self.history.tried.update(columns_in(topic, wanted(names)))
        self.store.alter_topic(topic, add_columns=wanted(names))
        self.acknowledge_columns(topic)

    def acknowledge_columns(self, topic: str) -> None:
        """All columns that a topic has now count as acknowledged."""
        schema = self._schema(topic)
        assert schema is not None
        for at, mark in enumerate(columns_in(topic, schema.arrow)):
            self.history.tried.add(mark)
            self.history.acked[topic, COLUMNS, at] = mark

    def register(
        self, topic: str, names: str, kind: pa.DataType | None = None
    ) -> SchemaVersion | None:
        """The schema version for rows that bring columns of one letter each; None for records."""
        if self._schema(topic) is None:
            return None
        schema = self.store.register_schema(topic, wanted(names, kind), add=True)
        self.history.registered[topic, schema.version] = schema
        return schema

    def _schema(self, topic: str) -> SchemaVersion | None:
        return schema_of(Store(_below(self.vfs), CONFIG), topic)

    def handler(self, topic: str, partition: int) -> DiskHandler:
        return DiskHandler(self.store, topic, partition)

    def publish(self, handler: DiskHandler, *values: bytes) -> None:
        """Queue single records; each is acknowledged by its future."""
        self.history.tried.update(values)
        futures = [handler.append(value) for value in values]
        for future, value in zip(futures, values, strict=True):
            self.history.acked[handler.topic, handler.partition, future.result()] = value

    def reopen(self) -> None:
        """Leave cleanly and come back."""
        self.store.close()
        self.store = WatchedStore(self.vfs, self.config, self.history)

    def stage(
        self,
        app: str,
        version: int,
        counts: dict[Place, int],
        size: int = 8,
        columns: str = "",
        kind: pa.DataType | None = None,
    ) -> Transaction:
        """Stage a number of records for each partition; in typed topics with these columns."""
        self.jobs += 1
        job = f"job-{app}-{version}-{self.jobs}"
        schemas = {topic: self.register(topic, columns, kind) for topic, _ in counts}
        values: dict[Place, list[bytes]] = {}
        stage = self.store.stage(job)
        for (topic, partition), count in counts.items():
            marks = [
                f"{app}:{version}:{topic}:{partition}:{n}".encode().ljust(size, b".")
                for n in range(count)
            ]
            for mark in marks:
                stage.write(topic, partition, made(schemas[topic], [mark]))
            values[topic, partition] = shown(schemas[topic], marks)
        for topic, schema in schemas.items():
            known = self._schema(topic)
            if schema is not None and known is not None and schema.version != known.version:
                there = columns_in(topic, known.arrow)
                new = [mark for mark in columns_in(topic, schema.arrow) if mark not in there]
                values[topic, COLUMNS] = new
        self.history.tried.update(value for part in values.values() for value in part)
        return Transaction(app, version, job, values, tuple(stage.finish()))

    def commit(self, txn: Transaction) -> None:
        self.history.transactions = (*self.history.transactions, txn)
        result = self.store.commit(txn.job, txn.parts, app=txn.app, version=txn.version)
        self.history.committed.add((txn.app, txn.version))
        for place, offsets in result.offsets.items():
            for n, value in enumerate(txn.values[place]):
                self.history.acked[*place, offsets.start + n] = value
            self.mark_durable(*place, offsets.start)
        for topic, partition in txn.values:
            if partition == COLUMNS:
                self.acknowledge_columns(topic)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Let a group come further."""
        at = (group, topic, partition)
        self.history.groups[at] = (self.history.groups.get(at, (0, 0))[0], offset)
        self.store.commit_offsets(group, {topic: {partition: offset}})
        self.history.groups[at] = (offset, offset)

    def mark_durable(self, topic: str, partition: int, upto: int) -> None:
        """A commit, or another policy, made durable what stood there; what came after is lost."""
        for at in [at for at in self.history.unsynced if at[:2] == (topic, partition)]:
            value = self.history.unsynced.pop(at)
            if at[2] < upto:
                self.history.acked[at] = value

    def abort(self, txn: Transaction) -> None:
        """Give a job up that nobody committed: its records must never appear."""
        self.history.aborted.update(value for part in txn.values.values() for value in part)
        self.store.abort(txn.job, app=txn.app)


def append(store: Store, topic: str, partition: int, values: Sequence[bytes]) -> int:
    """Append records, or rows that have a value in every column; the offset of the first."""
    schema = schema_of(store, topic)
    if schema is None:
        return store.append(topic, partition, list(values)).start
    return store.append_table(topic, table(schema, values), partition=partition)[partition].start


def new_store(topics: dict[str, int], **settings: Any) -> MemoryVfs:
    """A store with some topics, everything durable."""
    vfs = MemoryVfs()
    first_boot(vfs, CONFIG)
    store = Store(vfs, CONFIG)
    for topic, partitions in topics.items():
        store.create_topic(topic, partitions, **settings)
    return vfs.power_cut(kept, vfs.boot)


_LOOKS: dict[int, View] = {}
_MOST_LOOKS = 20_000


def look(vfs: MemoryVfs) -> View:
    """What a reader sees now; partitions whose end nobody can tell are left out.

    Most states hold the same logs: a look at files that were looked at before is remembered.
    """
    key = hash(
        frozenset(
            (path, file.data)
            for path, file in vfs.top.files().items()
            if path.endswith((".log", ".json", ".tomb", "watermark"))
        )
    )
    view = _LOOKS.get(key)
    if view is None:
        if len(_LOOKS) >= _MOST_LOOKS:
            _LOOKS.clear()
        view = _LOOKS[key] = _look(Store(vfs, CONFIG))
    return view


def forget_looks() -> None:
    """Look again at everything: the engine may have been changed meanwhile."""
    _LOOKS.clear()


def _look(store: Store) -> View:
    view: View = {}
    for topic in store.topics():
        # A power cut may take what was shown: an error until a writer recovers, never a short read.
        lost = (DamagedLogError,) if has_no_syncs(store, topic) else ()
        try:
            ends, schema = store.visible_ends(topic), schema_of(store, topic)
        except (RecoveryNeededError, TopicNotFoundError):
            continue
        if schema is not None:
            view[topic, COLUMNS] = (0, columns_in(topic, schema.arrow))
        for partition, end in enumerate(ends):
            # Above the end if a power cut took the high watermark of what retention kept; a writer
            # puts that right, and a reader finds nothing until then.
            start = store.start_offset(topic, partition)
            try:
                offsets, values = read_marks(store, topic, partition, min(start, end), end)
            except lost:
                continue
            assert offsets == list(range(start, end)), "I4"
            view[topic, partition] = (start, values)
    return view


def has_no_syncs(store: Store, topic: str) -> bool:
    """Whether what was seen may go."""
    return store.topic(topic).config(CONFIG).fsync == "none"


def logs(vfs: MemoryVfs) -> dict[str, bytes]:
    """The bytes of all segments."""
    return {p: f.data for p, f in vfs.top.files().items() if p.endswith(".log")}


def retained(view: View, history: History) -> set[bytes]:
    """What stood below the present starts: retention may take a commit's records from one topic."""
    if not any(start for start, _ in view.values()):
        return set()
    known = {**history.seen, **history.acked}.items()
    gone = {
        value
        for (topic, partition, offset), value in known
        if (topic, partition) in view and offset < view[topic, partition][0]
    }
    # Who retains finishes a crashed writer's commit first: nobody may have seen where it began.
    for txn in history.transactions:
        for place in txn.values.keys() & view.keys():
            start = view[place][0]
            below = [offset for (*at, offset), _ in known if tuple(at) == place and offset < start]
            gone.update(txn.values[place][: start - max(below, default=-1) - 1])
    return gone | history.unseen


def check_view(view: View, history: History) -> None:
    """What holds for every reader at every moment."""
    for place, (start, values) in view.items():
        assert start >= history.starts.get(place, 0), f"I10 {place}"
        allowed = history.allowed.get(place, 0)
        assert start <= allowed, f"I1 {place} starts at {start}, only {allowed} was asked for"
        for offset, value in enumerate(values, start):
            due = history.acked.get((*place, offset), value)
            assert due == value, f"I1 {place}@{offset}: {value!r}, not {due!r}"
            due = history.seen.get((*place, offset), value)
            assert due == value, f"I6 {place}@{offset}: {value!r}, not {due!r}"
    counts = Counter(value for _, values in view.values() for value in values)
    assert all(n == 1 for n in counts.values()), f"I1 twice: {counts.most_common(1)}"
    assert not counts.keys() - history.tried, f"I3 {counts.keys() - history.tried}"
    assert not counts.keys() & history.aborted, f"I3 aborted {counts.keys() & history.aborted}"
    gone = retained(view, history)
    for txn in history.transactions:
        for topic in {topic for topic, _ in txn.values}:
            places = [place for place in txn.values if place[0] == topic]
            if all(place in view for place in places):
                left = {value for place in places for value in txn.values[place]} - gone
                here = {value in counts for value in left}
                assert len(here) <= 1, f"I2 {txn.app}:{txn.version} is on a part of {topic}"


def check_recovered(vfs: MemoryVfs, store: Store, history: History) -> View:
    """What holds once every partition was recovered."""
    view = look(vfs)
    check_view(view, history)
    for topic in store.topics():
        for partition in range(store.topic(topic).partitions):
            assert (topic, partition) in view, f"{topic}-{partition} cannot be read"
    for known, name in ((history.acked, "I1"), (history.seen, "I6")):
        for (topic, partition, offset), value in known.items():
            if topic in history.deleting and (topic, partition) not in view:
                continue
            assert (topic, partition) in view, f"{name} {topic}-{partition} is gone"
            start, values = view[topic, partition]
            there = values[offset - start] if start <= offset < start + len(values) else None
            assert there == value or offset < start, (
                f"{name} {topic}-{partition}@{offset}: {there!r}"
            )
    for (group, topic, partition), (acked, tried) in history.groups.items():
        offset = store.committed_offsets(group).get(topic, {}).get(partition, 0)
        assert acked <= offset <= tried, f"{group} has come to {offset}, not {acked}"
    found = {value for _, values in view.values() for value in values}
    gone = retained(view, history)
    topics = {topic for topic, _ in view}
    ledger = {
        (entry.app, entry.topic): entry.version
        for entry in store._engine.ledger()
        if entry.topic in topics and entry.topic_uuid == str(store.topic(entry.topic).uuid)
    }
    # The ledger knows the last version only; one given up before it is no business of its.
    last = {(txn.app, topic): txn for txn in history.transactions for topic, _ in txn.values}
    for txn in history.transactions:
        alive = [place for place in txn.values if place in view]
        left = {value for place in alive for value in txn.values[place]} - gone
        here = {value in found for value in left}
        assert len(here) <= 1, f"I2 {txn.app}:{txn.version} is on a part of its topics"
        for topic in {topic for topic, _ in alive}:
            recorded = ledger.get((txn.app, topic), -1) >= txn.version
            if last[txn.app, topic] is not txn or not here:
                continue
            assert here == {recorded}, f"I7 {txn.app}:{txn.version}: log {here}, {recorded}"
    assert store.pending_commits() == [], "an intent is left"
    for topic in {topic for topic, partition in view if partition == COLUMNS}:
        check_registered(store, topic, history)
    return view


def check_registered(store: Store, topic: str, history: History) -> None:
    """What a writer was given stays: frames name versions and field ids."""
    found = {each.schema.version: each.schema for each in store._engine.schemas(topic).all()}
    for (name, version), schema in history.registered.items():
        if name == topic:
            assert found.get(version) == schema, f"I11 schema version {version} of {topic}"
    names: dict[int, str] = {}
    for schema in found.values():
        for each in schema.fields:
            assert names.setdefault(each.id, each.name) == each.name, f"I11 id {each.id} of {topic}"
