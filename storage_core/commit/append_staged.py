"""Putting staged frames behind the end of a native log, as often as it takes.

The log itself says how far an earlier attempt came: records below its end are there already, and
because nothing else is appended while a commit is pending, they are the commit's own. So the same
call finishes a commit after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ..errors import BrokenFrameError, DamagedLogError
from ..format.columns import Columns, concat_columns
from ..format.frame import CODECS
from ..format.frame_encode import EncodedFrame
from ..format.frame_scan import frame_columns, frames_at
from ..log.partition_log import PartitionLog
from ..log.tail import Tail
from ..vfs import Vfs
from .intents import PartitionIntent
from .staging import StagedPart, frame_checksum

# Smaller frames are joined on the way: a frame of one record costs 284 bytes and 20 us per read.
_SMALL_FRAME_BYTES = 128 << 10


def append_staged(vfs: Vfs, log: PartitionLog, intent: PartitionIntent) -> None:
    """Append what is still missing of a partition's parts, durably. The caller holds the log."""
    with log.writing_durably() as tail:
        append_parts(vfs, tail, intent)


def append_parts(vfs: Vfs, tail: Tail, intent: PartitionIntent) -> None:
    """Append what is still missing of a partition's parts. The caller syncs.

    Raises:
        DamagedLogError: a staged part is not what its task wrote.
    """
    offset = intent.start
    small = _SmallFrames(tail)
    for part in intent.parts:
        missing = offset + part.records - max(tail.end + small.rows, offset)
        if missing > 0:
            if part.own_file and missing == part.records:
                small.flush()
                tail.sync()
                tail.adopt_file(part.path, part.size, part.records)
            else:
                _copy(vfs, tail, part, part.records - missing, small)
        offset += part.records
    small.flush()
    if tail.end != intent.end:
        raise DamagedLogError(
            f"{intent.topic}-{intent.partition}: a commit should end at offset {intent.end}, the "
            f"log ends at {tail.end}. Nothing was published.",
            topic=intent.topic,
            partition=intent.partition,
            offset=tail.end,
        )


class _SmallFrames:
    """Records of small frames that wait to be written as one, under the codec they came with."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._waiting: list[Columns] = []
        self._codec = 0
        self.rows = 0

    def add(self, columns: Columns, codec: int) -> None:
        if codec != self._codec:
            self.flush()
        self._codec = codec
        self._waiting.append(columns)
        self.rows += columns.count
        if self.rows >= 8192:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._tail.write(concat_columns(self._waiting), CODECS[self._codec])
        self._waiting, self.rows = [], 0


def _copy(vfs: Vfs, tail: Tail, part: StagedPart, skip: int, small: _SmallFrames) -> None:
    """Append a part's frames but for its first ``skip`` records; small ones wait in ``small``."""
    for frame in read_part(vfs, part):
        header = frame.header
        if skip >= header.records:
            skip -= header.records
            continue
        if skip or header.raw_length < _SMALL_FRAME_BYTES:
            columns = frame_columns(header, pa.py_buffer(frame.buffers[1]))
            small.add(columns.slice(skip, columns.count) if skip else columns, header.codec)
            skip = 0
        else:
            small.flush()
            tail.write_frame(frame)


def read_part(vfs: Vfs, part: StagedPart) -> Iterator[EncodedFrame]:
    """The frames of a part, each checked, and all of them against the part's checksum.

    Raises:
        DamagedLogError: a frame or the whole is not what the task wrote.
    """
    checksum = 0
    try:
        for stored in frames_at(vfs, part.path, part.runs):
            frame = stored.encoded()
            checksum = frame_checksum(frame.buffers, checksum)
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
