"""The bounded queue between callers that append single records and the thread that writes them.

Records collect in one open batch. A *sealed* batch gets no more records, and batches are written in
the order in which they were sealed. Everything here happens in memory, under one lock that is never
held across I/O.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import TypeAlias

from ..config import StoreConfig
from ..errors import InvalidRecordError, StorageError, StoreClosedError
from ..format.columns import check_times, microseconds
from ..format.record_sizes import check_size
from ..vfs import Vfs
from .futures import Batch, Header, PendingOffset, Row

Bytes: TypeAlias = bytes | bytearray | memoryview | str
Headers: TypeAlias = Mapping[str, Bytes | None] | Sequence[tuple[str, Bytes | None]]

_NEVER = 1 << 62
PLAIN_BYTES = 32 << 10
"""Every layout that stores keys or values stores them up to this number of bytes."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.1
_WARNING_INTERVAL_S = 1.0
_TRIES = 100
_log = logging.getLogger("storage_core")


class WriteQueue(ABC):
    """Accepted records that wait to be written. Safe for several threads."""

    def __init__(self, name: str, vfs: Vfs, config: StoreConfig) -> None:
        self.name = name
        self._vfs = vfs
        self._max_record_bytes = config.max_record_bytes
        self._plain_bytes = min(PLAIN_BYTES, config.max_record_bytes)
        self._capacity = config.channel_buffer_size
        self._trigger = min(config.disk_flush_batch_size, self._capacity)
        self._linger_s = config.linger_ms / 1000
        self._timeout_s = config.disk_write_timeout_ms / 1000
        self._meta = threading.Lock()
        self._work = threading.Condition(self._meta)
        self._room = threading.Condition(self._meta)
        self._waiting_for_room = 0
        self._unreported = 0
        self._warn_again_at = float("-inf")
        self._open = Batch(vfs.monotonic(), self._hurry)
        self._sealed: deque[Batch] = deque()
        self._urgent = False
        self._closing = False
        self._failure: BaseException | None = None
        # One comparison each in ``append``: the maximum of rows in the open batch (0 once closed or
        # failed), and the number of rows at which to wake the writer (never while it is awake).
        self._limit = self._capacity
        self._wake_at = _NEVER

    def append(
        self,
        value: Bytes | None,
        key: Bytes | None = None,
        *,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
    ) -> Future[int]:
        """Queue one record; the future gives its offset once it is durable.

        Returns at once while the queue has room. If it is full, the call waits up to
        ``disk_write_timeout_ms``; then the calling thread writes the record, after all records that
        were queued before it.

        Args:
            value: The value; text is stored as UTF-8, None is a null value.
            key: As value.
            headers: Names and values, as a mapping or pairs.
            timestamp: A datetime (without zone: UTC) or integer microseconds since 1970; the append
                time by default.

        Raises:
            StoreClosedError: the handler was closed.
            WriteFailedError: an earlier write failed; the handler accepts no records.
        """
        plain = key is None and headers is None and timestamp is None
        if not plain or type(value) is not bytes or len(value) > self._plain_bytes:
            return self._append_row(self._checked((value, key, headers, timestamp)))
        meta = self._meta
        if not meta.acquire(blocking=False):
            self._acquire_in_turn()
        try:
            batch = self._open
            values = batch.values
            index = len(values)
            if index < self._limit:
                values.append(value)
                if index + 1 >= self._wake_at:
                    self._wake()
                return PendingOffset(batch, index)
        finally:
            meta.release()
        return self._append_row((value, None, None, None))

    def _acquire_in_turn(self) -> None:
        """Take the lock, which another thread has, without standing in a line for it.

        A thread in the line owns the lock before it may run Python. All others then stand in the
        line too, and from then on every append switches threads.
        """
        for _ in range(_TRIES):
            self._vfs.sleep(0)  # lets another thread run
            if self._meta.acquire(blocking=False):
                return
        self._meta.acquire()

    def _append_row(self, row: Row) -> Future[int]:
        with self._meta:
            if self._wait_for_room():
                return self._put(row)
        self._warn_of_full_queue()
        return self._append_now(row)

    def _warn_of_full_queue(self) -> None:
        """Log that a record is written synchronously: once a second at most, with a count."""
        with self._meta:
            self._unreported += 1
            now = self._vfs.monotonic()
            if now < self._warn_again_at:
                return
            self._warn_again_at, count = now + _WARNING_INTERVAL_S, self._unreported
            self._unreported = 0
        _log.warning(
            "%s: the queue of %d records stayed full for %d ms; writing synchronously (%d records "
            "since the last warning)",
            self.name,
            self._capacity,
            self._timeout_s * 1000,
            count,
        )

    def _append_now(self, row: Row, *, sync: bool = False) -> Future[int]:
        """Queue a record even if the queue is full, and write all records in this thread."""
        with self._meta:
            self._require_open()
            future = self._put(row)
        self._drain(sync=sync)
        return future

    @abstractmethod
    def _drain(self, *, sync: bool = False) -> None:
        """Write everything that is queued now; on return it is durable or failed.

        Args:
            sync: Sync now, also under ``fsync=interval``.
        """

    def _wait_for_room(self) -> bool:
        """Wait until a row fits; False after the timeout. The caller holds the lock."""
        wait = _FIRST_WAIT_S
        deadline: float | None = None
        while True:
            self._require_open()
            if len(self._open.values) < self._limit:
                return True
            now = self._vfs.monotonic()
            deadline = now + self._timeout_s if deadline is None else deadline
            if now >= deadline:
                return False
            self._wake()
            self._waiting_for_room += 1
            self._room.wait(min(wait, deadline - now))
            self._waiting_for_room -= 1
            wait = min(wait * 2, _LONGEST_WAIT_S)

    def _put(self, row: Row) -> PendingOffset:
        batch = self._open
        index = len(batch.values)
        batch.values.append(row[0])
        batch.add_rest(row)
        if index + 1 >= self._wake_at:
            self._wake()
        return PendingOffset(batch, index)

    def _seal(self) -> None:
        """Fix the order of all rows queued so far. The caller holds the lock."""
        self._urgent = False
        if self._open.values:
            self._sealed.append(self._open)
            self._open = Batch(self._vfs.monotonic(), self._hurry)
            if self._waiting_for_room:
                self._room.notify_all()

    def _wake(self) -> None:
        """Wake the writer if it sleeps. The caller holds the lock."""
        if self._wake_at != _NEVER:
            self._wake_at = _NEVER
            self._work.notify()

    def _hurry(self, batch: Batch) -> None:
        """A caller waits for a future of ``batch``: end the linger if the batch is open."""
        with self._meta:
            if batch is self._open:
                self._urgent = True
                self._wake()

    def _wait_for_work(self, due_at: float | None) -> bool:
        """Sleep until there are records to write or ``due_at`` is reached; False when closing.

        The size of a batch wakes the writer and does not bound the batch: it may grow until then.
        """
        with self._meta:
            while not self._closing:
                now = self._vfs.monotonic()
                rows = len(self._open.values)
                if rows >= self._trigger or (rows and self._urgent):
                    return True
                due = due_at
                if rows:
                    lingered = self._open.opened + self._linger_s
                    due = lingered if due is None else min(due, lingered)
                if due is not None and now >= due:
                    return True
                self._wake_at = self._trigger if rows else 1
                self._work.wait(None if due is None else due - now)
                self._wake_at = _NEVER
                if not rows:
                    self._open.opened = self._vfs.monotonic()
        return False

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._refusal()
        if self._closing:
            raise StoreClosedError(f"the handler {self.name} was closed. Get a new one to write.")

    @abstractmethod
    def _refusal(self) -> StorageError:
        """The error for an append after a failed write."""

    def _checked(self, row: tuple[object, object, Headers | None, object]) -> Row:
        """The row as it is stored, or an error for this record alone."""
        value, key, headers, timestamp = row
        checked = (
            stored_bytes("value", value),
            stored_bytes("key", key),
            _headers(headers),
            _timestamp(timestamp),
        )
        check_size(_size(checked), self._max_record_bytes)
        return checked


def stored_bytes(name: str, item: object) -> bytes | None:
    """Bytes or text as a log stores them.

    Raises:
        InvalidRecordError: it is neither, nor None; names ``name``.
    """
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"{name} cannot be encoded as UTF-8: {error}") from error
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise InvalidRecordError(f"{name} must be bytes, text or None, got {type(item).__name__}.")


def _headers(headers: Headers | None) -> list[Header] | None:
    if headers is None:
        return None
    try:
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        return [(_header_name(name), stored_bytes("a header", value)) for name, value in pairs]
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(
            f"headers must be a mapping or pairs of name and bytes: {error}"
        ) from error


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidRecordError(f"a header's name must be text, got {type(name).__name__}.")
    return name


def _timestamp(moment: object) -> int | None:
    number = microseconds(moment)
    if number is not None:
        check_times(number, number)
    return number


def _size(row: Row) -> int:
    value, key, headers, _ = row
    assert not isinstance(value, tuple)
    size = len(value or b"") + len(key or b"")
    for name, content in headers or ():
        size += len(name.encode()) + len(content or b"")
    return size
