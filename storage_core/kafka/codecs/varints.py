"""Kafka's variable-length integers, many at a time.

Seven bits a byte, low ones first; the high bit says that another byte follows. Signed numbers are
stored zigzag: 0, -1, 1, -2 … as 0, 1, 2, 3 …. So 300 is ``d8 04``.

Almost all numbers of a record take one or two bytes. Two tables have the value and the size for
every pair of bytes, so a column of numbers costs three lookups; only longer ones are put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...types import Int64s

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Bools: TypeAlias = npt.NDArray[np.bool_]
else:
    Bytes = Bools = np.ndarray

PADDING = 2
"""Bytes that must follow the last number, because pairs are read."""
LONGEST = 10
FAR = 1 << 62
"""Where a number ends that has no end: after every buffer."""


def _tables() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    pairs = np.arange(1 << 16, dtype=np.int32)
    first, second = pairs & 0xFF, pairs >> 8
    raw = np.where(first < 0x80, first, (first & 0x7F) | (second << 7))
    sizes = np.where(first < 0x80, 1, np.where(second < 0x80, 2, 0))
    return ((raw >> 1) ^ -(raw & 1)).astype(np.int32), sizes.astype(np.int8)


VALUES, SIZES = _tables()


class Varints:
    """A buffer of numbers; at least ``PADDING`` bytes follow the last one."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        count = max(0, len(data) - 1)
        self.pairs = np.ndarray((count,), "<u2", buffer=data, strides=(1,))

    def read(self, at: Int64s) -> tuple[Int64s, Int64s]:
        """The numbers that begin at these positions, and where each ends."""
        pairs = self.pairs[at]
        sizes = SIZES[pairs]
        values = VALUES[pairs].astype(np.int64)
        after = at + sizes
        if not sizes.all():
            long = np.flatnonzero(sizes == 0)
            values[long], after[long] = self._read_long(at[long])
        return values, after

    def _read_long(self, at: Int64s) -> tuple[Int64s, Int64s]:
        raw = np.zeros(len(at), dtype=np.uint64)
        after = np.full(len(at), FAR, dtype=np.int64)
        going = np.arange(len(at))
        last = len(self.data) - 1
        for byte in range(LONGEST):
            found = self.data[np.minimum(at[going] + byte, last)]
            raw[going] |= (found & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
            ends = found < 0x80
            after[going[ends]] = at[going[ends]] + byte + 1
            going = going[~ends]
            if not len(going):
                break
        one = np.uint64(1)
        zigzag = (raw >> one) ^ (~(raw & one) + one)
        return zigzag.view(np.int64), after


def padded(data: memoryview) -> Bytes:
    """The bytes with room after them, in one copy."""
    copied = np.zeros(len(data) + PADDING, dtype=np.uint8)
    copied[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return copied
