"""Records on their way into a staged file: they wait here until they fill a frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..config import StoreConfig
from ..format.columns import Columns, concat_columns
from ..format.record_sizes import fitting_rows
from ..types import TIMESTAMP_APPENDED


class FrameQueue:
    """The waiting records of one topic-partition, in their order. Used by one thread."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._waiting: deque[Columns] = deque()
        self.rows = 0
        self.size = 0

    @property
    def is_full(self) -> bool:
        """Whether a whole frame waits."""
        return self.rows >= self._config.frame_records or self.size >= self._config.frame_bytes

    def add(self, columns: Columns) -> None:
        """Queue records behind the others."""
        self._waiting.append(columns)
        self.rows += columns.count
        self.size += columns.size

    def take(self) -> Columns:
        """The records of the next frame, no more than one may hold, at least one.

        A batch that fills half a frame is cut evenly into frames of its own, slices of it. Only
        smaller ones are joined, and with what follows them, which copies them.
        """
        share = self._even_share(self._waiting[0])
        pieces = [self._cut(share, self._config.frame_bytes)]
        if 2 * share < self._config.frame_records and 2 * pieces[0].size < self._config.frame_bytes:
            pieces += self._followers(pieces[0])
        taken = concat_columns(_stamped_together(pieces))
        self.rows -= taken.count
        self.size -= taken.size
        return taken

    def _even_share(self, batch: Columns) -> int:
        """How many records each frame of a batch gets, if all get about as many."""
        by_rows = -(-batch.count // self._config.frame_records)
        by_size = -(-batch.size // self._config.frame_bytes)
        return -(-batch.count // max(by_rows, by_size))

    def _followers(self, first: Columns) -> Iterator[Columns]:
        """What fits into the frame behind its first records."""
        rows = self._config.frame_records - first.count
        room = self._config.frame_bytes - first.size
        while self._waiting and fitting_rows(self._waiting[0].bounds, rows, room):
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

    One time for a frame takes no room in it, where batches that came a moment apart would make it
    hold a column of eight bytes for each record.
    """
    stamps = [
        piece.timestamps
        for piece in pieces
        if piece.timestamp_type == TIMESTAMP_APPENDED and isinstance(piece.timestamps, int)
    ]
    if len(stamps) < len(pieces):
        return pieces
    return [replace(piece, timestamps=max(stamps)) for piece in pieces]
