"""The records of many batches as columns.

A record is, after its own length, with every number in zigzag form (``varints``)::

    attributes (1 byte, unused)   timestamp delta   offset delta
    key length, key   value length, value   number of headers, headers

A length of -1 is a null. A header is a length and a name in UTF-8, a length and a value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ...brokers.codecs.rows import slices_column
from ...errors import BrokenFrameError
from ...format.columns import HEADER, HEADERS, TIMESTAMP
from ...format.numbers import bounds_of
from ...types import TIMESTAMP_ABSENT, TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED, Int64s
from .batches import HEADER_BYTES, Batches
from .compression import decompress
from .record_walk import Areas, walk_records
from .varints import PADDING, Bools, Bytes, Varints, padded

# Uncompressed bytes that are decoded together: enough to make numpy's calls cheap, and few enough
# for the caches of a processor.
GROUP_BYTES = 8 << 20
_NO_TIMESTAMP = -1
_MOST_MILLISECONDS = ((1 << 63) - 1) // 1000


@dataclass(frozen=True, slots=True)
class Slices:
    """A slice of the bytes for every record; ``absent`` are those that are null."""

    starts: Int64s
    lengths: Int64s
    absent: Bools

    def first(self, count: int) -> Slices:
        """Those of the first records."""
        return Slices(self.starts[:count], self.lengths[:count], self.absent[:count])

    def column(self, data: pa.Buffer) -> pa.BinaryArray:
        """The slices as a column of bytes."""
        column = slices_column(data, self.starts, self.lengths)
        if not self.absent.any():
            return column
        valid = pa.py_buffer(np.packbits(~self.absent, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(column), [valid, *column.buffers()[1:]])


@dataclass(frozen=True, eq=False)
class Records:
    """Records of some batches, in order. Columns are made when they are asked for."""

    data: pa.Buffer
    offsets: Int64s
    milliseconds: Int64s
    appended: Bools | bool
    keys: Slices
    values: Slices
    headers: Callable[[], pa.ListArray] | None

    @property
    def count(self) -> int:
        return len(self.offsets)

    @cached_property
    def timestamp_type(self) -> int | None:
        """That of all records; None if they differ."""
        absent = self.milliseconds == _NO_TIMESTAMP
        if absent.all():
            return TIMESTAMP_ABSENT
        if absent.any():
            return None
        if isinstance(self.appended, bool):
            return TIMESTAMP_APPENDED if self.appended else TIMESTAMP_SUPPLIED
        return None

    def with_times(self) -> int:
        """How many records there are before the first whose time no microseconds can hold."""
        stamps = self.milliseconds
        far = (stamps > _MOST_MILLISECONDS) | (stamps < -_MOST_MILLISECONDS)
        return int(np.argmax(far)) if far.any() else self.count

    def first(self, count: int) -> Records:
        """The first of them."""
        appended, headers = self.appended, self.headers
        return Records(
            self.data,
            self.offsets[:count],
            self.milliseconds[:count],
            appended if isinstance(appended, bool) else appended[:count],
            self.keys.first(count),
            self.values.first(count),
            None if headers is None else lambda: headers().slice(0, count),
        )

    def columns(self, names: Collection[str]) -> dict[str, pa.Array]:
        """The stored ones of these columns."""
        found: dict[str, pa.Array] = {}
        if "key" in names and not self.keys.absent.all():
            found["key"] = self.keys.column(self.data)
        if "value" in names and not self.values.absent.all():
            found["value"] = self.values.column(self.data)
        if "headers" in names and self.headers is not None:
            found["headers"] = self.headers()
        if self.timestamp_type is None and "timestamp_type" in names:
            types = np.where(self.appended, TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED)
            types = np.where(self.milliseconds == _NO_TIMESTAMP, TIMESTAMP_ABSENT, types)
            found["timestamp_type"] = pa.array(types.astype(np.int32))
        if self.timestamp_type != TIMESTAMP_ABSENT and wants_times(names):
            found["timestamp"] = self._timestamps()
        return found

    def _timestamps(self) -> pa.Array:
        stamps, row = self.milliseconds, self.with_times()
        if row < self.count:
            offset = int(self.offsets[row])
            raise BrokenFrameError(
                f"the record at offset {offset} has the timestamp {int(stamps[row])}, in "
                "milliseconds, which no microseconds can hold. Read without the column timestamp",
                offset=offset,
            )
        micros = stamps * 1000
        absent = stamps == _NO_TIMESTAMP
        valid = None
        if absent.any():
            valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
        return pa.Array.from_buffers(TIMESTAMP, len(micros), [valid, pa.py_buffer(micros)])


def wants_times(names: Collection[str]) -> bool:
    """Whether the time of the records is among these columns."""
    return "timestamp" in names or "_timestamp" in names


def decode_groups(data: memoryview, batches: Batches) -> Iterator[Records]:
    """The records of some batches, about ``GROUP_BYTES`` of them at a time.

    Raises:
        BrokenFrameError: the records of a batch are not sound. Those of the batches before it come
            first. ``position`` is that of the batch in the bytes.
    """
    while len(batches):
        try:
            numbers, areas = _areas(data, batches, GROUP_BYTES)
            count = len(areas.counts)
            yield _decoded(batches[:count], numbers, areas)
        except BrokenFrameError as error:
            found, first = _before_first_broken(data, batches, error)
            if found is not None:
                yield found
            raise first from None
        batches = batches[count:]


def decode(data: memoryview, batches: Batches) -> Records:
    """The records of some batches at once.

    Raises:
        BrokenFrameError: as above.
    """
    return _decoded(batches, *_areas(data, batches))


def _before_first_broken(
    data: memoryview, batches: Batches, error: BrokenFrameError
) -> tuple[Records | None, BrokenFrameError]:
    """The records before the first broken batch, and its error.

    The first error may be of a later batch: all batches are read field by field together.
    """
    while sound := int(np.searchsorted(batches.positions, error.position or 0)):
        try:
            return decode(data, batches[:sound]), error
        except BrokenFrameError as earlier:
            error = earlier
    return None, error


def _decoded(batches: Batches, numbers: Varints, areas: Areas) -> Records:
    positions, sound = walk_records(numbers, areas)
    if not sound.all():
        row = int(np.argmin(sound))
        raise _broken(batches, row, f"expected {int(areas.counts[row])} records in a batch")
    return _Decoder(numbers, areas, batches, positions).records()


def _broken(batches: Batches, row: int, reason: str) -> BrokenFrameError:
    position, offset = int(batches.positions[row]), int(batches.base[row])
    return BrokenFrameError(reason, position=position, offset=offset)


def _areas(data: memoryview, batches: Batches, most: int | None = None) -> tuple[Varints, Areas]:
    """Where the records are, uncompressed; with ``most`` of as many batches as have these bytes.

    Only decompression tells how many these are. Some have a thousand times their stored bytes.
    """
    if not batches.codecs.any():
        if most is not None:
            sizes = batches.ends - batches.positions[0]
            batches = batches[: int(np.searchsorted(sizes, most)) + 1]
        starts = batches.positions + HEADER_BYTES
        if len(data) < int(batches.ends[-1]) + PADDING:
            first = int(batches.positions[0])
            table = padded(data[first : int(batches.ends[-1])])
            return Varints(table), Areas(starts - first, batches.ends - first, batches.count)
        return Varints(np.frombuffer(data, np.uint8)), Areas(starts, batches.ends, batches.count)
    pieces, sizes, left = list[pa.Buffer](), list[int](), most or sys.maxsize
    starts = batches.positions + HEADER_BYTES
    places = zip(starts.tolist(), batches.ends.tolist(), batches.codecs.tolist(), strict=True)
    for row, (start, end, codec) in enumerate(places):
        try:
            found = decompress(data[start:end], codec) if end > start else []
        except BrokenFrameError as error:
            raise _broken(batches, row, str(error)) from error
        pieces += found
        sizes.append(sum(piece.size for piece in found))
        left -= sizes[-1]
        if left <= 0:
            break
    table = _joined(pieces)
    edges = bounds_of(np.array(sizes, dtype=np.int64))
    return Varints(table), Areas(edges[:-1], edges[1:], batches.count[: len(sizes)])


def _joined(pieces: list[pa.Buffer]) -> Bytes:
    table = np.empty(sum(piece.size for piece in pieces) + PADDING, dtype=np.uint8)
    at = 0
    for piece in pieces:
        table[at : at + piece.size] = np.frombuffer(piece, dtype=np.uint8)
        at += piece.size
    table[at:] = 0
    return table


class _Decoder:
    """Reads the fields of all records, one after the other. No position leaves its record."""

    def __init__(self, numbers: Varints, areas: Areas, batches: Batches, positions: Int64s) -> None:
        self._numbers = numbers
        self._batches = batches
        self._owners = np.repeat(np.arange(len(areas.counts)), areas.counts)
        lengths, bodies = numbers.read(positions)
        self._ends = bodies + lengths
        self._at = bodies + 1
        self._require(lengths > 0)

    def records(self) -> Records:
        batches, owners = self._batches, self._owners
        times = self._number()
        deltas = self._number()
        keys, values = self._slices(), self._slices()
        counts = self._number()
        self._require((counts >= 0) & (counts <= self._ends - self._at))
        buffer = pa.py_buffer(self._numbers.data)
        headers = self._headers(counts, buffer)
        self._require(self._at == self._ends)
        offsets = batches.base[owners] + deltas
        rising = np.ones(len(offsets), dtype=np.bool_)
        rising[1:] = offsets[1:] > offsets[:-1]
        self._require(rising & (deltas >= 0) & (offsets <= batches.last[owners]))
        appended = batches.has_append_time
        milliseconds = batches.base_time[owners] + times
        if appended.any():
            milliseconds = np.where(appended[owners], batches.max_time[owners], milliseconds)
        same = bool(appended.all()) if appended.all() or not appended.any() else appended[owners]
        return Records(buffer, offsets, milliseconds, same, keys, values, headers)

    def _number(self) -> Int64s:
        self._require(self._at < self._ends)
        values, self._at = self._numbers.read(self._at)
        return values

    def _slices(self) -> Slices:
        lengths = self._number()
        absent = lengths < 0
        if absent.any():
            lengths = np.where(absent, 0, lengths)
        starts = self._at
        # Before the sum, which a length that is no length would take beyond 64 bits.
        self._require((starts <= self._ends) & (lengths <= self._ends - starts))
        self._at = starts + lengths
        return Slices(starts, lengths, absent)

    def _headers(self, counts: Int64s, buffer: pa.Buffer) -> Callable[[], pa.ListArray] | None:
        """Step through the headers of all records: the first of each, the second of each …"""
        if not counts.any():
            return None
        firsts = np.cumsum(counts) - counts
        total = int(counts.sum())
        names, values = _empty_slices(total), _empty_slices(total)
        every_at, every_end, every_owner = self._at, self._ends, self._owners
        for step in range(int(counts.max())):
            here = np.flatnonzero(counts > step)
            self._at, self._ends = every_at[here], every_end[here]
            self._owners = every_owner[here]
            name = self._slices()
            self._require(~name.absent)
            value = self._slices()
            places = firsts[here] + step
            for table, found in ((names, name), (values, value)):
                table.starts[places] = found.starts
                table.lengths[places] = found.lengths
                table.absent[places] = found.absent
            every_at = every_at.copy() if step == 0 else every_at
            every_at[here] = self._at
        self._at, self._ends, self._owners = every_at, every_end, every_owner
        return lambda: _header_lists(buffer, counts, names, values)

    def _require(self, good: Bools) -> None:
        if not good.all():
            row = int(self._owners[int(np.argmin(good))])
            raise _broken(self._batches, row, "a field of a record in a batch is out of range")


def _empty_slices(count: int) -> Slices:
    starts, lengths = np.zeros((2, count), dtype=np.int64)
    return Slices(starts, lengths, np.zeros(count, dtype=np.bool_))


def _header_lists(data: pa.Buffer, counts: Int64s, names: Slices, values: Slices) -> pa.ListArray:
    texts = names.column(data)
    try:
        texts = texts.cast(pa.string())
    except pa.ArrowInvalid:
        # As Kafka's own clients do with a name that is not UTF-8.
        texts = pa.array(
            [name.decode("utf-8", "replace") for name in texts.to_pylist()], pa.string()
        )
    entries = pa.StructArray.from_arrays([texts, values.column(data)], fields=list(HEADER))
    edges = pa.py_buffer(bounds_of(counts).astype(np.int32))
    valid = None
    if not counts.all():
        valid = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(HEADERS, len(counts), [valid, edges], children=[entries])
