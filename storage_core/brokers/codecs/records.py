"""Message bodies of the cursus broker's base-offset segments, forms B to E. Pure bytes, no files.

All integers are big-endian; ``s16`` and ``s32`` are a u16 or u32 length and that many bytes. The
body stands in the frame ``u32 length, body`` of ``rows``. Each form adds to the one before:

==== ===================================================================================
form fields
==== ===================================================================================
B    s16 topic, u32 partition, u64 offset, s16 producer, u64 seq, i64 epoch, s32 payload
C    s16 event_type, u32 schema_version, u64 aggregate_version, s16 metadata
D    s16 key
E    s16 txn_id, s16 txn_state, s16 txn_marker,
     s16 control_type, i16 control_version, i64 control_epoch,
     s16 control_key, s16 control_value
==== ===================================================================================

Nothing names the form: a body ends after payload (B), metadata (C), key (D), txn_marker,
control_epoch or control_value (E). Bytes after control_value are ignored; any other end is damage.
Brokers of several releases appended to the same files, so the form is found for each record. Form B
of ``hi`` at offset 3 of partition 0 of topic ``t``, without a producer::

    00 01 74  00 00 00 00  00 00 00 00 00 00 00 03  00 00
    00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 02 68 69

There is no null: an empty key is no key. A record with a txn_marker is a control record.

Not guaranteed: there is no checksum, so a body that still has a form's shape is taken for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...types import Int64s
from .rows import CURSUS_BROKER, Data, Rows, slices_column, unaligned

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer]

TOPIC = np.dtype([("topic", ">u2")])
ROUTE = np.dtype([("partition", ">u4"), ("offset", ">u8"), ("producer", ">u2")])
PAYLOAD = np.dtype([("seq", ">u8"), ("epoch", ">i8"), ("payload", ">u4")])
_EVENT = np.dtype([("event_type", ">u2")])
_VERSIONS = np.dtype([("schema_version", ">u4"), ("aggregate_version", ">u8"), ("metadata", ">u2")])
_TEXTS = {
    name: np.dtype([(name, ">u2")])
    for name in "key txn_id txn_state txn_marker control_type control_key control_value".split()
}
_CONTROL = np.dtype([("control_version", ">i2"), ("control_epoch", ">i8")])


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
    """Fields read from many bodies at once: one cursor a body, all advanced field by field.

    A body too short for a field leaves and counts as failed. A body may also leave because it ended
    where its form may end. ``left`` holds the indexes of the bodies still being read. ``numbers``
    and ``texts`` have one element per body, with 0 and no bytes where a body left before the field.
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


@dataclass(frozen=True, slots=True, eq=False)
class Bodies:
    """Parsed bodies: the ``count`` sound ones before the first that is damaged.

    A field that no body reached is missing from ``numbers`` and ``texts``: all zero, all empty.
    ``damage`` says what is wrong with body ``count``, None if all are sound.
    """

    count: int
    offsets: Int64s
    numbers: dict[str, Ints]
    texts: dict[str, Slices]
    ends: Int64s
    damage: str | None = None

    def text(self, name: str) -> Slices:
        """A field of variable length, whether or not any body has it."""
        missing = Slices(self.ends, np.zeros(self.count, dtype=np.int64))
        return self.texts.get(name, missing)

    def number(self, name: str) -> Ints:
        """A fixed field, whether or not any body has it."""
        return self.numbers.get(name, np.zeros(self.count, dtype=np.int64))

    @property
    def control(self) -> Bools:
        """Control records: the broker writes them for itself and never delivers them."""
        marked: Bools = self.text("txn_marker").lengths > 0
        return marked

    @property
    def transactional(self) -> bool:
        """Whether isolation matters here: some record belongs to a transaction or ends one."""
        return any(self.text(name).lengths.any() for name in ("txn_id", "txn_marker"))

    def key_column(self, data: pa.Buffer) -> pa.BinaryArray:
        """Keys; an empty one is null."""
        lengths = self.text("key").lengths
        filled = lengths > 0
        if filled.all():
            return self.text("key").column(data)
        if not filled.any():
            return pa.nulls(self.count, pa.binary())
        _, edges, values = self.text("key").column(data).buffers()
        valid = pa.py_buffer(np.packbits(filled, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), self.count, [valid, edges, values])

    def value_column(self, data: pa.Buffer) -> pa.BinaryArray:
        """Payloads, never null."""
        return self.text("payload").column(data)


def parse_bodies(data: Data, rows: Rows) -> Bodies:
    """Parse the bodies of ``rows``, all at once; a few thousand rows at a time go fastest.

    Topic and partition inside the records are not compared with anything: the broker does not do
    so either, and a copied topic directory stays readable.
    """
    starts = rows.positions + CURSUS_BROKER.header_bytes
    ends = starts + rows.lengths
    cursor = Cursor(data, starts, ends)
    read_head(cursor)
    cursor.leave_at_end()
    if len(cursor.left):
        _read_event(cursor)
        cursor.leave_at_end()
    for names in (("key",), ("txn_id", "txn_state", "txn_marker")):
        if len(cursor.left):
            _read_texts(cursor, names)
            cursor.leave_at_end()
    if len(cursor.left):
        _read_texts(cursor, ("control_type",))
        cursor.read(_CONTROL)
        cursor.number("control_version")
        cursor.number("control_epoch")
        cursor.leave_at_end()
    if len(cursor.left):
        _read_texts(cursor, ("control_key", "control_value"))
    return _finish(cursor, rows, ends)


def read_head(cursor: Cursor) -> None:
    """Read the fields of form B."""
    cursor.read(TOPIC)
    cursor.text("topic")
    cursor.read(ROUTE)
    cursor.number("partition")
    cursor.number("offset")
    cursor.text("producer")
    cursor.read(PAYLOAD)
    cursor.number("seq", "u8")
    cursor.number("epoch")
    cursor.text("payload")


def _read_event(cursor: Cursor) -> None:
    cursor.read(_EVENT)
    cursor.text("event_type")
    cursor.read(_VERSIONS)
    cursor.number("schema_version")
    cursor.number("aggregate_version", "u8")
    cursor.text("metadata")


def _read_texts(cursor: Cursor, names: tuple[str, ...]) -> None:
    for name in names:
        cursor.read(_TEXTS[name])
        cursor.text(name)


def _finish(cursor: Cursor, rows: Rows, ends: Int64s) -> Bodies:
    """Cut everything before the first body that is damaged."""
    offsets = cursor.numbers["offset"].astype(np.int64, copy=False)
    count, damage = rows.count, None
    for failed in cursor.failed:
        if len(failed) and failed[0] < count:
            count = int(failed[0])
            damage = f"the body of {int(rows.lengths[count])} bytes ends inside a field"
    if (offsets[:count] < 0).any():
        count = int(np.argmax(offsets[:count] < 0))
        damage = f"offset {int(offsets[count]) % 2**64} is above 2**63"
    return Bodies(
        count=count,
        offsets=offsets[:count],
        numbers={name: values[:count] for name, values in cursor.numbers.items()},
        texts={name: slices.cut(count) for name, slices in cursor.texts.items()},
        ends=ends[:count],
        damage=damage,
    )
