"""Many records to frames: batches cut, or joined, to the size of a frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..config import StoreConfig
from ..io.parallel import map_on_processors
from ..types import NO_TIMESTAMP, TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED
from .columns import Columns, concat_columns
from .frame import MAX_SPAN, DraftFrame, EncodedFrame, draft_frame, finish_frame
from .record_sizes import fitting_rows

# Whoever copies frames joins smaller ones: a frame of one record costs 284 bytes and 20 us a read.
SMALL_FRAME_BYTES = 128 << 10


NO_RECORDS = Columns(
    0, NO_TIMESTAMP, TIMESTAMP_SUPPLIED, None, None, None, np.zeros(1, dtype=np.int64)
)
"""What is in a frame that only covers a hole."""


class FramePlace(NamedTuple):
    """Where a frame goes: its first offset, its segment's base offset, and the recovery point."""

    offset: int
    segment_base: int
    recovery_point: int


def encode_frames(
    columns: Columns,
    row: int,
    place: FramePlace,
    *,
    room: Callable[[int], int],
    most: int,
    config: StoreConfig,
) -> list[EncodedFrame]:
    """Encode records from ``row`` on, about ``most`` bytes of them, as far as they fit.

    ``room(n)`` says how many bytes the segment can take after ``n`` more. Several frames are
    compressed at once.
    """
    drafts, size = list[DraftFrame](), 0
    while row < columns.count and size < most:
        draft = _draft_next(columns, row, place, config)
        header = draft.header
        if not header.codec and header.length > room(size):
            break
        drafts.append(draft)
        size += header.length
        row += header.records
        place = place._replace(offset=place.offset + header.span)
    frames, stored = list[EncodedFrame](), 0
    for frame in map_on_processors(finish_frame, drafts, size):
        if frame.header.length > room(stored):
            break
        frames.append(frame)
        stored += frame.header.length
    return frames


def hole_frame(span: int, place: FramePlace) -> EncodedFrame:
    """A frame without a record: no record will ever get the offsets that it covers."""
    return finish_frame(
        draft_frame(
            NO_RECORDS,
            relative_offset=place.offset - place.segment_base,
            recovery_point=max(0, place.recovery_point - place.segment_base),
            compression="none",
            level=0,
            span=span,
        )
    )


def rows_for_one_frame(columns: Columns, row: int, config: StoreConfig) -> int:
    """As many rows from ``row`` on as ``frame_records`` and ``frame_bytes`` allow, at least one."""
    return max(1, fitting_rows(columns.bounds[row:], config.frame_records, config.frame_bytes))


def _draft_next(columns: Columns, row: int, place: FramePlace, config: StoreConfig) -> DraftFrame:
    rows = rows_for_one_frame(columns, row, config)
    deltas = None
    if columns.offsets is not None:
        deltas = columns.offsets[row : row + rows] - place.offset
        rows = max(1, int(np.searchsorted(deltas, MAX_SPAN)))
        deltas = None if deltas[rows - 1] + 1 == rows else deltas[:rows]
    return draft_frame(
        columns.slice(row, row + rows),
        relative_offset=place.offset - place.segment_base,
        recovery_point=max(0, place.recovery_point - place.segment_base),
        compression=config.compression,
        level=config.compression_level,
        deltas=deltas,
    )


class FrameBuilder:
    """Waiting records of one topic-partition, in their order. Used by one thread.

    A frame gets at most ``max_records`` records and ``max_bytes`` bytes of them.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._waiting: deque[Columns] = deque()
        self.rows = 0
        self.size = 0

    @property
    def is_full(self) -> bool:
        """Whether a whole frame waits."""
        return self.rows >= self._max_records or self.size >= self._max_bytes

    def fits(self, columns: Columns) -> bool:
        """Whether all that waits and these records can be one frame."""
        rows, size = self.rows + columns.count, self.size + columns.size
        fitting = rows <= self._max_records and size <= self._max_bytes
        return fitting and self.can_join(columns)

    def can_join(self, columns: Columns) -> bool:
        """Whether these records have the schema version of all that waits."""
        return not self._waiting or self._waiting[-1].schema == columns.schema

    def add(self, columns: Columns) -> None:
        """Let records wait after the others."""
        self._waiting.append(columns)
        self.rows += columns.count
        self.size += columns.size

    def take_all(self) -> Columns:
        """All that waits, at least one record, as one batch; all of it has one schema version."""
        taken = concat_columns(self._waiting)
        self._waiting.clear()
        self.rows = self.size = 0
        return taken

    def take(self) -> Columns:
        """The records of the next frame, no more than one may hold, at least one.

        A batch that fills half a frame is cut evenly into frames of its own, slices of it. Only
        smaller ones are joined, and with what follows them, which copies them.
        """
        share = self._even_share(self._waiting[0])
        pieces = [self._cut(share, self._max_bytes)]
        if 2 * share < self._max_records and 2 * pieces[0].size < self._max_bytes:
            pieces += self._followers(pieces[0])
        taken = concat_columns(_stamped_together(pieces))
        self.rows -= taken.count
        self.size -= taken.size
        return taken

    def _even_share(self, batch: Columns) -> int:
        """How many records each frame of a batch gets, if all get about as many."""
        by_rows = -(-batch.count // self._max_records)
        by_size = -(-batch.size // self._max_bytes)
        return -(-batch.count // max(by_rows, by_size))

    def _followers(self, first: Columns) -> Iterator[Columns]:
        """What fits into the frame after its first records."""
        rows = self._max_records - first.count
        room = self._max_bytes - first.size
        while (
            self._waiting
            and self._waiting[0].schema == first.schema
            and fitting_rows(self._waiting[0].bounds, rows, room)
        ):
            yield (piece := self._cut(rows, room))
            rows -= piece.count
            room -= piece.size

    def _cut(self, rows: int, room: int) -> Columns:
        """The first records that wait, of one batch; one larger than a frame comes alone."""
        batch = self._waiting.popleft()
        count = fitting_rows(batch.bounds, rows, room) or 1
        if count < batch.count:
            self._waiting.appendleft(batch.slice(count, batch.count))
        return batch.slice(0, count)


def _stamped_together(pieces: Sequence[Columns]) -> Sequence[Columns]:
    """The same records; if all were stamped on the way in, the last stamp is everyone's.

    A frame with one time stores no column for it. Batches that came a moment apart would cost eight
    bytes for each record.
    """
    stamps = [
        piece.timestamps
        for piece in pieces
        if piece.timestamp_type == TIMESTAMP_APPENDED and isinstance(piece.timestamps, int)
    ]
    if len(stamps) < len(pieces) or len(set(stamps)) == 1:
        return pieces
    return [replace(piece, timestamps=max(stamps)) for piece in pieces]
