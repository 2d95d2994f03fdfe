"""Bytes of a slice, read in ranges: few requests, one ahead, and bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from .backend import ObjectBackend
from .reads.read_ahead import ReadAhead

# A lookup wants little, a scan all: the first request is small, and each next one twice as large.
_FIRST_BYTES, _LARGEST_BYTES = 256 << 10, 8 << 20


class ObjectSource:
    """Random access to a range of an object. Used by one thread, closed after use.

    At most two windows are in memory: the one that is read, and the next one, which is fetched by a
    thread as soon as the reader goes on to its neighbour.
    """

    ahead = _LARGEST_BYTES

    def __init__(
        self,
        backend: ObjectBackend,
        key: str,
        start: int,
        size: int,
        on_missing: Callable[[], object],
        ahead: ReadAhead | None = None,
    ) -> None:
        self._backend = backend
        self._ahead = ahead
        self._key = key
        self._from = start
        self._on_missing = on_missing
        self._at = 0
        self._window = memoryview(b"")
        self._wanted = _FIRST_BYTES
        self._next: tuple[int, Future[memoryview]] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self.size = size

    def read(self, position: int, size: int) -> memoryview:
        position = min(position, self.size)
        size = min(size, self.size - position)
        if self._ahead is not None and (found := self._read_ahead(position, size)) is not None:
            return found
        if position < self._at or position + size > self._at + len(self._window):
            self._move_to(position, size)
        at = position - self._at
        return self._window[at : at + size]

    def expect(self, position: int, size: int) -> None:
        """Say how much will be wanted from a position on, so that one request gets it all."""
        if position < self._at or position >= self._at + len(self._window):
            self._wanted = min(max(size, _FIRST_BYTES), _LARGEST_BYTES)

    def _read_ahead(self, position: int, size: int) -> memoryview | None:
        assert self._ahead is not None
        try:
            return self._ahead.read(self._key, self._from + position, size)
        except FileNotFoundError:
            self._on_missing()
            raise

    def _move_to(self, position: int, size: int) -> None:
        after = self._at + len(self._window)
        # A frame may begin in this window and end in the next one: both are joined then.
        kept = self._window[position - self._at :] if self._at <= position < after else b""
        sequential = bool(len(self._window)) and self._at <= position <= after
        if sequential:
            self._wanted = min(2 * self._wanted, _LARGEST_BYTES)
        begin = position + len(kept)
        missing = min(max(size - len(kept), self._wanted), self.size - begin)
        fetched = self._take_next(begin)
        if fetched is None:
            fetched = self._fetch(begin, missing)
        elif len(fetched) + len(kept) < size:
            rest = begin + len(fetched)
            more = self._fetch(rest, min(size - len(kept) - len(fetched), self.size - rest))
            fetched = memoryview(bytes(fetched) + bytes(more))
        self._window = memoryview(bytes(kept) + bytes(fetched)) if len(kept) else fetched
        self._at = position
        if sequential:
            self._begin_next()

    def _begin_next(self) -> None:
        begin = self._at + len(self._window)
        size = min(self._wanted, self.size - begin)
        if size <= 0:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="storage-core-read")
        try:
            self._next = (begin, self._pool.submit(self._fetch, begin, size))
        except RuntimeError:  # Python starts no thread once the program ends
            self._next = None

    def _take_next(self, begin: int) -> memoryview | None:
        ready, self._next = self._next, None
        if ready is None:
            return None
        if ready[0] != begin:
            ready[1].cancel()
            return None
        return ready[1].result()

    def _fetch(self, position: int, size: int) -> memoryview:
        if size <= 0:
            return memoryview(b"")
        try:
            found = self._backend.get_ranges(self._key, [(self._from + position, size)])
        except FileNotFoundError:
            self._on_missing()
            raise
        return found.pieces[0]

    def close(self) -> None:
        """Stop the thread; views handed out stay valid."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._next = None
