"""Length-prefixed rows: the record framing of the brokers' files. Pure bytes and values, no files.

All integers are big-endian; records follow each other without padding.

====== ==== ==================================================================
offset size field
====== ==== ==================================================================
0      4    payload length n, unsigned
4      8    offset of the record, unsigned (only where ``has_offset``: RustLog)
4 / 12 n    payload
====== ==== ==================================================================

``Hello`` then ``World!`` in the form without offsets::

    00 00 00 05  48 65 6c 6c 6f
    00 00 00 06  57 6f 72 6c 64 21

and ``Hello`` at offset 7 in the form with them::

    00 00 00 05  00 00 00 00 00 00 00 07  48 65 6c 6c 6f

Not guaranteed: there is no magic, no version and no checksum, so a changed payload is not noticed,
and a changed length only when what it leads to cannot be a record. Zero bytes read as records with
empty payloads wherever those are legal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidRecordError, RecordTooLargeError
from ...types import Int64s

Data: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"

_LENGTH = struct.Struct(">I")
_INT32_MAX = 2**31 - 1
_PIECE = 8192


@dataclass(frozen=True, slots=True)
class RowFormat:
    """One framing. A length outside ``min_payload`` to ``max_payload`` is damage."""

    header_bytes: int
    has_offset: bool
    max_payload: int
    min_payload: int = 0


CURSUS = RowFormat(header_bytes=4, has_offset=False, max_payload=64 << 20)
"""Ordinal segments: the oldest brokers bounded a record only by the 64 MiB of their wire."""

CURSUS_BROKER = RowFormat(header_bytes=4, has_offset=False, max_payload=16 << 20, min_payload=1)
"""Base-offset segments: the broker itself refuses a body that is empty or over 16 MiB."""

RUSTLOG = RowFormat(header_bytes=12, has_offset=True, max_payload=10 << 20)
"""RustLog accepts 10,485,760 bytes exactly."""


class Ending(Enum):
    """How the walked bytes end after the last whole record."""

    WHOLE = "whole"
    """Exactly at a record's end."""
    TORN = "torn"
    """Inside a record that could be sound: what a crashed or still running writer leaves."""
    DAMAGED = "damaged"
    """At a length no writer writes; what follows cannot be framed."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Whole records of a run of bytes.

    ``positions`` are those of the length prefixes, ``lengths`` those of the payloads, ``end`` is
    the position after the last whole record. ``problem`` puts an ``ending`` other than WHOLE into
    words. ``offsets`` are there when the walker read them in passing: ask ``row_offsets`` for them.
    """

    positions: Int64s
    lengths: Int64s
    end: int
    ending: Ending = Ending.WHOLE
    problem: str | None = None
    offsets: Int64s | None = None

    @property
    def count(self) -> int:
        return len(self.positions)

    def slice(self, start: int, stop: int) -> Rows:
        """Records ``start`` to ``stop``, without copying; the ending goes with the last record."""
        offsets = None if self.offsets is None else self.offsets[start:stop]
        positions, lengths = self.positions[start:stop], self.lengths[start:stop]
        if stop >= self.count:
            return Rows(positions, lengths, self.end, self.ending, self.problem, offsets)
        return Rows(positions, lengths, int(self.positions[stop]), offsets=offsets)

    def part(self, start: int, stop: int) -> Rows:
        """The same as ``slice``, with positions that begin at 0."""
        rows, first = self.slice(start, stop), int(self.positions[start])
        return replace(rows, positions=rows.positions - first, end=rows.end - first)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a scalar scan found: record positions, and where and how it stopped."""

    positions: list[int]
    end: int
    ending: Ending
    problem: str | None


def walk_scalar(data: Data, start: int, limit: int, fmt: RowFormat) -> Rows:
    """Walk the records from ``start`` to ``limit`` one by one: for tails and unindexed files."""
    found = scan(memoryview(data), start, limit, limit, fmt)
    positions = np.array(found.positions, dtype=np.int64)
    return make_rows(positions, found.end, fmt, found.ending, found.problem)


def scan(view: memoryview, start: int, stop: int, limit: int, fmt: RowFormat) -> Stretch:
    """Walk from ``start`` until a record ends at or after ``stop``; bytes end at ``limit``."""
    header, low, high = fmt.header_bytes, fmt.min_payload, fmt.max_payload
    unpack, last = _LENGTH.unpack_from, limit - header
    positions: list[int] = []
    position = start
    while position < stop:
        if position > last:
            left = limit - position
            problem = f"only {left} bytes of a {header}-byte record header"
            return Stretch(positions, position, Ending.TORN, problem)
        (length,) = unpack(view, position)
        if not low <= length <= high:
            problem = f"record length {length}, expected {low} to {high}"
            return Stretch(positions, position, Ending.DAMAGED, problem)
        following = position + header + length
        if following > limit:
            left = limit - position - header
            problem = f"only {left} of the {length} payload bytes of a record"
            return Stretch(positions, position, Ending.TORN, problem)
        positions.append(position)
        position = following
    return Stretch(positions, position, Ending.WHOLE, None)


def make_rows(
    positions: Int64s,
    end: int,
    fmt: RowFormat,
    ending: Ending,
    problem: str | None,
    offsets: Int64s | None = None,
) -> Rows:
    """Rows from the positions of adjoining records: each one's length follows from the next."""
    lengths = np.empty_like(positions)
    np.subtract(positions[1:], positions[:-1], out=lengths[:-1])
    lengths[-1:] = end - positions[-1:]
    lengths -= fmt.header_bytes
    return Rows(positions, lengths, end, ending, problem, offsets)


