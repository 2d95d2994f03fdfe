"""The logs of a broker's directory that are open in this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from uuid import UUID

from ..commit.intents import PartitionIntent
from ..config import StoreConfig
from ..log.write_barrier import WriteBarrier
from ..metadata.topic_file import TopicFile
from ..types import IsolationLevel
from ..vfs import Vfs
from .catalog import BrokerCatalog
from .layout import RowLayout, RowPartition
from .log import RowLog
from .segments import RowCaches, RowSegments


class BrokerLogs:
    """Opens each partition once. Safe for several threads."""

    def __init__(
        self,
        vfs: Vfs,
        layout: RowLayout,
        catalog: BrokerCatalog,
        config: StoreConfig,
        barrier: WriteBarrier,
        isolation: IsolationLevel,
    ) -> None:
        self._vfs = vfs
        self._layout = layout
        self._catalog = catalog
        self._config = config
        self._barrier = barrier
        self._isolation: IsolationLevel = isolation
        self._caches = RowCaches(vfs, config.map_cache_segments, config.index_cache_segments)
        self._lock = threading.Lock()
        self._segments: dict[tuple[UUID, int], RowSegments] = {}
        self._logs: dict[tuple[UUID, int], RowLog] = {}

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def of(self, topic: str, partition: int) -> RowPartition:
        return RowPartition(self._vfs, self._layout, topic, partition)

    def segments(self, topic: str, partition: int) -> RowSegments:
        """The reading side of a partition."""
        found = self._catalog.get(topic)
        with self._lock:
            segments = self._segments.get((found.uuid, partition))
            if segments is None:
                segments = RowSegments(self.of(topic, partition), self._caches, self._isolation)
                self._segments[found.uuid, partition] = segments
            return segments

    def log(self, topic: str, partition: int) -> RowLog:
        """The writing side of a partition."""
        found = self._catalog.get(topic)
        segments = self.segments(topic, partition)
        with self._lock:
            log = self._logs.get((found.uuid, partition))
            if log is None:
                log = RowLog(
                    self.of(topic, partition),
                    found.config(self._config),
                    segments,
                    self._barrier,
                    require_topic=partial(self._catalog.require_same, topic, found.uuid),
                )
                self._logs[found.uuid, partition] = log
            return log

    def before(self, topic: str, partition: int) -> bytes:
        """The fingerprint of a log, which a commit keeps."""
        return self.log(topic, partition).fingerprint()

    def matches(self, intent: PartitionIntent) -> bool | None:
        """Whether a log still has the fingerprint that a commit kept."""
        return self.log(intent.topic, intent.partition).matches(intent)

    def require_own(self, intent: PartitionIntent) -> None:
        """Raise ForeignRecordsError if another program appended where a commit goes on."""
        self.log(intent.topic, intent.partition).require_own(intent)

    def rebased(self, intent: PartitionIntent) -> PartitionIntent:
        """The rest of a commit, to be appended after the records of another program."""
        return self.log(intent.topic, intent.partition).rebased(intent)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic while no other writer of ours can add to it."""
        deleted = False
        while not deleted:  # again if partitions were added meanwhile
            count = self._catalog.get(topic).partitions
            with ExitStack() as stack:
                # A writer that waits for one of these finds the topic gone, and creates no files.
                for partition in range(count):
                    stack.enter_context(self.log(topic, partition).held())
                deleted = self._catalog.delete(topic, count)

    def publish_ends(
        self, topic: str, ends: Mapping[int, int], *, durably: bool, schema: int | None = None
    ) -> None:
        """Nothing to publish: whole records are visible once no intent names them."""

    def recover(self, topic: str) -> None:
        """Nothing to recover: the high watermark is worked out from the files each time."""
