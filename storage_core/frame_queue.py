"""Records on their way into a staged file: they wait here until they fill a frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from .bounds import fitting_rows
from .columns import Columns, concat_columns
from .config import StoreConfig
from .records import TIMESTAMP_APPENDED


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
        """The records of the next frame, as many as one may hold, at least one.

        Only a frame in which two batches meet is copied; one from within a batch is a slice of it.
        """
        pieces: list[Columns] = []
        rows, room = self._config.frame_records, self._config.frame_bytes
        while self._waiting and rows:
            batch = self._waiting.popleft()
            # A record larger than a frame gets one of its own.
            count = fitting_rows(batch.bounds, rows, room) or (0 if pieces else 1)
            if count:
                pieces.append(batch.slice(0, count))
                rows -= count
                room -= pieces[-1].size
            if count < batch.count:
                self._waiting.appendleft(batch.slice(count, batch.count))
                break
        taken = concat_columns(_stamped_together(pieces))
        self.rows -= taken.count
        self.size -= taken.size
        return taken


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
