"""The bytes of a broker's files after a position, one file after the other, as one stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..types import Int64s
from ..vfs import Buffer, Vfs

_SECTOR_BYTES = 512
Span = tuple[str, int, int]
"""A file's path, and the bytes of it that belong to the stream: from, to."""


class FilesAfter:
    """Reads the stream once, from its start. Used by one thread."""

    def __init__(self, vfs: Vfs, spans: Sequence[Span]) -> None:
        self._vfs = vfs
        self._spans = spans
        self._left = list(spans)
        self._taken: list[Span] = []
        self.left = sum(stop - start for _, start, stop in spans)

    def take(self, size: int) -> bytes:
        """The next bytes of the stream: fewer where it ends."""
        parts = []
        self._taken = []
        while size and self._left:
            path, start, stop = self._left[0]
            end = min(stop, start + size)
            parts.append(_read(self._vfs, path, start, end))
            self._taken.append((path, start, end))
            size -= end - start
            self.left -= end - start
            self._left[0] = (path, end, stop)
            if end == stop:
                del self._left[0]
        return b"".join(parts)

    def place(self) -> tuple[str, int]:
        """Where the next byte stands."""
        path, start, _ = self._left[0]
        return path, start

    def first_kept(self, different: Int64s) -> tuple[str, int] | None:
        """The place of the first byte, of those that were just taken, that no power cut explains.

        A sector that was never written reads as zeros. ``different`` are positions in the bytes
        that ``take`` returned last.
        """
        begin = 0
        for path, start, end in self._taken:
            inside = different[(different >= begin) & (different < begin + end - start)]
            positions = inside - begin + start
            for sector in np.unique(positions // _SECTOR_BYTES).tolist():
                if self._has_bytes(path, sector):
                    first = positions[positions >= sector * _SECTOR_BYTES][0]
                    return path, int(first)
            begin += end - start
        return None

    def _has_bytes(self, path: str, sector: int) -> bool:
        _, start, stop = next(span for span in self._spans if span[0] == path)
        first = max(start, sector * _SECTOR_BYTES)
        last = min(stop, (sector + 1) * _SECTOR_BYTES)
        return any(_read(self._vfs, path, first, last))


def _read(vfs: Vfs, path: str, start: int, stop: int) -> bytes:
    fd = vfs.open(path, "read")
    try:
        return vfs.pread(fd, stop - start, start)
    finally:
        vfs.close(fd)


def different(found: Buffer, expected: Buffer) -> Int64s:
    """The positions of bytes in ``found`` that are not as expected."""
    return np.flatnonzero(_bytes(found) != _bytes(expected)[: len(found)]).astype(np.int64)


def same_bytes(found: Buffer, expected: Buffer) -> int:
    """How many bytes at the start of ``found`` are as expected."""
    wrong = different(found, expected)
    return int(wrong[0]) if len(wrong) else len(found)


def _bytes(data: Buffer) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)
