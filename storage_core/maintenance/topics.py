"""Work on whole topics that needs every partition's lock, or that removes old segments."""

from __future__ import annotations

import logging
from typing import TypeVar

from ..config import StoreConfig
from ..format.file_names import segments_directory
from ..io.io_errors import typed_read_errors
from ..log.partition_log import PartitionLog
from ..segments.active import rebuild_indexes
from ..segments.deletion_markers import drop_segments
from ..segments.listing import list_segments, log_path
from ..segments.segment_reader import ReadCaches, SegmentReader
from ..vfs import Vfs
from .retention import segments_to_drop

Result = TypeVar("Result")
_log = logging.getLogger("storage_core")


def expired_segments(
    vfs: Vfs,
    config: StoreConfig,
    topic: str,
    partition: int,
    caches: ReadCaches,
    hold: int | None,
) -> tuple[int, ...]:
    """Bases of the oldest segments that the topic's limits no longer cover. Changes nothing."""
    if not has_limits(config):
        return ()
    directory = segments_directory(topic, partition)
    bases = list_segments(vfs, directory).bases

    def largest_timestamp(position: int) -> int:
        base = bases[position]
        with typed_read_errors(topic, partition, log_path(directory, base)):
            segment = SegmentReader(vfs, directory, base, config, caches, closed=True)
            return segment.largest_timestamp_in_log()

    stats = [vfs.stat(log_path(directory, base)) for base in bases]
    count = segments_to_drop(
        [0 if stat is None else stat.size for stat in stats],
        largest_timestamp,
        now_us=vfs.now_us(),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        ends=bases[1:],
        hold=hold,
    )
    return bases[:count]


def has_limits(config: StoreConfig) -> bool:
    """Whether retention has anything to go by; what is only compacted is kept for ever."""
    limits = (config.retention_ms, config.retention_bytes)
    return config.cleanup_policy != "compact" and limits != (None, None)


def retain_partition(
    vfs: Vfs,
    log: PartitionLog,
    topic: str,
    partition: int,
    caches: ReadCaches,
    hold: int | None,
) -> list[int]:
    """Drop the segments that the topic's limits no longer cover; return their bases."""
    config = log.config
    if not has_limits(config):
        return []
    with log.exclusive():
        dropped = expired_segments(vfs, config, topic, partition, caches, hold)
        if dropped:
            directory = segments_directory(topic, partition)
            new_start = list_segments(vfs, directory).following(dropped[-1])
            assert new_start is not None  # the active segment always stays
            drop_segments(vfs, directory, dropped, new_start)
        return list(dropped)


def repair_indexes(
    vfs: Vfs, log: PartitionLog, topic: str, partition: int, caches: ReadCaches
) -> int:
    """Write anew the indexes of closed segments that do not check; return how many."""
    directory = segments_directory(topic, partition)
    repaired = 0
    with log.exclusive():
        for base in list_segments(vfs, directory).bases[:-1]:
            with typed_read_errors(topic, partition, log_path(directory, base)):
                segment = SegmentReader(vfs, directory, base, log.config, caches, closed=True)
                if not segment.index_is_sound():
                    rebuild_indexes(vfs, directory, base, log.config)
                    repaired += 1
    return repaired
