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
Upgrades wrote on in the same files, so each record is told apart by itself. Form B of ``hi`` at
offset 3 of partition 0 of topic ``t``, without a producer::

    00 01 74  00 00 00 00  00 00 00 00 00 00 00 03  00 00
    00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 02 68 69

There is no null: an empty key is no key. A record with a txn_marker is a control record.

Not guaranteed: there is no checksum, so a body that still has a form's shape is taken for one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...types import Int64s
from .cursor import Bools, Cursor, Ints, Slices
from .rows import CURSUS_BROKER, Data, RowFormat, Rows

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
        """Control records: written by the broker for itself and never delivered."""
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


def parse_bodies(data: Data, rows: Rows, fmt: RowFormat = CURSUS_BROKER) -> Bodies:
    """Parse the bodies of ``rows``, all at once; a few thousand rows at a time go fastest.

    Topic and partition inside the records are not compared with anything: the broker does not do
    so either, and a copied topic directory stays readable.
    """
    starts = rows.positions + fmt.header_bytes
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
