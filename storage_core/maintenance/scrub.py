"""Scrub: every checksum of the closed segments, verified at a bounded rate, so that rot is found
while there still is a copy elsewhere."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ..errors import StoppedError, StorageError
from ..format.file_names import IDX, TIMEIDX, segment_file
from ..format.sparse_index import IndexKind, parse_sealed
from ..io.durable import read_file
from ..segments.sealed import Sealed, SealedLog
from ..types import Problem
from .report import Pace, UpkeepReport

_MAX_INDEX_BYTES = 1 << 30
_INDEXES: tuple[tuple[IndexKind, str], ...] = (("offset", IDX), ("time", TIMEIDX))


def scrub_partition(files: SealedLog, upto: int | None, pace: Pace) -> UpkeepReport:
    """Read every closed segment and its indexes; changes nothing and takes no lock.

    Only those that end at ``upto`` or before: what is not visible yet may be taken back meanwhile.
    """
    report = UpkeepReport("scrub", files.topic, files.partition)
    segments = files.segments(upto)
    try:
        total = sum(segment.size for segment in segments)
        pace.begin("scrub", files.topic, files.partition, total)
        for segment in segments:
            found: tuple[Problem, ...] = ()
            # One that retention or a merge has taken or changed meanwhile is nobody's problem.
            with suppress(FileNotFoundError):
                found = _problems(files, segment, pace)
                if files.vfs.stat(segment.path) != segment.stat:
                    found = ()
            report = replace(
                report.counted(segment.size, segment.size), problems=(*report.problems, *found)
            )
    except StoppedError:
        return replace(report, done=False, note="stopped")
    return report


def _problems(files: SealedLog, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
    try:
        end = segment.base
        for frame in files.frames(segment):
            end = frame.end_offset
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
    stale = [
        suffix
        for kind, suffix in _INDEXES
        if parse_sealed(kind, _read_index(files, segment, suffix), segment.size) is None
    ]
    if stale:
        message = f"{segment.path}: its index is missing or stale; reads rebuild it."
        return (Problem("warning", "INDEX_STALE", message, *where),)
    return ()


def _read_index(files: SealedLog, segment: Sealed, suffix: str) -> bytes:
    path = f"{files.directory}/{segment_file(segment.base, suffix)}"
    return read_file(files.vfs, path, _MAX_INDEX_BYTES) or b""
