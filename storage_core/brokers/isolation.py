"""Isolation of a partition: how far a reader of a cursus broker's transactions may read, and what.

What ``read_committed`` delivers depends on every transaction of the partition, so the whole log has
to be searched once. What counts of a sealed file is little. It is kept in memory and, where the
directory can be written, in ``.cursus-spark/index/<topic>-<partition>.txns``. The active file is
followed as it grows.

The file is JSON with a checksum: per log file its size and time, and per record that matters its
offset, id, epoch, state and marker. It is a hint: a log file of another size or time is searched
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ..errors import DamagedMetadataError
from ..io import json_files
from ..io.durable import read_file
from ..layouts.broker_names import STATE_DIRECTORY
from ..segments.listing import Listing
from ..types import IsolationLevel
from ..vfs import FileStat
from .layout import RowPartition
from .segment_reader import Chunk
from .summaries import save_hint
from .transactions import Isolation, Journal, TransactionColumns, TransactionIndex, parse_journal

JOURNAL = "__transaction_state.journal"
_MAX_JOURNAL_BYTES = 1 << 30
_FORMAT = 1
_MAX_ENTRIES = 100_000


def high_watermark(of: RowPartition, log_end: int) -> int:
    """The broker's own high watermark, at most the log's end, which it is if unreadable."""
    text = read_file(of.vfs, f"{of.topic}/partition_{of.partition}.hwm", 64)
    if text is None:
        return log_end
    stripped = text.strip()
    return min(int(stripped), log_end) if stripped.isdigit() else log_end


class _Segment(Protocol):
    def chunks(self, position: int, offset: int) -> Iterator[Chunk]: ...

    def close(self) -> None: ...


OpenSegment = Callable[[int, Listing], _Segment]


class _Followed(NamedTuple):
    """How far the active file has been searched, and what was found."""

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

    def __init__(self, of: RowPartition, level: IsolationLevel) -> None:
        self._of = of
        self._vfs = of.vfs
        self._level = level
        self._lock = threading.Lock()
        self._sealed = TransactionFile(of)
        self._followed: _Followed | None = None
        self._journal: tuple[FileStat | None, Journal] = (None, {})
        self._decided: _Decided | None = None

    def decide(
        self, listing: Listing, log_end: int, life: int, open_segment: OpenSegment
    ) -> Isolation | None:
        """What is stable and committed; None when everything up to ``log_end`` counts.

        Nothing is stable above the broker's high watermark. ``life`` distinguishes the active file
        from another that took its name.
        """
        if self._level == "read_uncommitted":
            return None
        limit = high_watermark(self._of, log_end)
        with self._lock:
            stat, journal = self._read_journal()
            known = self._decided
            if known is not None and known[:4] == (listing, limit, life, stat):
                return known.isolation
            index = TransactionIndex(limit)
            for columns in self._sealed_files(listing, open_segment):
                index.add(columns)
            for columns in self._active_file(listing, life, open_segment):
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

    def _sealed_files(
        self, listing: Listing, open_segment: OpenSegment
    ) -> Iterator[TransactionColumns]:
        current, fresh = {}, False
        for base in listing.bases[:-1]:
            path = listing.path(base)
            stat = self._vfs.stat(path)
            if stat is None:
                continue
            known = self._sealed.get(path)
            if known is None or (known.size, known.modified_ns) != (stat.size, stat.modified_ns):
                found = self._scan(base, listing, open_segment)
                known, fresh = Remembered(stat.size, stat.modified_ns, found), True
            current[path] = known
            yield from known.found
        if fresh:
            self._sealed.save(current)

    def _active_file(
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


class Remembered(NamedTuple):
    """What matters of the transactions in one file of this size and time."""

    size: int
    modified_ns: int
    found: tuple[TransactionColumns, ...]


class TransactionFile:
    """The remembered transactions of one partition. Not thread-safe."""

    def __init__(self, of: RowPartition) -> None:
        self._vfs = of.vfs
        self._path = f"{STATE_DIRECTORY}/index/{of.name}.txns"
        self._known: dict[str, Remembered] | None = None

    def get(self, path: str) -> Remembered | None:
        """What is known of a log file."""
        if self._known is None:
            self._known = {}
            with suppress(DamagedMetadataError, KeyError, TypeError, ValueError, pa.ArrowException):
                fields = json_files.read(self._vfs, self._path) or {}
                if fields.get("format") == _FORMAT:
                    self._known = {name: _load(file) for name, file in fields["files"].items()}
        return self._known.get(path)

    def save(self, current: Mapping[str, Remembered]) -> None:
        """Remember these; only in memory where we may not write or they are too many."""
        self._known = dict(current)
        if (
            sum(len(part.offsets) for file in current.values() for part in file.found)
            > _MAX_ENTRIES
        ):
            return
        files = {path: _dump(file) for path, file in current.items()}
        save_hint(self._vfs, self._path, json_files.dump({"format": _FORMAT, "files": files}))


def _dump(file: Remembered) -> dict[str, Any]:
    rows: list[Any] = []
    for part in file.found:
        texts = [part.ids, part.states, part.markers]
        columns = [[text.hex() for text in column.to_pylist()] for column in texts]
        rows += zip(part.offsets.tolist(), part.epochs.tolist(), *columns, strict=True)
    return {"size": file.size, "modified_ns": file.modified_ns, "rows": rows}


def _load(file: Mapping[str, Any]) -> Remembered:
    found: tuple[TransactionColumns, ...] = ()
    if file["rows"]:
        offsets, epochs, *texts = zip(*file["rows"], strict=True)
        ids, states, markers = (
            pa.array([bytes.fromhex(text) for text in column], pa.binary()) for column in texts
        )
        numbers = [np.array(column, dtype=np.int64) for column in (offsets, epochs)]
        found = (TransactionColumns(numbers[0], ids, numbers[1], states, markers),)
    return Remembered(int(file["size"]), int(file["modified_ns"]), found)
