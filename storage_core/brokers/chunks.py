"""A segment of rows, decoded a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..io.byte_source import Source
from ..types import Int64s
from .codecs.row_walk import walk_indexed
from .codecs.rows import Ending, Rows
from .layout import Decoded, Place, RowLayout

_FIRST_BYTES, _MOST_BYTES = 128 << 10, 8 << 20


class Chunk(NamedTuple):
    """Decoded rows and what follows them: next position, next offset due, how the bytes go on."""

    decoded: Decoded
    positions: Int64s
    end_position: int
    end_offset: int
    ending: Ending
    problem: str | None


class ChunkWalk:
    """Follows one segment from a known record. Used by one thread."""

    def __init__(
        self,
        layout: RowLayout,
        source: Source,
        *,
        topic: str,
        partition: int,
        holes: bool,
        entries: Int64s,
    ) -> None:
        self._layout = layout
        self._source = source
        self._topic = topic
        self._partition = partition
        self._holes = holes
        self._entries = entries

    def chunks(self, position: int, offset: int, *, scan: bool = False) -> Iterator[Chunk]:
        """Chunks to the end of the segment or the first damage; the last one says how it ends."""
        # Who begins inside a file may want one record; who begins with it wants to read on.
        wanted = _FIRST_BYTES if position and not scan else _MOST_BYTES
        while True:
            data = self._source.read(position, wanted)
            rows = self._rows(data, position)
            at_end = position + len(data) >= self._source.size
            if rows.count == 0 and rows.ending is Ending.TORN and not at_end:
                wanted *= 2
                continue
            chunk = self._decode(rows, position, offset)
            if at_end or chunk.ending is Ending.DAMAGED:
                yield chunk
                return
            # What is torn here goes on in the next chunk.
            yield chunk._replace(ending=Ending.WHOLE, problem=None)
            position, offset = chunk.end_position, chunk.end_offset
            wanted = _MOST_BYTES

    def _rows(self, data: memoryview, position: int) -> Rows:
        first, last = np.searchsorted(self._entries, (position, position + len(data)))
        entries = self._entries[first:last] - position
        return walk_indexed(data, 0, len(data), self._layout.format, entries)

    def _decode(self, rows: Rows, position: int, offset: int) -> Chunk:
        """Decode ``rows``; if one is broken, those before it."""
        place = Place(self._topic, self._partition, position, offset, self._holes)
        data = pa.py_buffer(self._source.read(position, rows.end))
        decoded = Decoded(np.empty(0, dtype=np.int64), {})
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


def is_zero_tail(source: Source, position: int) -> bool:
    """Whether nothing but zero bytes follows: what a crash leaves of a file that was extended."""
    while position < source.size:
        data = source.read(position, _MOST_BYTES)
        if np.frombuffer(data, dtype=np.uint8).any():
            return False
        position += len(data)
    return True
