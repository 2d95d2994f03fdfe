"""The engine behind native stores: catalog, watermarks, recovery, checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from ..checks.store_check import Checker
from ..commit.protocol import CommitResult, Committer
from ..commit.staging import StageCheck, StagedPart
from ..config import StoreConfig
from ..errors import StorageError
from ..format import lock_state as states
from ..format.columns import Columns
from ..format.file_names import segments_directory
from ..io.durable import read_file
from ..io.io_errors import typed_metadata_errors, watermark_lost
from ..log.interval_sync import Flusher
from ..log.partition_log import PartitionLog
from ..maintenance import topics as maintenance
from ..maintenance.native import NativeMaintenance
from ..metadata import checkpoint as checkpoints
from ..metadata import consumer_groups as groups
from ..metadata import high_watermark as watermarks
from ..metadata import opening
from ..metadata.catalog import Catalog
from ..metadata.identity import Identity
from ..metadata.topic_file import TopicFile, gets_syncs
from ..segments.partition_reader import PartitionReader
from ..segments.segment_reader import NativeSegments, ReadCaches
from ..types import OffsetRange, Problem, RecoveryReport
from ..vfs import Vfs

Result = TypeVar("Result")


class NativeEngine:
    """One native store. Safe for several threads."""

    name = "native"
    groups_directory = groups.NATIVE_DIRECTORY

    def __init__(self, vfs: Vfs, config: StoreConfig) -> None:
        self._vfs = vfs
        self._config = config
        self._catalog = Catalog(vfs, config)
        self._caches = ReadCaches(vfs, config)
        self._lock = threading.Lock()
        self._readers: dict[tuple[UUID, int], PartitionReader] = {}
        self._logs: dict[tuple[str, int], tuple[TopicFile, PartitionLog]] = {}
        self._identity: Identity | None = None
        self._flusher = Flusher(self.flush)
        self.committer = Committer(vfs, "meta", "staging", self, config)
        self._checkpointed = vfs.monotonic()

    def topics(self) -> list[str]:
        return self._catalog.names()

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        found = self._catalog.get(topic)
        mark = watermarks.read(self._vfs, topic, found.uuid.bytes)
        if mark is not None:
            return tuple(mark.end(partition) for partition in range(found.partitions))
        try:
            committed = self.committer.ledger.recovery_points(topic, str(found.uuid))
            pending = self.committer.intents.starts(topic, str(found.uuid))
        except StorageError as error:
            raise watermark_lost(topic) from error
        return maintenance.remembered_ends(self._vfs, topic, found, committed, pending)

    def recovery_due(self, topic: str, partition: int) -> bool:
        word = read_file(self._vfs, f"topics/{topic}/{partition}/lock", states.SIZE) or b""
        return states.needs_recovery(states.unpack(word), self._vfs.boot_id())

    def reader(self, topic: str, partition: int) -> PartitionReader:
        found = self._catalog.get(topic)
        with self._lock:
            reader = self._readers.get((found.uuid, partition))
            if reader is None:
                directory = segments_directory(topic, partition)
                config = found.config(self._config)
                segments = NativeSegments(self._vfs, directory, config, self._caches)
                reader = PartitionReader(self._vfs, topic, partition, segments)
                self._readers[found.uuid, partition] = reader
            return reader

    def check(self) -> Iterator[Problem]:
        return Checker(self._vfs, self._config, self._catalog).run()

    def require_writable(self) -> None:
        if self._identity is None:
            self._identity = opening.require_writable(self._vfs, self._config)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, Any]) -> TopicFile:
        return self._catalog.create(topic, partitions, settings, self._owner().uuid)

    def delete_topic(self, topic: str) -> None:
        # A commit that is pending goes on without the topic, as if it had come just before.
        deleted = False
        while not deleted:  # again if it has grown meanwhile
            with maintenance.hold_all(logs := self._all_logs(topic)):
                deleted = self._catalog.delete(topic, len(logs))
        with self._lock:
            gone = [self._logs.pop(key)[1] for key in list(self._logs) if key[0] == topic]
        for log in gone:
            log.close()
        self._catalog.sweep()
        checkpoints.merge(self._vfs, [], self._config.lock_timeout_ms, forget_topic=topic)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        return self._catalog.add_partitions(topic, total)

    def alter_topic(self, topic: str, settings: Mapping[str, Any]) -> TopicFile:
        alter = partial(self._catalog.alter, topic, settings)
        if not gets_syncs(self._catalog.get(topic), settings, self._config):
            return alter()
        altered = self.committer.after_pending(
            lambda: maintenance.while_durable(topic, self._all_logs(topic), alter)
        )
        for log in self._all_logs(topic).values():  # by those who had not heard of it
            self._with_recovery(log, partial(maintenance.make_durable, log))
        return altered

    def append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        log = self.log(topic, partition)
        written = self._with_recovery(log, lambda: log.append(columns))
        self._hand_over(log, partition)
        if log.config.fsync == "interval":
            self._flusher.wake(log.config.fsync_interval_ms)
        self._checkpoint_if_due(rolled=log.take_rolled())
        return written

    def roll(self, topic: str, partition: int) -> bool:
        log = self.log(topic, partition)
        rolled = self._with_recovery(log, log.roll)
        self._write_checkpoint([log])
        return rolled

    def upkeep(self, topic: str, partition: int) -> NativeMaintenance:
        found = self._catalog.get(topic)
        return NativeMaintenance(
            self._vfs,
            topic,
            partition,
            found.config(self._config),
            self._caches,
            str(found.uuid),
            high_watermark=lambda: self.high_watermarks(topic)[partition],
            log=partial(self.log, topic, partition),
            guard=lambda log: partial(self._with_recovery, log),
        )

    def repair(self) -> list[RecoveryReport]:
        opening.restore_identity(self._vfs, self._config, self.topics(), self._catalog.get)
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
                # One damaged topic must not keep the others from being repaired.
                failed = failed or error
        if failed is not None:
            raise failed
        return reports

    def _repair_topic(self, topic: str) -> list[RecoveryReport]:
        reports = self.recover(topic)
        logs = self._all_logs(topic)
        for partition, log in logs.items():
            maintenance.repair_indexes(self._vfs, log, topic, partition, self._caches)
        self._write_checkpoint(list(logs.values()))
        return reports

    def flush_partition(self, topic: str, partition: int) -> None:
        log = self.log(topic, partition)
        self._with_recovery(log, log.flush)

    def flush(self) -> None:
        failed: StorageError | None = None
        for log in self._open_logs():
            try:
                self._with_recovery(log, log.flush)
            except StorageError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        self._flusher.stop()
        try:
            self.flush()
        finally:
            logs = self._open_logs()
            self._write_checkpoint(logs)
            with self._lock:
                self._logs.clear()
            with ExitStack() as stack:  # one that fails does not keep the others open
                for log in logs:
                    stack.callback(log.close)

    def log(self, topic: str, partition: int) -> PartitionLog:
        with typed_metadata_errors(topic):
            found = self._catalog.get(topic)
        opening.require_member(topic, found.store_uuid, self._owner())
        with self._lock:
            known = self._logs.get((topic, partition))
            if known is not None and known[0] == found:
                return known[1]
            log = PartitionLog(
                self._vfs,
                topic,
                partition,
                found.uuid,
                found.config(self._config),
                self.committer,
                owes_flush=known is not None,
            )
            self._logs[topic, partition] = (found, log)
        if known is not None:
            # Not under our lock: its holder may be a commit, which asks us for the next partition.
            known[1].close()
        return log

    def _hand_over(self, log: PartitionLog, partition: int) -> None:
        """A log that was replaced while we waited for its lock: nobody flushes or closes it."""
        with self._lock:
            known = self._logs.get((log.topic, partition))
            if known is not None and known[1] is log:
                return
            if known is not None:
                known[1].owes_flush = True
        if known is None:
            self._with_recovery(log, log.flush)
        log.close()

    def _owner(self) -> Identity:
        self.require_writable()
        assert self._identity is not None
        return self._identity

    def _open_logs(self) -> list[PartitionLog]:
        with self._lock:
            return [log for _, log in self._logs.values()]

    def _all_logs(self, topic: str) -> dict[int, PartitionLog]:
        return {at: self.log(topic, at) for at in range(self._catalog.get(topic).partitions)}

    def _with_recovery(self, log: PartitionLog, action: Callable[[], Result]) -> Result:
        """Run ``action`` on a partition that is recovered, and see that what it did is visible."""
        result = self.committer.after_pending(action)
        if log.unpublished:
            self.recover(log.topic)
        return result

    def recover(self, topic: str) -> list[RecoveryReport]:
        found = self._catalog.get(topic)
        starts = partial(self.committer.intents.starts, topic, str(found.uuid))
        logs, timeout_ms = self._all_logs(topic), self._config.lock_timeout_ms
        return maintenance.recover_topic(self._vfs, topic, found.uuid, logs, starts, timeout_ms)

    def publish_ends(self, topic: str, ends: Mapping[int, int], *, durably: bool) -> None:
        uid, timeout_ms = self._catalog.get(topic).uuid.bytes, self._config.lock_timeout_ms
        if not watermarks.publish(self._vfs, topic, uid, ends, timeout_ms, anew=durably):
            raise watermark_lost(topic)
        if durably:
            watermarks.make_durable(self._vfs, topic)

    def stage_check(self, topic: str, partition: int) -> StageCheck:  # noqa: ARG002
        """Every record that ``make_columns`` lets pass can be stored."""
        return lambda columns: None  # noqa: ARG005

    def commit(
        self, job: str, parts: Sequence[StagedPart], topics: Iterable[str], app: str, version: int
    ) -> CommitResult:
        result = self.committer.commit(job, parts, topics, app, version)
        self._checkpoint_if_due()
        return result

    def _checkpoint_if_due(self, *, rolled: bool = False) -> None:
        waited_ms = (self._vfs.monotonic() - self._checkpointed) * 1000
        if rolled or waited_ms >= self._config.checkpoint_interval_ms:
            self._write_checkpoint(self._open_logs())

    def _write_checkpoint(self, logs: list[PartitionLog]) -> None:
        self._checkpointed = self._vfs.monotonic()
        maintenance.write_checkpoint(self._vfs, logs, self._config.lock_timeout_ms)
