"""Compaction: of the records of a key only the last stays.

A pass has two parts. First the keys of the segments that are dirty go into a table of limited size,
with the offset of their last record. Then every sealed segment is read again, also those that were
compacted before, and rewritten without the records whose key has a later offset in the table. If
the table fills up, the pass ends there and the next one begins where it ended.

Records without a key stay. A tombstone stays for ``delete_retention_ms``, so that a reader that
started before sees it. It goes once a pass that ended long enough ago has removed all records of
its key before it. Offsets never change; where records went there are holes.

The key of a typed row is that of its key columns, nulls included, whatever its schema version. The
row is a tombstone if all its other columns are null, the timestamp column among them. A topic that
was created with key columns only has no tombstones: its rows are their keys.

``Compaction`` holds the passes for every layout, ``FrameCompaction`` what segments of frames need,
``NativeCompaction`` what native ones need.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import BrokenFrameError, StoppedError
from ..format.frame import KEY, decode_body
from ..format.frame_scan import StoredFrame
from ..format.numbers import numbers_of
from ..io.io_errors import typed_read_errors
from ..lazy import LazyModule
from ..segments.sealed import Sealed, SealedLog
from ..types import Int64s
from .compaction_policy import CleanerCheckpoint, LogToClean
from .key_table import SEED_BYTES, Digests, KeyTable, digests
from .partition import PartitionMaintenance
from .report import Pace, UpkeepReport
from .segment_files import HasSize, Segment, SegmentFiles
from .segment_rewriter import FrameRewriter, Rewritten
from .segment_swap import Replacer

if TYPE_CHECKING:
    from . import typed_keys
else:
    typed_keys = LazyModule("storage_core.maintenance.typed_keys")

Bools = npt.NDArray[np.bool_]

_MORE_PASSES = "the keys need more than one pass; this is the first"
_CHANGED = "segments changed meanwhile"


class _ReplacedError(Exception):
    """Another operation put the records of a segment elsewhere before they were read."""


class Keyed(NamedTuple):
    """The records of a batch that have a key: ``rows`` of the batch's ``total``."""

    total: int
    rows: Int64s
    offsets: Int64s
    keys: Digests
    tombstones: Bools


Batch = TypeVar("Batch")
New = TypeVar("New", bound=HasSize)


class Change(NamedTuple, Generic[Segment, New]):
    """A segment, what takes its place, and how many records that lacks."""

    segment: Segment
    new: New
    removed: int


