"""One row file opened for reading: chunks become frames, trimmed and filtered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BrokenFrameError, ConfigError
from ..format.columns import DecodedFrame
from ..format.file_names import MAX_OFFSET
from ..format.sparse_index import SparseIndex
from ..io.byte_source import Source, WindowSource
from ..types import TIMESTAMP_ABSENT, Int64s, OffsetPosition
from .chunks import Chunk, ChunkWalk
from .codecs.rows import Ending
from .joined import JoinedSource
from .layout import RowLayout
from .transactions import Isolation

_FRAME_ROWS, _FRAME_BYTES, _ENTRY_ROWS = 8192, 2 << 20, 16


class WalkedEnd(NamedTuple):
    """Where whole records end, how the bytes go on, and index entries met on the way."""

    position: int
    offset: int
    ending: Ending
    problem: str | None
    entries: SparseIndex


class RowSegment:
    """A segment's records. Used by one thread."""

    def __init__(
        self,
        layout: RowLayout,
        source: Source,
        *,
        topic: str,
        partition: int,
        base: int,
        next_base: int | None = None,
        holes: bool,
        index: SparseIndex,
        isolation: Callable[[], Isolation | None] = lambda: None,
    ) -> None:
        self._layout = layout
        self._source = source
        self._base = base
        self._next_base = next_base
        self._holes = holes
        self._index = index
        self._isolation = isolation
        self._walk = ChunkWalk(
            layout,
            source,
            topic=topic,
            partition=partition,
            holes=holes,
            entries=index.positions,
        )

    def close(self) -> None:
        """Let go of an open segment's file."""
        if isinstance(self._source, WindowSource):
            self._source.close()

    def reach(self, stop: int) -> int:
        """Offset up to which this opening reads, which may be several files."""
        return stop if self._next_base is None else max(stop, self._next_base)

    def frames(self, start: int, end: int, *, scan: bool = False) -> Iterator[DecodedFrame]:
        """The records from about ``start`` to ``end`` as frames of a few thousand.

        Raises:
            BrokenFrameError: behind the last sound record, if that is before ``end``; also when
                the file of another segment begins at ``end`` but this one goes on.
        """
        at = self._locate(start)
        position, offset = at.position, at.offset
        for chunk in self._walk.chunks(position, offset, scan=scan):
            yield from self._frames_of(chunk, start, end)
            position, offset = chunk.end_position, chunk.end_offset
            if offset >= end:
                break
            if chunk.ending is not Ending.WHOLE:
                raise self._broken(str(chunk.problem), position, offset)
        else:
            if not self._holes:
                raise self._broken(f"the file ends before offset {end}", position, offset)
            return
        if end == self._next_base:
            self._require_end(chunk, end)

    def _require_end(self, chunk: Chunk, end: int) -> None:
        """A closed file must not hold offsets of the next one, nor any other bytes at its end."""
        behind = int(np.searchsorted(chunk.decoded.offsets, end))
        if behind < len(chunk.positions):
            position = int(chunk.positions[behind])
            raise self._broken(f"offset {end} is here and in the next file", position, end)
        if chunk.end_position < self._source.size:
            problem = chunk.problem or "the file goes on"
            position = chunk.end_position
            raise self._broken(f"{problem} where the next file begins", position, end)

    def chunks(self, position: int, offset: int) -> Iterator[Chunk]:
        """Everything from a known record to the end or the first damage, as it stands there."""
        return self._walk.chunks(position, offset)

    def walk_to_end(self, start: tuple[int, int] | None) -> WalkedEnd:
        """Follow whole records from ``start``, or from the last index entry that can be trusted."""
        at = self._locate(MAX_OFFSET) if start is None else OffsetPosition(start[1], start[0])
        offsets, positions = [], []
        for chunk in self._walk.chunks(at.position, at.offset):
            offsets.append(chunk.decoded.offsets[::_ENTRY_ROWS])
            positions.append(chunk.positions[::_ENTRY_ROWS])
        entries = SparseIndex(np.concatenate(offsets), np.concatenate(positions))
        return WalkedEnd(chunk.end_position, chunk.end_offset, chunk.ending, chunk.problem, entries)

    def index_entries(self) -> tuple[Int64s, Int64s]:
        """Offsets and positions of the sparse index."""
        return self._index.offsets, self._index.positions

    def first_at(self, timestamp: int, end: int) -> int | None:  # noqa: ARG002
        raise ConfigError(
            f"layout {self._layout.name} stores no timestamps, so records cannot be found by time. "
            "Use offsets, or convert the directory to a native store."
        )

    def holds(self, offset: int) -> bool:  # noqa: ARG002
        """No: files of a broker are never merged."""
        return False

    def _locate(self, offset: int) -> OffsetPosition:
        """The last index entry before ``offset`` that leads to the record it names.

        Ordinal entries are our own. A broker's are hints, and its payloads may look like records:
        an entry counts if its record has the right offset and another sound one follows, if any.
        """
        at = self._index.floor(offset, self._base)
        if at.offset > self._base and self._layout.ordinal:
            return at
        if at.offset > self._base and at.position > 0:
            chunk = next(self._walk.chunks(at.position, at.offset))
            found = chunk.decoded.offsets[:2].tolist()
            sound = len(found) == 2 or chunk.ending is not Ending.DAMAGED
            if found[:1] == [at.offset] and sound:
                return at
        return OffsetPosition(self._base, 0)

    def _broken(self, reason: str, position: int, offset: int) -> BrokenFrameError:
        path = None
        if isinstance(self._source, JoinedSource):
            path, position = self._source.locate(position)
        return BrokenFrameError(reason, path=path, position=position, offset=offset)

    def _frames_of(self, chunk: Chunk, start: int, end: int) -> Iterator[DecodedFrame]:
        offsets, columns = chunk.decoded.offsets, chunk.decoded.columns
        low, high = np.searchsorted(offsets, (start, end)).tolist()
        if low >= high:
            return
        shown = self._shown(chunk)
        if shown is not None:
            kept = pa.array(np.flatnonzero(shown[low:high]) + low)
            columns = {name: column.take(kept) for name, column in columns.items()}
            offsets = offsets[kept.to_numpy()]
            low, high = 0, len(offsets)
        # Even pieces: a small one at the end would have to be joined with others.
        size = chunk.end_position - int(chunk.positions[0])
        pieces = min(high - low, max(-(-(high - low) // _FRAME_ROWS), -(-size // _FRAME_BYTES)))
        edges = np.linspace(low, high, pieces + 1).astype(np.int64).tolist()
        for first, last in pairwise(edges):
            yield _frame(offsets[first:last], columns, first, last - first)

    def _shown(self, chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        """Which records isolation delivers; None for all."""
        transactions = chunk.decoded.transactions
        if transactions is None:
            return None
        isolation = self._isolation()
        if isolation is None:
            lengths = pc.binary_length(transactions.markers)
            plain: np.ndarray[tuple[int], np.dtype[np.bool_]] = lengths.to_numpy() == 0
            return plain
        return isolation.visible(transactions)


def _frame(offsets: Int64s, columns: dict[str, pa.Array], first: int, rows: int) -> DecodedFrame:
    start, span = int(offsets[0]), int(offsets[-1]) - int(offsets[0]) + 1
    dense = span == rows
    return DecodedFrame(
        first_offset=start,
        span=span,
        rows=rows,
        timestamp_type=TIMESTAMP_ABSENT,
        constant_timestamp=0,
        offsets=None if dense else pa.array(offsets),
        columns={name: column.slice(first, rows) for name, column in columns.items()},
    )
