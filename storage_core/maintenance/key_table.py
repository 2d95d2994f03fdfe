"""Which record of each key is the latest: a hash table in numpy, of a given size.

The table knows a key by a digest of 128 bits and takes two keys with equal digests for one. Each
compaction seeds the digest at random, so that nobody can choose keys that collide. The digest mixes
a key eight bytes at a time into two words. Every step can be undone, so two keys of one length get
the same word only by chance, once in 2**64 pairs for each of the two words. Zeros fill up the last
bytes; the length is mixed in first. Keys of more than a kilobyte go through BLAKE2b one by one:
there its speed counts, not the call.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..types import Int64s

UInt64s = npt.NDArray[np.uint64]

SEED_BYTES = 16
ENTRY_BYTES = 24
_FULLEST = 0.75
_EMPTY, _CLAIMED = -1, -2

_WORD_BYTES = 8
_LONG_KEY = 1024
# Keys hashed at once: few enough for the temporary arrays to stay in the cache of one core.
_BLOCK = 1 << 14
_FACTORS = (
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)
_SHIFTS = (np.uint64(33), np.uint64(29))
# Element n keeps the n bytes of the key that a last word has.
_TAILS = np.array([0, *((1 << 8 * size) - 1 for size in range(1, 9))], dtype=np.uint64)


class Digests(NamedTuple):
    """The two words of every key's digest."""

    first: UInt64s
    second: UInt64s

    def slice(self, start: int, stop: int) -> Digests:
        """The digests of some of the keys, without copying."""
        return Digests(self.first[start:stop], self.second[start:stop])


class KeyTable:
    """Digest of a key to the offset of its last record. Not thread-safe.

    Open addressing: a key is in the slot that its digest names or in one of the next. Whole columns
    are put in and looked up at once. Each round of numpy is done with the keys whose slot is free
    or already theirs, and moves the others on by one slot. Where a column has a key twice, numpy
    assigns in order, so the later record stays.
    """

    def __init__(self, memory_bytes: int) -> None:
        slots = 1 << max(4, (memory_bytes // ENTRY_BYTES).bit_length() - 1)
        self._mask = np.uint64(slots - 1)
        self._first: UInt64s = np.zeros(slots, dtype=np.uint64)
        self._second: UInt64s = np.zeros(slots, dtype=np.uint64)
        self._offsets: Int64s = np.full(slots, _EMPTY, dtype=np.int64)
        self.capacity = int(slots * _FULLEST)
        self.count = 0

    def put_while_room(self, keys: Digests, offsets: Int64s) -> int | None:
        """Put records in order; the offset of the first that found no room, or None."""
        at = 0
        while at < len(offsets):
            room = self.capacity - self.count
            if room <= 0:
                return int(offsets[at])
            self.put(keys.slice(at, at + room), offsets[at : at + room])
            at += room
        return None

    def put(self, keys: Digests, offsets: Int64s) -> None:
        """Put records in; offsets rise, within a call and from call to call. There must be room."""
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
            same = (self._first[at] == first) & (self._second[at] == second)
            self._offsets[at[same]] = offsets[left[same]]
            left = left[~same]
            slots[left] = (slots[left] + 1) & int(self._mask)

    def latest(self, keys: Digests) -> Int64s:
        """For each key the offset of its last record, or -1 if it was never put in."""
        slots = (keys.first & self._mask).astype(np.int64)
        found: Int64s = np.full(len(slots), _EMPTY, dtype=np.int64)
        left = np.arange(len(slots))
        while len(left):
            at = slots[left]
            offsets = self._offsets[at]
            same = (self._first[at] == keys.first[left]) & (self._second[at] == keys.second[left])
            same &= offsets != _EMPTY
            found[left[same]] = offsets[same]
            left = left[~same & (offsets != _EMPTY)]
            slots[left] = (slots[left] + 1) & int(self._mask)
        return found


def digests(keys: pa.Array, seed: bytes) -> Digests:
    """The digests of a binary array without nulls.

    Args:
        keys: The keys; sliced or not.
        seed: ``SEED_BYTES`` random bytes, the same for all keys that are compared.
    """
    count = len(keys)
    found = Digests(np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint64))
    if not count:
        return found
    _, edge_buffer, data_buffer = keys.buffers()
    edges = np.frombuffer(edge_buffer, np.int32)[keys.offset : keys.offset + count + 1]
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    for low in range(0, count, _BLOCK):
        part = slice(low, min(low + _BLOCK, count))
        around = edges[part.start : part.stop + 1].astype(np.int64)
        # With room after the last key: words are read whole.
        octets = np.zeros(int(around[-1] - around[0]) + _WORD_BYTES, dtype=np.uint8)
        octets[:-_WORD_BYTES] = data[around[0] : around[-1]]
        words = np.ndarray((len(octets) - _WORD_BYTES + 1,), "<u8", octets, strides=(1,))
        starts, lengths = around[:-1] - around[0], np.diff(around)
        for which, out in enumerate(found):
            out[part] = _mixed(words, starts, lengths, seed, which)
        for row in np.flatnonzero(lengths > _LONG_KEY).tolist():
            first = int(starts[row])
            key = octets[first : first + int(lengths[row])].tobytes()
            digest = hashlib.blake2b(key, digest_size=16, key=seed).digest()
            found.first[low + row], found.second[low + row] = np.frombuffer(digest, np.uint64)
    return found


def _mixed(words: UInt64s, starts: Int64s, lengths: Int64s, seed: bytes, which: int) -> UInt64s:
    """The first or second word of the digests."""
    start = np.frombuffer(seed, np.uint64)[which]
    state: UInt64s = _step(lengths.astype(np.uint64) ^ start, which)
    short = np.minimum(lengths, _LONG_KEY)
    for at in range(0, int(short.max()), _WORD_BYTES):
        left = short - at
        rows = slice(None) if int(left.min()) > 0 else np.flatnonzero(left > 0)
        tail = _TAILS[np.minimum(left[rows], _WORD_BYTES)]
        state[rows] = _step(state[rows] ^ (words[starts[rows] + at] & tail), which)
    return state


def _step(state: UInt64s, which: int) -> UInt64s:
    """A mixer of 64 bits that can be undone, another one for each word."""
    one, two = _FACTORS[which]
    shift = _SHIFTS[which]
    state = state ^ (state >> shift)
    state *= one
    state ^= state >> np.uint64(32)
    state *= two
    state ^= state >> shift
    return state