class Compaction(ABC, Generic[Segment, Batch, New]):
    """One compaction of one partition, in as many passes as its keys need. Not thread-safe.

    A batch is some records of a segment, as the layout reads them.
    """

    def __init__(self, of: PartitionMaintenance, checkpoint_path: str, pace: Pace) -> None:
        self._of = of
        self._path = checkpoint_path
        self._pace = pace
        self._seed = os.urandom(SEED_BYTES)
        self._table = KeyTable(0)
        self._table_bytes = of.config.compaction_memory_bytes
        self._horizon = self._tombstones = self._removed = 0
        self._report = UpkeepReport("compact", of.topic, of.partition)

    @abstractmethod
    def held(self) -> AbstractContextManager[None]:
        """Keep other maintenance out of the partition; writers and readers go on."""

    @abstractmethod
    def sealed(self) -> list[Segment]:
        """The sealed segments below the high watermark, as they are now."""

    @abstractmethod
    def sync(self, segments: Sequence[Segment]) -> None:
        """Make every record of the segments durable."""

    @abstractmethod
    def batches(self, segment: Segment) -> Iterator[Batch]:
        """All records of a segment; none if retention has removed it."""

    @abstractmethod
    def keyed(self, batch: Batch, start: int) -> Keyed | None:
        """The records with a key; None if there are none, or all offsets are below ``start``."""

    @abstractmethod
    def rewritten(self, segment: Segment) -> New | None:
        """The segment without the records that go, written beside it; None if all stay."""

    @abstractmethod
    def replaced(
        self, changes: Iterator[Change[Segment, New]]
    ) -> Iterator[tuple[Change[Segment, New], bool]]:
        """Put rewritten segments in their places; with each, False if the old one has changed."""

    @abstractmethod
    def size_after(self, segment: Segment) -> int:
        """About how many bytes ``rewritten`` would leave. Changes nothing."""

    def prepare(self, log: LogToClean[Segment], checkpoint: CleanerCheckpoint) -> int:
        """Get ready for the first pass; the offset that it starts at."""
        self._horizon = log.delete_horizon
        start = min(checkpoint.first_dirty_offset, log.segments[-1].end)
        self._pace.begin("compact", self._of.topic, self._of.partition, log.bytes_to_read(start))
        return start

    def checkpoint(self) -> CleanerCheckpoint:
        """How far earlier passes came."""
        return CleanerCheckpoint.read(self._of.vfs, self._path, self._of.topic_uuid)

    def save(self, checkpoint: CleanerCheckpoint) -> None:
        """Write the checkpoint after a pass."""
        checkpoint.write(self._of.vfs, self._path, self._of.topic_uuid)

    def run(self, min_dirty_ratio: float | None, *, dry_run: bool) -> UpkeepReport:
        """Compact the partition, if enough is dirty; a dry run only reads the keys of one pass."""
        config = self._of.config
        ratio = config.min_cleanable_dirty_ratio if min_dirty_ratio is None else min_dirty_ratio
        if dry_run:
            return self._run(ratio, dry_run=True)
        with self.held():
            return self._run(ratio, dry_run=False)

    def _run(self, min_dirty_ratio: float, *, dry_run: bool) -> UpkeepReport:
        of = self._of
        checkpoint = self.checkpoint()
        log = LogToClean.of(self.sealed(), checkpoint, of.config, of.vfs.now_us())
        if not log.is_due(min_dirty_ratio):
            return replace(self._report, note=log.why_not_due(min_dirty_ratio))
        try:
            if dry_run:
                return self._plan(log, self.prepare(log, checkpoint))
            # What is removed is gone for good. The later records it goes for must not be lost in a
            # power cut.
            self.sync(log.segments)
            return self._compact(log, checkpoint)
        except StoppedError:
            return self._report.stopped()
        except _ReplacedError:
            return replace(self._report, done=False, note=_CHANGED)

    def _compact(self, log: LogToClean[Segment], checkpoint: CleanerCheckpoint) -> UpkeepReport:
        segments = list(log.segments)
        start, end = self.prepare(log, checkpoint), segments[-1].end
        while True:
            upto = self._fill(segments, start)
            if not self._remove_below(upto):
                return replace(self._report, done=False, note=_CHANGED)
            now_us = self._of.vfs.now_us()
            checkpoint = checkpoint.after(upto, now_us, self._tombstones, self._horizon)
            self.save(checkpoint)
            if upto >= end or upto == start:  # retention may have removed the rest
                return self._report
            start, segments = upto, self.sealed()

    def _plan(self, log: LogToClean[Segment], start: int) -> UpkeepReport:
        """What the first pass would remove."""
        upto = self._fill(log.segments, start)
        for segment in log.segments:
            if segment.base < upto:
                before = self._removed
                size = self.size_after(segment)
                self._count(segment, size, self._removed - before)
        more = upto < log.segments[-1].end
        done = not self._report.segments_before and not more
        return replace(self._report, done=done, note=_MORE_PASSES if more else "")

    def _fill(self, segments: Sequence[Segment], start: int) -> int:
        """Put the keys from offset ``start`` on into the table; return how far it got."""
        self._table = KeyTable(self._table_bytes)
        upto = start
        for segment in segments:
            if segment.end <= start:
                continue
            for batch in self.batches(segment):
                keyed = self.keyed(batch, start)
                if keyed is None:
                    continue
                first = int(np.searchsorted(keyed.offsets, start))
                keys = keyed.keys.slice(first, len(keyed.rows))
                full_at = self._table.put_while_room(keys, keyed.offsets[first:])
                if full_at is not None:
                    return full_at
            upto = segment.end
        return upto

    def _remove_below(self, upto: int) -> bool:
        """Rewrite every segment below ``upto`` that loses records; False if one has changed."""
        self._tombstones, complete = 0, True
        for change, done in self.replaced(self._changes(upto)):
            if done:
                self._count(change.segment, change.new.size, change.removed)
            else:
                complete = False
        return complete

    def _changes(self, upto: int) -> Iterator[Change[Segment, New]]:
        for segment in self.sealed():
            if segment.base >= upto:
                break
            before = self._removed
            new = self.rewritten(segment)
            if new is not None:
                yield Change(segment, new, self._removed - before)

    def _count(self, segment: Segment, size: int, removed: int) -> None:
        if removed:
            self._report = self._report.counted(segment.size, size, removed)

    def survivors(self, batch: Batch) -> Int64s | None:
        """Rows of a batch that stay; None for all of them."""
        keyed = self.keyed(batch, 0)
        if keyed is None:
            return None
        gone = self.gone(batch, keyed)
        self._tombstones += int(np.count_nonzero(keyed.tombstones & ~gone))
        count = int(np.count_nonzero(gone))
        if not count:
            return None
        self._removed += count
        stays = np.ones(keyed.total, dtype=np.bool_)
        stays[keyed.rows[gone]] = False
        return np.flatnonzero(stays)

    def gone(self, batch: Batch, keyed: Keyed) -> Bools:  # noqa: ARG002
        """Which of the records with a key go."""
        gone: Bools = self._table.latest(keyed.keys) > keyed.offsets
        return gone | (keyed.tombstones & (keyed.offsets < self._horizon))


