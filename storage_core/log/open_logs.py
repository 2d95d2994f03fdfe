"""The logs of a native store that are open in this process, and the work on whole topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ..config import StoreConfig
from ..errors import DamagedMetadataError, StorageError
from ..io.io_errors import typed_metadata_errors, typed_write_errors, watermark_lost
from ..lazy import LazyModule
from ..metadata import high_watermark
from ..metadata.catalog import Catalog
from ..metadata.topic_file import TopicFile
from ..types import RecoveryReport
from ..vfs import Vfs
from .published import PublishedTopics
from .write_barrier import TopicBarrier

if TYPE_CHECKING:
    from ..metadata import checkpoint
    from . import partition_log
    from .partition_log import PartitionLog
else:
    checkpoint = LazyModule("storage_core.metadata.checkpoint")
    partition_log = LazyModule("storage_core.log.partition_log")

Result = TypeVar("Result")
_log = logging.getLogger("storage_core")


class OpenLogs:
    """Opens each log once, and again after its topic was altered. Safe for several threads."""

    def __init__(
        self,
        vfs: Vfs,
        catalog: Catalog,
        config: StoreConfig,
        barrier: TopicBarrier,
        require_member: Callable[[str, UUID], None],
    ) -> None:
        self._vfs = vfs
        self._catalog = catalog
        self._config = config
        self._barrier = barrier
        self._require_member = require_member
        self.published = PublishedTopics(vfs, catalog, barrier, config.lock_timeout_ms)
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, int], tuple[TopicFile, PartitionLog]] = {}
        self._checkpointed = vfs.monotonic()

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def opened(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition as it was opened last."""
        with self._lock:
            known = self._logs.get((topic, partition))
        return self.log(topic, partition) if known is None else known[1]

    def log(self, topic: str, partition: int, found: TopicFile | None = None) -> PartitionLog:
        """The log of a partition, with the current settings of its topic: ``found``, if known."""
        if found is None:
            with typed_metadata_errors(topic):
                found = self._catalog.get(topic)
        self._require_member(topic, found.store_uuid)
        with self._lock:
            known = self._logs.get((topic, partition))
            if known is not None and known[0] == found:
                return known[1]
            log = partition_log.PartitionLog(
                self._vfs,
                topic,
                partition,
                found.uuid,
                found.config(self._config),
                self._barrier,
                owes_flush=known is not None,
            )
            self._logs[topic, partition] = (found, log)
        if known is not None:
            # After our lock is released. close() waits for the log's own lock. A commit may hold
            # that one and call log() for its next partition.
            known[1].close()
        return log

    def of_topic(self, topic: str) -> dict[int, PartitionLog]:
        return {at: self.log(topic, at) for at in range(self._catalog.get(topic).partitions)}

    def all(self) -> list[PartitionLog]:
        """Every log that is open now."""
        with self._lock:
            return [log for _, log in self._logs.values()]

    def hand_over(self, log: PartitionLog, partition: int) -> bool:
        """After an append: if ``log`` was replaced, let its successor flush, and close ``log``.

        ``log`` may be replaced while a writer waits for its lock. Nothing else would flush and
        close it then. Returns False if it was replaced and has no successor: the caller does both.
        """
        with self._lock:
            known = self._logs.get((log.topic, partition))
            if known is not None and known[1] is log:
                return True
            if known is not None:
                known[1].owes_flush = True
        if known is not None:
            log.close()
        return known is not None

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its partitions locked, and close its logs."""
        deleted = False
        while not deleted:  # repeat if a process added partitions in the meantime
            logs = self.of_topic(topic)
            with ExitStack() as stack:
                # In rising order, as every writer takes several locks: no deadlock.
                for partition in sorted(logs):
                    stack.enter_context(logs[partition].held())
                deleted = self._catalog.delete(topic, len(logs))
        with self._lock:
            gone = [self._logs.pop(key)[1] for key in list(self._logs) if key[0] == topic]
        for log in gone:
            log.close()
        self._catalog.sweep()
        checkpoint.merge(self._vfs, [], self._config.lock_timeout_ms, forget_topic=topic)

    def recover(self, topic: str) -> list[RecoveryReport]:
        """Recover all partitions of a topic in full and rewrite its high watermarks.

        This does not wait for pending commits, because finishing one needs the high watermarks. The
        records that pending commits have added so far stay invisible.
        """
        logs, uid = self.of_topic(topic), self._catalog.get(topic).uuid
        with ExitStack() as stack:
            for partition in sorted(logs):
                held = logs[partition].exclusive(
                    recover=True, needs_high_watermark=False, past_barrier=True
                )
                stack.enter_context(held)
            ends = {partition: log.end_offset for partition, log in logs.items()}
            for partition, start in self._barrier.starts(topic, str(uid)).items():
                if partition in ends:
                    ends[partition] = min(ends[partition], start)
            # Typed here, so that no locked partition takes a failure of this file for its own.
            with typed_write_errors(f"writing the high watermarks of topic {topic!r}", topic):
                timeout_ms, schema = self._config.lock_timeout_ms, self._restored_schema(topic, uid)
                high_watermark.rebuild(self._vfs, topic, uid.bytes, ends, timeout_ms, schema)
        return [log.report for log in logs.values() if log.report is not None]

    def _restored_schema(self, topic: str, uid: UUID) -> int | None:
        """The schema of a lost ``watermark`` file, or a lost copy of it from a sound one."""
        if not self._catalog.get(topic).is_typed:
            return None
        timeout_ms = self._config.lock_timeout_ms
        current = high_watermark.read(self._vfs, topic, uid.bytes, timeout_ms)
        schemas = self.published.schemas(topic)
        if current is None or current.schema is None:
            schema = self.published.schema_of_lost(topic)
            if schema is not None and schema > schemas.published():
                # A power cut may take the file that is written next.
                schemas.set_published(schema)
            return schema
        try:
            schemas.published()
        except DamagedMetadataError:
            schemas.set_published(current.schema)
        return current.schema

    def publish_ends(
        self, topic: str, ends: Mapping[int, int], *, durably: bool, schema: int | None = None
    ) -> None:
        """Raise the high watermarks of partitions in one step. The caller holds their locks.

        With a schema version, which is published in the same step, it also holds partition 0's.
        """
        uid, timeout_ms = self._catalog.get(topic).uuid.bytes, self._config.lock_timeout_ms
        if schema is not None:
            current = high_watermark.read(self._vfs, topic, uid, timeout_ms)
            if current is None or current.schema is None:
                raise watermark_lost(topic)
            if schema > current.schema:
                # First: a power cut may take the file that is written next.
                self.published.schemas(topic).set_published(schema)
        if not high_watermark.publish(
            self._vfs, topic, uid, ends, timeout_ms, schema=schema, both=durably
        ):
            raise watermark_lost(topic)
        if durably:
            high_watermark.make_durable(self._vfs, topic, uid, timeout_ms)

    @contextmanager
    def durable(self, topic: str) -> Iterator[None]:
        """Lock all partitions of a topic and sync them; then the caller changes the sync policy.

        Changing the policy first would be unsafe: a power cut before the sync could take records
        that already count as durable.
        """
        logs = self.of_topic(topic)
        with ExitStack() as stack:
            for partition in sorted(logs):
                stack.enter_context(logs[partition].exclusive())
            # Typed here, so that no partition takes a failure of another or of the body for its
            # own.
            with typed_write_errors(f"syncing topic {topic!r} to change it", topic):
                for log in logs.values():
                    log.sync()
                yield

    def checkpoint_if_due(self, *, rolled: bool = False) -> None:
        """Write a checkpoint after a roll, or when ``checkpoint_interval_ms`` has passed."""
        waited_ms = (self._vfs.monotonic() - self._checkpointed) * 1000
        if rolled or waited_ms >= self._config.checkpoint_interval_ms:
            self.checkpoint(self.all())

    def checkpoint(self, logs: Iterable[PartitionLog]) -> None:
        """Write where these partitions end. It only shortens recovery, so a failure is logged."""
        self._checkpointed = self._vfs.monotonic()
        lines = [line for line in (log.checkpoint() for log in logs) if line is not None]
        if not lines:
            return
        try:
            checkpoint.merge(self._vfs, lines, self._config.lock_timeout_ms)
        except (OSError, StorageError) as error:
            # The records are durable and the caller's write has succeeded.
            _log.warning("the checkpoint was not written: %s", error)

    def close(self) -> None:
        """Write a last checkpoint and close every log, even if closing one of them fails."""
        logs = self.all()
        self.checkpoint(logs)
        with self._lock:
            self._logs.clear()
        with ExitStack() as stack:
            for log in logs:
                stack.callback(log.close)
