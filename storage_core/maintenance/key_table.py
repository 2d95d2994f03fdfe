"""Which record of each key is the latest: a hash table in numpy, of a size that is given."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .key_digest import Digests, Int64s, UInt64s

ENTRY_BYTES = 24
_FULLEST = 0.75
_EMPTY, _CLAIMED = -1, -2


class KeyTable:
    """Digest of a key to the offset of its last record. Not thread-safe.

    Open addressing: a key stands in the slot its digest names or in one of the next. Whole columns
    are put in and looked up at once; each round of numpy settles the keys whose slot is free or
    theirs, and moves the others on. Where a column holds a key twice, numpy assigns in order, so
    the later record wins.
    """

    def __init__(self, memory_bytes: int) -> None:
        slots = 1 << max(4, (memory_bytes // ENTRY_BYTES).bit_length() - 1)
        self._mask = np.uint64(slots - 1)
        self._first: UInt64s = np.zeros(slots, dtype=np.uint64)
        self._second: UInt64s = np.zeros(slots, dtype=np.uint64)
        self._offsets: Int64s = np.full(slots, _EMPTY, dtype=np.int64)
        self.capacity = int(slots * _FULLEST)
        self.count = 0

    def put(self, keys: Digests, offsets: Int64s) -> None:
        """Note records; offsets rise, within a call and from call to call. There must be room."""
        slots = (keys.first & self._mask).astype(np.int64)
        left = np.arange(len(slots))
        while len(left):
            at, first, second = slots[left], keys.first[left], keys.second[left]
            free = self._offsets[at] == _EMPTY
            if free.any():
                claimed = at[free]
                self._first[claimed] = first[free]
                self._second[claimed] = second[free]
                self._offsets[claimed] = _CLAIMED
                self.count += len(np.unique(claimed))
            mine = (self._first[at] == first) & (self._second[at] == second)
            self._offsets[at[mine]] = offsets[left[mine]]
            left = left[~mine]
            slots[left] = (slots[left] + 1) & int(self._mask)

    def latest(self, keys: Digests) -> Int64s:
        """For each key the offset of its last record, or -1 if it was never put in."""
        slots = (keys.first & self._mask).astype(np.int64)
        found: npt.NDArray[np.int64] = np.full(len(slots), _EMPTY, dtype=np.int64)
        left = np.arange(len(slots))
        while len(left):
            at = slots[left]
            offsets = self._offsets[at]
            mine = (self._first[at] == keys.first[left]) & (self._second[at] == keys.second[left])
            mine &= offsets != _EMPTY
            found[left[mine]] = offsets[mine]
            left = left[~mine & (offsets != _EMPTY)]
            slots[left] = (slots[left] + 1) & int(self._mask)
        return found
