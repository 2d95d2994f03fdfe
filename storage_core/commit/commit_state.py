"""The commits of one store as its files show them: pending (intents) and finished (ledger).

Logs and readers use this module, never the commit protocol. For an append it only lists one
directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..io.io_errors import commit_pending
from ..lazy import LazyModule
from ..vfs import Vfs

if TYPE_CHECKING:
    from . import intents, ledger
    from .intents import Intent, Intents
    from .ledger import Ledger
else:
    intents = LazyModule("storage_core.commit.intents")
    ledger = LazyModule("storage_core.commit.ledger")


class PendingCommit(NamedTuple):
    """A decided commit that is not finished, and how many records it adds to each partition.

    ``written_us``: when its intent was last written.
    """

    transaction: str
    job: str
    app: str
    version: int
    records: dict[tuple[str, int], int]
    written_us: int


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
        starts = _starts(self.intents.of_topic(topic, topic_uuid), topic)
        return max(committed, starts.get(partition, 0))

    def recovery_points(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition the highest offset up to which finished commits made records durable."""
        return self.ledger.recovery_points(topic, topic_uuid)

    def starts(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition where the first pending commit begins: the end for readers.

        A commit that is in the ledger is not pending, whatever its intent says. A power cut may
        bring a removed intent back, and later rows may need the columns that the commit brought.
        """
        pending = [
            intent
            for intent in self.intents.of_topic(topic, topic_uuid)
            if not self._is_recorded(intent, topic, topic_uuid)
        ]
        return _starts(pending, topic)

    def published_schema(self, topic: str, topic_uuid: str, copied: int) -> int:
        """The published schema version by the intents, if ``published.json`` has ``copied``.

        A pending commit is not visible, so its schema is not either.
        """
        for intent in self.intents.of_topic(topic, topic_uuid):
            if topic in intent.schemas:
                before, after = intent.schemas[topic]
                if self._is_recorded(intent, topic, topic_uuid):
                    copied = max(copied, after)
                elif copied == after:
                    copied = before
        return copied

    def _is_recorded(self, intent: Intent, topic: str, topic_uuid: str) -> bool:
        app, version = intent.app, intent.version
        return self.ledger.has(topic, topic_uuid, app, version, exact=intent.exact)

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
                written_us,
            )
            for intent in self.intents.pending()
            if (written_us := self.intents.written_us(intent)) is not None
        ]


def _starts(pending: Iterable[Intent], topic: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for intent in pending:
        for part in intent.partitions:
            if part.topic == topic:
                found[part.partition] = min(found.get(part.partition, part.start), part.start)
    return found
