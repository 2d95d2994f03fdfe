"""Futures of offsets, cheap enough to create one for every record.

A standard ``Future`` creates a condition with its lock, two lists and a state, and each is resolved
alone: 4.6 µs for a record, more than all other work on it. Here the records that are written
together share one ``Batch`` with one event; the future of a record is a pair of batch and index.
The rest of a standard future is created only if a caller needs it: for callbacks,
``concurrent.futures.wait``, ``as_completed``, ``asyncio.wrap_future``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import WriteFailedError

if TYPE_CHECKING:
    from .row_checks import CheckedRow

Header: TypeAlias = tuple[str, bytes | None]
Value: TypeAlias = "bytes | CheckedRow | None"
Row: TypeAlias = tuple[Value, bytes | None, Sequence[Header] | None, int | None]
"""Value, key, headers and timestamp of one record, checked; a typed row stands in its value."""


class Batch:
    """Records that are written together, and their result. Safe for several threads.

    The lock of the queue guards the rows, the lock of the batch guards the result.
    """

    __slots__ = (
        "_error",
        "_event",
        "_hurry",
        "_lock",
        "_trace",
        "_watched",
        "done",
        "headers",
        "keys",
        "offsets",
        "opened",
        "timestamps",
        "values",
    )

    def __init__(self, opened: float, hurry: Callable[[Batch], None]) -> None:
        self.values: list[Value] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Sequence[Header] | None] = []
        self.timestamps: list[int | None] = []
        self.opened = opened
        self.offsets: Sequence[int] = ()
        self.done = False
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._hurry = hurry
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._watched: list[PendingOffset] = []

    def add_rest(self, row: Row) -> None:
        """Store key, headers and timestamp of the last row; a column begins with its first use."""
        _, key, headers, timestamp = row
        before = len(self.values) - 1
        if key is not None:
            _fill(self.keys, before).append(key)
        if headers is not None:
            _fill(self.headers, before).append(headers)
        if timestamp is not None:
            _fill(self.timestamps, before).append(timestamp)

    def succeed(self, offsets: Sequence[int]) -> None:
        """The records are durable at these offsets; ``announce`` resolves their futures."""
        self.offsets = offsets
        self._drop_rows()

    def fail(self, error: BaseException) -> None:
        """The records were not written; ``announce`` resolves their futures."""
        self._error, self._trace = error, error.__traceback__
        self._drop_rows()

    def announce(self) -> None:
        """Resolve all futures. Runs callbacks, so no lock of the owner may be held."""
        if self._error is None and not self.offsets:
            self.fail(
                WriteFailedError("the write was interrupted: the record may or may not be stored.")
            )
        with self._lock:
            self.done = True
            watched, self._watched = self._watched, []
        self._event.set()
        interrupt: BaseException | None = None
        for future in watched:
            try:
                future.complete()
            except BaseException as error:
                # Futures log exceptions of callbacks. This one ends the thread, after the others.
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def watch(self, future: PendingOffset) -> bool:
        """Complete ``future`` together with the batch; False if the batch is done."""
        with self._lock:
            if not self.done:
                self._watched.append(future)
            return not self.done

    def wait(self, timeout: float | None) -> None:
        """Wait until the batch is done; its owner writes it now.

        Raises:
            TimeoutError: the batch is not done after ``timeout`` seconds.
        """
        if not self.done:
            self.hurry()
            if not self._event.wait(timeout):
                raise TimeoutError

    def hurry(self) -> None:
        """A caller waits: write the records now instead of letting them linger."""
        self._hurry(self)

    def error(self) -> BaseException | None:
        """Why the records were not written; it can be raised again.

        Each raise extends the traceback of an exception. It is reset here, because thousands of
        futures may raise the same exception.
        """
        return None if self._error is None else self._error.with_traceback(self._trace)

    def _drop_rows(self) -> None:
        """A future that is kept must not keep the records of its batch in memory."""
        self.values, self.keys, self.headers, self.timestamps = [], [], [], []


def _fill(column: list[Any], rows: int) -> list[Any]:
    column.extend([None] * (rows - len(column)))
    return column


class PendingOffset(Future[int]):
    """Resolves to a record's offset once the record is durable. Safe for several threads.

    ``result``, ``exception``, ``wait`` and ``as_completed`` make the handler write the record at
    once; callbacks do not. It cannot be cancelled: the record is accepted.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        # Without the base class's ``__init__``: ``_materialise`` calls it when it is needed.
        self._batch = batch
        self._index = index

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that ``Future.__init__`` sets: now they are needed."""
        if name not in _LAZY:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._materialise()
        self._batch.hurry()
        return object.__getattribute__(self, name)

    def result(self, timeout: float | None = None) -> int:
        batch = self._batch
        if not batch.done:
            batch.wait(timeout)
        error = batch.error()
        if error is None:
            return batch.offsets[self._index]
        try:
            raise error
        finally:
            # The traceback refers to this frame, and the frame would refer to the error: a cycle.
            del error, batch, self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._batch.wait(timeout)
        return self._batch.error()

    def done(self) -> bool:
        return self._batch.done

    def running(self) -> bool:
        return not self._batch.done

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Future[int]], object]) -> None:
        self._materialise()
        super().add_done_callback(fn)

    def complete(self) -> None:
        """Give the materialised future the result of its batch."""
        error = self._batch.error()
        if error is None:
            self.set_result(self._batch.offsets[self._index])
        else:
            self.set_exception(error)

    def __repr__(self) -> str:
        state = "finished" if self._batch.done else "pending"
        return f"<{type(self).__name__} at {id(self):#x} state={state}>"

    def _materialise(self) -> None:
        with _materialising:
            if "_condition" in self.__dict__:
                return
            super().__init__()
            watched = self._batch.watch(self)
        if not watched:
            self.complete()


_LAZY = frozenset(vars(Future()))
_materialising = threading.Lock()
