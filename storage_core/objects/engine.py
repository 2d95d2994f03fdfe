"""The engine of stores of objects: topics, appends, commits and reads over logs without locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ..commit.commit_state import PendingCommit
from ..commit.ledger import LedgerEntry
from ..commit.protocol import CommitRequest, CommitResult
from ..commit.staging import StageCheck
from ..commit.staging_gc import StagedJob
from ..config import StoreConfig
from ..engine.base import no_columns, require_kind
from ..errors import (
    InvalidCommitError,
    InvalidRecordError,
    PartitionNotFoundError,
)
from ..format.columns import Columns
from ..format.file_names import check_name
from ..format.frame_scan import StoredFrame
from ..io import json_files
from ..io.caching import LruCache
from ..lazy import LazyModule
from ..log.published import Published
from ..metadata import topic_file
from ..metadata.identity import Identity
from ..metadata.schema_files import NewSchema, RegisteredSchema
from ..metadata.topic_file import TopicFile
from ..schema.fields import Field, SchemaVersion
from ..segments.partition_reader import PartitionReader
from ..types import OffsetRange, Problem, RecoveryReport, SegmentContents, SegmentInfo
from ..vfs import PosixVfs, Vfs
from ..vfs.remote import UrlVfs
from . import identity
from .backend import ObjectBackend
from .catalog import ObjectCatalog
from .collector import Collector
from .commit_log import CommitLog, Draft
from .commits import ObjectCommits, is_undecided
from .groups import ObjectGroups
from .maintenance.checks import read_frames, store_problems
from .maintenance.partition import ObjectMaintenance
from .names import new_key
from .object_log import ObjectLog
from .obstore_backend import ObstoreBackend, cloud_environment
from .patience import Patience, PatientBackend
from .reads.kept_logs import Place, place_of
from .reads.pins import PinnedSchemas
from .reads.remote_reads import ObjectReads
from .schemas import ObjectSchemas, SchemaStep, evolved, merge_step, missing_versions
from .segments import IndexCache, ObjectSegments, forget_nothing
from .semantics import semantics_problems
from .slices import Slice
from .staging import ObjectStage, encode_run
from .state import Commit, LogState, PartitionState
from .vfs_backend import VfsBackend

if TYPE_CHECKING:
    from .reads import range_cache
else:  # most processes keep no ranges
    range_cache = LazyModule("storage_core.objects.reads.range_cache")

# Smaller appends stand in the commit itself: one request for all.
INLINE_BYTES = 1 << 20


def _place(vfs: Vfs, backend: ObjectBackend | None, config: StoreConfig) -> Place:
    """The objects of a store, with repeated calls; by default those at its URL, or its files.

    What this process knows of a URL is kept for a while.
    """

    def patient(inner: ObjectBackend) -> PatientBackend:
        return PatientBackend(inner, Patience(vfs, config.lock_timeout_ms / 1000))

    if backend is None and isinstance(vfs, UrlVfs):
        url, options = vfs.root, tuple(sorted(vfs.options.items()))
        settings = (config.lock_timeout_ms, config.staging_ttl_ms)
        key = (url, options, tuple(sorted(cloud_environment())), settings)
        return place_of(key, lambda: patient(ObstoreBackend(url, dict(options))), vfs.monotonic())
    return Place(patient(VfsBackend(vfs) if backend is None else backend))


def create_store(vfs: Vfs, config: StoreConfig) -> None:
    """Make a store, if there is none."""
    place = _place(vfs, None, config)
    place.identity = identity.ensure(place.backend, vfs, config)


def has_store(vfs: Vfs, config: StoreConfig) -> bool:
    """Whether there is a store."""
    place = _place(vfs, None, config)
    place.identity = identity.read(place.backend)
    return place.identity is not None


def broken_promises(vfs: Vfs, config: StoreConfig, rounds: int) -> list[str]:
    """What a store there would depend on and cannot, tried out; it may or may not be there."""
    return list(semantics_problems(_place(vfs, None, config).backend.inner, rounds))


def open_engine(
    vfs: Vfs, config: StoreConfig, backend: ObjectBackend | None = None
) -> ObjectEngine:
    """The engine of a store."""
    return ObjectEngine(vfs, config, _place(vfs, backend, config))


def _reading(
    backend: ObjectBackend, config: StoreConfig
) -> tuple[ObjectBackend, Callable[[str, int, int], None]]:
    """Where reads get their ranges, and what drops a range whose frames are damaged."""
    if config.cache_dir is None:
        return backend, forget_nothing
    cached = range_cache.cached(backend, PosixVfs(config.cache_dir), config.cache_bytes)
    return cached, cached.forget


class _Append(NamedTuple):
    """One append: its slice, and where the partition ended when it was encoded."""

    topic: str
    known: TopicFile
    partition: int
    placed: Slice
    columns: Columns
    end: int

    @property
    def first(self) -> int:
        """The first offset, of records that have offsets of their own."""
        offsets = self.columns.offsets
        return self.end if offsets is None else int(offsets[0])


class ObjectEngine:
    """One store of objects. Safe for several threads, processes and machines.

    Every call that depends on what others do reads the log once; if nothing changed, that is one
    request.
    """

    name = "objects"

    def __init__(self, vfs: Vfs, config: StoreConfig, place: Place) -> None:
        self._clock = vfs
        self._config = config
        self._backend = backend = place.backend
        self._catalog = ObjectCatalog(backend, vfs, config, place.logs)
        self._collector = Collector(backend, vfs, config, self._catalog)
        self._commits = ObjectCommits(vfs, config, self._catalog, self._collector)
        self._cache: IndexCache = LruCache(config.index_cache_segments)
        self._readers: dict[tuple[str, int], PartitionReader] = {}
        self._identity: Identity | None = place.identity
        self.groups = ObjectGroups(backend, vfs)
        self._reading, self._forget = _reading(backend, config)
        self.remote = ObjectReads(self._reading, self._catalog)

    def topics(self) -> list[str]:
        return self._catalog.names()

    def topic(self, topic: str) -> TopicFile:
        pin = self._catalog.pinned(topic)
        return pin.topic if pin is not None else self._now_topic(topic)

    def _now_topic(self, topic: str) -> TopicFile:
        return self._catalog.require(topic, self._catalog.get(topic)[1])

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        return self.published(topic).ends

    def published(self, topic: str) -> Published:
        state = self._catalog.get(topic)[1]
        return Published(tuple(each.end for each in state.partitions), state.published)

    def recovery_due(self, topic: str, partition: int) -> bool:  # noqa: ARG002
        """Never: a commit is there or it is not."""
        return False

    def reader(self, topic: str, partition: int) -> PartitionReader:
        log = self._catalog.log(topic)
        reader = self._readers.get((log.prefix, partition))
        if reader is None:
            segments = ObjectSegments(
                self._reading,
                partial(_live_partition, log, partition),
                log.refresh,
                self._cache,
                lambda: self.remote.ahead,
                self._forget,
            )
            reader = PartitionReader(topic, partition, segments)
            self._readers[log.prefix, partition] = reader
        return reader

    def check(self) -> Iterator[Problem]:
        return store_problems(self._backend, self._catalog, self.groups)

    def slice_contents(
        self, topic: str, partition: int, found: SegmentInfo
    ) -> SegmentContents | None:
        state = _partition(self._catalog.log(topic), partition)
        for each in state.window(state.window_at(found.base)):
            if each.path == found.path:
                # Of a slice that the log begins inside of only offsets are known.
                records = min(each.records, found.end - max(each.base, state.start))
                times = (each.smallest, each.largest) if each.records else (None, None)
                return SegmentContents(records, *times)
        return None

    def slice_frames(self, topic: str, partition: int, found: SegmentInfo) -> Iterator[StoredFrame]:
        _require_partition(topic, self.topic(topic), partition)
        return read_frames(self._backend, found.path)

    def require_writable(self) -> None:
        if not self._catalog.has_pins:  # else the driver has found the store
            self._require_identity()

    def _require_identity(self) -> Identity:
        if self._identity is None:
            self._identity = identity.require_writable(self._backend, self._clock)
        return self._identity

    def store_uuid(self) -> UUID | None:
        if self._identity is None and (found := self._catalog.known_store()) is not None:
            return found
        known = self._identity or identity.read(self._backend)
        return None if known is None else known.uuid

    def create_topic(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, Any],
        new: NewSchema | None = None,
    ) -> TopicFile:
        uid = self._require_identity().uuid
        return self._catalog.create(topic, partitions, settings, uid, new)

    def delete_topic(self, topic: str) -> None:
        self._catalog.delete(topic)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        return self._catalog.add_partitions(topic, total)

    def alter_topic(self, topic: str, settings: Mapping[str, Any]) -> TopicFile:
        return self._catalog.change(
            topic, lambda current: topic_file.with_settings(current, settings)
        )

    def schemas(self, topic: str) -> ObjectSchemas | PinnedSchemas:
        pin = self._catalog.pinned(topic)
        if pin is not None and pin.published is not None:
            return PinnedSchemas(pin.schemas, lambda: ObjectSchemas(self._catalog.log(topic)))
        log = self._catalog.log(topic)
        if log.state().published is None:
            raise no_columns(topic)
        return ObjectSchemas(log)

    def register_schema(
        self, topic: str, wanted: Sequence[Field], *, add: bool, widen: bool
    ) -> SchemaVersion:
        log = self._catalog.get(topic)[0]
        found: list[SchemaVersion] = []

        def build(state: LogState) -> Draft | None:
            self._catalog.require(topic, state)
            schema, is_new = evolved(topic, state, wanted, add=add, widen=widen)
            found[:] = [schema]
            now = self._now()
            new = RegisteredSchema(schema, "write", now)
            return Draft(Commit(schemas=(new,), written_at=now)) if is_new else None

        log.commit(build)
        return found[0]

    def add_columns(self, topic: str, columns: Sequence[Field]) -> None:
        log = self._catalog.get(topic)[0]

        def build(state: LogState) -> Draft | None:
            self._catalog.require(topic, state)
            schema, is_new = evolved(topic, state, columns, add=True, widen=False, origin="alter")
            if schema.version == state.published:
                return None
            now = self._now()
            new = (RegisteredSchema(schema, "alter", now),) if is_new else ()
            return Draft(Commit(schemas=new, published=schema.version, written_at=now))

        log.commit(build)

    def adopt_schemas(self, topic: str, versions: Sequence[RegisteredSchema]) -> None:
        log = self._catalog.get(topic)[0]

        def build(state: LogState) -> Draft | None:
            self._catalog.require(topic, state)
            new = missing_versions(topic, state, versions)
            last = versions[-1].schema.version
            if not new and (state.published or 0) >= last:
                return None
            published = max(last, state.published or 0)
            return Draft(Commit(schemas=new, published=published, written_at=self._now()))

        log.commit(build)

    def append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        log = self._catalog.log(topic)
        known = self._catalog.require(topic, log.state())
        self._check(topic, known, columns)
        end = _partition(log, partition).end
        run = encode_run(columns, known.config(self._config), end)
        if not run.frames:
            return OffsetRange(end, end)
        placed, frames = run.placed("", 0)[0]._replace(index_bytes=0, time_index_bytes=0), []
        if run.size <= INLINE_BYTES:
            # Without indexes: readers get all of it with one request.
            frames = run.buffers()
        else:
            key = new_key(self._clock)
            placed, data = run.placed(key, 0)
            self._backend.put(key, data)
        adding = _Append(topic, known, partition, placed, columns, end)
        state = log.commit(lambda state: Draft(self._adds(adding, state), frames, False)).state
        self._collector.collect_if_due(log, state)
        end = state.partitions[partition].end
        return OffsetRange(end - run.span if columns.offsets is None else adding.first, end)

    def _adds(self, adding: _Append, state: LogState) -> Commit:
        """The commit of an append on top of a state."""
        topic, known, partition, placed, columns, end = adding
        _require_partition(topic, self._catalog.require(topic, state, known), partition)
        here, now, step = state.partitions[partition], self._now(), SchemaStep()
        if columns.schema is not None:
            step = merge_step(topic, state, {columns.schema.version}, now)
        trims = {}
        if columns.offsets is not None:
            if here.end != end or adding.first < end:
                raise InvalidRecordError(
                    f"{topic}-{partition}: records with offsets from {adding.first} cannot be "
                    f"appended: the log ends at {here.end}, and other writers must wait.",
                    topic=topic,
                    partition=partition,
                )
            if not end:  # nothing was ever here: the log begins with these records
                trims = {partition: adding.first}
        return Commit(
            [(partition, placed)],
            trims=trims,
            schemas=step.new,
            published=step.published,
            written_at=now,
        )

    def stage_check(self, topic: str, partition: int) -> StageCheck:
        known = self._known_topic(topic)
        _require_partition(topic, known, partition)
        return partial(self._check, topic, known)

    def _check(self, topic: str, known: TopicFile, columns: Columns) -> None:
        require_kind(topic, columns, is_typed=known.is_typed, schemas=lambda: self.schemas(topic))

    def stage(self, job: str, overrides: Mapping[str, Any]) -> ObjectStage:
        return ObjectStage(
            self._backend,
            self._clock,
            job,
            lambda topic: self._config_of(topic).override(overrides),
            self.stage_check,
            self._known_topic,
        )

    def _known_topic(self, topic: str) -> TopicFile:
        """A topic without a look whether it changed since the last one."""
        pin = self._catalog.pinned(topic)
        if pin is not None:
            return pin.topic
        return self._catalog.require(topic, self._catalog.log(topic).state())

    def _config_of(self, topic: str) -> StoreConfig:
        return self._known_topic(topic).config(self._config)

    def commit(self, request: CommitRequest) -> CommitResult:
        return self._commits.commit(request)

    def abort(self, job: str, app: str, *, tried: bool) -> None:  # noqa: ARG002
        """Delete what the tasks of a job uploaded, unless its commit may still happen.

        A create of a commit may be under way when its process is gone, and nothing in the store
        tells. Garbage collection deletes the data then, if the commit did not happen.
        """
        check_name("job", job)
        if not tried and not is_undecided(job):
            self._collector.drop_job(job)

    def finish_commit(self, transaction: str) -> None:
        raise self._no_decision(transaction)

    def give_up_commit(self, transaction: str) -> None:
        raise self._no_decision(transaction)

    def _no_decision(self, transaction: str) -> InvalidCommitError:
        return InvalidCommitError(
            f"the commit {transaction} needs no decision: in layout objects a commit is one step."
        )

    def pending_commits(self) -> list[PendingCommit]:
        """None: a commit is one step."""
        return []

    def staged_jobs(self) -> list[StagedJob]:
        """None: the objects of jobs stand together. Those that no log names are garbage."""
        return []

    def ledger(self) -> list[LedgerEntry]:
        return [
            entry._replace(topic=topic, topic_uuid=str(state.topic and state.topic.uuid))
            for topic, state in self._catalog.states()
            for entry in state.ledger.values()
        ]

    def log(self, topic: str, partition: int) -> ObjectLog:
        log = self._catalog.log(topic)
        config = self._config_of(topic)
        append = partial(self.append, topic, partition)
        return ObjectLog(log.prefix, config, partial(_partition, log, partition), append)

    appended_log = log

    def roll(self, topic: str, partition: int, *, begin: bool = False) -> bool:  # noqa: ARG002
        """Nothing to seal: no slice ever grows."""
        _require_partition(topic, self.topic(topic), partition)
        return False

    def maintenance(self, topic: str, partition: int) -> ObjectMaintenance:
        log, state = self._catalog.get(topic)
        found = self._catalog.require(topic, state)
        config = found.config(self._config)
        return ObjectMaintenance(
            self._clock, topic, partition, config, found, log,
            ObjectSchemas(log) if found.is_typed else None,
        )  # fmt: skip

    def repair(self) -> list[RecoveryReport]:
        """Nothing can be half done: only temporary files of crashed writers are removed."""
        self.require_writable()
        self._collector.sweep_temporary_files()
        return [
            RecoveryReport(topic, number, partition.end)
            for topic, state in self._catalog.states()
            for number, partition in enumerate(state.partitions)
        ]

    def collect_garbage(self, *, dry_run: bool) -> tuple[int, int]:
        found = self._collector.collect(dry_run=dry_run)
        if not dry_run:
            self._collector.sweep_temporary_files()
        return len(found.keys), found.size

    def flush(self) -> None:
        """Nothing waits: every append is durable."""

    def flush_partition(self, topic: str, partition: int) -> None:
        """Nor here."""

    def close(self) -> None:
        """Only reading ahead is stopped: nothing else is held open."""
        self.remote.close()

    def _now(self) -> str:
        return json_files.timestamp(self._clock)


def _partition(log: CommitLog, partition: int) -> PartitionState:
    """A partition in the last known state of its log."""
    return log.state().partitions[partition]


def _live_partition(log: CommitLog, partition: int) -> PartitionState:
    """The same for readers: empty if the topic is deleted, whose objects may be gone.

    The log of a pinned topic may not be there at all: it was deleted, or this is another store.
    """
    state = log.state()
    gone = state.deleted or partition >= len(state.partitions)
    return PartitionState() if gone else state.partitions[partition]


def _require_partition(topic: str, found: TopicFile, partition: int) -> None:
    if not 0 <= partition < found.partitions:
        raise PartitionNotFoundError(
            f"topic {topic!r} has no partition {partition}; its partitions are 0 to "
            f"{found.partitions - 1}.",
            topic=topic,
        )
