"""The logs of a native store that are open in this process, and what concerns all of a topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar

from ..config import StoreConfig
from ..errors import StorageError
from ..io.io_errors import typed_metadata_errors, typed_write_errors, watermark_lost
from ..metadata import checkpoint, high_watermark
from ..metadata.catalog import Catalog
from ..metadata.identity import Ownership
from ..metadata.topic_file import TopicFile
from ..types import RecoveryReport
from ..vfs import Vfs
from .partition_log import PartitionLog, WriteBarrier

Result = TypeVar("Result")
_log = logging.getLogger("storage_core")


class TopicBarrier(WriteBarrier, Protocol):
    """The same for all partitions of a topic."""

    def recovery_points(self, topic: str, topic_uuid: str) -> Mapping[int, int]:
        """By partition the offset that finished work has made durable."""

    def starts(self, topic: str, topic_uuid: str) -> Mapping[int, int]:
        """By partition where unfinished work begins: nothing from there on may be shown."""


class OpenLogs:
    """Opens each log once, and again when its topic was altered. Safe for several threads."""

    def __init__(
        self,
        vfs: Vfs,
        catalog: Catalog,
        config: StoreConfig,
        barrier: TopicBarrier,
        ownership: Ownership,
    ) -> None:
        self._vfs = vfs
        self._catalog = catalog
        self._config = config
        self._barrier = barrier
        self._ownership = ownership
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, int], tuple[TopicFile, PartitionLog]] = {}
        self._checkpointed = vfs.monotonic()

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition, under the settings that its topic has now."""
        with typed_metadata_errors(topic):
            found = self._catalog.get(topic)
        self._ownership.require_member(topic, found.store_uuid)
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
                self._barrier,
                owes_flush=known is not None,
            )
            self._logs[topic, partition] = (found, log)
        if known is not None:
            # Not under our lock: its holder may be a commit, which asks us for the next partition.
            known[1].close()
        return log

    def of_topic(self, topic: str) -> dict[int, PartitionLog]:
        return {at: self.log(topic, at) for at in range(self._catalog.get(topic).partitions)}

    def all(self) -> list[PartitionLog]:
        """Every log that is open now."""
        with self._lock:
            return [log for _, log in self._logs.values()]

    def hand_over(self, log: PartitionLog, partition: int) -> bool:
        """Leave a replaced log's flush to its successor; False if there is none.

        A log that is replaced while a writer waits for its lock is flushed and closed by nobody.
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
        """Delete a topic while no other process can write to it, and close its logs."""
        deleted = False
        while not deleted:  # again if partitions were added meanwhile
            logs = self.of_topic(topic)
            with ExitStack() as stack:
                # In rising order, as every writer that takes several locks takes them.
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
        """Recover all partitions of a topic in full and write its high watermarks again.

        Pending commits are not waited for, as finishing one needs the high watermarks: what they
        added so far stays invisible.
        """
        logs, uid = self.of_topic(topic), self._catalog.get(topic).uuid
        with ExitStack() as stack:
            for partition in sorted(logs):
                held = logs[partition].exclusive(recover=True, alone=False, past_barrier=True)
                stack.enter_context(held)
            ends = {partition: log.end_offset for partition, log in logs.items()}
            for partition, start in self._barrier.starts(topic, str(uid)).items():
                if partition in ends:
                    ends[partition] = min(ends[partition], start)
            # Typed here: no partition that is held had anything to do with a failure.
            with typed_write_errors(f"writing the high watermarks of topic {topic!r}", topic):
                timeout_ms = self._config.lock_timeout_ms
                high_watermark.rebuild(self._vfs, topic, uid.bytes, ends, timeout_ms)
        return [log.report for log in logs.values() if log.report is not None]

    def publish_ends(self, topic: str, ends: Mapping[int, int], *, durably: bool) -> None:
        """Raise the high watermarks of some partitions in one step; their locks are held."""
        uid, timeout_ms = self._catalog.get(topic).uuid.bytes, self._config.lock_timeout_ms
        if not high_watermark.publish(self._vfs, topic, uid, ends, timeout_ms, again=durably):
            raise watermark_lost(topic)
        if durably:
            high_watermark.make_durable(self._vfs, topic)

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        """The high watermark of every partition.

        While the file is lost, the best that is known without it. Lines of a checkpoint are of
        different ages, so no commit may be cut in two: one that is in the ledger is durable on all
        its partitions, and one that is pending may be shown on none.
        """
        found = self._catalog.get(topic)
        shown = high_watermark.read(self._vfs, topic, found.uuid.bytes)
        if shown is not None:
            return tuple(shown.end(partition) for partition in range(found.partitions))
        try:
            committed = self._barrier.recovery_points(topic, str(found.uuid))
            pending = self._barrier.starts(topic, str(found.uuid))
        except StorageError as error:
            raise watermark_lost(topic) from error
        lines, ends = checkpoint.read(self._vfs), []
        for partition in range(found.partitions):
            line = lines.get((topic, partition))
            if line is None or line.topic_uuid != str(found.uuid):
                raise watermark_lost(topic)
            end = max(line.log_end_offset, committed.get(partition, 0))
            ends.append(min(end, pending.get(partition, end)))
        return tuple(ends)

    @contextmanager
    def durable(self, topic: str) -> Iterator[None]:
        """Hold a whole topic while everything in it is durable, to change its sync policy.

        The other way round a power cut in between takes records that count as durable by then.
        """
        logs = self.of_topic(topic)
        with ExitStack() as stack:
            for partition in sorted(logs):
                stack.enter_context(logs[partition].exclusive())
            # Typed here: a partition has nothing to do with what fails in another, or in the body.
            with typed_write_errors(f"syncing topic {topic!r} to change it", topic):
                for log in logs.values():
                    log.sync()
                yield

    def checkpoint_if_due(self, *, rolled: bool = False) -> None:
        waited_ms = (self._vfs.monotonic() - self._checkpointed) * 1000
        if rolled or waited_ms >= self._config.checkpoint_interval_ms:
            self.checkpoint(self.all())

    def checkpoint(self, logs: Iterable[PartitionLog]) -> None:
        """Note where these partitions end. It only makes recovery shorter, so it may fail."""
        self._checkpointed = self._vfs.monotonic()
        lines = [line for line in (log.checkpoint() for log in logs) if line is not None]
        if not lines:
            return
        try:
            checkpoint.merge(self._vfs, lines, self._config.lock_timeout_ms)
        except (OSError, StorageError) as error:
            # The records are safe, and the caller's call is done.
            _log.warning("the checkpoint was not written: %s", error)

    def close(self) -> None:
        """Write a last checkpoint and close every log, also when one of them fails."""
        logs = self.all()
        self.checkpoint(logs)
        with self._lock:
            self._logs.clear()
        with ExitStack() as stack:
            for log in logs:
                stack.callback(log.close)
