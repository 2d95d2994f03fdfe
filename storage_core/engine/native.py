"""The engine of native stores."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..commit.commit_state import CommitState
from ..config import StoreConfig
from ..errors import StorageError, TopicNotFoundError
from ..format.columns import Columns
from ..format.file_names import segments_directory
from ..io.durable import read_file
from ..io.io_errors import typed_metadata_errors
from ..lazy import LazyModule
from ..log.interval_sync import Flusher
from ..log.open_logs import OpenLogs
from ..log.published import Published
from ..metadata.catalog import Catalog
from ..metadata.topic_file import TopicFile, gets_syncs
from ..types import OffsetRange, Problem, RecoveryReport
from ..vfs import Vfs
from .base import BaseEngine, Result, require_kind

if TYPE_CHECKING:
    from ..checks import store_check
    from ..commit import append_staged, protocol
    from ..commit.protocol import CommitRequest, CommitResult, Committer
    from ..commit.staging import StageCheck
    from ..format import lock_state
    from ..log import schema_changes
    from ..log.partition_log import PartitionLog
    from ..maintenance import native as native_maintenance
    from ..maintenance import scrub
    from ..maintenance.native import NativeMaintenance
    from ..metadata import identity
    from ..metadata.schema_files import NewSchema, Origin, RegisteredSchema, TopicSchemas
    from ..schema.fields import Field, SchemaVersion
    from ..segments import partition_reader, segment_reader
    from ..segments.partition_reader import PartitionReader
    from ..segments.segment_reader import ReadCaches
else:
    store_check = LazyModule("storage_core.checks.store_check")
    append_staged = LazyModule("storage_core.commit.append_staged")
    protocol = LazyModule("storage_core.commit.protocol")
    lock_state = LazyModule("storage_core.format.lock_state")
    schema_changes = LazyModule("storage_core.log.schema_changes")
    native_maintenance = LazyModule("storage_core.maintenance.native")
    scrub = LazyModule("storage_core.maintenance.scrub")
    identity = LazyModule("storage_core.metadata.identity")
    partition_reader = LazyModule("storage_core.segments.partition_reader")
    segment_reader = LazyModule("storage_core.segments.segment_reader")


class NativeEngine(BaseEngine):
    """One native store. Safe for several threads."""

    name = "native"
    groups_directory = "meta/consumer-offsets"

    def __init__(self, vfs: Vfs, config: StoreConfig) -> None:
        commits = CommitState(vfs, "meta", "staging")
        self._catalog = Catalog(vfs, config)
        self._logs = OpenLogs(vfs, self._catalog, config, commits, self._require_member)
        super().__init__(vfs, config, commits)
        self._lock = threading.Lock()
        self._read_caches: ReadCaches | None = None
        self._readers: dict[tuple[UUID, int], PartitionReader] = {}
        self._flusher = Flusher(self.flush)

    @cached_property
    def _ownership(self) -> identity.Ownership:
        return identity.Ownership(self._vfs, self._config)

    def store_uuid(self) -> UUID | None:
        return self._ownership.store_uuid()

    def _require_member(self, topic: str, store_uuid: UUID) -> None:
        self._ownership.require_member(topic, store_uuid)

    @cached_property
    def committer(self) -> Committer[PartitionLog]:
        append = partial(append_staged.append_staged, self._vfs, self.schemas)
        schemas = schema_changes.SchemaMerges(self._logs.published)
        return protocol.Committer(
            self._vfs, self.commits, self._logs, append, self._config, schemas=schemas
        )

    def topics(self) -> list[str]:
        return self._catalog.names()

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        return self.published(topic).ends

    def published(self, topic: str) -> Published:
        return self._logs.published.read(topic)

    def schemas(self, topic: str) -> TopicSchemas:
        return self._logs.published.schemas(topic)

    def register_schema(
        self,
        topic: str,
        wanted: Sequence[Field],
        *,
        add: bool,
        widen: bool,
        origin: Origin = "write",
    ) -> SchemaVersion:
        published = self._logs.published
        return self.guarded(
            lambda: schema_changes.register(
                published, topic, wanted, add=add, widen=widen, origin=origin
            )
        )

    def add_columns(self, topic: str, columns: Sequence[Field]) -> None:
        added = self.register_schema(topic, columns, add=True, widen=False, origin="alter")
        self._publish_schema(topic, added.version)

    def adopt_schemas(self, topic: str, versions: Sequence[RegisteredSchema]) -> None:
        schemas = self.schemas(topic)
        for found in versions:
            schemas.adopt(found)
        if (self.published(topic).schema or 0) < versions[-1].schema.version:
            self._publish_schema(topic, versions[-1].schema.version)

    def _publish_schema(self, topic: str, version: int) -> None:
        if self.published(topic).schema != version:
            # A commit without rows: after a crash its intent publishes what readers saw already.
            job = f"alter-{uuid.uuid4()}"
            request = protocol.CommitRequest(job, (), (topic,), job, 0, schemas={topic: version})
            self.guarded(lambda: self.committer.commit(request))

    def recovery_due(self, topic: str, partition: int) -> bool:
        data = read_file(self._vfs, f"topics/{topic}/{partition}/lock", lock_state.SIZE) or b""
        return lock_state.needs_recovery(lock_state.unpack(data), self._vfs.boot_id())

    def reader(self, topic: str, partition: int) -> PartitionReader:
        found, caches = self._catalog.get(topic), self._caches()
        with self._lock:
            reader = self._readers.get((found.uuid, partition))
            if reader is None:
                directory = segments_directory(topic, partition)
                config = found.config(self._config)
                exists = partial(self._is_there, topic, found.uuid)
                segments = segment_reader.NativeSegments(
                    self._vfs, directory, config, caches, exists, typed=found.is_typed
                )
                reader = partition_reader.PartitionReader(topic, partition, segments)
                self._readers[found.uuid, partition] = reader
            return reader

    def _is_there(self, topic: str, topic_uuid: UUID) -> bool:
        """Whether a topic is still the one with this uuid."""
        try:
            return self._catalog.get(topic).uuid == topic_uuid
        except TopicNotFoundError:
            return False

    def _caches(self) -> ReadCaches:
        """What all readers share. It is made at the first read: most writers read nothing."""
        with self._lock:
            if self._read_caches is None:
                self._read_caches = segment_reader.ReadCaches(self._vfs, self._config)
            return self._read_caches

    def log_problems(self) -> Iterator[Problem]:
        return store_check.Checker(self._vfs, self._config, self._catalog).run()

    def require_writable(self) -> None:
        self._ownership.require_writable()

    def create_topic(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, Any],
        new: NewSchema | None = None,
    ) -> TopicFile:
        uid = self._ownership.require_writable().uuid
        return self._catalog.create(topic, partitions, settings, uid, new)

    def delete_topic(self, topic: str) -> None:
        # A pending commit continues without the topic, as if it had been finished just before.
        self._logs.delete_topic(topic)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        return self._catalog.add_partitions(topic, total)

    def alter_topic(self, topic: str, settings: Mapping[str, Any]) -> TopicFile:
        if not gets_syncs(self._catalog.get(topic), settings, self._config):
            return self._catalog.alter(topic, settings)
        altered = self.guarded(lambda: self._alter_durable(topic, settings))
        for log in self._logs.of_topic(topic).values():
            # Writers that still had the old policy may have appended since.
            self._written(log, partial(_sync, log))
        return altered

    def _alter_durable(self, topic: str, settings: Mapping[str, Any]) -> TopicFile:
        with self._logs.durable(topic):
            return self._catalog.alter(topic, settings)

    def append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        with self._vfs.anchored():
            return self._append(topic, partition, columns)

    def _append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        with typed_metadata_errors(topic):
            found = self._catalog.get(topic)
            schemas = partial(self.schemas, topic)
            require_kind(topic, columns, is_typed=found.is_typed, schemas=schemas)
        log = self._logs.log(topic, partition, found)
        written = self._written(log, lambda: log.append(columns))
        if not self._logs.hand_over(log, partition):
            self._written(log, log.flush)
            log.close()
        if log.config.syncs_at_intervals:
            self._flusher.wake(log.config.fsync_interval_ms)
        self._logs.checkpoint_if_due(rolled=log.take_rolled())
        return written

    def _written(self, log: PartitionLog, action: Callable[[], Result]) -> Result:
        """Run ``action`` on a log, guarded, and make sure that its records are published."""
        result = self.guarded(action)
        if log.unpublished:
            self._logs.recover(log.topic)
        return result

    def recover(self, topic: str) -> list[RecoveryReport]:
        return self._logs.recover(topic)

    def stage_check(self, topic: str, partition: int) -> StageCheck:  # noqa: ARG002
        with typed_metadata_errors(topic):
            is_typed = self.topic(topic).is_typed
        if is_typed:
            return partial(self._require_kind, topic)
        # Of a topic that was deleted and created again as a typed one, the commit takes no records.
        return partial(require_kind, topic, is_typed=False, schemas=lambda: self.schemas(topic))

    def _require_kind(self, topic: str, columns: Columns) -> None:
        with typed_metadata_errors(topic):
            is_typed = self.topic(topic).is_typed
            require_kind(topic, columns, is_typed=is_typed, schemas=lambda: self.schemas(topic))

    def commit(self, request: CommitRequest) -> CommitResult:
        result = super().commit(request)
        self._logs.checkpoint_if_due()
        return result

    def log(self, topic: str, partition: int) -> PartitionLog:
        return self._logs.log(topic, partition)

    def appended_log(self, topic: str, partition: int) -> PartitionLog:
        return self._logs.opened(topic, partition)

    def roll(self, topic: str, partition: int, *, begin: bool = False) -> bool:
        log = self._logs.log(topic, partition)
        rolled = self._written(log, partial(log.roll, begin=begin))
        self._logs.checkpoint([log])
        return rolled

    def maintenance(self, topic: str, partition: int) -> NativeMaintenance:
        found = self._catalog.get(topic)
        return native_maintenance.NativeMaintenance(
            self._vfs,
            topic,
            partition,
            found.config(self._config),
            self._caches(),
            str(found.uuid),
            high_watermark=lambda: self.high_watermarks(topic)[partition],
            log=partial(self._logs.log, topic, partition),
            guard=lambda log: partial(self._written, log),
            schemas=self.schemas(topic) if found.is_typed else None,
            key_columns=found.key_columns,
        )

    def repair(self) -> list[RecoveryReport]:
        identity.restore_identity(self._vfs, self._config, self.topics(), self._catalog.get)
        self.require_writable()
        reports: list[RecoveryReport] = []
        failed: StorageError | None = None
        try:
            self.committer.finish_pending()
        except StorageError as error:
            failed = error
        for topic in self.topics():
            try:
                reports += self._repair_topic(topic)
            except StorageError as error:
                # One damaged topic must not prevent the repair of others.
                failed = failed or error
        if failed is not None:
            raise failed
        return reports

    def _repair_topic(self, topic: str) -> list[RecoveryReport]:
        reports = self._logs.recover(topic)
        logs = self._logs.of_topic(topic)
        for partition, log in logs.items():
            scrub.repair_indexes(self._vfs, log, topic, partition, self._caches())
        self._logs.checkpoint(logs.values())
        return reports

    def flush_partition(self, topic: str, partition: int) -> None:
        log = self._logs.log(topic, partition)
        self._written(log, log.flush)

    def flush(self) -> None:
        failed: StorageError | None = None
        for log in self._logs.all():
            try:
                self._written(log, log.flush)
            except StorageError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        self._flusher.stop()
        try:
            self.flush()
        finally:
            self._logs.close()


def _sync(log: PartitionLog) -> None:
    with log.exclusive():
        log.sync()
