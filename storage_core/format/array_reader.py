"""Arrow arrays from the nodes and buffers of a typed frame. Nothing in the frame is believed.

Every length is compared with the length that the type and the rows ask for. What is allocated is
counted, and may not exceed what the frame's header claims. Arrow then validates each array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..schema.soundness import validate
from .buffer_encodings import (
    DELTA,
    DICTIONARY,
    NAMES,
    PLAIN,
    SPLIT,
    encoded_length,
    undelta,
    undictionary,
    unsplit,
)
from .column_buffers import BOOL, DTYPES, EMPTY, LISTS, MAP, NULL, OFFSET, STRUCT, TEXTS
from .compression import decompress

_ONE_OFFSET = pa.py_buffer(bytes(OFFSET.itemsize))


class Directory(NamedTuple):
    """The directory of a body as lists, a number for each node or buffer."""

    lengths: Sequence[int]
    nulls: Sequence[int]
    starts: Sequence[int]
    stored: Sequence[int]
    raw: Sequence[int]
    codecs: Sequence[int]
    encodings: Sequence[int]
    widths: Sequence[int]


class ArrayReader:
    """Reads columns of one body."""

    def __init__(self, body: pa.Buffer, directory: Directory, most: int) -> None:
        self._body = body
        self._directory = directory
        self._left = most
        self._node = self._last_node = self._buffer = self._last_buffer = 0

    def column(
        self, kind: pa.DataType, records: int, places: tuple[int, int, int, int]
    ) -> pa.Array:
        """The column whose nodes and buffers have these numbers, from the first to the last.

        Raises:
            BrokenFrameError: a number contradicts the type, the records or the other numbers.
            pyarrow.ArrowInvalid: the values are not valid for the type.
        """
        self._node, self._last_node, self._buffer, self._last_buffer = places
        array = self._array(kind, records)
        if self._node != self._last_node or self._buffer != self._last_buffer:
            raise BrokenFrameError(f"a column has more nodes or buffers than {kind} has")
        if any(self._directory.nulls[places[0] : places[1]]):
            array.validate(full=True)  # it also counts the nulls of lists and structs
        else:
            validate(array)
        return array

    def _array(self, kind: pa.DataType, length: int) -> pa.Array:
        nulls = self._next_node(kind, length)
        number = kind.id
        if number == NULL:
            return pa.nulls(length)
        validity = self._next_plain((length + 7) // 8 if nulls else 0, kind) if nulls else None
        if not nulls:
            self._next_plain(0, kind)
        dtype = DTYPES.get(number)
        if dtype is not None:
            data = self._next_numbers(dtype, length, kind)
            return pa.Array.from_buffers(kind, length, [validity, data], nulls)
        if number in TEXTS:
            return pa.Array.from_buffers(
                kind, length, [validity, *self._next_texts(kind, length)], nulls
            )
        if number == STRUCT:
            children = [
                self._array(kind.field(index).type, length) for index in range(kind.num_fields)
            ]
            return pa.Array.from_buffers(kind, length, [validity], nulls, children=children)
        if number in LISTS:
            starts, end = self._next_offsets(kind, length)
            # The nodes of the pairs and of their keys come next. Arrow ends the process if one of
            # them has a null.
            if number == MAP and any(self._directory.nulls[self._node : self._node + 2]):
                raise BrokenFrameError(f"a key of {kind} is null")
            children = [self._array(kind.field(0).type, end)]
            return pa.Array.from_buffers(kind, length, [validity, starts], nulls, children=children)
        if number == BOOL:
            data = self._next_plain((length + 7) // 8, kind)
            return pa.Array.from_buffers(kind, length, [validity, data], nulls)
        raise BrokenFrameError(f"a typed frame cannot hold {kind}")

    def _next_node(self, kind: pa.DataType, length: int) -> int:
        """How many values of the next node are null."""
        at = self._node
        if at == self._last_node:
            raise BrokenFrameError(f"a column has fewer nodes than {kind} has")
        self._node += 1
        found, nulls = self._directory.lengths[at], self._directory.nulls[at]
        if found != length:
            raise BrokenFrameError(f"expected {length} values of {kind}, found {found}")
        if nulls > length or (kind.id == NULL and nulls < length):
            raise BrokenFrameError(f"{nulls} of {length} values of {kind} cannot be null")
        return nulls

    def _next(self, kind: pa.DataType) -> int:
        at = self._buffer
        if at == self._last_buffer:
            raise BrokenFrameError(f"a column has fewer buffers than {kind} has")
        self._buffer += 1
        return at

    def _reserve(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise BrokenFrameError(
                f"a column needs {-self._left} bytes more than the header claims"
            )

    def _data(self, at: int, length: int, kind: pa.DataType) -> pa.Buffer:
        """The bytes of a buffer after decompression, if they are as many as they must be."""
        found = self._directory.raw[at]
        codec, stored = self._directory.codecs[at], self._directory.stored[at]
        if found != length or (not codec and stored != length):
            other = found if codec else stored
            raise BrokenFrameError(f"expected a buffer of {length} bytes for {kind}, found {other}")
        if not length:
            return EMPTY
        data = self._body.slice(self._directory.starts[at], stored)
        return decompress(data, codec, length, exactly=True) if codec else data

    def _next_plain(self, length: int, kind: pa.DataType) -> pa.Buffer:
        at = self._next(kind)
        self._require(at, kind, PLAIN)
        self._reserve(length)
        return self._data(at, length, kind)

    def _require(self, at: int, kind: pa.DataType, *encodings: int) -> int:
        found = self._directory.encodings[at]
        if found not in encodings:
            name = NAMES[found] if found < len(NAMES) else found
            raise BrokenFrameError(f"a buffer of {kind} cannot have encoding {name}")
        return found

    def _next_numbers(self, dtype: np.dtype[Any], count: int, kind: pa.DataType) -> pa.Buffer:
        return self._numbers(self._next(kind), dtype, count, kind)

    def _numbers(self, at: int, dtype: np.dtype[Any], count: int, kind: pa.DataType) -> pa.Buffer:
        size = dtype.itemsize
        self._reserve(count * size)
        if not self._directory.encodings[at]:
            return self._data(at, count * size, kind)
        has_steps = dtype.kind in "iu" and size >= 4
        encoding = self._require(at, kind, SPLIT, *((DELTA,) if has_steps else ()))
        data = np.frombuffer(self._encoded(at, encoding, count, size, kind), np.uint8)
        decode = undelta if encoding == DELTA else unsplit
        return pa.py_buffer(decode(data, count, self._directory.widths[at], size))

    def _encoded(
        self, at: int, encoding: int, count: int, size: int, kind: pa.DataType
    ) -> pa.Buffer:
        width = self._directory.widths[at]
        if not count or not 1 <= width <= size:
            raise BrokenFrameError(f"{count} values of {kind} cannot have {width} bytes each")
        return self._data(at, encoded_length(encoding, count, width), kind)

    def _next_offsets(self, kind: pa.DataType, count: int) -> tuple[pa.Buffer, int]:
        """Offsets from 0 on, and the last one."""
        return self._offsets(self._next(kind), kind, count)

    def _offsets(self, at: int, kind: pa.DataType, count: int) -> tuple[pa.Buffer, int]:
        if not count:
            self._data(at, 0, kind)
            return _ONE_OFFSET, 0
        found = self._numbers(at, OFFSET, count + 1, kind)
        starts = np.frombuffer(found, OFFSET)
        first, last = int(starts[0]), int(starts[-1])
        if first or last < 0:
            raise BrokenFrameError(f"the offsets of {kind} go from {first} to {last}")
        return found, last

    def _next_texts(self, kind: pa.DataType, count: int) -> tuple[pa.Buffer, pa.Buffer]:
        at, after = self._next(kind), self._next(kind)
        if self._directory.encodings[at] != DICTIONARY:
            starts, end = self._offsets(at, kind, count)
            self._require(after, kind, PLAIN)
            self._reserve(end)
            return starts, self._data(after, end, kind)
        self._require(after, kind, DICTIONARY)
        self._reserve((count + 1) * OFFSET.itemsize)
        words = self._directory.raw[after]
        if words > self._left:
            raise BrokenFrameError(f"a dictionary of {words} bytes is more than the header claims")
        indices = self._encoded(at, DICTIONARY, count, OFFSET.itemsize, kind)
        texts = undictionary(
            np.frombuffer(indices, np.uint8),
            count,
            self._directory.widths[at],
            self._data(after, words, kind),
            self._left,
        )
        _, starts, letters = texts.buffers()
        self._reserve(letters.size)
        return starts, letters
