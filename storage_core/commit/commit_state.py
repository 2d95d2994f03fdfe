"""The commits of one store as its files show them: pending (intents) and finished (ledger).

Logs and readers use this module, never the commit protocol. For an append it only lists one
directory.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..io.io_errors import commit_pending
from ..lazy import LazyModule
from ..vfs import Vfs

if TYPE_CHECKING:
    from . import intents, ledger
    from .intents import Intents
    from .ledger import Ledger
else:
    intents = LazyModule("storage_core.commit.intents")
    ledger = LazyModule("storage_core.commit.ledger")


class PendingCommit(NamedTuple):
    """A decided commit that is not finished, and how many records it adds to each partition."""

    transaction: str
    job: str
    app: str
    version: int
    records: dict[tuple[str, int], int]


class CommitState:
    """Intents and ledger of one store. Safe for several threads and processes."""

    def __init__(self, vfs: Vfs, meta: str, staging: str) -> None:
        self._vfs = vfs
        self._meta = meta
        self.staging = staging

    @cached_property
    def intents(self) -> Intents:
        """Commits that are decided."""
        return intents.Intents(self._vfs, f"{self._meta}/intents", self.staging)

    @cached_property
    def ledger(self) -> Ledger:
        """Commits that are done."""
        return ledger.Ledger(self._vfs, f"{self._meta}/ledger")

    def require_none_pending(self, topic: str, partition: int) -> None:
        """Raise if an intent names the partition.

        The caller holds the partition's lock. A committer needs that lock too, so no new intent
        can name the partition meanwhile.

        Raises:
            CommitPendingError: an interrupted commit must be finished before the next write.
        """
        if self.intents.naming(topic, partition):
            raise commit_pending(topic, partition)

    def recovery_point(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The highest offset up to which a commit is known to have made records durable."""
        committed = self.recovery_points(topic, topic_uuid).get(partition, 0)
        # A committer syncs all records below its own before it writes the intent.
        return max(committed, self.starts(topic, topic_uuid).get(partition, 0))

    def recovery_points(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition the highest offset up to which finished commits made records durable."""
        return self.ledger.recovery_points(topic, topic_uuid)

    def starts(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition where the first pending commit begins: the end for readers."""
        return self.intents.starts(topic, topic_uuid)

    def pending_schema(self, topic: str, topic_uuid: str) -> tuple[int, int] | None:
        """The schema versions before and after a pending commit that changes the schema."""
        return self.intents.pending_schema(topic, topic_uuid)

    def pending(self) -> list[PendingCommit]:
        """Every interrupted commit, and every commit that runs now."""
        return [
            PendingCommit(
                intent.transaction,
                intent.job,
                intent.app,
                intent.version,
                {
                    (part.topic, part.partition): part.end - part.start
                    for part in intent.partitions
                    if part.parts
                },
            )
            for intent in self.intents.pending()
        ]
