"""What a log asks of unfinished commits before it is written, without knowing what a commit is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class WriteBarrier(Protocol):
    """What a log must know of pending commits to its partition."""

    def require_none_pending(self, topic: str, partition: int) -> None:
        """Raise if a pending commit comes first. The caller holds the partition's lock."""

    def recovery_point(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The offset up to which commits are known to have made records durable."""


class TopicBarrier(WriteBarrier, Protocol):
    """A ``WriteBarrier`` that also answers for all partitions of a topic at once."""

    def recovery_points(self, topic: str, topic_uuid: str) -> Mapping[int, int]:
        """The offset up to which finished commits made records durable, by partition."""

    def starts(self, topic: str, topic_uuid: str) -> Mapping[int, int]:
        """Where the first pending commit begins, by partition: the end for readers."""

    def published_schema(self, topic: str, topic_uuid: str, copied: int) -> int:
        """The published schema version by pending commits, if ``published.json`` has ``copied``."""
