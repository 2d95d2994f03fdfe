"""What the broker's own small files say of a partition, read again when they change."""

from __future__ import annotations

import threading
import uuid
from typing import NamedTuple

from ..errors import DamagedMetadataError
from ..io.durable import read_file
from ..layouts.broker_names import MOST_PARTITIONS
from ..vfs import FileStat, Vfs
from .codecs.checkpoints import Offsets, parse_epochs, parse_offsets, parse_topic_id

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
_STOPPED = ".kafka_cleanshutdown"
_EPOCHS, _METADATA = "leader-epoch-checkpoint", "partition.metadata"
_MOST_BYTES = 64 << 20


class PartitionFiles(NamedTuple):
    """One partition of a broker's log directory."""

    vfs: Vfs
    topic: str
    partition: int

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.topic}-{self.partition}"


class Checkpoints:
    """The checkpoint files of a log directory. Safe for several threads."""

    def __init__(self, vfs: Vfs) -> None:
        self._vfs = vfs
        self._lock = threading.Lock()
        self._known: dict[str, tuple[FileStat, Offsets]] = {}
        self._highest: tuple[Offsets, dict[str, int]] = ({}, {})

    def highest_partition(self, topic: str) -> int:
        """The highest partition of a topic that the broker has in this directory, or -1.

        By its high watermarks, which it writes for all of them. A damaged file names none.
        """
        try:
            offsets = self._offsets(HIGH_WATERMARKS) or {}
        except DamagedMetadataError:
            return -1
        known, highest = self._highest
        if known is not offsets:
            highest = {}
            for name, partition in offsets:
                if partition < MOST_PARTITIONS:
                    highest[name] = max(partition, highest.get(name, -1))
            self._highest = (offsets, highest)
        return highest.get(topic, -1)

    def high_watermark(self, of: PartitionFiles) -> int | None:
        """The high watermark that the broker wrote last; None if it has written none yet.

        Raises:
            DamagedMetadataError: the file is missing, so nothing tells what is replicated.
        """
        found = self._offsets(HIGH_WATERMARKS)
        if found is None:
            raise DamagedMetadataError(
                f"{of.vfs.root} has no {HIGH_WATERMARKS}, so nothing tells how far {of.name} is "
                "replicated. Copy the file of the same moment too, or read to the last whole batch "
                "with isolation=log_end.",
                topic=of.topic,
                partition=of.partition,
                path=HIGH_WATERMARKS,
            )
        return found.get((of.topic, of.partition))

    def written_end(self, of: PartitionFiles) -> int:
        """The high watermark, 0 where none is known: a hint whether there must be records."""
        try:
            return (self._offsets(HIGH_WATERMARKS) or {}).get((of.topic, of.partition), 0)
        except DamagedMetadataError:
            return 0

    def is_of_stopped_broker(self) -> bool:
        """Whether the broker was stopped in order: it removes the file when it starts."""
        return self._vfs.stat(_STOPPED) is not None

    def log_start(self, of: PartitionFiles) -> int | None:
        """The log start offset, where the broker keeps one apart from the file names."""
        return (self._offsets(LOG_STARTS) or {}).get((of.topic, of.partition))

    def cleaned_upto(self, of: PartitionFiles) -> int:
        """How far the broker's log cleaner has compacted the partition; 0 if it never has."""
        return (self._offsets(CLEANED) or {}).get((of.topic, of.partition), 0)

    def _offsets(self, path: str) -> Offsets | None:
        stat = self._vfs.stat(path)
        if stat is None:
            return None
        with self._lock:
            known = self._known.get(path)
        if known is not None and known[0] == stat:
            return known[1]
        data = read_file(self._vfs, path, _MOST_BYTES)
        if data is None:
            return None
        found = parse_offsets(data, path)
        with self._lock:
            self._known[path] = (stat, found)
        return found


def first_epoch_start(of: PartitionFiles) -> int | None:
    """Where the first leader epoch that the broker still knows began; None without the file."""
    path = f"{of.name}/{_EPOCHS}"
    data = read_file(of.vfs, path, _MOST_BYTES)
    entries = [] if data is None else parse_epochs(data, path)
    return entries[0][1] if entries else None


def topic_id(of: PartitionFiles) -> uuid.UUID | None:
    """The id of the topic; brokers before Kafka 2.8 wrote none."""
    path = f"{of.name}/{_METADATA}"
    data = read_file(of.vfs, path, 1 << 16)
    return None if data is None else parse_topic_id(data, path)
