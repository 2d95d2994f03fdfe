"""Message bodies of the cursus broker's ordinal era: raw payloads and forms M, A and B.

All integers are big-endian; ``s16`` and ``s32`` are a u16 or u32 length and that many bytes.

==== ===================================================================================
form body
==== ===================================================================================
R    the payload itself; the only form that may be empty
M    s16 producer, u64 seq, s32 payload, s16 key, i64 epoch
A    s16 topic, u32 partition, u64 offset, s32 holding a body of form M
B    as in ``records``
==== ===================================================================================

Form M of payload ``hi`` with key ``k`` and seq 1, without a producer::

    00 00  00 00 00 00 00 00 00 01  00 00 00 02 68 69  00 01 6b  00 00 00 00 00 00 00 00

Nothing names the form, and one file may hold several. Each record is tried as B, then as A (topic
and partition are those of the path, and the fields end with the body), then as M (the fields end
with the body), else it is R. The offsets inside A are wrong and those of B no better than the
position in the log, which is therefore what counts.

Not guaranteed: a raw payload that happens to have the shape of another form is taken for it. For M
that needs three lengths and the size to agree, for A and B the topic's name as well.
"""

from __future__ import annotations

import numpy as np

from ...types import Int64s
from .records import TOPIC, Bodies, Bools, Cursor, Ints, Slices, read_head
from .rows import CURSUS, Data, Rows

_ROUTE_A = np.dtype([("partition", ">u4"), ("offset", ">u8"), ("payload", ">u4")])
_PRODUCER = np.dtype([("producer", ">u2")])
_PAYLOAD_M = np.dtype([("seq", ">u8"), ("payload", ">u4")])
_KEY = np.dtype([("key", ">u2")])
_EPOCH = np.dtype([("epoch", ">i8")])
_NUMBERS = {"seq": "u8", "epoch": "i8"}


def parse_ordinal(
    data: Data,
    rows: Rows,
    topic: str,
    partition: int,
    *,
    first_offset: int = 0,
) -> Bodies:
    """Parse the bodies of ``rows``; no body can be damaged, since anything may be a payload.

    Args:
        data: the bytes of the segment.
        rows: its records.
        topic: the topic's name, by the path.
        partition: the partition, by the path.
        first_offset: position in the log of the first of ``rows``.
    """
    starts = rows.positions + CURSUS.header_bytes
    ends = starts + rows.lengths
    found = _parse(data, starts, ends, (topic.encode(), partition))
    offsets = np.arange(first_offset, first_offset + rows.count)
    return Bodies(rows.count, offsets, found.numbers, found.texts, ends)


def are_messages(data: Data, rows: Rows, topic: str, partition: int) -> bool:
    """Whether all bodies are of form M, A or B, and not all of them without a payload.

    24 zero bytes have the shape of an empty form M; they prove nothing.
    """
    starts = rows.positions + CURSUS.header_bytes
    found = _parse(data, starts, starts + rows.lengths, (topic.encode(), partition))
    return not len(found.open) and bool(found.texts["payload"].lengths.any())


def _parse(data: Data, starts: Int64s, ends: Int64s, route: tuple[bytes, int]) -> _Found:
    found = _Found(starts, ends)
    for attempt in (_as_b, _as_a, _as_m):
        if not len(found.open):
            break
        which, cursor = attempt(data, starts[found.open], ends[found.open], route)
        found.accept(which, cursor)
    return found


class _Found:
    """Fields of all bodies; those of a form are copied in once it is known to be the right one."""

    def __init__(self, starts: Int64s, ends: Int64s) -> None:
        count = len(starts)
        self.open: Int64s = np.arange(count)
        self.numbers: dict[str, Ints] = {
            name: np.zeros(count, dtype=kind) for name, kind in _NUMBERS.items()
        }
        self.texts = {
            name: Slices(ends.copy(), np.zeros(count, dtype=np.int64))
            for name in ("producer", "key")
        }
        # What no form claims is a raw payload.
        self.texts["payload"] = Slices(starts.copy(), ends - starts)

    def accept(self, which: Int64s, cursor: Cursor) -> None:
        """Copy the fields of open bodies ``which`` and close them."""
        rows = self.open[which]
        for name, values in self.numbers.items():
            values[rows] = cursor.numbers[name][which]
        for name, slices in self.texts.items():
            if name in cursor.texts:
                slices.starts[rows] = cursor.texts[name].starts[which]
                slices.lengths[rows] = cursor.texts[name].lengths[which]
        self.open = np.delete(self.open, which)


def _as_b(
    data: Data, starts: Int64s, ends: Int64s, route: tuple[bytes, int]
) -> tuple[Int64s, Cursor]:
    cursor = Cursor(data, starts, ends)
    read_head(cursor)
    which = cursor.leave_at_end()
    return which[_routed(data, cursor, route)[which]], cursor


def _as_a(
    data: Data, starts: Int64s, ends: Int64s, route: tuple[bytes, int]
) -> tuple[Int64s, Cursor]:
    outer = Cursor(data, starts, ends)
    outer.read(TOPIC)
    outer.text("topic")
    outer.read(_ROUTE_A)
    outer.number("partition")
    outer.text("payload")
    which = outer.leave_at_end()
    which = which[_routed(data, outer, route)[which]]
    # Bodies of another form read nothing here: their inner body is empty, which M is not.
    inner = np.zeros(len(starts), dtype=np.int64)
    inner[which] = outer.texts["payload"].lengths[which]
    return _as_m(data, ends - inner, ends, route)


def _as_m(
    data: Data, starts: Int64s, ends: Int64s, _route: tuple[bytes, int]
) -> tuple[Int64s, Cursor]:
    cursor = Cursor(data, starts, ends)
    cursor.read(_PRODUCER)
    cursor.text("producer")
    cursor.read(_PAYLOAD_M)
    cursor.number("seq", "u8")
    cursor.text("payload")
    cursor.read(_KEY)
    cursor.text("key")
    cursor.read(_EPOCH)
    cursor.number("epoch")
    return cursor.leave_at_end(), cursor


def _routed(data: Data, cursor: Cursor, route: tuple[bytes, int]) -> Bools:
    topic, partition = route
    same = cursor.texts["topic"].equal(data, topic)
    same &= cursor.numbers["partition"] == partition
    return same
