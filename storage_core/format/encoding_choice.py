"""Which encoding makes a buffer smallest: tried out now and then, remembered in between."""

from __future__ import annotations

import numpy as np

from ..config import CODECS
from .buffer_encodings import (
    DELTA,
    DICTIONARY,
    PLAIN,
    SPLIT,
    Bytes,
    Compressor,
    Numbers,
    Stored,
    delta,
    dictionary,
    filled,
    split,
)
from .column_buffers import Part, numbers_in

_LEAST_VALUES = 32
_SAMPLE_VALUES = 4096
_FRAMES = 32
# Plain buffers decode without work, so another encoding has to save more than this share.
_WORTH = 0.95


class Choices:
    """The encodings of one topic's columns. Several threads may use it: it only saves trials."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def encode(
        self, column: int, place: int, part: Part, compressor: Compressor
    ) -> tuple[Stored, ...]:
        """The buffers of a part, encoded and compressed.

        Args:
            column: Id of the field.
            place: Number of the part in the column.
            part: The part.
            compressor: What compresses it.
        """
        key = column, place
        if part.texts is not None:
            return self._texts(key, part, compressor)
        if part.dtype is None or part.dtype.itemsize == 1:
            return (compressor.pack(part.data),)
        return (self._numbers(key, part, compressor),)

    def _numbers(self, key: tuple[int, int], part: Part, compressor: Compressor) -> Stored:
        dtype = part.dtype
        assert dtype is not None
        values = numbers_in(part.data, dtype)
        if len(values) < _LEAST_VALUES:
            return compressor.pack(part.data)
        values = _without_nulls(values, part)
        encoding = self._remembered(key)
        if encoding is None or (encoding == DELTA and dtype.kind not in "iu"):
            encoding = _best(values, compressor)
            self._known[key] = encoding, _FRAMES
        if encoding == PLAIN:
            return compressor.pack(part.data)
        data, width = _encoded(values, encoding)
        return compressor.pack(data, encoding, width)

    def _texts(
        self, key: tuple[int, int], part: Part, compressor: Compressor
    ) -> tuple[Stored, ...]:
        remembered = self._remembered(key)
        starts = part._replace(texts=None)
        texts = None
        if remembered != PLAIN and part.data.size > _LEAST_VALUES * 4:
            found = dictionary(numbers_in(part.data, np.dtype("<i4")), part.texts)
            if found is not None:
                texts = (
                    compressor.pack(found.indices, DICTIONARY, found.width),
                    compressor.pack(found.words, DICTIONARY),
                )
                if remembered == DICTIONARY:
                    return texts
        plain = (
            self._numbers((key[0], -1 - key[1]), starts, compressor),
            compressor.pack(part.texts),
        )
        if texts is not None and _size(texts) > _WORTH * _size(plain):
            texts = None
        if remembered != PLAIN:
            self._known[key] = (PLAIN if texts is None else DICTIONARY), _FRAMES
        return plain if texts is None else texts

    def _remembered(self, key: tuple[int, int]) -> int | None:
        encoding, left = self._known.get(key, (PLAIN, 0))
        if not left:
            return None
        self._known[key] = encoding, left - 1
        return encoding


def compressor_of(compression: str, level: int) -> Compressor:
    """The compressor of a codec's name."""
    return Compressor(CODECS.index(compression), compression, level)


def _size(buffers: tuple[Stored, ...]) -> int:
    return sum(buffer.data.size for buffer in buffers)


def _without_nulls(values: Numbers, part: Part) -> Numbers:
    """Nulls take the value before them: what stands under a null has no meaning."""
    if part.validity is None:
        return values
    bits = np.unpackbits(np.frombuffer(part.validity, np.uint8), bitorder="little")
    return filled(values, bits[: len(values)].view(np.bool_))


def _best(values: Numbers, compressor: Compressor) -> int:
    first = max(0, len(values) - _SAMPLE_VALUES) // 2
    sample = values[first : first + _SAMPLE_VALUES]
    best, size = PLAIN, _WORTH * compressor.pack(sample).data.size
    encodings = (SPLIT, DELTA) if values.dtype.kind in "iu" else (SPLIT,)
    for encoding in encodings if values.itemsize > 2 else (SPLIT,):
        found = compressor.pack(_encoded(sample, encoding)[0]).data.size
        if found < size:
            best, size = encoding, found
    return best


def _encoded(values: Numbers, encoding: int) -> tuple[Bytes, int]:
    return split(values) if encoding == SPLIT else delta(values)
