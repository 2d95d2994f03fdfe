"""The cursus broker's transactions: which records a reader may see, and how far.

What is visible depends on every transaction of the partition, so all of it has to be looked at
once. What counts of a closed file is little; it is kept in memory and, where the directory can be
written, in ``.cursus-spark/index/<topic>-<partition>.txns``. The open file is followed as it grows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from ..io.durable import read_file
from ..segments.listing import Listing
from ..types import IsolationLevel
from ..vfs import FileStat, Vfs
from .chunks import Chunk
from .transaction_file import Remembered, TransactionFile
from .transactions import Isolation, Journal, TransactionColumns, TransactionIndex, parse_journal

JOURNAL = "__transaction_state.journal"
_MAX_JOURNAL_BYTES = 1 << 30


def high_watermark(vfs: Vfs, topic: str, partition: int, log_end: int) -> int:
    """The broker's own visible end, never past the log's; absent or unreadable means all."""
    text = read_file(vfs, f"{topic}/partition_{partition}.hwm", 64)
    if text is None:
        return log_end
    stripped = text.strip()
    return min(int(stripped), log_end) if stripped.isdigit() else log_end


class _Segment(Protocol):
    def chunks(self, position: int, offset: int) -> Iterator[Chunk]: ...

    def close(self) -> None: ...


OpenSegment = Callable[[int, Listing], _Segment]


class _Followed(NamedTuple):
    """How far the open file has been looked at, and what was found."""

    path: str
    life: int
    position: int
    offset: int
    found: tuple[TransactionColumns, ...]


class _Decided(NamedTuple):
    """A decision and what it was made from."""

    listing: Listing
    limit: int
    life: int
    journal: FileStat | None
    isolation: Isolation


class PartitionIsolation:
    """Gathers the transactions of one partition. Safe for several threads."""

    def __init__(self, vfs: Vfs, topic: str, partition: int, level: IsolationLevel) -> None:
        self._vfs = vfs
        self._level = level
        self._lock = threading.Lock()
        self._closed = TransactionFile(vfs, topic, partition)
        self._followed: _Followed | None = None
        self._journal: tuple[FileStat | None, Journal] = (None, {})
        self._decided: _Decided | None = None

    def decide(
        self, listing: Listing, limit: int, life: int, open_segment: OpenSegment
    ) -> Isolation | None:
        """What is stable and committed below ``limit``; None when everything counts.

        ``life`` tells the open file from another that took its name.
        """
        if self._level == "read_uncommitted":
            return None
        with self._lock:
            stat, journal = self._read_journal()
            known = self._decided
            if known is not None and known[:4] == (listing, limit, life, stat):
                return known.isolation
            index = TransactionIndex(limit)
            for columns in self._closed_files(listing, open_segment):
                index.add(columns)
            for columns in self._open_file(listing, life, open_segment):
                index.add(columns)
            decided = index.decide(journal)
            self._decided = _Decided(listing, limit, life, stat, decided)
            return decided

    def _read_journal(self) -> tuple[FileStat | None, Journal]:
        stat = self._vfs.stat(JOURNAL)
        if stat != self._journal[0]:
            data = read_file(self._vfs, JOURNAL, _MAX_JOURNAL_BYTES) or b""
            self._journal = (stat, parse_journal(data))
        return self._journal

    def _closed_files(
        self, listing: Listing, open_segment: OpenSegment
    ) -> Iterator[TransactionColumns]:
        current, fresh = {}, False
        for base in listing.bases[:-1]:
            path = listing.path(base)
            stat = self._vfs.stat(path)
            if stat is None:
                continue
            known = self._closed.get(path)
            if known is None or (known.size, known.modified_ns) != (stat.size, stat.modified_ns):
                found = self._scan(base, listing, open_segment)
                known, fresh = Remembered(stat.size, stat.modified_ns, found), True
            current[path] = known
            yield from known.found
        if fresh:
            self._closed.save(current)

    def _open_file(
        self, listing: Listing, life: int, open_segment: OpenSegment
    ) -> tuple[TransactionColumns, ...]:
        base = listing.bases[-1]
        path = listing.path(base)
        known = self._followed
        if known is None or (known.path, known.life) != (path, life):
            known = _Followed(path, life, 0, base, ())
        found = list(known.found)
        position, offset = known.position, known.offset
        segment = open_segment(base, listing)
        try:
            for chunk in segment.chunks(position, offset):
                if chunk.decoded.transactions is not None:
                    found.append(chunk.decoded.transactions.essential())
                position, offset = chunk.end_position, chunk.end_offset
        finally:
            segment.close()
        self._followed = _Followed(path, life, position, offset, tuple(found))
        return self._followed.found

    def _scan(
        self, base: int, listing: Listing, open_segment: OpenSegment
    ) -> tuple[TransactionColumns, ...]:
        segment = open_segment(base, listing)
        try:
            chunks = (chunk.decoded.transactions for chunk in segment.chunks(0, base))
            return tuple(found.essential() for found in chunks if found is not None)
        finally:
            segment.close()
