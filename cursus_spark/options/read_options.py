"""The options of a read as typed values: the driver parses them, every Spark task gets them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Self

from storage_core import TimeRange

BoundKind = Literal["earliest", "latest", "group", "offset", "timestamp"]
Isolation = Literal["read_committed", "read_uncommitted"]
Strategy = Literal["error", "latest"]
TimestampMode = Literal["exact", "offsets"]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MAX_OFFSET = (1 << 63) - 1  # also the largest time
DEFAULT_MAX_BYTES_PER_PARTITION = 128 << 20


class Bound(NamedTuple):
    """One end of a range: a word, an offset, or a time in microseconds since 1970 (UTC).

    The time 9223372036854775807, as users of Kafka write it, is after every record.
    """

    kind: BoundKind
    value: int = 0

    def __str__(self) -> str:
        if self.kind == "timestamp":
            return iso_time(self.value)
        return str(self.value) if self.kind == "offset" else self.kind


EARLIEST, LATEST, GROUP = Bound("earliest"), Bound("latest"), Bound("group")


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Bounds of partitions, of topics, and the default. The most specific one applies.

    Attributes:
        option: The option that it comes from, for messages.
        default: The bound of every partition that is not named.
        topics: Bounds of whole topics.
        partitions: Bounds of single partitions, by topic and number.
        is_partial: Whether the user wrote JSON, which may leave partitions out, and no default.
    """

    option: str
    default: Bound
    topics: Mapping[str, Bound] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], Bound] = field(default_factory=dict)
    is_partial: bool = False

    def bound(self, topic: str, partition: int) -> Bound:
        """The bound of one partition."""
        found = self.partitions.get((topic, partition)) or self.topics.get(topic)
        return found or self.default

    def leaves_out(self, topic: str, partition: int) -> bool:
        """Whether the user's JSON says nothing about a partition."""
        named = (topic, partition) in self.partitions or topic in self.topics
        return self.is_partial and not named

    def named_topics(self) -> set[str]:
        """The topics that the user named; they must exist."""
        return {*self.topics, *(topic for topic, _ in self.partitions)}

    def bounds(self) -> dict[str, Bound]:
        """All bounds by a name for messages: ``orders-0``, ``orders``, or ``""`` for the rest."""
        named = {f"{topic}-{number}": bound for (topic, number), bound in self.partitions.items()}
        return {**named, **self.topics, "": self.default}

    def over(self, other: OffsetSpec) -> OffsetSpec:
        """This spec; the other one applies to all that this one does not name."""
        topics = {**other.topics, **self.topics}
        partitions = {
            key: bound for key, bound in other.partitions.items() if key[0] not in self.topics
        }
        return OffsetSpec(self.option, other.default, topics, {**partitions, **self.partitions})

    def without(self, topics: frozenset[str]) -> OffsetSpec:
        """This spec without what it says about some topics."""
        kept = {topic: bound for topic, bound in self.topics.items() if topic not in topics}
        partitions = {
            where: bound for where, bound in self.partitions.items() if where[0] not in topics
        }
        return replace(self, topics=kept, partitions=partitions)

    def describe(self) -> str:
        """The spec in a short, stable text, such as ``latest``."""
        named = {name: str(bound) for name, bound in self.bounds().items() if name}
        if not named:
            return str(self.default)
        return f"{self.default} {json.dumps(named, sort_keys=True)}"


class Subscription(NamedTuple):
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

    def without(self, topics: frozenset[str]) -> Subscription:
        """This subscription without some of the topics that it names."""
        if self.partitions is not None:
            kept = tuple(each for each in self.partitions if each[0] not in topics)
            return Subscription(partitions=kept)
        if self.topics is not None:
            return Subscription(topics=tuple(each for each in self.topics if each not in topics))
        return self

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
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    layout: str = "auto"
    isolation: Isolation = "read_committed"
    by_timestamp_strategy: Strategy = "error"
    timestamp_mode: TimestampMode = "exact"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    include_metadata: bool = False
    merge_schema: bool = False
    where: str | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = DEFAULT_MAX_BYTES_PER_PARTITION
    cache_dir: str | None = None
    cache_bytes: int | None = None

    def without(self, topics: frozenset[str]) -> Self:
        """These options without what they say about some topics."""
        if not topics:
            return self
        return replace(
            self,
            subscription=self.subscription.without(topics),
            starting=self.starting.without(topics),
            ending=self.ending.without(topics),
        )

    @property
    def settings(self) -> dict[str, object]:
        """Settings of the store that the query gives; they replace those of the environment."""
        given = {"cache_dir": self.cache_dir, "cache_bytes": self.cache_bytes}
        return {name: value for name, value in given.items() if value is not None}

    def times(self, topic: str, partition: int) -> TimeRange | None:
        """The times of the records that a partition is read for; None if they do not matter."""
        low, high = self.starting.bound(topic, partition), self.ending.bound(topic, partition)
        given = {}
        if low.kind == "timestamp":
            given["start"] = low.value
        if high.kind == "timestamp":
            given["end"] = high.value
        return TimeRange(**given) if given and self.timestamp_mode == "exact" else None


def iso_time(microseconds: int) -> str:
    """A time as ISO-8601 in UTC, without trailing zeros."""
    if microseconds == MAX_OFFSET:
        return str(microseconds)
    time = EPOCH + datetime.timedelta(microseconds=microseconds)
    return time.isoformat().replace("+00:00", "Z")
