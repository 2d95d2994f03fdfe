"""Fields read from many record bodies at once: a vector of cursors, advanced field by field.

Each body is a run of bytes; all cursors read the same kind of field in one step. A body too short
for a field leaves the vector and is remembered as failed; a body may also leave because it ended
where its form may end. Nothing here knows a form: ``broker_records`` and ``broker_ordinal`` do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...types import Int64s
from .rows import Data, slices_column, unaligned

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer]


class Slices(NamedTuple):
    """Where a field of variable length stands in each body; absent fields have length 0."""

    starts: Int64s
    lengths: Int64s

    def column(self, data: pa.Buffer) -> pa.BinaryArray:
        """The field's bytes, copied once."""
        return slices_column(data, self.starts, self.lengths)

    def cut(self, count: int) -> Slices:
        """The first ``count`` bodies."""
        return Slices(self.starts[:count], self.lengths[:count])

    def equal(self, data: Data, expected: bytes) -> Bools:
        """Which bodies have exactly these bytes in the field."""
        same: Bools = self.lengths == len(expected)
        if expected and same.any():
            texts = unaligned(data, f"V{len(expected)}")[self.starts[same]]
            octets = texts.view(np.uint8).reshape(-1, len(expected))
            same[same] = (octets == np.frombuffer(expected, dtype=np.uint8)).all(axis=1)
        return same


class Cursor:
    """Cursors over bodies ``starts`` to ``ends``, and the fields read so far.

    ``numbers`` and ``texts`` have one element per body, with 0 and no bytes where a body left
    before the field. ``left`` holds the indexes of bodies still being read.
    """

    def __init__(self, data: Data, starts: Int64s, ends: Int64s) -> None:
        self._data = data
        self._count = len(starts)
        self._ends = ends
        self._at = starts
        self._end = ends
        self._part: npt.NDArray[np.void] = np.empty(0, dtype="V1")
        self.left: Int64s = np.arange(self._count)
        self.failed: list[Int64s] = []
        self.numbers: dict[str, Ints] = {}
        self.texts: dict[str, Slices] = {}

    def read(self, kind: np.dtype[np.void]) -> None:
        """Read adjoining fixed fields in one gather, for ``number`` and at last ``text`` to use."""
        following = self._at + kind.itemsize
        fits = following <= self._end
        if not fits.all():
            self._fail(fits)
            following = following[fits]
        self._part = unaligned(self._data, f"V{kind.itemsize}")[self._at].view(kind)
        self._at = following

    def number(self, name: str, kind: str = "i8") -> None:
        """Keep a fixed field that was read."""
        values = self._part[name].astype(kind)
        if len(self.left) < self._count:
            full = np.zeros(self._count, dtype=kind)
            full[self.left] = values
            values = full
        self.numbers[name] = values

    def text(self, name: str) -> None:
        """Pass over a field of variable length, whose length was read last, under its name."""
        lengths = self._part[name].astype(np.int64)
        following = self._at + lengths
        fits = following <= self._end
        if not fits.all():
            lengths, following = lengths[fits], following[fits]
            self._fail(fits)
        starts = self._at
        self._at = following
        if len(self.left) < self._count:
            # Absent fields stand at their body's end, so that the starts of all bodies rise.
            full_starts, full_lengths = self._ends.copy(), np.zeros(self._count, dtype=np.int64)
            full_starts[self.left], full_lengths[self.left] = starts, lengths
            starts, lengths = full_starts, full_lengths
        self.texts[name] = Slices(starts, lengths)

    def leave_at_end(self) -> Int64s:
        """Let bodies that end here leave; return their indexes."""
        going = self._at < self._end
        if going.all():
            return self.left[:0]
        left = self.left[~going]
        self._keep(going)
        return left

    def _fail(self, fits: Bools) -> None:
        self.failed.append(self.left[~fits])
        self._keep(fits)

    def _keep(self, going: Bools) -> None:
        self.left, self._at, self._end = self.left[going], self._at[going], self._end[going]
