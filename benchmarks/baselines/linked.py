"""Large stores at once: one segment under many names. This works because frames count offsets
from the base of their segment."""

from __future__ import annotations

import os
from pathlib import Path

from storage_core import Store, StoreConfig
from storage_core.format.file_names import segment_file
from storage_core.io.byte_source import MappedSource
from storage_core.metadata import high_watermark as watermarks
from storage_core.segments.index_files import build_indexes, write_indexes

from .. import data
from ..data import UnsyncedVfs

TOPIC = "linked"
_SPARSE_RECORDS = 1000
_MOST_LINKS = 30_000


def sparse_segments(path: Path, segments: int, partitions: int) -> None:
    """Names and sizes of many sealed segments, without readable content."""
    vfs = _create(path, partitions)
    share = segments // partitions
    for partition in range(partitions):
        directory = _directory(path, partition)
        for suffix, size in ((".log", data.MIB), (".idx", 16), (".timeidx", 16)):
            for number in range(share):
                file = directory / segment_file(number * _SPARSE_RECORDS, suffix)
                if number % _MOST_LINKS == 0:
                    original = file
                    with file.open("wb") as stream:
                        stream.truncate(size)
                else:
                    os.link(original, file)
    _publish(vfs, path, dict.fromkeys(range(partitions), share * _SPARSE_RECORDS))


def repeated_segment(path: Path, size: int, segment_bytes: int) -> int:
    """A readable topic of ``size`` bytes made of one segment; returns the number of records."""
    vfs = _create(path, 1)
    config = StoreConfig(segment_bytes=max(1 << 16, 2 * segment_bytes))
    with Store(vfs, config) as store:
        store.append(TOPIC, 0, data.values(max(1, segment_bytes // data.RECORD_BYTES)))
        store.roll(TOPIC, 0)
        records = store.offsets(TOPIC, 0).end
    directory = _directory(path, 0)
    original = directory / segment_file(0, ".log")
    source = MappedSource(vfs, str(original.relative_to(path)))
    interval = config.index_interval_bytes
    count = max(1, size // original.stat().st_size)
    for number in range(1, count):
        base = number * records
        os.link(original, directory / segment_file(base, ".log"))
        builder = build_indexes(source, base, interval)
        write_indexes(vfs, str(directory.relative_to(path)), base, builder, source.size)
    _publish(vfs, path, {0: count * records})
    return count * records


def _create(path: Path, partitions: int) -> UnsyncedVfs:
    Store.open(path, create=True).close()
    vfs = UnsyncedVfs(path)
    with Store(vfs, StoreConfig()) as store:
        store.create_topic(TOPIC, partitions)
    return vfs


def _directory(path: Path, partition: int) -> Path:
    directory = path / "topics" / TOPIC / str(partition) / "segments"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _publish(vfs: UnsyncedVfs, path: Path, ends: dict[int, int]) -> None:
    topic = Store.open(path).topic(TOPIC)
    if not watermarks.publish(vfs, TOPIC, topic.uuid.bytes, ends, 1000):
        raise AssertionError("the high watermark is missing")
