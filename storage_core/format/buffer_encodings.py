"""How the buffers of a typed frame are stored where they are compressed.

Numbers compress better with equal bytes side by side. *Split* stores the lowest bytes of all
values, then the next ones, and leaves out the highest bytes that are zero in all of them. *Delta*
does the same with the differences of neighbours, where a difference d is stored as 2d, or -2d-1 if
it is negative; the first value stands before them in 8 bytes. *Dictionary* stores each distinct
text once, and the number of its text for each row. ``docs/format.md`` has the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from .compression import codec_of
from .numbers import number_column

PLAIN, SPLIT, DELTA, DICTIONARY = range(4)
NAMES = ("plain", "split", "delta", "dictionary")

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Numbers: TypeAlias = npt.NDArray[Any]
else:
    Bytes = Numbers = np.ndarray  # numpy.typing takes long to import

_BASE_BYTES = 8
_COUNT_BYTES = 4
_INDEX, _LENGTH = np.dtype("<i4"), np.dtype("<u4")


class Stored(NamedTuple):
    """One buffer as a frame stores it; ``length`` is that of the data before compression."""

    data: Any  # bytes or pyarrow.Buffer, which has no type stub
    length: int
    codec: int = 0
    encoding: int = PLAIN
    width: int = 0


class Compressor(NamedTuple):
    """A codec with its number and level."""

    codec: int
    name: str
    level: int

    def pack(self, data: Any, encoding: int = PLAIN, width: int = 0) -> Stored:
        """The data compressed, or as they are where that would not save a 32nd of them."""
        length = memoryview(data).nbytes
        if length >= _LEAST_BYTES:
            packed = codec_of(self.name, self.level).compress(data, asbytes=False)
            if packed.size < length - length // 32:
                return Stored(packed, length, self.codec, encoding, width)
        return Stored(pa.py_buffer(data), length, 0, encoding, width)


_LEAST_BYTES = 32


def split(values: Numbers) -> tuple[Bytes, int]:
    """The bytes of the values, the lowest of all first, and how many of each value are kept."""
    rows = values.view(np.uint8).reshape(len(values), -1)
    if values.dtype.kind == "V":
        used = np.flatnonzero(rows.any(axis=0))
        width = int(used[-1]) + 1 if len(used) else 1
    else:
        high = int(values.view(f"<u{values.itemsize}").max())
        width = max(1, (high.bit_length() + 7) // 8)
    return np.ascontiguousarray(rows[:, :width].T), width


def unsplit(data: Bytes, count: int, width: int, size: int) -> Bytes:
    """The bytes of ``count`` values of ``size`` bytes each."""
    rows = np.zeros((count, size), np.uint8)
    for place in range(width):
        rows[:, place] = data[place * count : (place + 1) * count]
    return rows.reshape(-1)


def delta(values: Numbers) -> tuple[Bytes, int]:
    """The first of one or more integers in 8 bytes, then their differences, split."""
    bits = 8 * values.itemsize
    signed = values.view(f"<i{values.itemsize}")
    steps = np.subtract(signed[1:], signed[:-1])
    folded = (steps << 1) ^ (steps >> (bits - 1))
    planes, width = split(folded) if len(folded) else (np.zeros(0, np.uint8), 1)
    base = signed[:1].astype("<i8").view(np.uint8)
    return np.concatenate([base, planes.reshape(-1)]), width


def undelta(data: Bytes, count: int, width: int, size: int) -> Bytes:
    """The bytes of ``count`` integers of ``size`` bytes each."""
    kind = np.dtype(f"<i{size}")
    folded = unsplit(data[_BASE_BYTES:], count - 1, width, size).view(f"<u{size}")
    values = np.empty(count, kind)
    values[0] = data[:_BASE_BYTES].view("<i8")[0].astype(kind)
    values[1:] = (folded >> 1).view(kind)
    values[1:] ^= -(folded & 1).view(kind)
    np.cumsum(values, out=values)
    return values.view(np.uint8)


def filled(values: Numbers, present: npt.NDArray[np.bool_]) -> Numbers:
    """The values with those that are null replaced by the value before them."""
    last = np.maximum.accumulate(np.where(present, np.arange(len(values)), 0))
    return values[last]


def encoded_length(encoding: int, count: int, width: int) -> int:
    """Bytes of ``count`` values as ``split`` or ``delta`` store them."""
    return _BASE_BYTES + (count - 1) * width if encoding == DELTA else count * width


class Dictionary(NamedTuple):
    """Texts as numbers of distinct texts."""

    indices: Bytes
    width: int
    words: Bytes


def dictionary(offsets: Numbers, data: pa.Buffer) -> Dictionary | None:
    """The dictionary of texts; None where more than half of them are distinct."""
    count = len(offsets) - 1
    buffers = [None, pa.py_buffer(offsets), data]
    found = _computed("dictionary_encode", pa.Array.from_buffers(pa.binary(), count, buffers))
    words = found.dictionary
    if len(words) > count // 2:
        return None
    _, starts, letters = words.buffers()
    edges = np.frombuffer(starts, _INDEX, len(words) + 1)
    lengths = np.diff(edges).astype(_LENGTH)
    parts = [np.array([len(words)], _LENGTH).view(np.uint8), lengths.view(np.uint8)]
    if edges[-1]:
        parts.append(np.frombuffer(letters, np.uint8, int(edges[-1])))
    indices, width = split(np.frombuffer(found.indices.buffers()[1], _INDEX, count))
    return Dictionary(indices, width, np.concatenate(parts))


def undictionary(indices: Bytes, count: int, width: int, words: pa.Buffer, most: int) -> pa.Array:
    """The texts, at most ``most`` bytes of them, as a binary array.

    Raises:
        BrokenFrameError: an index or a length points outside, or the texts would be larger.
    """
    head = np.frombuffer(words, _LENGTH, words.size // _COUNT_BYTES)
    distinct = int(head[0]) if len(head) else 0
    if distinct >= len(head):
        raise BrokenFrameError(f"a dictionary of {words.size} bytes cannot hold {distinct} texts")
    first = _COUNT_BYTES * (distinct + 1)
    lengths = head[1 : distinct + 1].astype(np.int64)
    edges = np.zeros(distinct + 1, np.int64)
    np.cumsum(lengths, out=edges[1:])
    if int(edges[-1]) != words.size - first:
        raise BrokenFrameError(
            f"a dictionary has {words.size - first} bytes of texts, expected {edges[-1]}"
        )
    numbers = unsplit(indices, count, width, _INDEX.itemsize).view(_LENGTH)
    if int(numbers.max()) >= distinct:
        raise BrokenFrameError(f"a dictionary of {distinct} texts has no text {numbers.max()}")
    size = int(lengths[numbers].sum())
    if size > most:
        raise BrokenFrameError(f"the texts of a dictionary take {size} bytes, at most {most} fit")
    buffers = [None, pa.py_buffer(edges.astype(_INDEX)), words.slice(first)]
    texts = pa.Array.from_buffers(pa.binary(), distinct, buffers)
    return _computed("array_take", texts, number_column(numbers))


def _computed(function: str, *arrays: pa.Array) -> pa.Array:
    # The module pyarrow.compute takes five times as long to import as what it calls.
    from pyarrow._compute import call_function

    return call_function(function, list(arrays))
