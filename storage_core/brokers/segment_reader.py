"""One row file opened for reading: decoded a few megabytes at a time, trimmed, filtered, as frames.

Small sealed files are opened together (``JoinedSource``). A broker that rolls every megabyte leaves
thousands of files, and the cost per file would exceed that of the records. Rows that end whole may
follow each other, so neighbouring files become one run of bytes with one index. Only an error has
to name a single file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BrokenFrameError, ConfigError
from ..format.columns import DecodedFrame
from ..format.file_names import MAX_OFFSET
from ..format.selection import Selection
from ..format.sparse_index import SparseIndex
from ..io.byte_source import MappedSource, Source, WindowSource
from ..types import TIMESTAMP_ABSENT, Int64s, OffsetPosition
from ..vfs import Vfs
from .codecs.row_walk import walk_indexed
from .codecs.rows import Ending, Rows
from .layout import Decoded, Place, RowPartition
from .transactions import Isolation

_FIRST_BYTES, _MOST_BYTES = 128 << 10, 8 << 20
_FRAME_ROWS, _FRAME_BYTES, _ENTRY_ROWS = 8192, 2 << 20, 16
# Joining copies, which costs more than it saves when the files are large.
_LARGE_BYTES = 256 << 10
_WHOLE_BYTES = 8 << 20
# Walkers cost the less the more of them go together. What they find is in memory at once.
_WALKED_BYTES, _WALKED_ROWS, _WALKERS = 256 << 20, 1 << 18, 2048


class Chunk(NamedTuple):
    """Decoded rows, and what follows them: next position, next offset due, how the bytes go on."""

    decoded: Decoded
    positions: Int64s
    end_position: int
    end_offset: int
    ending: Ending
    problem: str | None


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
        of: RowPartition,
        source: Source,
        *,
        base: int,
        next_base: int | None = None,
        holes: bool,
        index: SparseIndex,
        isolation: Callable[[], Isolation | None] = lambda: None,
    ) -> None:
        self._of = of
        self._layout = of.layout
        self._source = source
        self._base = base
        self._next_base = next_base
        self._holes = holes
        self._index = index
        self._isolation = isolation

    def close(self) -> None:
        """Close the file of an active segment."""
        if isinstance(self._source, WindowSource):
            self._source.close()

    def reach(self, stop: int) -> int:
        """Offset up to which this object reads; it may have several files."""
        return stop if self._next_base is None else max(stop, self._next_base)

    def frames(
        self,
        start: int,
        end: int,
        selection: Selection,  # noqa: ARG002
        *,
        scan: bool = False,
    ) -> Iterator[DecodedFrame]:
        """The records from about ``start`` to ``end`` as frames of a few thousand.

        Raises:
            BrokenFrameError: after the last sound record, if that is before ``end``; also when the
                next file begins at ``end`` but this one goes on.
        """
        at = self._locate(start)
        position, offset = at.position, at.offset
        for chunk in self.chunks(position, offset, scan=scan, end=end):
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
        """A sealed file must not have offsets of the next one, nor any other bytes at its end."""
        after = int(np.searchsorted(chunk.decoded.offsets, end))
        if after < len(chunk.positions):
            position = int(chunk.positions[after])
            raise self._broken(f"offset {end} is here and in the next file", position, end)
        if chunk.end_position < self._source.size:
            problem = chunk.problem or "the file goes on"
            position = chunk.end_position
            raise self._broken(f"{problem} where the next file begins", position, end)

    def chunks(
        self, position: int, offset: int, *, scan: bool = False, end: int = MAX_OFFSET
    ) -> Iterator[Chunk]:
        """Chunks from a known record to the end or the first damage; the last says how it ends.

        The caller may leave as soon as it has reached offset ``end``.
        """
        # A reader that begins inside a file may want one record; at its start it reads on.
        wanted = _FIRST_BYTES if position and not scan else _MOST_BYTES
        while True:
            data = self._source.read(position, wanted)
            rows = self._rows(data, position)
            at_end = position + len(data) >= self._source.size
            if rows.count == 0 and rows.ending is Ending.TORN and not at_end:
                wanted *= 2
                continue
            wanted = self._ahead(position, rows, end)
            *pieces, last = _pieces(rows)
            for piece in pieces:
                chunk = self._decode(piece, position, offset)
                yield chunk
                if chunk.ending is Ending.DAMAGED:
                    return
                position, offset = chunk.end_position, chunk.end_offset
            chunk = self._decode(last, position, offset)
            if at_end or chunk.ending is Ending.DAMAGED:
                yield chunk
                return
            # A record that is cut here goes on in the next chunk.
            yield chunk._replace(ending=Ending.WHOLE, problem=None)
            position, offset = chunk.end_position, chunk.end_offset

    def _ahead(self, position: int, rows: Rows, end: int) -> int:
        """How many bytes to walk together after ``rows``, which stand at ``position``."""
        index = self._index
        if not isinstance(self._source, MappedSource) or not rows.count or not len(index.offsets):
            return _MOST_BYTES
        start = position + rows.end
        last = min(
            int(np.searchsorted(index.positions, start)) + _WALKERS,
            int(np.searchsorted(index.offsets, end)),
            len(index.positions) - 1,
        )
        alike = rows.end * _WALKED_ROWS // rows.count
        most = min(int(index.positions[last]) - start, alike, _WALKED_BYTES)
        return max(_MOST_BYTES, most)

    def _rows(self, data: memoryview, position: int) -> Rows:
        first, last = np.searchsorted(self._index.positions, (position, position + len(data)))
        entries = self._index.positions[first:last] - position
        return walk_indexed(data, 0, len(data), self._layout.format, entries)

    def _decode(self, rows: Rows, position: int, offset: int) -> Chunk:
        """Decode ``rows``; if one is broken, those before it."""
        place = Place(self._of.topic, self._of.partition, position, offset, self._holes)
        data = pa.py_buffer(self._source.read(position, rows.end))
        decoded = Decoded(np.empty(0, dtype=np.int64), dict)
        ending, problem = rows.ending, rows.problem
        while rows.count:
            try:
                decoded = self._layout.decode(data, rows, place)
                break
            except BrokenFrameError as error:
                ending, problem = Ending.DAMAGED, str(error)
                sound = np.searchsorted(rows.positions, (error.position or 0) - position)
                rows = rows.slice(0, int(sound))
        end_offset = int(decoded.offsets[-1]) + 1 if rows.count else offset
        return Chunk(
            decoded, rows.positions + position, position + rows.end, end_offset, ending, problem
        )

    def walk_to_end(self, start: tuple[int, int] | None) -> WalkedEnd:
        """Follow whole records from ``start``, or from the last index entry that can be trusted."""
        at = self._locate(MAX_OFFSET) if start is None else OffsetPosition(start[1], start[0])
        offsets, positions = [], []
        for chunk in self.chunks(at.position, at.offset):
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

    end_of_older = first_at

    def holds(self, offset: int) -> bool:  # noqa: ARG002
        """No: files of a broker are never merged."""
        return False

    def _locate(self, offset: int) -> OffsetPosition:
        """The last index entry before ``offset`` that leads to the record it names.

        Entries of ordinal files are our own. A broker's are hints, and payloads may look like
        records: an entry counts if its record has the right offset and the next one, if any, is
        sound.
        """
        at = self._index.floor(offset, self._base)
        if at.offset > self._base and self._layout.ordinal:
            return at
        if at.offset > self._base and at.position > 0:
            chunk = next(self.chunks(at.position, at.offset))
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
        offsets = chunk.decoded.offsets
        low, high = np.searchsorted(offsets, (start, end)).tolist()
        if low >= high:
            return
        columns = chunk.decoded.columns()
        shown = self._shown(chunk)
        if shown is not None:
            kept = pa.array(np.flatnonzero(shown[low:high]) + low)
            columns = {name: column.take(kept) for name, column in columns.items()}
            offsets = offsets[kept.to_numpy()]
            low, high = 0, len(offsets)
        # Pieces of one size: a reader would have to join a small last one with others.
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


def _pieces(rows: Rows) -> list[Rows]:
    """Rows of at most about ``_MOST_BYTES`` each, which are decoded together."""
    cuts = np.searchsorted(rows.positions, np.arange(_MOST_BYTES, rows.end, _MOST_BYTES))
    edges = [0, *np.unique(cuts[(cuts > 0) & (cuts < rows.count)]).tolist(), rows.count]
    return [rows] if len(edges) == 2 else [rows.part(*edge) for edge in pairwise(edges)]


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


def is_zero_tail(source: Source, position: int) -> bool:
    """Whether nothing but zero bytes follows: what a crash leaves of a file that was extended."""
    while position < source.size:
        data = source.read(position, _MOST_BYTES)
        if np.frombuffer(data, dtype=np.uint8).any():
            return False
        position += len(data)
    return True


class SealedFile(NamedTuple):
    """A sealed file that ends whole: path, first offset, size, and where some records are."""

    path: str
    base: int
    size: int
    entries: SparseIndex


class JoinedSource:
    """The bytes of several sealed files, one after the other. Not thread-safe."""

    # A caller that asks for more gets all of it: a record may be larger than a file.
    ahead = _WHOLE_BYTES

    def __init__(self, vfs: Vfs, files: Sequence[SealedFile]) -> None:
        self._vfs = vfs
        self._files = files
        self._starts = np.cumsum([0, *(file.size for file in files)])
        self.size = int(self._starts[-1])
        self._start = 0
        self._window = memoryview(b"")

    def read(self, position: int, size: int) -> memoryview:
        """The bytes there; fewer where a file ends that is large enough to be read by itself."""
        position = min(position, self.size)
        size = min(size, self.size - position)
        if size <= _WHOLE_BYTES:
            left = int(self._starts[self._holding(position) + 1]) - position
            size = min(size, left) if left >= _LARGE_BYTES else size
        if position < self._start or position + size > self._start + len(self._window):
            self._window = self._join(position, size)
            self._start = position
        at = position - self._start
        return self._window[at : at + size]

    def _join(self, position: int, size: int) -> memoryview:
        first = self._holding(position)
        parts = []
        while size:
            start, file = int(self._starts[first]), self._files[first]
            source = MappedSource(self._vfs, file.path)
            if source.size != file.size:
                raise BrokenFrameError(
                    f"the file has {source.size} bytes and had {file.size} when it was listed",
                    position=start,
                    offset=file.base,
                )
            part = source.read(position - start, size)
            parts.append(part)
            position, size, first = position + len(part), size - len(part), first + 1
        return parts[0] if len(parts) == 1 else _together(parts)

    def locate(self, position: int) -> tuple[str, int]:
        """The file that has the byte at ``position``, and where in it."""
        at = self._holding(position)
        return self._files[at].path, position - int(self._starts[at])

    def _holding(self, position: int) -> int:
        at = int(np.searchsorted(self._starts, position, side="right")) - 1
        return min(at, len(self._files) - 1)


def _together(parts: Sequence[memoryview]) -> memoryview:
    """One copy of all, in memory of Arrow's pool, which has its pages already."""
    joined, at = memoryview(pa.allocate_buffer(sum(map(len, parts)))).cast("B"), 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined.toreadonly()


def joined_index(files: Sequence[SealedFile]) -> SparseIndex:
    """One index for all files."""
    starts = np.cumsum([0, *(file.size for file in files[:-1])])
    positions = [file.entries.positions + start for file, start in zip(files, starts, strict=True)]
    offsets = [file.entries.offsets for file in files]
    return SparseIndex(np.concatenate(offsets), np.concatenate(positions))