def slices_column(data: pa.Buffer, starts: Int64s, lengths: Int64s) -> pa.BinaryArray:
    """Slices of ``data`` as a binary column; they must rise and not overlap.

    The bytes are viewed as a binary array whose elements alternate gap, slice, gap, slice …; Arrow
    then takes every second one, which is one bulk copy. Arrow's offsets have 32 bits, so longer
    stretches are cut in two.

    Raises:
        pa.ArrowInvalid: the slices have more than 2 GiB together. Ask for fewer at a time.
    """
    count = len(starts)
    if not count or not lengths.any():
        return _empty_values(count)
    ends = starts + lengths
    base, span = 0, int(ends[-1])
    if span > _INT32_MAX:
        base = int(starts[0])
        span, starts, ends = span - base, starts - base, ends - base
    if span > _INT32_MAX and count > 1:
        half = count // 2
        rest = data.slice(base)
        parts = ((starts[:half], lengths[:half]), (starts[half:], lengths[half:]))
        return pa.concat_arrays([slices_column(rest, *part) for part in parts])
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2], edges[1::2] = starts, ends
    buffers = [None, pa.py_buffer(edges), data.slice(base, span)]
    alternating = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def payload_column(data: pa.Buffer, rows: Rows, fmt: RowFormat) -> pa.BinaryArray:
    """Payloads of ``rows``, copied once."""
    length, size = (int(rows.lengths[0]), int(rows.lengths.sum())) if rows.count else (0, 0)
    if not length or size > _INT32_MAX - length or not (rows.lengths == length).all():
        return slices_column(data, rows.positions + fmt.header_bytes, rows.lengths)
    first, step = int(rows.positions[0]) + fmt.header_bytes, fmt.header_bytes + length
    payloads = np.ndarray((rows.count, length), np.uint8, data, first, (step, 1))
    # Arrow's pool gives back memory that was used before; new pages would cost as much as the copy.
    copied = pa.allocate_buffer(size)
    np.copyto(np.frombuffer(copied, np.uint8).reshape(payloads.shape), payloads)
    edges = np.arange(0, size + length, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows.count, [None, pa.py_buffer(edges), copied])


def row_offsets(data: Data, rows: Rows) -> Int64s:
    """Offsets in the headers of rows that have them; one above 2**63 comes out negative."""
    return offsets_at(data, rows.positions) if rows.offsets is None else rows.offsets


