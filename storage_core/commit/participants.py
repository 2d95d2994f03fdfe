"""What a commit needs of topics and of the logs of their partitions, in any layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from ..format import selection
from ..metadata.topic_file import TopicFile
from ..types import ActiveFile
from .intents import PartitionIntent


class Participant(Protocol):
    """What a commit needs of the log of a partition."""

    @property
    def end_offset(self) -> int: ...

    @property
    def active(self) -> ActiveFile: ...

    def exclusive(self, *, past_barrier: bool = False) -> AbstractContextManager[Any]:
        """Lock the partition for writing. ``past_barrier``: to finish a pending commit."""

    def sync(self) -> None:
        """Make all records of the log durable, whatever the topic's policy."""


Log = TypeVar("Log", bound=Participant)
Log_co = TypeVar("Log_co", bound=Participant, covariant=True)


class Participants(Protocol[Log_co]):
    """What a commit needs of the topics of a store and the logs of their partitions."""

    def topic(self, topic: str) -> TopicFile: ...

    def log(self, topic: str, partition: int) -> Log_co: ...

    def publish_ends(
        self, topic: str, ends: Mapping[int, int], *, durably: bool, schema: int | None = None
    ) -> None:
        """Raise the high watermarks of some partitions, and publish a schema, in one step.

        Raises:
            RecoveryNeededError: the high watermarks are lost; ``recover`` restores them.
        """

    def recover(self, topic: str) -> object:
        """Restore lost high watermarks. Records of pending commits stay invisible."""


class Schemas(Protocol):
    """The schema versions of typed topics, in layouts that have them."""

    def of(self, topic: str) -> selection.Schemas:
        """The registered versions of a topic."""

    def are_covered(self, topic: str, versions: Collection[int]) -> bool:
        """Whether the published schema has every column of these versions."""

    def merge(self, topic: str, versions: Collection[int]) -> tuple[int, int]:
        """The published version, and a durable one that covers it and these versions.

        The caller holds the lock of partition 0, which protects the published schema.

        Raises:
            SchemaMismatchError: another writer added a column of the same name and another type.
        """


class Fingerprints(Protocol):
    """Recognises a recreated log of the same name, where topics have no identity on disk.

    The caller holds the locks of the partitions.
    """

    def before(self, topic: str, partition: int) -> bytes:
        """The last bytes of a partition's log now."""

    def matches(self, intent: PartitionIntent) -> bool | None:
        """Whether the log still has the bytes that the intent names; None if it is unknown."""

    def require_own(self, intent: PartitionIntent) -> None:
        """Raise ForeignRecordsError if another program appended where the commit goes on."""

    def rebased(self, intent: PartitionIntent) -> PartitionIntent:
        """The rest of the commit, after the records that another program appended."""
