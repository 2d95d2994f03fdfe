"""Where the bytes of a segment come from: a map of a sealed file, or reads of an open one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ..errors import SegmentStateError
from ..vfs import Vfs
from .durable import opened

WINDOW_BYTES = 4 << 20


class Source(Protocol):
    """Random access to the first ``size`` bytes of a segment.

    ``ahead``: how many bytes a reader may ask for before it uses any.
    """

    size: int
    ahead: int

    def read(self, position: int, size: int) -> memoryview:
        """The bytes at ``position``, fewer at the end. The view outlives the source."""


class MappedSource:
    """A sealed segment: read-only memory map, no copy, safe for many threads.

    No reader may touch the map after the high watermark: if the append that sealed the segment
    fails, the writer truncates the file, and touching a page that is gone kills the process.
    """

    ahead = 32 << 20

    def __init__(self, vfs: Vfs, path: str) -> None:
        with opened(vfs, path, "read") as fd:
            try:
                self._view = vfs.map(fd) if vfs.fstat(fd).size else memoryview(b"")
            except ValueError:
                # Truncated to nothing since its size was read: the system maps no empty file.
                self._view = memoryview(b"")
        self.size = len(self._view)
        if self.size == 0:
            raise SegmentStateError(f"{path} is empty and cannot be mapped.", path=path)

    def read(self, position: int, size: int) -> memoryview:
        return self._view[position : position + size]


class WindowSource:
    """An open segment: positional reads through one window. Not safe for several threads.

    Never a map: recovery may truncate the file, and touching a mapped page after the new end
    kills the process.
    """

    def __init__(self, vfs: Vfs, fd: int, size: int, window: int = WINDOW_BYTES) -> None:
        self._vfs = vfs
        self.fd = fd
        self._window_bytes = window
        self._start = 0
        self._window = memoryview(b"")
        self.size = size
        self.ahead = window

    def read(self, position: int, size: int) -> memoryview:
        position = min(position, self.size)
        size = min(size, self.size - position)
        if position < self._start or position + size > self._start + len(self._window):
            wanted = min(max(size, self._window_bytes), self.size - position)
            self._window = memoryview(self._vfs.pread(self.fd, wanted, position))
            self._start = position
        at = position - self._start
        return self._window[at : at + size]

    def close(self) -> None:
        """Close the file; views handed out stay valid."""
        self._vfs.close(self.fd)


@contextmanager
def open_source(vfs: Vfs, path: str, window: int) -> Iterator[WindowSource]:
    """A file opened for positional reads of at least ``window`` bytes; closed at the end."""
    with opened(vfs, path, "read") as fd:
        yield WindowSource(vfs, fd, vfs.fstat(fd).size, window)
