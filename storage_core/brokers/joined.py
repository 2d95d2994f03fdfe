"""Small closed files read as if they were one.

A broker that rolls every megabyte leaves thousands of files, and what has to be done per file would
cost more than the records. Rows that end whole may simply follow each other, so neighbouring files
become one run of bytes with one index; only an error has to be told in terms of a single file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..format.sparse_index import SparseIndex
from ..io.byte_source import MappedSource
from ..vfs import Vfs

# Joining copies, which costs more than what it saves when the files are large.
_LARGE_BYTES = 256 << 10
WHOLE_BYTES = 8 << 20
"""Who asks for more than this gets all of it: a record may be larger than a file."""


class ClosedFile(NamedTuple):
    """A closed file that ends whole: path, first offset, size, and where some records are."""

    path: str
    base: int
    size: int
    entries: SparseIndex


class JoinedSource:
    """The bytes of several closed files, one behind the other. Not safe for several threads."""

    ahead = WHOLE_BYTES

    def __init__(self, vfs: Vfs, files: Sequence[ClosedFile]) -> None:
        self._vfs = vfs
        self._files = files
        self._starts = np.cumsum([0, *(file.size for file in files)])
        self.size = int(self._starts[-1])
        self._start = 0
        self._window = memoryview(b"")

    def read(self, position: int, size: int) -> memoryview:
        """The bytes there; fewer where a file ends that is large enough to be read by itself."""
        position = min(position, self.size)
        size = min(size, self.size - position)
        if size <= WHOLE_BYTES:
            left = int(self._starts[self._holding(position) + 1]) - position
            size = min(size, left) if left >= _LARGE_BYTES else size
        if position < self._start or position + size > self._start + len(self._window):
            self._window = self._join(position, size)
            self._start = position
        at = position - self._start
        return self._window[at : at + size]

    def _join(self, position: int, size: int) -> memoryview:
        first = self._holding(position)
        parts = []
        while size:
            start, file = int(self._starts[first]), self._files[first]
            source = MappedSource(self._vfs, file.path)
            if source.size != file.size:
                raise BrokenFrameError(
                    f"the file has {source.size} bytes and had {file.size} when it was listed",
                    position=start,
                    offset=file.base,
                )
            part = source.read(position - start, size)
            parts.append(part)
            position, size, first = position + len(part), size - len(part), first + 1
        return parts[0] if len(parts) == 1 else _together(parts)

    def locate(self, position: int) -> tuple[str, int]:
        """The file that has the byte at ``position``, and where in it."""
        at = self._holding(position)
        return self._files[at].path, position - int(self._starts[at])

    def _holding(self, position: int) -> int:
        at = int(np.searchsorted(self._starts, position, side="right")) - 1
        return min(at, len(self._files) - 1)


def _together(parts: Sequence[memoryview]) -> memoryview:
    """One copy of all, in memory of Arrow's pool: it was used before, so its pages are there."""
    joined, at = memoryview(pa.allocate_buffer(sum(map(len, parts)))).cast("B"), 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined.toreadonly()


def joined_index(files: Sequence[ClosedFile]) -> SparseIndex:
    """One index for all files."""
    starts = np.cumsum([0, *(file.size for file in files[:-1])])
    positions = [file.entries.positions + start for file, start in zip(files, starts, strict=True)]
    offsets = [file.entries.offsets for file in files]
    return SparseIndex(np.concatenate(offsets), np.concatenate(positions))
