"""The I/O half of a handler: writes sealed batches to the partition's log, one append a cycle."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..engine.api import Log
from ..errors import RECORD_ERRORS, StorageError, WriteFailedError
from ..format.columns import Columns, make_columns
from ..store.store import Store
from ..types import ActiveFile
from .futures import Batch, Row

if TYPE_CHECKING:
    from .row_checks import CheckedRow, RowChecks

# Far below 2 GiB, the limit of one Arrow column of bytes.
_PIECE_BYTES = 256 << 20
# The queue checked each record when it accepted it.
_NO_LIMIT = 1 << 62


class _Unsynced(NamedTuple):
    end: int
    due: float
    batch: Batch


class PartitionWriter:
    """Writes batches. Not thread-safe: the handler's I/O lock guards it.

    Batches that are durable or failed are added to a list of the caller's, who announces them after
    it released the lock: announcing runs callbacks.
    """

    def __init__(
        self, store: Store, topic: str, partition: int, rows: RowChecks | None = None
    ) -> None:
        self._store = store
        self._rows = rows
        self._topic = topic
        self._partition = partition
        self._unsynced: deque[_Unsynced] = deque()
        self.failure: BaseException | None = None
        self.log: Log = store.partition_log(topic, partition)
        # Without records it only recovers the partition, if its last writer crashed.
        store.append_columns(topic, partition, self._columns([], None, None, None))
        self.active: ActiveFile = self.log.active

    @property
    def sync_due(self) -> float | None:
        """When the oldest unsynced record must be synced, under ``fsync=interval``."""
        return self._unsynced[0].due if self._unsynced else None

    def check(self, row: Row) -> None:
        """Raise if the layout cannot store this row."""
        value, key, headers, timestamp = row
        stamps = None if timestamp is None else [timestamp]
        columns = self._columns([value], [key], stamps, [headers])
        self._store.check_columns(self._topic, self._partition, columns)

    def refusal(self) -> StorageError:
        """The error for every append after a failed write."""
        error = WriteFailedError(
            f"{self._topic}-{self._partition} is closed for writing since a write failed: "
            f"{self.failure}. Check the disk, close the handlers and get new ones.",
            topic=self._topic,
            partition=self._partition,
        )
        error.__cause__ = self.failure
        return error

    def write(self, batches: list[Batch], decided: list[Batch]) -> None:
        """Write batches in order, with one append and one sync."""
        if not batches:
            return
        try:
            if self.failure is not None:
                raise self.refusal()
            end = self._append(batches)
        except BaseException as error:
            self._fail(batches, error, decided)
            if not isinstance(error, Exception):
                raise
            return
        if self.log.config.syncs_at_intervals:
            due = self._store.vfs.monotonic() + self.log.config.fsync_interval_ms / 1000
            self._unsynced.extend(_Unsynced(end, due, batch) for batch in batches)
            self._take_synced(decided)
        else:
            decided += batches

    def sync(self, decided: list[Batch]) -> None:
        """Sync what is not synced yet under ``fsync=interval``."""
        if not self._unsynced:
            return
        try:
            # Through the store: an interrupted commit may have to be finished first.
            self._store.flush_partition(self._topic, self._partition)
        except BaseException as error:
            self._fail([waiting.batch for waiting in self._unsynced], error, decided)
            self._unsynced.clear()
            if not isinstance(error, Exception):
                raise
            return
        decided += [waiting.batch for waiting in self._unsynced]
        self._unsynced.clear()

    def roll(self) -> None:
        """Seal the active segment; the next record opens a new one."""
        try:
            self._store.roll(self._topic, self._partition)
        except StorageError as error:
            self.failure = self.failure or error
            raise
        self.active = self.log.active

    def _take_synced(self, decided: list[Batch]) -> None:
        durable = self.log.recovery_point
        while self._unsynced and self._unsynced[0].end <= durable:
            decided.append(self._unsynced.popleft().batch)

    def _fail(self, batches: list[Batch], error: BaseException, decided: list[Batch]) -> None:
        if self.failure is None and not isinstance(error, RECORD_ERRORS):
            self.failure = error
        for batch in batches:
            batch.fail(error)
        decided += batches

    def _append(self, batches: list[Batch]) -> int:
        values = list(chain.from_iterable(batch.values for batch in batches))
        made = self._columns_of_rows(values) if self._rows else self._columns_of(values, batches)
        runs: list[range] = []
        for columns in made:
            written = self._store.append_columns(self._topic, self._partition, columns)
            runs.append(range(written.start, written.end))
        offsets = runs[0] if len(runs) == 1 else list(chain.from_iterable(runs))
        self.log = self._store.appended_log(self._topic, self._partition)
        self.active = self.log.active
        first = 0
        for batch in batches:
            rows = len(batch.values)
            batch.succeed(offsets[first : first + rows])
            first += rows
        return runs[-1].stop

    def _columns_of_rows(self, rows: list[Any]) -> Iterator[Columns]:
        """Rows of a typed topic; those of one schema version together."""
        assert self._rows is not None
        for _, group in groupby(rows, key=lambda row: row.reader.schema.version):
            waiting: list[CheckedRow] = []
            size = 0
            for row in group:
                if waiting and size + row.size > _PIECE_BYTES:
                    yield self._rows.columns(waiting, self._store.vfs.now_us(), None)
                    waiting, size = [], 0
                waiting.append(row)
                size += row.size
            yield self._rows.columns(waiting, self._store.vfs.now_us(), None)

    def _columns_of(self, values: list[Any], batches: list[Batch]) -> Iterator[Columns]:
        keys, timestamps, headers = (
            _joined(batches, name) for name in ("keys", "timestamps", "headers")
        )
        for start, stop in _pieces(values, keys):
            yield self._columns(
                values[start:stop],
                None if keys is None else keys[start:stop],
                None if timestamps is None else timestamps[start:stop],
                None if headers is None else headers[start:stop],
            )

    def _columns(self, values: list[Any], keys: Any, timestamps: Any, headers: Any) -> Columns:
        return make_columns(
            values,
            keys,
            timestamps,
            headers,
            now_us=self._store.vfs.now_us(),
            max_record_bytes=_NO_LIMIT,
        )


def _joined(batches: list[Batch], name: str) -> list[Any] | None:
    """One column of all batches; None if no record has it."""
    columns = [getattr(batch, name) for batch in batches]
    if not any(columns):
        return None
    joined: list[Any] = []
    for batch, column in zip(batches, columns, strict=True):
        joined += column
        joined += [None] * (len(batch.values) - len(column))
    return joined


def _pieces(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
) -> Iterator[tuple[int, int]]:
    """Divide the rows so that no piece is too large for one column; usually there is one."""
    total = sum(map(len, filter(None, chain(values, keys or ()))))
    if total <= _PIECE_BYTES:
        yield 0, len(values)
        return
    start = size = 0
    for row, value in enumerate(values):
        added = len(value or b"") + len((keys[row] if keys else None) or b"")
        if size + added > _PIECE_BYTES and row > start:
            yield start, row
            start, size = row, 0
        size += added
    yield start, len(values)
