"""The high watermark of every partition of a topic, in one small file that a rename replaces.

A reader reads the file once, takes no lock and reads no record at or above the high watermark. A
writer writes the file after it synced the records. It does not sync the file itself. So after a
power cut the file may be old, torn or missing, but it is never above the log end. The exception is
``fsync=none``, where records may be lost: see ``lower``.

Big-endian: ``magic CRSW, version u8, 3 zero bytes, count u32, topic uuid (16 bytes),
count x end u64, CRC32C u32``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from ..io.checksum import crc32c
from ..io.durable import parent, read_file, replace_file
from ..io.locks import locked
from ..vfs import Vfs

_HEAD = struct.Struct(">4sB3xI16s")
_CRC = struct.Struct(">I")
_MAGIC, _VERSION = b"CRSW", 1
MAX_PARTITIONS = 100_000
_MAX_BYTES = _HEAD.size + 8 * MAX_PARTITIONS + _CRC.size


class Watermark(NamedTuple):
    """High watermarks by partition number. A partition after the end of the list has 0."""

    topic_uuid: bytes
    ends: tuple[int, ...]

    def end(self, partition: int) -> int:
        return self.ends[partition] if partition < len(self.ends) else 0


def pack(watermark: Watermark) -> bytes:
    """The bytes of the ``watermark`` file."""
    head = _HEAD.pack(_MAGIC, _VERSION, len(watermark.ends), watermark.topic_uuid)
    data = head + struct.pack(f">{len(watermark.ends)}Q", *watermark.ends)
    return data + _CRC.pack(crc32c(data))


def unpack(data: bytes) -> Watermark | None:
    """The high watermarks in ``data``; None if the bytes are damaged."""
    if len(data) < _HEAD.size + _CRC.size:
        return None
    magic, version, count, topic_uuid = _HEAD.unpack_from(data)
    if (
        (magic, version) != (_MAGIC, _VERSION)
        or len(data) != _HEAD.size + 8 * count + _CRC.size
        or crc32c(data[:-4]) != _CRC.unpack_from(data, len(data) - 4)[0]
    ):
        return None
    return Watermark(topic_uuid, struct.unpack_from(f">{count}Q", data, _HEAD.size))


def path_of(topic: str) -> str:
    """The path of a topic's ``watermark`` file."""
    return f"topics/{topic}/watermark"


def lock_of(topic: str) -> str:
    """The lock over a topic's ``watermark`` and ``topic.json`` files. Processes hold it briefly.

    ``publish`` does not fsync under it. Only changes of ``topic.json`` do.
    """
    return f"topics/{topic}/lock"


def read(vfs: Vfs, topic: str, topic_uuid: bytes) -> Watermark | None:
    """The current high watermarks; None if the file is missing, torn or of another topic."""
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
    """Set the high watermarks of some partitions in one step; False if the file is lost.

    ``again`` writes the file even if it has these values: its last sync may have failed.

    The caller holds the locks of these partitions and has synced the records.
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
    """Rewrite the file. The caller holds the locks of all partitions that it knows.

    Values of partitions that another process added in the meantime stay.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        current = read(vfs, topic, topic_uuid)
        known = {} if current is None else dict(enumerate(current.ends))
        _store(vfs, topic, topic_uuid, {**known, **ends})


def lower(
    vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int], timeout_ms: int
) -> None:
    """Lower high watermarks that exceed the log end, durably.

    This happens with ``fsync=none``, where a power cut takes published records. It comes before the
    next append: readers would see those records before they are published.
    """
    current = read(vfs, topic, topic_uuid)
    if current is not None and any(current.end(partition) > end for partition, end in ends.items()):
        publish(vfs, topic, topic_uuid, ends, timeout_ms)
        make_durable(vfs, topic)


def make_durable(vfs: Vfs, topic: str) -> None:
    """Sync the file, so that a power cut cannot lower the high watermarks."""
    fd = vfs.open(path_of(topic), "read")
    try:
        vfs.fsync(fd)
    finally:
        vfs.close(fd)
    vfs.fsync_dir(parent(path_of(topic)))


def _store(vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int]) -> None:
    row = tuple(ends.get(partition, 0) for partition in range(max(ends, default=-1) + 1))
    replace_file(vfs, path_of(topic), pack(Watermark(topic_uuid, row)), sync=False)
