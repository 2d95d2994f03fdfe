"""Digests of 128 bits over whole columns of keys, with numpy.

Compaction takes two keys for one if their digests are equal, so the digest is seeded by chance for
every run: nobody can choose keys that collide. A key is mixed eight bytes at a time into two words,
each step of which can be undone, so that two keys of one length get the same word only by chance,
once in 2**64 pairs for each of the two. The last bytes are filled up with zeros; the
length is mixed in first.

Keys of more than a kilobyte go through BLAKE2b one by one: there its speed counts, not the call.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

SEED_BYTES = 16
_WORD = 8
_LONG = 1024
# Keys hashed at once: few enough for the temporaries to stay in the cache of one core.
_BLOCK = 1 << 14
_FACTORS = (
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)
_SHIFTS = (np.uint64(33), np.uint64(29))
# What is left of a last word that has so many bytes of the key.
_TAILS = np.array([0, *((1 << 8 * size) - 1 for size in range(1, 9))], dtype=np.uint64)


class Digests(NamedTuple):
    """The two words of every key's digest."""

    first: UInt64s
    second: UInt64s


def digests(keys: pa.Array, seed: bytes) -> Digests:
    """The digests of a binary array without nulls.

    Args:
        keys: The keys; sliced or not.
        seed: ``SEED_BYTES`` of chance, the same for all keys that are compared.
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
        # With room behind the last key: words are read whole.
        octets = np.zeros(int(around[-1] - around[0]) + _WORD, dtype=np.uint8)
        octets[:-_WORD] = data[around[0] : around[-1]]
        words = np.ndarray((len(octets) - _WORD + 1,), "<u8", octets, strides=(1,))
        starts, lengths = around[:-1] - around[0], np.diff(around)
        for lane, out in enumerate(found):
            out[part] = _mixed(words, starts, lengths, seed, lane)
        for row in np.flatnonzero(lengths > _LONG).tolist():
            first = int(starts[row])
            key = octets[first : first + int(lengths[row])].tobytes()
            digest = hashlib.blake2b(key, digest_size=16, key=seed).digest()
            found.first[low + row], found.second[low + row] = np.frombuffer(digest, np.uint64)
    return found


def _mixed(words: UInt64s, starts: Int64s, lengths: Int64s, seed: bytes, lane: int) -> UInt64s:
    start = np.frombuffer(seed, np.uint64)[lane]
    state: UInt64s = _step(lengths.astype(np.uint64) ^ start, lane)
    short = np.minimum(lengths, _LONG)
    for at in range(0, int(short.max()), _WORD):
        left = short - at
        rows = slice(None) if int(left.min()) > 0 else np.flatnonzero(left > 0)
        tail = _TAILS[np.minimum(left[rows], _WORD)]
        state[rows] = _step(state[rows] ^ (words[starts[rows] + at] & tail), lane)
    return state


def _step(state: UInt64s, lane: int) -> UInt64s:
    """A mixer of 64 bits that can be undone, another one for each lane."""
    one, two = _FACTORS[lane]
    shift = _SHIFTS[lane]
    state = state ^ (state >> shift)
    state *= one
    state ^= state >> np.uint64(32)
    state *= two
    state ^= state >> shift
    return state
