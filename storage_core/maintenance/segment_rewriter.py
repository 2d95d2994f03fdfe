"""Writing a new version of a sealed segment: frames copied, joined, or encoded again.

The new frames cover every offset that the old ones cover, with or without records: a segment must
end where the next one begins. Small frames are joined, because each costs as much to read as
thousands of records. A frame has one timestamp type and one schema version, so frames of different
ones are not joined. The statistics of a typed frame that is encoded again are computed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..config import CODECS, StoreConfig
from ..format.frame import MAX_SPAN, EncodedFrame, draft_frame, finish_frame
from ..format.frame_builder import NO_RECORDS, SMALL_FRAME_BYTES, FrameBuilder
from ..format.frame_scan import StoredFrame
from ..format.selection import Schemas
from ..format.sparse_index import IndexBuilder
from ..io.durable import write_all
from ..types import Int64s
from ..vfs import Buffer, Vfs

_WRITE_BYTES = 4 << 20


class Rewritten(NamedTuple):
    """A durable new version of a segment, which has not yet replaced the old one."""

    path: str
    base: int
    end: int
    size: int
    records: int
    indexes: IndexBuilder


class FrameRewriter(ABC):
    """Frames of a new segment; ``schemas`` are those of a typed topic. Not thread-safe."""

    def __init__(self, base: int, config: StoreConfig, schemas: Schemas | None = None) -> None:
        self._base = base
        self._config = config
        self._schemas = schemas
        self._waiting = FrameBuilder(config.frame_records, config.frame_bytes)
        self._form = (0, 0)
        """Codec and timestamp type of the records that wait: a frame has one of each."""
        self._end = base
        self._covered = base
        """The frames added so far reach this offset; those from ``_end`` on wait."""

    @abstractmethod
    def place(self, frame: EncodedFrame) -> None:
        """Put a frame after the others."""

    def copy(self, frame: StoredFrame) -> None:
        """Add a frame as it is; only the place in its header changes."""
        self.flush(holes=True)
        end = self._end - self._base
        self._add(frame.encoded().moved(relative_offset=end, recovery_point=end))

    def add(self, frame: StoredFrame, *, rows: Int64s | None = None, codec: int) -> None:
        """Add a frame's records, or some of them, under ``codec``; small ones wait for more."""
        header = frame.header
        columns = frame.columns(self._schemas)
        offsets = columns.offsets
        offsets = np.arange(header.records) if offsets is None else offsets
        if rows is not None:
            columns, offsets = columns.take(rows), offsets[rows]
        form = (codec, header.timestamp_type)
        if columns.count and (self._form != form or not self._waiting.fits(columns)):
            self.flush()
        if frame.end_offset - self._end > MAX_SPAN:
            self.flush(holes=True)
        self._covered = frame.end_offset
        if columns.count:
            self._form = form
            self._waiting.add(replace(columns, offsets=offsets + frame.offset))

    def carry(self, frame: StoredFrame, codec: int | None = None) -> None:
        """Add a whole frame the cheapest way: copied, unless it is small or has another codec."""
        wanted = frame.header.codec if codec is None else codec
        small = frame.header.raw_length < SMALL_FRAME_BYTES
        if frame.header.codec == wanted and not small:
            self.copy(frame)
        else:
            self.add(frame, codec=wanted)

    def flush(self, *, holes: bool = False) -> None:
        """Write what waits as one frame. A hole alone waits for more records, unless ``holes``."""
        if self._covered == self._end or not (self._waiting.rows or holes):
            return
        columns, codec, deltas = NO_RECORDS, 0, None
        if self._waiting.rows:
            columns, codec = self._waiting.take_all(), self._form[0]
            assert columns.offsets is not None
            deltas = columns.offsets - self._end
            deltas = None if int(deltas[-1]) + 1 == columns.count else deltas
        start = self._end - self._base
        self._add(
            finish_frame(
                draft_frame(
                    columns,
                    relative_offset=start,
                    recovery_point=start,
                    compression=CODECS[codec],
                    level=self._config.compression_level,
                    deltas=deltas,
                    span=self._covered - self._end,
                )
            )
        )

    def _add(self, frame: EncodedFrame) -> None:
        self.place(frame)
        self._end += frame.header.span
        self._covered = self._end


class SegmentRewriter(FrameRewriter):
    """One new segment file."""

    def __init__(
        self, vfs: Vfs, path: str, base: int, config: StoreConfig, schemas: Schemas | None = None
    ) -> None:
        super().__init__(base, config, schemas)
        self._vfs = vfs
        self._path = path
        self._indexes = IndexBuilder(config.index_interval_bytes)
        with suppress(FileNotFoundError):  # left by a crash
            vfs.unlink(path)
        self._fd = vfs.open(path, "create")
        self._open = True
        self._buffers: list[Buffer] = []
        self._buffered = 0
        self._written = 0
        self._records = 0

    @property
    def size(self) -> int:
        """Bytes so far, without the records that wait."""
        return self._written + self._buffered

    def finish(self) -> Rewritten:
        """Write what waits, and make the file durable and read-only."""
        self.flush(holes=True)
        self._write()
        self._vfs.fsync(self._fd)
        self._vfs.make_read_only(self._fd)
        self.close()
        return Rewritten(
            self._path, self._base, self._end, self._written, self._records, self._indexes
        )

    def abandon(self) -> None:
        """Remove the file. Safe to call at any time."""
        self.close()
        with suppress(FileNotFoundError):
            self._vfs.unlink(self._path)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._vfs.close(self._fd)

    def place(self, frame: EncodedFrame) -> None:
        header = frame.header
        self._indexes.add(self._end, self.size, header)
        self._buffers += frame.buffers
        self._buffered += header.length
        self._records += header.records
        if self._buffered >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        start = self._written
        self._written = write_all(self._vfs, self._fd, self._buffers, start)
        self._vfs.begin_writeback(self._fd, start, self._written - start)
        self._buffers, self._buffered = [], 0
