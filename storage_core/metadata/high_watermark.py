"""The visible end of every partition of a topic, in one small file replaced by rename.

Readers read it once, take no lock and never look past it. It is written after the data is synced
and is not synced itself: after a power cut it may be older than the log, torn or gone, never ahead.

Big-endian: ``magic CRSW, version u8, 3 zero bytes, count u32, topic uuid (16 bytes),
count x end u64, CRC32C u32``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import crc32c

from ..io.durable import parent, read_file, replace_file
from ..io.locks import locked
from ..vfs import Vfs

_HEAD = struct.Struct(">4sB3xI16s")
_CRC = struct.Struct(">I")
_MAGIC, _VERSION = b"CRSW", 1
MAX_PARTITIONS = 100_000
_MAX_BYTES = _HEAD.size + 8 * MAX_PARTITIONS + _CRC.size


class Watermark(NamedTuple):
    """Visible ends by partition number; a partition beyond the list ends at 0."""

    topic_uuid: bytes
    ends: tuple[int, ...]

    def end(self, partition: int) -> int:
        return self.ends[partition] if partition < len(self.ends) else 0


def pack(watermark: Watermark) -> bytes:
    """The bytes of a watermark file."""
    head = _HEAD.pack(_MAGIC, _VERSION, len(watermark.ends), watermark.topic_uuid)
    data = head + struct.pack(f">{len(watermark.ends)}Q", *watermark.ends)
    return data + _CRC.pack(crc32c.crc32c(data))


def unpack(data: bytes) -> Watermark | None:
    """The watermark in ``data``, or None when it cannot be trusted."""
    if len(data) < _HEAD.size + _CRC.size:
        return None
    magic, version, count, topic_uuid = _HEAD.unpack_from(data)
    if (
        (magic, version) != (_MAGIC, _VERSION)
        or len(data) != _HEAD.size + 8 * count + _CRC.size
        or crc32c.crc32c(data[:-4]) != _CRC.unpack_from(data, len(data) - 4)[0]
    ):
        return None
    return Watermark(topic_uuid, struct.unpack_from(f">{count}Q", data, _HEAD.size))


def path_of(topic: str) -> str:
    """Where a topic's watermark stands."""
    return f"topics/{topic}/watermark"


def lock_of(topic: str) -> str:
    """The lock over a topic's watermark and ``topic.json``; held briefly.

    Publishing never holds it across an fsync; only changing ``topic.json`` does.
    """
    return f"topics/{topic}/lock"


def read(vfs: Vfs, topic: str, topic_uuid: bytes) -> Watermark | None:
    """The current watermark, or None when it is missing, torn or of another topic."""
    data = read_file(vfs, path_of(topic), _MAX_BYTES)
    watermark = None if data is None else unpack(data)
    return watermark if watermark is not None and watermark.topic_uuid == topic_uuid else None


def publish(
    vfs: Vfs,
    topic: str,
    topic_uuid: bytes,
    ends: Mapping[int, int],
    timeout_ms: int,
    *,
    again: bool = False,
) -> bool:
    """Make the ends of some partitions visible in one step; False if the file needs recovery.

    With ``again`` the file is written even if it says so already: its last sync may have failed.

    The caller holds the locks of these partitions and has synced what it publishes.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        current = read(vfs, topic, topic_uuid)
        if current is None:
            return False
        if not again and all(current.end(partition) == end for partition, end in ends.items()):
            return True
        _store(vfs, topic, topic_uuid, {**dict(enumerate(current.ends)), **ends})
        return True


def rebuild(
    vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int], timeout_ms: int
) -> None:
    """Write the file again. The caller holds the locks of all partitions it knows of the topic.

    What others published of partitions that were added meanwhile stays.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        current = read(vfs, topic, topic_uuid)
        known = {} if current is None else dict(enumerate(current.ends))
        _store(vfs, topic, topic_uuid, {**known, **ends})


def lower(
    vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int], timeout_ms: int
) -> None:
    """Show no more of partitions than there is, durably: without syncs a power cut takes records.

    Before anything is written there: it would be seen before it is published.
    """
    shown = read(vfs, topic, topic_uuid)
    if shown is not None and any(shown.end(partition) > end for partition, end in ends.items()):
        publish(vfs, topic, topic_uuid, ends, timeout_ms)
        make_durable(vfs, topic)


def make_durable(vfs: Vfs, topic: str) -> None:
    """Keep a power cut from taking back what was published."""
    fd = vfs.open(path_of(topic), "read")
    try:
        vfs.fsync(fd)
    finally:
        vfs.close(fd)
    vfs.fsync_dir(parent(path_of(topic)))


def _store(vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int]) -> None:
    row = tuple(ends.get(partition, 0) for partition in range(max(ends, default=-1) + 1))
    replace_file(vfs, path_of(topic), pack(Watermark(topic_uuid, row)), sync=False)
