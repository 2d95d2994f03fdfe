"""Every problem of a Kafka partition, found without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import StorageError
from ..format.selection import Selection
from ..io.durable import read_file
from ..io.io_errors import typed_read_errors
from ..layouts.broker_names import base_of
from ..segments.listing import Listing
from ..types import Problem
from .checkpoints import PartitionFiles
from .codecs.indexes import ABORTED_BYTES, Aborted, parse_aborted
from .segments import KafkaSegments, beside
from .transactions import aborted_among

_ABORTED = ".txnindex"
_SHOWN = 3
_ALL = Selection(("key", "value", "headers"))


def verify(of: PartitionFiles, segments: KafkaSegments, base: int, listing: Listing) -> None:
    """Read a segment: every checksum and every field, up to the end for readers.

    Raises:
        StorageError: a batch is not sound, or offsets are missing.
    """
    following = listing.following(base)
    end = segments.high_watermark() if following is None else following
    with typed_read_errors(of.topic, of.partition, listing.path(base)):
        segment = segments.open(base, listing)
        try:
            for _ in segment.frames(base, end, _ALL, scan=True):
                pass
        finally:
            segment.close()


def partition_problems(of: PartitionFiles, segments: KafkaSegments) -> Iterator[Problem]:
    """What is wrong with a partition."""
    found = False
    try:
        listing = segments.listing()
        for base in listing.bases:
            try:
                verify(of, segments, base, listing)
            except FileNotFoundError:
                continue  # retention has removed it since it was listed
            except StorageError as error:
                found = True
                yield _of(error, of)
        if not found:
            segments.raise_damage()
            yield from stale_aborted(of, segments)
    except StorageError as error:
        yield _of(error, of)


def stale_aborted(of: PartitionFiles, segments: KafkaSegments) -> Iterator[Problem]:
    """Indexes of aborted transactions that are not as the markers in a sound log say."""
    if not any(name.endswith(_ABORTED) for name in of.vfs.listdir(of.name)):
        return
    listing, opened = segments.listing(), dict[int, int]()
    for base in listing.bases:
        path = listing.path(base)
        files = (path, beside(path, _ABORTED))
        before = [of.vfs.stat(name) for name in files]
        index = before[1]
        # The broker writes an entry after its marker, so the index is read first.
        data = None if index is None else read_file(of.vfs, files[1], index.size)
        try:
            segment = segments.open(base, listing)
        except FileNotFoundError:
            continue  # as above
        try:
            marked = aborted_among(segment.chunks(0, segment.edges.base), opened)
            end = segment.walk_to_end().due
            whole = not listing.is_last(base) and not segments.is_compacted(segment, base)
        finally:
            segment.close()
        if data is None or of.vfs.stat(f"{files[1]}.swap") is not None:
            continue
        found = _differences(data, marked, base_of(path), end, whole=whole)
        if found and before == [of.vfs.stat(name) for name in files]:
            message = (
                f"{files[1]} does not agree with the markers of transactions in the log: {found}. "
                "Reads go by the markers, which have a checksum. A broker goes by this file."
            )
            yield Problem("warning", "INDEX_STALE", message, of.topic, of.partition, files[1])


def _differences(data: bytes, marked: Aborted, base: int, end: int, *, whole: bool) -> str:
    """In words; empty without any. ``whole``: compaction was not here, and nothing is added."""
    listed, parts = _rows(parse_aborted(data)), []
    starts = {(producer, last): first for producer, first, last in _rows(marked)}
    false: list[_Row] = []
    moved: list[_Row] = []
    for row in listed:
        producer, first, last = row
        start = starts.get((producer, last))
        if start is None:
            # After a crash the log may end before its index.
            false += [row] if last < end else []
        # Compaction and retention remove the first records of a transaction.
        elif first > start >= 0 or (whole and base <= first < start):
            moved.append(row)
    known = {(producer, last) for producer, _, last in listed}
    lacking = [row for row in _rows(marked) if row[1] >= 0 and (row[0], row[2]) not in known]
    if false:
        parts.append(f"no marker aborts {_shown(false)}")
    if moved:
        parts.append(f"the log has another first offset for {_shown(moved)}")
    if whole and lacking:
        parts.append(f"it lacks {_shown(lacking)}")
    if whole and len(data) != len(listed) * ABORTED_BYTES:
        parts.append(f"it has bytes after its last sound entry, number {len(listed)}")
    return "; ".join(parts)


_Row = tuple[int, int, int]


def _rows(found: Aborted) -> list[_Row]:
    return list(zip(*(field.tolist() for field in found), strict=True))


def _shown(rows: list[_Row]) -> str:
    some = [f"{first} to {last} of producer {producer}" for producer, first, last in rows[:_SHOWN]]
    more = [f"{len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return "offsets " + ", ".join(some + more)


def _of(error: StorageError, of: PartitionFiles) -> Problem:
    return replace(Problem.from_error(error), topic=of.topic, partition=of.partition)
