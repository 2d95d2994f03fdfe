"""Kafka's default partitioner over whole Arrow columns: murmur2 of the key's bytes, modulo.

The same key must land in the same partition as with Kafka's producers, so the hash is theirs, bit
for bit. Murmur2 mixes a key four bytes at a time; here one numpy operation does one step for many
keys. Keys of equal length, the usual case, are one strided view of the column's bytes. Keys of
mixed lengths are gathered into rows, the longest first, so that the unfinished ones are always a
prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from .. import arguments
from ..errors import InvalidRecordError
from ..types import Int64s
from .numbers import is_present

if TYPE_CHECKING:
    import numpy.typing as npt

    UInt32s: TypeAlias = npt.NDArray[np.uint32]
    Int32s: TypeAlias = npt.NDArray[np.int32]
    Bytes: TypeAlias = npt.NDArray[np.uint8]

NO_KEY = -1
"""The partition of a row without a key: its task has to choose."""

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)
_MASK = 0xFFFFFFFF
_WORD = np.dtype("<u4")
_TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
_TAIL_FACTOR = np.array([1, _M, _M, _M], dtype=np.uint32)
# Keys hashed at once: few enough for the temporaries to stay in the cache of one core.
_BLOCK = 1 << 15
# Words mixed at once. With fewer unfinished keys than _FEW_KEYS, a loop over the words of each key
# is faster than numpy over few keys; without it one key of 16 MiB would cost a minute.
_WORDS, _FEW_KEYS = 32, 128
_LONG_KEY = 512  # bytes, from which numpy is faster for one key too
_NO_SEQUENCES = (pa.Array, str, bytes, bytearray, Mapping)


def partition_for_keys(
    keys: pa.Array | pa.ChunkedArray | Sequence[str | bytes | None], partitions: int
) -> Int32s:
    """The partition of each key, as Kafka's default partitioner chooses it.

    Args:
        keys: An Arrow array of binary or string, large or not, sliced or not, or a sequence of
            bytes or str. Null: ``NO_KEY``.
        partitions: Number of partitions of the topic.

    Raises:
        InvalidRecordError: the keys are of another type.
    """
    arguments.integer("partitions", partitions, 1, (1 << 31) - 1)
    keys = _key_array(keys)
    if keys.null_count == 0:
        return _modulo(murmur2(keys), partitions)
    result: Int32s = np.full(len(keys), NO_KEY, dtype=np.int32)
    present = is_present(keys)
    result[present] = _modulo(murmur2(keys.drop_null()), partitions)
    return result


def partition_for_key(key: bytes, partitions: int) -> int:
    """``partition_for_keys`` of one key: numpy needs thirty times as long for a short one."""
    if len(key) > _LONG_KEY:
        return int(partition_for_keys([key], partitions)[0])
    factor, words = int(_M), len(key) & ~3
    found = int(_SEED) ^ len(key)
    for place in range(0, words, 4):
        word = int.from_bytes(key[place : place + 4], "little") * factor & _MASK
        word = (word ^ word >> 24) * factor & _MASK
        found = found * factor & _MASK ^ word
    if len(key) > words:
        found = (found ^ int.from_bytes(key[words:], "little")) * factor & _MASK
    found = (found ^ found >> 13) * factor & _MASK
    return ((found ^ found >> 15) & 0x7FFFFFFF) % partitions


def _key_array(keys: object) -> pa.Array:
    array, found = keys, type(keys).__name__
    if isinstance(keys, pa.ChunkedArray):
        array = keys.combine_chunks()
    elif isinstance(keys, Iterable) and not isinstance(keys, _NO_SEQUENCES):
        try:
            array = pa.array(keys)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            found = f"{found}: {error}"
    if not isinstance(array, pa.Array):
        raise InvalidRecordError(
            "keys must be an Arrow array of binary or string, or a list of bytes or str, got "
            f"{found}."
        )
    return array.cast(pa.binary()) if pa.types.is_null(array.type) else array


def murmur2(keys: pa.Array) -> UInt32s:
    """Kafka's murmur2 of each key of a binary or string array without nulls."""
    edges, data = _edges_and_bytes(keys)
    hashes: UInt32s = np.empty(len(edges) - 1, dtype=np.uint32)
    for low in range(0, len(hashes), _BLOCK):
        block = hashes[low : low + _BLOCK]
        around = edges[low : low + len(block) + 1]
        length = int(around[1] - around[0])
        if bool((np.diff(around) == length).all()):
            _hash_equal(data, int(around[0]), length, block)
        else:
            _hash_mixed(data, around.astype(np.int64), block)
    return hashes