class FrameCompaction(Compaction[Segment, StoredFrame, New]):
    """The compaction of segments of frames, a frame at a time.

    ``key_columns`` are those of a typed topic.
    """

    def __init__(
        self,
        of: PartitionMaintenance,
        files: SegmentFiles[Segment],
        checkpoint_path: str,
        pace: Pace,
        key_columns: Sequence[str],
    ) -> None:
        super().__init__(of, checkpoint_path, pace)
        self._files = files
        self._typed = None
        if files.schemas is not None:
            self._typed = typed_keys.TypedKeys(files.schemas, key_columns)

    @abstractmethod
    def write(self, segment: Segment, fill: Callable[[FrameRewriter], None]) -> New:
        """Write a new version of a segment beside it; ``fill`` adds its frames."""

    @contextmanager
    def _removable(self, segment: Segment) -> Iterator[None]:
        """Let retention remove a segment while it is read.

        If its records are still in the log, the pass must end without a checkpoint: their keys are
        not in the table. A later pass would remove a tombstone, but not what it deletes.
        """
        try:
            yield
        except FileNotFoundError as error:
            if self._of.start_offset() < segment.end:
                raise _ReplacedError(segment) from error

    def batches(self, segment: Segment) -> Iterator[StoredFrame]:
        with self._removable(segment):
            for frame in self._files.frames(segment):
                self._pace.advance(frame.header.length)
                yield frame

    def keyed(self, batch: StoredFrame, start: int) -> Keyed | None:
        header, files = batch.header, self._files
        if batch.end_offset <= start or not header.records:
            return None
        with typed_read_errors(files.topic, files.partition, files.directory):
            if self._typed is None:
                return self._keyed_records(batch)
            key, null, deltas = self._typed.of_frame(header, batch.rest)
        rows = np.arange(header.records)
        offsets = rows if deltas is None else numbers_of(deltas).astype(np.int64)
        return Keyed(header.records, rows, offsets + batch.offset, digests(key, self._seed), null)

    def _keyed_records(self, batch: StoredFrame) -> Keyed | None:
        header = batch.header
        if not header.columns & KEY:
            return None
        body = decode_body(header, batch.rest)
        if body is None:
            raise BrokenFrameError("a frame with keys has no body", offset=batch.offset)
        columns = dict(zip(body.schema.names, body.columns, strict=True))
        key, value, deltas = columns["key"], columns.get("value"), columns.get("offset_delta")
        present: Bools = key.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(present)
        offsets = rows if deltas is None else deltas.to_numpy().astype(np.int64)[rows]
        null: Bools = np.ones(len(rows), dtype=np.bool_)
        if value is not None:
            null = value.is_null().to_numpy(zero_copy_only=False)[rows]
        kept: pa.Array = key if key.null_count == 0 else key.drop_null()
        keys = digests(kept, self._seed)
        return Keyed(header.records, rows, offsets + batch.offset, keys, null)

    def rewritten(self, segment: Segment) -> New | None:
        with self._removable(segment):
            for frame in self._files.frames(segment):
                rows = self.survivors(frame)
                if rows is not None:
                    return self._rewrite(segment, frame, rows)
                self._pace.advance(frame.header.length)
        return None

    def _rewrite(self, segment: Segment, first: StoredFrame, rows: Int64s) -> New:
        """Rewrite a segment whose frames before ``first`` all stay."""

        def fill(writer: FrameRewriter) -> None:
            for frame in self._files.frames(segment):
                if frame.position < first.position:
                    writer.carry(frame)
                elif frame.position == first.position:
                    self._add(writer, frame, rows)
                else:
                    self._add(writer, frame, self.survivors(frame))

        return self.write(segment, fill)

    def _add(self, writer: FrameRewriter, frame: StoredFrame, rows: Int64s | None) -> None:
        if rows is None:
            writer.carry(frame)
        else:
            writer.add(frame, rows=rows, codec=frame.header.codec)
        self._pace.advance(frame.header.length)

    def size_after(self, segment: Segment) -> int:
        """In proportion to the records that stay."""
        before, records = self._removed, 0
        for frame in self.batches(segment):
            self.survivors(frame)
            records += frame.header.records
        return segment.size * (records - (self._removed - before)) // max(1, records)


class NativeCompaction(FrameCompaction[Sealed, Rewritten]):
    """The compaction of native segments. A dry run has no ``replacer``."""

    def __init__(
        self,
        of: PartitionMaintenance,
        files: SealedLog,
        high_watermark: int,
        replacer: Replacer | None,
        pace: Pace,
        key_columns: Sequence[str] = (),
    ) -> None:
        path = f"topics/{of.topic}/{of.partition}/cleaned.json"
        super().__init__(of, files, path, pace, key_columns)
        self._log = files
        self._high_watermark = high_watermark
        self._replacer = replacer

    def held(self) -> AbstractContextManager[None]:
        return self._writing().held()

    def sealed(self) -> list[Sealed]:
        return self._log.segments(self._high_watermark)

    def sync(self, segments: Sequence[Sealed]) -> None:  # noqa: ARG002
        self._writing().sync()

    def write(self, segment: Sealed, fill: Callable[[FrameRewriter], None]) -> Rewritten:
        with self._writing().rewriter(segment.base) as writer:
            fill(writer)
            return writer.finish()

    def replaced(
        self, changes: Iterator[Change[Sealed, Rewritten]]
    ) -> Iterator[tuple[Change[Sealed, Rewritten], bool]]:
        for change in changes:
            yield change, self._writing().replace([change.segment], change.new)

    def _writing(self) -> Replacer:
        assert self._replacer is not None
        return self._replacer
