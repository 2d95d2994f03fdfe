"""The high watermark of every partition of a topic, in one small file that a rename replaces.

A reader reads the file once, takes no lock and reads no record at or above the high watermark. A
writer writes the file after it synced the records. It does not sync the file itself. So after a
power cut the file may be old, torn or missing, but it is never above the log end. The exception is
``fsync=none``, where records may be lost: see ``lower``.

The file of a typed topic also names the published schema version. So one rename shows rows and
their schema together.

Big-endian: ``magic CRSW, version u8, 3 zero bytes, count u32, topic uuid (16 bytes),
[schema u32,] count x end u64, CRC32C u32``. Version 2, of typed topics, has the schema.
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
_NUMBER = struct.Struct(">I")
_MAGIC = b"CRSW"
_RECORDS, _TYPED = 1, 2
_HEAD_BYTES = {_RECORDS: _HEAD.size, _TYPED: _HEAD.size + _NUMBER.size}
MAX_PARTITIONS = 100_000
_MAX_BYTES = _HEAD_BYTES[_TYPED] + 8 * MAX_PARTITIONS + _NUMBER.size


class Watermark(NamedTuple):
    """High watermarks by partition number. A partition after the end of the list has 0.

    ``schema`` is the published schema version of a typed topic. Records topics have none.
    """

    topic_uuid: bytes
    ends: tuple[int, ...]
    schema: int | None = None

    def end(self, partition: int) -> int:
        return self.ends[partition] if partition < len(self.ends) else 0


def pack(watermark: Watermark) -> bytes:
    """The bytes of the ``watermark`` file."""
    version, schema = _RECORDS, b""
    if watermark.schema is not None:
        version, schema = _TYPED, _NUMBER.pack(watermark.schema)
    head = _HEAD.pack(_MAGIC, version, len(watermark.ends), watermark.topic_uuid)
    data = head + schema + struct.pack(f">{len(watermark.ends)}Q", *watermark.ends)
    return data + _NUMBER.pack(crc32c(data))


def unpack(data: bytes) -> Watermark | None:
    """The high watermarks in ``data``; None if the bytes are damaged."""
    if len(data) < _HEAD.size + _NUMBER.size:
        return None
    magic, version, count, topic_uuid = _HEAD.unpack_from(data)
    if (
        magic != _MAGIC
        or version not in _HEAD_BYTES
        or len(data) != _HEAD_BYTES[version] + 8 * count + _NUMBER.size
        or crc32c(data[:-4]) != _NUMBER.unpack_from(data, len(data) - 4)[0]
    ):
        return None
    ends = struct.unpack_from(f">{count}Q", data, _HEAD_BYTES[version])
    schema = _NUMBER.unpack_from(data, _HEAD.size)[0] if version == _TYPED else None
    return Watermark(topic_uuid, ends, schema)


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
    schema: int | None = None,
    again: bool = False,
) -> bool:
    """Set the high watermarks of some partitions in one step; False if the file is lost.

    ``schema`` publishes a schema version in the same step. A later one that is published already
    stays. The caller then holds the lock of partition 0 too.

    ``again`` writes the file even if it has these values: its last sync may have failed.

    The caller holds the locks of these partitions and has synced the records.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        current = read(vfs, topic, topic_uuid)
        if current is None:
            return False
        schema = _later(current.schema, schema)
        same = all(current.end(partition) == end for partition, end in ends.items())
        if again or not same or schema != current.schema:
            _store(vfs, topic, topic_uuid, {**dict(enumerate(current.ends)), **ends}, schema)
        return True


def rebuild(
    vfs: Vfs,
    topic: str,
    topic_uuid: bytes,
    ends: Mapping[int, int],
    timeout_ms: int,
    schema: int | None = None,
) -> None:
    """Rewrite the file. The caller holds the locks of all partitions that it knows.

    Values of partitions that another process added in the meantime stay.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        current = read(vfs, topic, topic_uuid)
        known = {} if current is None else dict(enumerate(current.ends))
        published = None if current is None else current.schema
        _store(vfs, topic, topic_uuid, {**known, **ends}, _later(published, schema))


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


def _later(published: int | None, wanted: int | None) -> int | None:
    """The later schema version: the intent of an earlier one may come back after a power cut."""
    known = [version for version in (published, wanted) if version is not None]
    return max(known, default=None)


def _store(
    vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int], schema: int | None
) -> None:
    row = tuple(ends.get(partition, 0) for partition in range(max(ends, default=-1) + 1))
    replace_file(vfs, path_of(topic), pack(Watermark(topic_uuid, row, schema)), sync=False)