def offsets_at(data: Data, positions: Int64s) -> Int64s:
    """Offsets in the headers at ``positions``."""
    words = unaligned(data, ">u8")
    offsets = np.empty(len(positions), dtype=np.int64)
    # In pieces, so that the temporary arrays stay in the processor's cache.
    for start in range(0, len(positions), _PIECE):
        piece = slice(start, start + _PIECE)
        offsets[piece] = words[positions[piece] + 4]
    return offsets


def header_type(fmt: RowFormat) -> np.dtype[np.void]:
    """The fields of a record header."""
    if fmt.has_offset:
        return np.dtype([("length", ">u4"), ("offset", ">u8")])
    return np.dtype({"names": ["length"], "formats": [">u4"], "itemsize": fmt.header_bytes})


def unaligned(data: Data, kind: str) -> npt.NDArray[np.generic]:
    """``data`` as overlapping elements, one starting at every byte: element i is at position i."""
    dtype = np.dtype(kind)
    size = max(0, len(data) - dtype.itemsize + 1)
    return np.ndarray((size,), dtype, buffer=data, strides=(1,))


class Framed(NamedTuple):
    """Encoded records, and the position of each one's frame in ``data``."""

    data: pa.Buffer
    starts: Int64s


def encode_rows(values: pa.BinaryArray, fmt: RowFormat, first_offset: int = 0) -> pa.Buffer:
    """The bytes of ``frame_rows``."""
    return frame_rows(values, fmt, first_offset).data


def frame_rows(values: pa.BinaryArray, fmt: RowFormat, first_offset: int = 0) -> Framed:
    """Frame ``values``; their offsets rise by one from ``first_offset`` where the format has them.

    Raises:
        InvalidRecordError: a value is null or shorter than the format allows.
        RecordTooLargeError: a value is longer than the format allows.
    """
    lengths = payload_lengths(values, fmt)
    headers = np.empty(len(lengths), dtype=header_type(fmt))
    headers["length"] = lengths
    if fmt.has_offset:
        headers["offset"] = np.arange(first_offset, first_offset + len(lengths))
    return join_bytes([fixed_column(headers), values])


def payload_lengths(values: pa.BinaryArray, fmt: RowFormat) -> Int64s:
    """Lengths of the payloads to frame, checked; a record takes ``header_bytes`` more.

    Raises:
        InvalidRecordError: a value is null or shorter than the format allows.
        RecordTooLargeError: a value is longer than the format allows.
    """
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise InvalidRecordError(
            f"value {row} of the append is null, which rows cannot store. Use an empty value."
        )
    lengths: Int64s = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    if not len(lengths):
        return lengths
    if (longest := int(lengths.max())) > fmt.max_payload:
        raise RecordTooLargeError(
            f"record {int(lengths.argmax())} of the append has {longest} bytes, more than the "
            f"{fmt.max_payload} that this layout can store. Split it."
        )
    if int(lengths.min()) < fmt.min_payload:
        raise InvalidRecordError(
            f"record {int(lengths.argmin())} of the append is empty, which cannot be stored here."
        )
    return lengths


def fixed_column(elements: npt.NDArray[np.void]) -> pa.BinaryArray:
    """A contiguous array of fixed-size elements as a binary column, without copying them."""
    size = elements.dtype.itemsize
    edges = np.arange(0, size * (len(elements) + 1), size, dtype=np.int64)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(elements.view(np.uint8))]
    return pa.Array.from_buffers(pa.large_binary(), len(elements), buffers)


def join_bytes(columns: Iterable[pa.Array]) -> Framed:
    """The bytes of all columns, row by row: of row 0 first column to last, then of row 1 …"""
    parts = [column.cast(pa.large_binary()) for column in columns]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    _, edges, data = joined.buffers()
    if not len(joined):
        return Framed(pa.py_buffer(b""), np.empty(0, dtype=np.int64))
    starts = np.frombuffer(edges, dtype=np.int64)
    size = int(starts[len(joined)])
    return Framed(data.slice(0, size) if size else pa.py_buffer(b""), starts[: len(joined)])


def _empty_values(count: int) -> pa.BinaryArray:
    edges = pa.py_buffer(np.zeros(count + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, edges, pa.py_buffer(b"")])
