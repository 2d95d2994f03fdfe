"""The bytes of the ``watermark`` file: two slots that writers fill in turn.

Each half of the file holds one slot. Big-endian: ``magic CRSW, version u8 = 3, 3 zero bytes,
count u32, schema u32 (0: a records topic), generation u64, topic uuid (16 bytes), count x end u64,
CRC32C u32``. The rest of the half is zeros.

Generation g stands in half g mod 2. So the slot after the newest one is never the newest one, and a
slot that is being written, or was left torn by a crash, leaves the other one whole. A half is a
multiple of 4096 bytes, so that a device does not write both slots in one block.

Earlier releases wrote one value and no slots: ``magic CRSW, version u8, 3 zero bytes, count u32,
topic uuid, [schema u32,] count x end u64, CRC32C u32``. Version 2, of typed topics, has the schema.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from ..io.checksum import crc32c

_MAGIC = b"CRSW"
_HEAD = struct.Struct(">4sB3xIIQ16s")
_VERSION = 3
_EARLIER_HEAD = struct.Struct(">4sB3xI16s")
_EARLIER = {1: _EARLIER_HEAD.size, 2: _EARLIER_HEAD.size + 4}
"""Bytes before the ends in the forms of earlier releases."""
_NUMBER = struct.Struct(">I")
_BLOCK = 4096
_MOST_GENERATIONS = 1 << 63
"""No log lives to see as many. A slot that claims more would leave no room for a next one."""
USUAL_BYTES = 2 * _BLOCK
"""The size of a file of up to 506 partitions."""
MAX_PARTITIONS = 100_000


class Watermark(NamedTuple):
    """High watermarks by partition number. A partition after the end of the list has 0.

    ``schema`` is the published schema version of a typed topic. Records topics have none.
    """

    topic_uuid: bytes
    ends: tuple[int, ...]
    schema: int | None = None

    def end(self, partition: int) -> int:
        return self.ends[partition] if partition < len(self.ends) else 0

    def raised(self, ends: Mapping[int, int], schema: int | None) -> Watermark:
        """The same with other values of some partitions."""
        if not ends:
            return self._replace(schema=schema)
        row = [*self.ends, *bytes(max(0, max(ends) + 1 - len(self.ends)))]
        for partition, end in ends.items():
            row[partition] = end
        return Watermark(self.topic_uuid, tuple(row), schema)


class Slots(NamedTuple):
    """What one read of the file shows.

    ``generation`` is that of the newest whole slot, 0 in a file of an earlier release.
    """

    watermark: Watermark
    generation: int
    has_both_slots: bool
    """Whether all of the file is whole. Otherwise the other slot may be newer already."""
    half: int
    """Bytes of each half; 0 in a file of an earlier release."""


def pack_slot(watermark: Watermark, generation: int) -> bytes:
    """The bytes of one slot."""
    count = len(watermark.ends)
    head = _HEAD.pack(
        _MAGIC, _VERSION, count, watermark.schema or 0, generation, watermark.topic_uuid
    )
    data = head + struct.pack(f">{count}Q", *watermark.ends)
    return data + _NUMBER.pack(crc32c(data))


def position(generation: int, half: int) -> int:
    """Where the slot of a generation begins."""
    return generation % 2 * half


def pack(watermark: Watermark, generation: int = 0) -> bytes:
    """A whole file. Both slots hold the same values: one may be torn from then on."""
    generation += generation % 2
    first = pack_slot(watermark, generation)
    half = -(-len(first) // _BLOCK) * _BLOCK
    return first.ljust(half, b"\0") + pack_slot(watermark, generation + 1).ljust(half, b"\0")


def unpack(data: bytes) -> Slots | None:
    """The newest whole slot in ``data``; None if there is none."""
    half = len(data) // 2
    found = [_unpack_slot(data, number, half) for number in (0, 1)]
    whole = [slot for slot in found if slot is not None]
    if not whole:
        earlier = _unpack_earlier(data)
        return None if earlier is None else Slots(earlier, 0, has_both_slots=True, half=0)
    generation, count, schema, topic_uuid = max(whole)
    start = position(generation, half) + _HEAD.size
    ends = struct.unpack_from(f">{count}Q", data, start)
    watermark = Watermark(topic_uuid, ends, schema or None)
    return Slots(watermark, generation, has_both_slots=len(whole) == 2, half=half)


def _unpack_slot(data: bytes, number: int, half: int) -> tuple[int, int, int, bytes] | None:
    """Generation, count, schema and topic uuid of a slot; None if the slot is not whole."""
    start = number * half
    if half < _HEAD.size + _NUMBER.size:
        return None
    magic, version, count, schema, generation, topic_uuid = _HEAD.unpack_from(data, start)
    end = start + _HEAD.size + 8 * count
    if (
        magic != _MAGIC
        or version != _VERSION
        or end + _NUMBER.size > start + half
        or generation % 2 != number
        or generation >= _MOST_GENERATIONS
        or crc32c(memoryview(data)[start:end]) != _NUMBER.unpack_from(data, end)[0]
    ):
        return None
    return generation, count, schema, topic_uuid


def _unpack_earlier(data: bytes) -> Watermark | None:
    """The value in a file of an earlier release."""
    if len(data) < _EARLIER_HEAD.size + _NUMBER.size:
        return None
    magic, version, count, topic_uuid = _EARLIER_HEAD.unpack_from(data)
    if (
        magic != _MAGIC
        or version not in _EARLIER
        or len(data) != _EARLIER[version] + 8 * count + _NUMBER.size
        or crc32c(memoryview(data)[:-4]) != _NUMBER.unpack_from(data, len(data) - 4)[0]
    ):
        return None
    ends = struct.unpack_from(f">{count}Q", data, _EARLIER[version])
    schema = _NUMBER.unpack_from(data, _EARLIER_HEAD.size)[0] if version == 2 else None
    return Watermark(topic_uuid, ends, schema)
