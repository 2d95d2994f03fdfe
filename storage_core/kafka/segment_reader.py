"""One segment of a Kafka partition opened for reading: batches checked, decoded, trimmed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..brokers.codecs.rows import Ending
from ..brokers.segment_reader import is_zero_tail
from ..errors import BrokenFrameError, DataLossError
from ..format.columns import DecodedFrame
from ..format.file_names import MAX_OFFSET
from ..format.selection import Selection
from ..format.sparse_index import SparseIndex
from ..io.byte_source import WindowSource
from ..types import Int64s, OffsetPosition
from .codecs.batches import Batches, Bounds, Walked, walk_batches
from .codecs.indexes import TimeEntries
from .codecs.records import Records, decode_groups, wants_times
from .codecs.varints import Bools

_FIRST_BYTES, _MOST_BYTES = 128 << 10, 8 << 20
_FRAME_ROWS, _FRAME_BYTES = 8192, 2 << 20
_MILLISECOND = 1000
NO_TIME = -MAX_OFFSET


class Chunk(NamedTuple):
    """Sound batches of some bytes, and what follows them: position, next offset due, problem."""

    data: memoryview
    position: int
    batches: Batches
    end_position: int
    due: int
    ending: Ending
    problem: str | None


class Edges(NamedTuple):
    """Offsets that a segment must keep to: its base, that of the next one, the high watermark.

    ``first`` is the log start offset, which may be inside the segment.
    """

    base: int
    first: int = 0
    limit: int = MAX_OFFSET
    high_watermark: int = 0


class KafkaSegment:
    """A segment's records. Used by one thread.

    Args:
        source: Its bytes.
        edges: What offsets its batches may have.
        index: The broker's index, a hint.
        times: The broker's index of times, a hint; read when it is needed.
        is_delivered: Which batches isolation delivers; all without it.
        missing: Raises for offsets that are in no batch, unless compaction may have removed them.
    """

    def __init__(
        self,
        source: WindowSource,
        edges: Edges,
        *,
        index: SparseIndex,
        times: Callable[[], TimeEntries],
        is_delivered: Callable[[Chunk], Bools] | None,
        missing: Callable[[KafkaSegment, int, int], None],
    ) -> None:
        self._source = source
        self._edges = edges
        self._index = index
        self._times = times
        self._is_delivered = is_delivered
        self._missing = missing

    @property
    def edges(self) -> Edges:
        return self._edges

    @property
    def is_empty(self) -> bool:
        """Whether there is no byte in it."""
        return self._source.size == 0

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def reach(self, stop: int) -> int:
        return stop

    def frames(
        self, start: int, end: int, selection: Selection, *, scan: bool = False
    ) -> Iterator[DecodedFrame]:
        """The records from ``start`` to ``end`` as frames of a few thousand.

        Raises:
            BrokenFrameError: after the last sound record, if that is before ``end``.
        """
        covered = start
        for chunk in self.chunks_from(start, scan=scan):
            yield from self._frames_of(chunk, start, end, selection)
            before = int(np.searchsorted(chunk.batches.base, end))
            if before:
                covered = max(covered, int(chunk.batches.last[before - 1]) + 1)
            if _passes(chunk, end):
                break
            if chunk.problem is not None:
                raise broken(chunk)
        if covered < end:
            self._missing(self, covered, end)

    def chunks_from(self, offset: int, *, scan: bool = True) -> Iterator[Chunk]:
        """Chunks from about an offset on. Most bytes are read ahead with ``scan``."""
        position = self.locate(offset).position
        return self.chunks(position, self._edges.base, scan=scan or not position)

    def chunks(self, position: int, due: int, *, scan: bool = True) -> Iterator[Chunk]:
        """Chunks from a known batch to the end or the first damage; the last says how it ends.

        The last batch of a chunk is left to the next one unless it ends the file: only the batch
        after it tells whether its offsets can be right.
        """
        wanted = _MOST_BYTES if scan else _FIRST_BYTES
        while True:
            data = self._source.read(position, wanted)
            walked = self._walk(data, position, due)
            # A file that is cut while it is read gives less than it should.
            at_end = len(data) < wanted or position + len(data) >= self._source.size
            if not at_end and walked.ending is not Ending.DAMAGED:
                if len(walked.batches) < 2:
                    wanted *= 2
                    continue
                walked = _without_last(walked)
            chunk = _chunk(data, position, due, walked)
            if at_end or chunk.ending is Ending.DAMAGED:
                if chunk.problem is not None and is_zero_tail(self._source, chunk.end_position):
                    chunk = chunk._replace(ending=Ending.WHOLE, problem=None)
                yield chunk
                return
            yield chunk._replace(ending=Ending.WHOLE, problem=None)
            position, due = chunk.end_position, chunk.due
            wanted = _MOST_BYTES

    def index_entries(self) -> tuple[Int64s, Int64s]:
        """Offsets where a read may begin without decoding a batch twice, about their positions."""
        return self._index.offsets + 1, self._index.positions

    def first_at(self, timestamp: int, end: int) -> int | None:
        """First offset below ``end`` whose record is not older than ``timestamp``."""
        wanted = -(-timestamp // _MILLISECOND)
        entries = self._times()
        before = int(np.searchsorted(entries.times, wanted)) - 1
        start = self._edges.base
        if before >= 0 and self._is_time_of(entries, before):
            start = int(entries.offsets[before])
        for chunk in self.chunks_from(start):
            late = (chunk.batches.max_time >= wanted) & ~chunk.batches.is_control
            for row in np.flatnonzero(late & (chunk.batches.base < end)).tolist():
                (found,) = self._groups(chunk, np.array([row]))
                reached = (found.milliseconds >= wanted) & (found.offsets < end)
                reached &= found.offsets >= self._edges.first
                if reached.any():
                    return int(found.offsets[int(np.argmax(reached))])
            if _passes(chunk, end):
                return None
            if chunk.problem is not None:
                raise broken(chunk)
        self.require_end(chunk, end)
        return None

    def end_of_older(self, timestamp: int, end: int) -> int | None:
        """Offset after the last record below ``end`` that is older than ``timestamp``.

        No index says how old the records of a batch are at least, so all are decoded.
        """
        wanted, last = -(-timestamp // _MILLISECOND), None
        for chunk in self.chunks_from(self._edges.base):
            rows = np.flatnonzero((chunk.batches.base < end) & ~chunk.batches.is_control)
            for found in self._groups(chunk, rows):
                older = (found.milliseconds < wanted) & (found.offsets < end)
                if older.any():
                    last = int(found.offsets[np.flatnonzero(older)[-1]]) + 1
            if _passes(chunk, end):
                break
            if chunk.problem is not None:
                raise broken(chunk)
        self.require_end(chunk, end)
        return last

    def largest_time(self) -> int:
        """The latest time of all records, in microseconds; ``NO_TIME`` without any.

        From the last entry of the time index on, if there is a batch with this time.
        """
        entries, start, largest = self._times(), self._edges.base, -1
        last = len(entries.times) - 1
        if last >= 0 and self._is_time_of(entries, last):
            start, largest = int(entries.offsets[last]), int(entries.times[last])
        for chunk in self.chunks_from(start):
            if chunk.problem is not None:
                raise broken(chunk)
            largest = max(largest, int(chunk.batches.max_time.max(initial=-1)))
        self.require_end(chunk)
        return NO_TIME if largest < 0 else largest * _MILLISECOND

    def walk_to_end(self) -> Chunk:
        """The last chunk: where the sound batches end, and how."""
        for chunk in self.chunks_from(MAX_OFFSET):
            found = chunk
        return found

    def has_holes(self) -> bool:
        """Whether compaction was here: a batch lacks records, or batches are missing twice."""
        gaps, due = 0, self._edges.base
        for chunk in self.chunks(0, due):
            batches = chunk.batches
            if (batches.count <= batches.last - batches.base).any():
                return True
            gaps += int(np.count_nonzero(batches.base[1:] > batches.last[:-1] + 1))
            gaps += int(len(batches) > 0 and batches.base[0] > due)
            due = chunk.due
        return gaps > 1

    def holds(self, offset: int) -> bool:
        """Whether the broker has put the records from ``offset`` on here, or removed them."""
        if offset < self.walk_to_end().due:
            return True
        try:
            self._missing(self, offset, offset + 1)
        except (BrokenFrameError, DataLossError):
            return False
        return True

    def locate(self, offset: int) -> OffsetPosition:
        """The last index entry at or before ``offset`` that leads to a sound batch before it."""
        at = self._index.floor(offset, self._edges.base)
        if at.position:
            chunk = next(self.chunks(at.position, self._edges.base, scan=False))
            found = chunk.batches
            if len(found) and found.base[0] <= min(offset, at.offset):
                return at
        return OffsetPosition(self._edges.base, 0)

    def require_end(self, last: Chunk, end: int = MAX_OFFSET) -> None:
        """Raise if the file was cut after its last chunk, before offsets that it had."""
        edge = min(end, self._edges.limit)
        if last.due < edge < MAX_OFFSET:
            self._missing(self, last.due, edge)

    def _is_time_of(self, entries: TimeEntries, at: int) -> bool:
        """Whether the batch with the offset of an entry has the time of the entry."""
        offset = int(entries.offsets[at])
        if offset >= self._edges.limit:
            return False
        for chunk in self.chunks_from(offset, scan=False):
            row = int(np.searchsorted(chunk.batches.last, offset))
            if row < len(chunk.batches):
                same = chunk.batches.max_time[row] == entries.times[at]
                return bool(same and chunk.batches.base[row] <= offset)
        return False

    def _walk(self, data: memoryview, position: int, due: int) -> Walked:
        first, last = np.searchsorted(self._index.positions, (position, position + len(data)))
        entries = self._index.positions[first:last] - position
        bounds = Bounds(due, self._edges.limit, self._edges.high_watermark)
        return walk_batches(data, entries, bounds)

    def _frames_of(
        self, chunk: Chunk, start: int, end: int, selection: Selection
    ) -> Iterator[DecodedFrame]:
        batches = chunk.batches
        kept = (batches.last >= start) & (batches.base < end) & ~batches.is_control
        kept &= batches.count > 0
        if not kept.any():
            return
        if self._is_delivered is not None:
            kept &= self._is_delivered(chunk)
        names = selection.needed
        for found in self._groups(chunk, np.flatnonzero(kept)):
            selection.counts.read += 1
            yield from _frames(found, names)

    def _groups(self, chunk: Chunk, rows: Int64s) -> Iterator[Records]:
        """The records of some batches of a chunk, group by group, before the first broken one."""
        try:
            yield from decode_groups(chunk.data, chunk.batches[rows])
        except BrokenFrameError as error:
            position = chunk.position + (error.position or 0)
            raise BrokenFrameError(str(error), position=position, offset=error.offset) from error


def _without_last(walked: Walked) -> Walked:
    batches = walked.batches[:-1]
    return Walked(batches, int(walked.batches.positions[-1]), Ending.WHOLE, None)


def _chunk(data: memoryview, position: int, due: int, walked: Walked) -> Chunk:
    after = int(walked.batches.last[-1]) + 1 if len(walked.batches) else due
    end = position + walked.end
    return Chunk(data, position, walked.batches, end, after, walked.ending, walked.problem)


def _passes(chunk: Chunk, end: int) -> bool:
    """Whether nothing below ``end`` follows a chunk."""
    return len(chunk.batches) > 0 and chunk.due >= end


def broken(chunk: Chunk) -> BrokenFrameError:
    """The error for what follows a chunk."""
    return BrokenFrameError(str(chunk.problem), position=chunk.end_position, offset=chunk.due)


def _frames(found: Records, names: Collection[str]) -> Iterator[DecodedFrame]:
    if wants_times(names) and (sound := found.with_times()) < found.count:
        yield from _frames(found.first(sound), names)
    columns, kind = found.columns(names), found.timestamp_type
    size = sum(column.nbytes for column in columns.values())
    # Pieces of one size: a reader would have to join a small last one with others.
    pieces = max(-(-found.count // _FRAME_ROWS), min(found.count, -(-size // _FRAME_BYTES)))
    edges = np.linspace(0, found.count, pieces + 1).astype(np.int64).tolist()
    for first, last in pairwise(edges):
        offsets, rows = found.offsets[first:last], last - first
        if not rows:
            continue
        span = int(offsets[-1]) - int(offsets[0]) + 1
        yield DecodedFrame(
            first_offset=int(offsets[0]),
            span=span,
            rows=rows,
            timestamp_type=0 if kind is None else kind,
            constant_timestamp=0,
            offsets=None if span == rows else pa.array(offsets),
            columns={name: column.slice(first, rows) for name, column in columns.items()},
        )
