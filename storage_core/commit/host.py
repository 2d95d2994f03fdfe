"""What a commit needs of the engine and of the partitions it writes to, and they of commits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..metadata.topic_file import TopicFile
from ..types import ActiveFile
from .intents import PartitionIntent
from .staging import TopicPartition


class Participant(Protocol):
    """A partition's log, as a commit uses it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def active(self) -> ActiveFile: ...

    def exclusive(self, *, finishing: bool = False) -> AbstractContextManager[Any]:
        """Hold the partition; ``finishing`` a commit, pending intents are not waited for."""

    def settle(self) -> None:
        """Make durable what stands before the end, whatever the topic's policy."""

    def apply(self, intent: PartitionIntent) -> None:
        """Append what is missing of the parts, durably. Only inside ``exclusive``."""


Logs = Mapping[TopicPartition, Participant]


class Host(Protocol):
    """The engine, as a commit uses it."""

    def topic(self, topic: str) -> TopicFile: ...

    def log(self, topic: str, partition: int) -> Participant: ...

    def publish_ends(self, topic: str, ends: Mapping[int, int], *, durably: bool) -> None:
        """Make the ends of some partitions visible in one step.

        Raises:
            RecoveryNeededError: the visible ends are lost; ``recover`` works them out.
        """

    def recover(self, topic: str) -> object:
        """Work out lost visible ends again; what pending commits added stays invisible."""


class Footing(Protocol):
    """What commits stand on where topics have no identity on disk; partitions are held."""

    def before(self, topic: str, partition: int) -> bytes:
        """Bytes that tell a partition's log, as it is, from another under its name."""

    def holds(self, intent: PartitionIntent) -> bool | None:
        """Whether that log still holds them; None if nothing can be said."""


class Commits(Protocol):
    """What a log must know of commits that span partitions."""

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether a dead committer's intent names this partition."""

    def recovery_point(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The highest end that a commit is known to have made durable."""
