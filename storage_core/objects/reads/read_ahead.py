"""Reading ahead: what a task will want of many slices, fetched in few large requests.

A task knows all its slices when it begins. Slices of several partitions stand side by side in one
object, so their ranges are joined into windows, and some windows are fetched before the reader
comes to them. Memory is bounded: ``_IN_FLIGHT_BYTES`` of windows, and the one that is read.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ..backend import ObjectBackend

_WINDOW_BYTES = 8 << 20
_IN_FLIGHT_BYTES = 3 * _WINDOW_BYTES
_THREADS = 4
# To skip so much costs less than another request.
_GAP_BYTES = 512 << 10


class Range(NamedTuple):
    """Bytes of an object, from ``begin`` (inclusive) to ``end`` (exclusive)."""

    key: str
    begin: int
    end: int


def joined(ranges: Sequence[Range], largest: int = _WINDOW_BYTES) -> list[Range]:
    """Windows that cover the ranges, in their order: near neighbours share one."""
    found: list[Range] = []
    for key, begin, end in ranges:
        last = found[-1] if found else None
        if last is not None and last.key == key and last.begin <= begin <= last.end + _GAP_BYTES:
            if end <= last.end:
                continue
            if end - last.begin <= largest:
                found[-1] = last._replace(end=end)
                continue
            begin = max(begin, last.end)
        while end - begin > largest:
            found.append(Range(key, begin, begin + largest))
            begin += largest
        if end > begin:
            found.append(Range(key, begin, end))
    return found


class ReadAhead:
    """The windows of one reader, who goes through them in order. Closed after use."""

    def __init__(self, backend: ObjectBackend, ranges: Sequence[Range]) -> None:
        self._backend = backend
        self._windows = joined(ranges)
        self._at = 0
        self._fetched: dict[int, Future[memoryview]] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._places: dict[str, tuple[list[int], list[int]]] = {}
        for number, window in enumerate(self._windows):
            begins, numbers = self._places.setdefault(window.key, ([], []))
            begins.append(window.begin)
            numbers.append(number)

    def read(self, key: str, position: int, size: int) -> memoryview | None:
        """Bytes of an object; None if they are not in the windows from the current one on.

        Raises:
            FileNotFoundError: there is no such object.
        """
        pieces = []
        while size:
            found = self._piece(key, position, size)
            if found is None:
                return None
            pieces.append(found)
            position, size = position + len(found), size - len(found)
        if len(pieces) == 1:
            return pieces[0]
        return memoryview(b"".join(pieces))

    def _piece(self, key: str, position: int, size: int) -> memoryview | None:
        with self._lock:
            number = self._window_of(key, position)
            if number is None:
                return None
            self._go_to(number)
            future = self._fetched.get(number)
        if future is None:
            return None
        at = position - self._windows[number].begin
        found = future.result()[at : at + size]
        return found or None  # the object is shorter than it should be

    def _window_of(self, key: str, position: int) -> int | None:
        """The first window that has the position and was not passed."""
        begins, numbers = self._places.get(key, ([], []))
        at = bisect.bisect_right(begins, position) - 1
        if at < 0 or numbers[at] < self._at or position >= self._windows[numbers[at]].end:
            return None
        return numbers[at]

    def _go_to(self, number: int) -> None:
        """Forget the windows before it, and fetch some after it."""
        for passed in [each for each in self._fetched if each < number]:
            self._fetched.pop(passed).cancel()
        self._at, size = number, 0
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="storage-core-read")
        while number < len(self._windows) and size < _IN_FLIGHT_BYTES:
            window = self._windows[number]
            size += window.end - window.begin
            if number not in self._fetched:
                try:
                    self._fetched[number] = self._pool.submit(self._fetch, window)
                except RuntimeError:  # Python starts no thread once the program ends
                    return
            number += 1

    def _fetch(self, window: Range) -> memoryview:
        size = window.end - window.begin
        return self._backend.get_ranges(window.key, [(window.begin, size)]).pieces[0]

    def close(self) -> None:
        """Stop the threads; views handed out stay valid."""
        with self._lock:
            self._windows, self._places, self._fetched = [], {}, {}
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
