"""Work on whole topics that needs every partition's lock, or that removes old segments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TypeVar
from uuid import UUID

from ..config import StoreConfig
from ..errors import StorageError
from ..format.file_names import segments_directory
from ..io.io_errors import typed_read_errors, typed_write_errors, watermark_lost
from ..log.partition_log import PartitionLog
from ..metadata import checkpoint
from ..metadata import high_watermark as watermark
from ..metadata.topic_file import TopicFile
from ..segments.active import rebuild_indexes
from ..segments.deletion_markers import drop_segments
from ..segments.listing import list_segments, log_path
from ..segments.segment_reader import ReadCaches, SegmentReader
from ..types import RecoveryReport
from ..vfs import Vfs
from .retention import segments_to_drop

Result = TypeVar("Result")
_log = logging.getLogger("storage_core")


@contextmanager
def hold_all(logs: Mapping[int, PartitionLog]) -> Iterator[None]:
    """Keep others out of every partition of a topic, whatever state it is in."""
    with ExitStack() as stack:
        # In rising order: all who take several locks take them so.
        for partition in sorted(logs):
            stack.enter_context(logs[partition].held())
        yield


def recover_topic(
    vfs: Vfs,
    topic: str,
    topic_uuid: UUID,
    logs: Mapping[int, PartitionLog],
    pending: Callable[[], Mapping[int, int]],
    timeout_ms: int,
) -> list[RecoveryReport]:
    """Recover all partitions of a topic in full and write its watermark anew.

    Pending commits are not waited for, as finishing one needs the watermark: ``pending`` says where
    they begin, and what they added so far stays invisible.
    """
    with ExitStack() as stack:
        for partition in sorted(logs):
            held = logs[partition].exclusive(recover=True, alone=False, finishing=True)
            stack.enter_context(held)
        ends = {partition: log.end_offset for partition, log in logs.items()}
        for partition, start in pending().items():
            if partition in ends:
                ends[partition] = min(ends[partition], start)
        # Typed here: no partition that is held had anything to do with a failure.
        with typed_write_errors(f"writing the watermark of topic {topic!r}", topic):
            watermark.rebuild(vfs, topic, topic_uuid.bytes, ends, timeout_ms)
    return [log.report for log in logs.values() if log.report is not None]


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


def remembered_ends(
    vfs: Vfs,
    topic: str,
    found: TopicFile,
    committed: Mapping[int, int],
    pending: Mapping[int, int],
) -> tuple[int, ...]:
    """Visible ends while the watermark is lost: older than the last ones, no commit cut in two.

    Lines of a checkpoint are of different ages. A commit that is in the ledger is durable on all
    its partitions, and one that is pending may be shown on none.
    """
    lines, ends = checkpoint.read(vfs), []
    for partition in range(found.partitions):
        line = lines.get((topic, partition))
        if line is None or line.topic_uuid != str(found.uuid):
            raise watermark_lost(topic)
        end = max(line.log_end_offset, committed.get(partition, 0))
        ends.append(min(end, pending.get(partition, end)))
    return tuple(ends)


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


def while_durable(
    topic: str, logs: Mapping[int, PartitionLog], change: Callable[[], Result]
) -> Result:
    """Change the policy of a topic while everything in it is durable and nobody adds to it.

    The other way round a power cut in between takes records that count as durable by then.
    """
    with ExitStack() as stack:
        for partition in sorted(logs):
            stack.enter_context(logs[partition].exclusive())
        # Typed here: a partition has nothing to do with what fails in another, or in the change.
        with typed_write_errors(f"syncing topic {topic!r} to change it", topic):
            for log in logs.values():
                log.settle()
            return change()


def make_durable(log: PartitionLog) -> None:
    """Sync everything in a partition, whatever its policy was when it was written."""
    with log.exclusive():
        log.settle()


def write_checkpoint(vfs: Vfs, logs: Iterable[PartitionLog], timeout_ms: int) -> None:
    """Note where these partitions end. It only makes recovery shorter, so it may fail."""
    lines = [line for line in (log.checkpoint() for log in logs) if line is not None]
    if not lines:
        return
    try:
        checkpoint.merge(vfs, lines, timeout_ms)
    except (OSError, StorageError) as error:
        # The records are safe, and the caller's call is done.
        _log.warning("the checkpoint was not written: %s", error)
