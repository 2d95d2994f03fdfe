"""The store: topics in a directory, appended to and read by any number of processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from . import checkpoint as checkpoints
from . import groups as consumer_groups
from . import identity as identities
from .columns import Values, make_columns
from .config import StoreConfig
from .errors import IdentityError, RecoveryNeededError, StoreClosedError, TopicExistsError
from .flusher import Flusher
from .identity import Identity
from .log import PartitionLog
from .maintenance import hold_all, recover_topic, repair_indexes, retain_partition
from .opening import first_boot, open_directory, require_member, require_writable
from .read_store import ReadStore
from .records import OffsetRange, RecoveryReport
from .topicfile import TopicFile
from .vfs import Vfs

Result = TypeVar("Result")


class Store(ReadStore):
    """A directory of topics. Safe for several threads; several processes may open it at once.

    Reading takes no locks and never changes a file. The first append to a partition recovers it if
    its last writer crashed.
    """

    def __init__(self, vfs: Vfs, config: StoreConfig) -> None:
        super().__init__(vfs, config)
        self._logs: dict[tuple[str, int], tuple[TopicFile, PartitionLog]] = {}
        self._identity: Identity | None = None
        self._flusher = Flusher(self.flush)
        self._checkpointed = vfs.monotonic()
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        layout: str = "auto",
        create: bool = False,
        config: StoreConfig | None = None,
    ) -> Store:
        """Open a log directory.

        Args:
            path: The directory.
            layout: ``auto`` recognises it.
            create: Make a native store when the directory is empty or missing.
            config: Settings; topics may override some of them.

        Raises:
            LayoutNotFoundError: the directory is not a log directory.
        """
        settings = config or StoreConfig()
        return cls(open_directory(path, layout, create=create, config=settings), settings)

    def create_topic(
        self, topic: str, partitions: int = 1, *, exist_ok: bool = False, **settings: Any
    ) -> TopicFile:
        """Create a topic. ``settings`` override the store's, e.g. ``compression="zstd"``.

        Raises:
            TopicExistsError: it exists already and ``exist_ok`` is not set.
        """
        identity = self._writable()
        try:
            return self._catalog.create(topic, partitions, settings, identity.uuid)
        except TopicExistsError:
            if exist_ok:
                return self._catalog.get(topic)
            raise

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records. Readers that hold a segment finish on it."""
        self._writable()
        with hold_all(self._all_logs(topic), recover=False):
            self._catalog.delete(topic)
        self._forget(topic)
        checkpoints.merge(self._vfs, [], self._config.lock_timeout_ms, forget_topic=topic)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        """Grow a topic to ``total`` partitions; it never shrinks."""
        self._writable()
        return self._catalog.add_partitions(topic, total)

    def alter_topic(self, topic: str, **settings: Any) -> TopicFile:
        """Change settings of a topic; None takes one back to the store's default."""
        self._writable()
        return self._catalog.alter(topic, settings)

    def append(
        self,
        topic: str,
        partition: int,
        values: Values,
        keys: Values | None = None,
        timestamps: Values | None = None,
        headers: Values | None = None,
    ) -> OffsetRange:
        """Append records and return their offsets; durable and visible on return by default.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            values: Arrow array or sequence of bytes; None is a null value.
            keys: As values.
            timestamps: Arrow timestamps, datetimes or integer microseconds since 1970. Records
                without one get the append time.
            headers: Per record None, a dict, or a list of (name, bytes) pairs.

        Raises:
            WriteFailedError: nothing of this call is visible; what was acknowledged before is safe.
        """
        self._writable()
        log = self._log(topic, partition)
        columns = make_columns(
            values,
            keys,
            timestamps,
            headers,
            now_us=self._vfs.now_us(),
            max_record_bytes=log.config.max_record_bytes,
        )
        written = self._with_recovery(topic, lambda: log.append(columns))
        if log.config.fsync == "interval":
            self._flusher.wake(log.config.fsync_interval_ms)
        self._checkpoint_if_due(log)
        return written

    def flush(self) -> None:
        """Sync and publish what ``fsync=interval`` still holds back."""
        with self._lock:
            logs = [log for _, log in self._logs.values()]
        for log in logs:
            log.flush()

    def roll(self, topic: str, partition: int) -> bool:
        """Close the active segment of a partition; False if it was empty."""
        self._writable()
        log = self._log(topic, partition)
        rolled = self._with_recovery(topic, log.roll)
        self._write_checkpoint([log])
        return rolled

    def retain(self, topic: str | None = None) -> dict[tuple[str, int], list[int]]:
        """Drop segments past the age or size limit of their topic; return their base offsets."""
        self._writable()
        dropped: dict[tuple[str, int], list[int]] = {}
        for name in self.topics() if topic is None else [topic]:
            for partition, log in self._all_logs(name).items():
                retain = partial(
                    retain_partition, self._vfs, self._layout, log, name, partition, self._caches
                )
                bases = self._with_recovery(name, retain)
                if bases:
                    dropped[name, partition] = bases
        return dropped

    def repair(self) -> list[RecoveryReport]:
        """Recover every partition now, and rewrite indexes, watermark and checkpoint.

        Cuts torn tails (saved beside the log), ends interrupted deletions, and restores a missing
        ``broker.id`` from the topics. Durable records that are damaged stay as they are: the error
        says where.
        """
        self._restore_identity()
        self._writable()
        reports: list[RecoveryReport] = []
        for topic in self.topics():
            found, logs = self._catalog.get(topic), self._all_logs(topic)
            timeout_ms = self._config.lock_timeout_ms
            reports += recover_topic(self._vfs, topic, found.uuid, logs, timeout_ms)
            for partition, log in logs.items():
                repair_indexes(self._vfs, self._layout, log, topic, partition, self._caches)
            self._write_checkpoint(list(logs.values()))
        return reports

    def commit_offsets(self, group: str, offsets: consumer_groups.Offsets) -> None:
        """Remember durably how far a group has read: next offset by topic and partition."""
        self._writable()
        uuids = {}
        for topic, ends in offsets.items():
            uuids[topic] = str(self._catalog.get(topic).uuid)
            for partition in ends:
                self._require_partition(topic, partition)
        consumer_groups.commit(self._vfs, group, offsets, uuids, self._config.lock_timeout_ms)

    def close(self) -> None:
        """Flush, write a checkpoint and let go of all files. Safe to call twice."""
        if self._closed:
            return
        self._flusher.stop()
        self.flush()
        with self._lock:
            logs = [log for _, log in self._logs.values()]
            self._logs.clear()
        self._write_checkpoint(logs)
        for log in logs:
            log.close()
        self._closed = True

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Vfs, StoreConfig]]:
        """Pickling carries where and how, never open files."""
        return Store, (self._vfs, self._config)

    def _writable(self) -> Identity:
        if self._closed:
            raise StoreClosedError(f"the store {self.path} was closed. Open it again to write.")
        if self._identity is None:
            self._identity = require_writable(self._vfs, self._config)
        return self._identity

    def _log(self, topic: str, partition: int) -> PartitionLog:
        found = self._require_partition(topic, partition)
        require_member(topic, found.store_uuid, self._writable())
        with self._lock:
            known = self._logs.get((topic, partition))
            if known is not None and known[0] == found:
                return known[1]
            if known is not None:
                known[1].close()
            log = PartitionLog(
                self._vfs,
                self._layout,
                topic,
                partition,
                found.uuid,
                found.config(self._config),
            )
            self._logs[topic, partition] = (found, log)
            return log

    def _all_logs(self, topic: str) -> dict[int, PartitionLog]:
        count = self._catalog.get(topic).partitions
        return {partition: self._log(topic, partition) for partition in range(count)}

    def _forget(self, topic: str) -> None:
        with self._lock:
            for key in [key for key in self._logs if key[0] == topic]:
                self._logs.pop(key)[1].close()

    def _with_recovery(self, topic: str, action: Callable[[], Result]) -> Result:
        """Run ``action``; if the topic lost its watermark, recover all of it and try once more.

        Not inside the action: recovery needs the locks of all partitions, in order, from the first.
        """
        try:
            return action()
        except RecoveryNeededError:
            found = self._catalog.get(topic)
            timeout_ms = self._config.lock_timeout_ms
            recover_topic(self._vfs, topic, found.uuid, self._all_logs(topic), timeout_ms)
            return action()

    def _checkpoint_if_due(self, log: PartitionLog) -> None:
        waited_ms = (self._vfs.monotonic() - self._checkpointed) * 1000
        if log.take_rolled() or waited_ms >= self._config.checkpoint_interval_ms:
            with self._lock:
                logs = [log for _, log in self._logs.values()]
            self._write_checkpoint(logs)

    def _write_checkpoint(self, logs: list[PartitionLog]) -> None:
        self._checkpointed = self._vfs.monotonic()
        lines = [line for line in (log.checkpoint() for log in logs) if line is not None]
        if lines:
            checkpoints.merge(self._vfs, lines, self._config.lock_timeout_ms)

    def _restore_identity(self) -> None:
        if identities.read(self._vfs) is not None:
            return
        owners = {self._catalog.get(topic).store_uuid for topic in self.topics()}
        if len(owners) > 1:
            raise IdentityError(
                f"{identities.PATH} is missing and the topics belong to {len(owners)} stores. "
                "Keep those of one store and move the rest away.",
                path=identities.PATH,
            )
        identities.create(self._vfs, self._config, known=next(iter(owners), None))
        first_boot(self._vfs, self._config)
