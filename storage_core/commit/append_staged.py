"""Appending staged frames to a native log, idempotently.

The log itself says how far an earlier attempt came: the records below its end are there already. No
other writer appends while a commit is pending, so those records are the commit's own. The same call
therefore finishes a commit after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..config import CODECS, MAX_FRAME_BYTES
from ..errors import BrokenFrameError, DamagedLogError
from ..format.frame_builder import SMALL_FRAME_BYTES, FrameBuilder
from ..format.frame_scan import StoredFrame, frames_at
from ..format.selection import Schemas, SchemasOf
from ..log.partition_log import PartitionLog
from ..log.tail import Tail
from ..vfs import Vfs
from .intents import PartitionIntent
from .staging import StagedPart, frame_checksum

_JOINED_RECORDS = 8192


def append_staged(
    vfs: Vfs, schemas_of: SchemasOf, log: PartitionLog, intent: PartitionIntent
) -> None:
    """Append what is still missing of a partition's parts, durably. The caller holds the log."""
    with log.writing_durably() as tail:
        append_parts(vfs, schemas_of, tail, intent)


def append_parts(vfs: Vfs, schemas_of: SchemasOf, tail: Tail, intent: PartitionIntent) -> None:
    """Append what is still missing of a partition's parts. The caller syncs.

    Raises:
        DamagedLogError: a staged part is not what its task wrote.
    """
    offset = intent.start
    appender = _Appender(tail)
    for part in intent.parts:
        schemas = None if part.schema is None else schemas_of(part.topic)
        done = max(appender.end - offset, 0)
        if part.own_file and 0 == done < part.records:
            appender.flush()
            tail.sync()
            tail.adopt_file(part.path, part.size, part.records)
        elif done < part.records:
            for frame in read_part(vfs, part):
                if done < frame.header.records:
                    appender.add(frame, schemas, skip=done)
                done = max(done - frame.header.records, 0)
        offset += part.records
    appender.flush()
    if tail.end != intent.end:
        raise DamagedLogError(
            f"{intent.topic}-{intent.partition}: a commit should end at offset {intent.end}, the "
            f"log ends at {tail.end}. Nothing was published.",
            topic=intent.topic,
            partition=intent.partition,
            offset=tail.end,
        )


class _Appender:
    """Appends staged frames: large ones as they are, small ones joined, each under its codec."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._waiting = FrameBuilder(_JOINED_RECORDS, MAX_FRAME_BYTES)
        self._codec = 0

    @property
    def end(self) -> int:
        """Where the log ends once all that waits is written."""
        return self._tail.end + self._waiting.rows

    def add(self, frame: StoredFrame, schemas: Schemas | None, skip: int) -> None:
        """Append a frame's records but for the first ``skip``. ``schemas``: of a typed topic."""
        header = frame.header
        if not skip and header.raw_length >= SMALL_FRAME_BYTES:
            self.flush()
            self._tail.write_frame(frame.encoded())
            return
        columns = frame.columns(schemas)
        if header.codec != self._codec or not self._waiting.can_join(columns):
            self.flush()
        self._codec = header.codec
        self._waiting.add(columns.slice(skip, columns.count) if skip else columns)
        if self._waiting.is_full:
            self.flush()

    def flush(self) -> None:
        """Write all that waits."""
        if self._waiting.rows:
            self._tail.write(self._waiting.take_all(), CODECS[self._codec])


def read_part(vfs: Vfs, part: StagedPart) -> Iterator[StoredFrame]:
    """The frames of a part, each checked, and all of them against the part's checksum.

    Raises:
        DamagedLogError: a frame or the whole is not what the task wrote.
    """
    checksum = 0
    try:
        for frame in frames_at(vfs, part.path, part.runs):
            checksum = frame_checksum(frame.encoded().buffers, checksum)
            yield frame
    except BrokenFrameError as error:
        raise _damaged(part, str(error)) from error
    if checksum != part.checksum:
        raise _damaged(part, "its checksum differs from the task's")


def _damaged(part: StagedPart, reason: str) -> DamagedLogError:
    return DamagedLogError(
        f"{part.topic}-{part.partition}: staged file {part.path} is damaged: {reason}.",
        topic=part.topic,
        partition=part.partition,
        path=part.path,
    )
