"""Scrub: every checksum of the sealed segments, verified at a bounded rate; repair of indexes.

Bit rot is found this way while there still is a copy elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StoppedError, StorageError
from ..format.file_names import segments_directory
from ..io.io_errors import typed_read_errors
from ..lazy import LazyModule
from ..log.partition_log import PartitionLog
from ..segments.index_files import has_sound_indexes, rebuild_indexes
from ..segments.listing import list_segments, log_path
from ..segments.sealed import Sealed, SealedLog
from ..segments.segment_reader import ReadCaches, SegmentReader
from ..types import Problem
from ..vfs import Vfs
from .report import Pace

if TYPE_CHECKING:
    from ..format import typed_frames
else:
    typed_frames = LazyModule("storage_core.format.typed_frames")


def segment_problems(files: SealedLog, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
    """What is wrong with a sealed segment or its indexes, every checksum verified."""
    try:
        end = segment.base
        for frame in files.frames(segment):
            end = frame.end_offset
            if files.schemas is not None and frame.header.records:
                with typed_read_errors(files.topic, files.partition, segment.path):
                    files.schemas.get(typed_frames.schema_version(frame.header, frame.rest))
            pace.advance(frame.header.length)
    except StoppedError:
        raise
    except StorageError as error:
        return (Problem.from_error(error),)
    name = f"{files.topic}-{files.partition}"
    where = (files.topic, files.partition, segment.path)
    if end < segment.end:
        message = f"{name}: {segment.path} ends at {end}, the next segment begins at {segment.end}."
        return (Problem("error", "LOG_DAMAGED", message, *where),)
    if not has_sound_indexes(files.vfs, files.directory, segment.base, segment.size):
        message = f"{segment.path}: its index is missing or stale; reads rebuild it."
        return (Problem("warning", "INDEX_STALE", message, *where),)
    return ()


def repair_indexes(
    vfs: Vfs, log: PartitionLog, topic: str, partition: int, caches: ReadCaches
) -> int:
    """Rebuild the indexes of sealed segments that do not match their log; return how many."""
    directory = segments_directory(topic, partition)
    repaired = 0
    with log.exclusive():
        for base in list_segments(vfs, directory).bases[:-1]:
            with typed_read_errors(topic, partition, log_path(directory, base)):
                segment = SegmentReader(vfs, directory, base, log.config, caches, sealed=True)
                if not segment.index_is_sound():
                    rebuild_indexes(vfs, directory, base, log.config)
                    repaired += 1
    return repaired
