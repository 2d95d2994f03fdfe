"""The options of a query as typed values: the driver parses them, every Spark task gets them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from storage_core import TimeRange

from .offsets import OffsetSpec

Isolation = Literal["read_committed", "read_uncommitted"]
Strategy = Literal["error", "latest"]
TimestampMode = Literal["exact", "offsets"]

DEFAULT_MAX_BYTES_PER_PARTITION = 128 << 20
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics to read: exactly one of the three fields is set.

    Attributes:
        topics: Names of topics, each once.
        pattern: A regular expression that matches the full name of a topic.
        partitions: Single partitions by topic.
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None = None

    def named(self) -> tuple[str, ...]:
        """The topics that the user named; none for a pattern."""
        if self.partitions is not None:
            return tuple(topic for topic, _ in self.partitions)
        return self.topics or ()

    def includes(self, topic: str, partition: int) -> bool:
        """Whether the query reads a partition of a topic."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        if self.partitions is not None:
            return partition in dict(self.partitions).get(topic, ())
        return topic in (self.topics or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a batch read; a streaming read has them too. Named as in the table of options."""

    path: str
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    layout: str = "auto"
    isolation: Isolation = "read_committed"
    by_timestamp_strategy: Strategy = "error"
    timestamp_mode: TimestampMode = "exact"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = DEFAULT_MAX_BYTES_PER_PARTITION

    def times(self, topic: str, partition: int) -> TimeRange | None:
        """The times of the records that a partition is read for; None if they do not matter."""
        low, high = self.starting.bound(topic, partition), self.ending.bound(topic, partition)
        given = {}
        if low.kind == "timestamp":
            given["start"] = low.value
        if high.kind == "timestamp":
            given["end"] = high.value
        return TimeRange(**given) if given and self.timestamp_mode == "exact" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions(ReadOptions):
    """Options of a streaming read; ``ending`` is always latest."""

    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """Options of a streaming write; a batch write has them too.

    With ``num_partitions`` None a new topic gets one partition, and an existing topic may have any
    number.
    """

    path: str
    topic: str | None = None
    layout: str = "auto"
    create_topic: bool = True
    num_partitions: int | None = None
    compression: str | None = None
    txn_app_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(StreamWriteOptions):
    """Options of a batch write; ``txn_app_id`` and ``txn_version`` are both set or both None."""

    txn_version: int | None = None