def _modulo(hashes: UInt32s, partitions: int) -> Int32s:
    hashes &= np.uint32(0x7FFFFFFF)
    if partitions & (partitions - 1) == 0:
        hashes &= np.uint32(partitions - 1)
    else:
        # numpy divides by a constant with SIMD; its remainder is several times slower.
        hashes -= (hashes // np.uint32(partitions)) * np.uint32(partitions)
    return hashes.view(np.int32)


def _edges_and_bytes(keys: pa.Array) -> tuple[npt.NDArray[Any], Bytes]:
    """Where each key starts and the last one ends, and the bytes of all of them."""
    large = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    if not (large or pa.types.is_binary(keys.type) or pa.types.is_string(keys.type)):
        raise InvalidRecordError(f"keys must be binary or string, got {keys.type}.")
    nothing = np.empty(0, dtype=np.uint8)
    _, offsets, values = keys.buffers()
    if offsets is None or not len(keys):
        return np.zeros(1, dtype=np.int64), nothing
    kind = np.int64 if large else np.int32
    edges = np.frombuffer(offsets, dtype=kind, count=keys.offset + len(keys) + 1)[keys.offset :]
    if values is None or values.size == 0:
        return edges, nothing
    return edges, np.frombuffer(values, dtype=np.uint8)


def _hash_equal(data: Bytes, start: int, length: int, hashes: UInt32s) -> None:
    """Hash keys that stand one after another, all of one length."""
    hashes.fill(_SEED ^ np.uint32(length))
    count, steps = len(hashes), length // 4
    if steps:
        shape, strides = (count, steps), (length, 4)
        words = np.ndarray(shape, dtype=_WORD, buffer=data, offset=start, strides=strides)
        _mix_columns(hashes, words[:, :_WORDS])
        if count < _FEW_KEYS:
            _mix_rows(hashes, (row[_WORDS:] for row in words))
        else:
            for low in range(_WORDS, steps, _WORDS):
                _mix_columns(hashes, words[:, low : low + _WORDS])
    for place in range(length % 4):
        at = start + 4 * steps + place
        column = np.ndarray((count,), dtype=np.uint8, buffer=data, offset=at, strides=(length,))
        hashes ^= column.astype(np.uint32) << np.uint32(8 * place)
    if length % 4:
        hashes *= _M
    _finish(hashes)


def _hash_mixed(data: Bytes, edges: Int64s, hashes: UInt32s) -> None:
    """Hash keys of different lengths that stand one after another."""
    size = int(edges[-1] - edges[0])
    # Rows of one width are gathered, so the last keys need room after them.
    local = np.zeros(size + 4 * _WORDS, dtype=np.uint8)
    local[:size] = data[edges[0] : edges[-1]]
    lengths = np.diff(edges)
    order = _longest_first(lengths)
    lengths, starts = lengths[order], (edges[:-1] - edges[0])[order]
    result: UInt32s = lengths.astype(np.uint32) ^ _SEED
    steps = lengths >> 2
    most = int(steps[0])
    for low in range(0, most, _WORDS):
        active = _count_above(steps, low)
        if low and active < _FEW_KEYS:
            ends = starts[:active] + 4 * steps[:active]
            rows = zip((starts[:active] + 4 * low).tolist(), ends.tolist(), strict=True)
            _mix_rows(result, (local[start:end].view(_WORD) for start, end in rows))
            break
        width = min(_WORDS, most - low)
        counts = [_count_above(steps, low + step) for step in range(width)]
        gathered = _gather(local, starts[:active] + 4 * low, width)
        _mix_columns(result, gathered.reshape(active, width), counts)
    tails = _gather(local, starts + 4 * steps, 1)
    sizes = lengths & 3
    result ^= tails & _TAIL_MASK[sizes]
    result *= _TAIL_FACTOR[sizes]
    _finish(result)
    hashes[order] = result


def _longest_first(lengths: Int64s) -> npt.NDArray[np.intp]:
    longest = int(lengths.max())
    # numpy sorts 16-bit numbers by radix, seven times as fast.
    kind = np.uint16 if longest <= np.iinfo(np.uint16).max else np.int64
    return np.argsort((longest - lengths).astype(kind), kind="stable")


def _count_above(descending: Int64s, limit: int) -> int:
    """How many of numbers sorted downwards are greater than the limit."""
    return len(descending) - int(np.searchsorted(descending[::-1], limit, side="right"))


def _gather(data: Bytes, starts: Int64s, words: int) -> UInt32s:
    """Copy ``words`` words from each start; numpy copies an item of any size at the same cost."""
    size = 4 * words
    items = np.ndarray((len(data) - size + 1,), dtype=f"V{size}", buffer=data, strides=(1,))
    result: UInt32s = items[starts].view(_WORD)
    return result


def _mix_columns(hashes: UInt32s, words: UInt32s, counts: list[int] | None = None) -> None:
    """Mix a matrix into the hashes: a row for each key, a column for each step.

    Args:
        hashes: At least one for each row; changed in place.
        words: The next words of each key.
        counts: How many rows take part in each step; all if not given.
    """
    word, spare = np.empty((2, len(words)), dtype=np.uint32)
    for step in range(words.shape[1]):
        count = len(words) if counts is None else counts[step]
        active, now, shifted = hashes[:count], word[:count], spare[:count]
        np.multiply(words[:count, step], _M, out=now)
        np.right_shift(now, _R, out=shifted)
        np.bitwise_xor(now, shifted, out=now)
        np.multiply(now, _M, out=now)
        np.multiply(active, _M, out=active)
        np.bitwise_xor(active, now, out=active)


def _mix_rows(hashes: UInt32s, rows: Iterable[UInt32s]) -> None:
    """Mix all remaining words into the first hashes, key by key."""
    factor = int(_M)
    for key, row in enumerate(rows):
        mixed = row * _M
        mixed ^= mixed >> _R
        mixed *= _M
        result = int(hashes[key])
        for word in mixed.tolist():
            result = ((result * factor) & _MASK) ^ word
        hashes[key] = result


def _finish(hashes: UInt32s) -> None:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
