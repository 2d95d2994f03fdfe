"""The cursus broker's transactions: which records a reader may see, and how far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal, Protocol

from ..durable import read_file
from ..listing import Listing
from ..transactions import Isolation, TransactionColumns, TransactionIndex, parse_journal
from ..vfs import Vfs

IsolationLevel = Literal["read_committed", "read_uncommitted"]
JOURNAL = "__transaction_state.journal"
_MAX_JOURNAL_BYTES = 1 << 30


def high_watermark(vfs: Vfs, topic: str, partition: int, log_end: int) -> int:
    """The broker's own visible end, never past the log's; absent or unreadable means all."""
    text = read_file(vfs, f"{topic}/partition_{partition}.hwm", 64)
    if text is None:
        return log_end
    stripped = text.strip()
    return min(int(stripped), log_end) if stripped.isdigit() else log_end


class _Transactional(Protocol):
    def transactions(self) -> list[TransactionColumns]: ...

    def close(self) -> None: ...


class PartitionIsolation:
    """Gathers the transactions of one partition. Safe for several threads."""

    def __init__(self, vfs: Vfs, level: IsolationLevel) -> None:
        self._vfs = vfs
        self._level = level
        self._lock = threading.Lock()
        self._closed: dict[str, list[TransactionColumns]] = {}
        self._decided: tuple[Listing, int, bytes, Isolation] | None = None

    def has_journal(self) -> bool:
        """Whether transactions may hold back the end; without a journal no broker runs any."""
        return self._level == "read_committed" and (
            self._vfs.stat(JOURNAL) is not None or self._vfs.stat("raft") is not None
        )

    def decide(
        self, listing: Listing, limit: int, open_segment: Callable[[int, Listing], _Transactional]
    ) -> Isolation | None:
        """What is stable and committed below ``limit``; None when everything counts."""
        if self._level == "read_uncommitted":
            return None
        journal = read_file(self._vfs, JOURNAL, _MAX_JOURNAL_BYTES) or b""
        with self._lock:
            known = self._decided
            if known is not None and known[:3] == (listing, limit, journal):
                return known[3]
            index = TransactionIndex(limit)
            for base in listing.bases:
                for columns in self._gather(base, listing, open_segment):
                    index.add(columns)
            decided = index.decide(parse_journal(journal))
            self._decided = (listing, limit, journal, decided)
            return decided

    def _gather(
        self, base: int, listing: Listing, open_segment: Callable[[int, Listing], _Transactional]
    ) -> list[TransactionColumns]:
        path = listing.path(base)
        if path in self._closed:
            return self._closed[path]
        segment = open_segment(base, listing)
        try:
            found = segment.transactions()
        finally:
            segment.close()
        if not listing.is_last(base):
            self._closed[path] = found
        return found
