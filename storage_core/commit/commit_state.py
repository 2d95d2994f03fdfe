"""The commits of one store as its files show them: decided but unfinished, and done.

Logs and readers ask here, and never the commit protocol itself: an append goes through no code of
commits but this look at one directory.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

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
        """Called with the partition's lock held, under which alone an intent can name it.

        Raises:
            CommitPendingError: an interrupted commit must be finished before others may write here.
        """
        if self.intents.naming(topic, partition):
            raise commit_pending(topic, partition)

    def recovery_point(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The highest offset that any commit to this partition is known to have made durable."""
        committed = self.recovery_points(topic, topic_uuid).get(partition, 0)
        # A committer syncs what stands before its records before it decides.
        return max(committed, self.starts(topic, topic_uuid).get(partition, 0))

    def recovery_points(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition the highest end that a finished commit has made durable."""
        return self.ledger.recovery_points(topic, topic_uuid)

    def starts(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition where the first pending commit begins: no reader may look past that."""
        return self.intents.starts(topic, topic_uuid)
