"""Where a partition's last file ends, remembered so that only what is added has to be walked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import BrokenFrameError
from ..format.sparse_index import SparseIndex
from ..io.byte_source import Source
from ..vfs import FileStat

LAST_BYTES = 256


class RowEnd(NamedTuple):
    """The end of the last segment: where whole records end, and the damage behind them if any.

    ``life`` is another number for every file: names and inodes of deleted ones are used again, so
    a file is the one we know only if the bytes before the end are still those in ``last``.
    """

    path: str
    base: int
    stat: FileStat
    position: int
    offset: int
    torn: bool
    compacted: bool
    damage: BrokenFrameError | None
    entries: SparseIndex
    last: bytes
    life: int

    @property
    def size(self) -> int:
        return self.stat.size

    def is_of(self, path: str, base: int, stat: FileStat) -> bool:
        """Whether this is the end of a file as it stands there now."""
        return (self.path, self.base, self.stat) == (path, base, stat)

    def may_go_on(self, path: str, base: int, source: Source) -> bool:
        """Whether that file is this one with more behind it."""
        if (self.path, self.base) != (path, base) or self.damage is not None:
            return False
        if source.size < self.size:
            return False
        before = self.position - len(self.last)
        return self.last == bytes(source.read(before, len(self.last)))


def extended(index: SparseIndex, entries: SparseIndex) -> SparseIndex:
    """An index with what a walk met on its way, which is newer."""
    if not len(entries.offsets):
        return index
    keep = index.positions < entries.positions[0]
    return SparseIndex(
        np.concatenate((index.offsets[keep], entries.offsets)),
        np.concatenate((index.positions[keep], entries.positions)),
    )
