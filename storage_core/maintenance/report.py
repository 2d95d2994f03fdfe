"""What goes into maintenance operations and comes out: progress, stopping, a rate, the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .. import arguments
from ..config import CODECS, Compression
from ..errors import OffsetOutOfRangeError, StoppedError
from ..types import OffsetRange, Problem
from ..vfs import Vfs

# A request to stop is seen after this time, however low the rate.
_NAP_S = 0.2
STOPPED = "stopped"
NOTHING_SEALED = "no segment is sealed yet"
Action = Literal["retain", "delete_records", "merge", "recompress", "compact", "scrub"]


class UpkeepProgress(NamedTuple):
    """How far an operation has come in one partition, in bytes of log."""

    action: Action
    topic: str
    partition: int
    done_bytes: int
    total_bytes: int


Watch = Callable[[UpkeepProgress], None]
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Recompression:
    """The codec that is wanted for sealed segments, and for which of them."""

    compression: Compression
    level: int
    before_us: int | None
    """Only segments whose records are all older; None: every segment."""

    @property
    def codec(self) -> int:
        """The number of the codec in a frame."""
        return CODECS.index(self.compression)


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What an operation did in one partition, or would do.

    Segments, bytes and records are those of the segments that were dropped or rewritten; all
    others stay as they are. ``bytes_after`` of a dry run is an estimate.

    Attributes:
        action: What was asked for.
        topic: Name of the topic.
        partition: Number of the partition.
        segments_before: Segments that were dropped or rewritten.
        segments_after: Segments that took their place.
        bytes_before: Size of the former.
        bytes_after: Size of the latter.
        records_removed: Records that are gone, where that was counted.
        start_offset: First offset that the partition holds afterwards.
        done: Whether nothing is left to do; False when it was stopped, or is a dry run.
        note: Why nothing or less was done, for people; empty if there is nothing to say.
        problems: What a scrub found.
    """

    action: Action
    topic: str
    partition: int
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_removed: int = 0
    start_offset: int = 0
    done: bool = True
    note: str = ""
    problems: tuple[Problem, ...] = ()

    def counted(self, before: int, after: int, removed: int = 0, segments: int = 1) -> UpkeepReport:
        """The same with more segments, of these bytes, that became one."""
        return replace(
            self,
            segments_before=self.segments_before + segments,
            segments_after=self.segments_after + 1,
            bytes_before=self.bytes_before + before,
            bytes_after=self.bytes_after + after,
            records_removed=self.records_removed + removed,
        )

    def stopped(self) -> UpkeepReport:
        """The same, of an operation that its caller stopped. What was finished stays."""
        return replace(self, done=False, note=STOPPED)

    @property
    def saved_bytes(self) -> int:
        """Bytes of log that are, or would be, free afterwards."""
        return self.bytes_before - self.bytes_after


class Pace:
    """Counts bytes, reports progress, stops when asked to, and keeps below a rate."""

    def __init__(
        self,
        vfs: Vfs,
        watch: Watch | None = None,
        stop: Stop | None = None,
        bytes_per_second: int | None = None,
    ) -> None:
        arguments.function("progress", watch)
        arguments.function("stop", stop)
        self._vfs = vfs
        self._watch = watch
        self._stop = stop
        self._rate = bytes_per_second
        self._since = vfs.monotonic()
        self._spent = 0
        self._shown = UpkeepProgress("scrub", "", 0, 0, 0)

    def begin(self, action: Action, topic: str, partition: int, total_bytes: int) -> None:
        """Start the work on a partition.

        Raises:
            StoppedError: the caller asked for it.
        """
        self._shown = UpkeepProgress(action, topic, partition, 0, total_bytes)
        self.advance(0)

    def advance(self, size: int) -> None:
        """Count bytes that are done.

        Raises:
            StoppedError: the caller asked for it.
        """
        if self._stop is not None and self._stop():
            raise StoppedError("the operation was stopped; call it again to go on.")
        self._shown = self._shown._replace(done_bytes=self._shown.done_bytes + size)
        if self._watch is not None:
            self._watch(self._shown)
        if self._rate is not None:
            self._spent += size
            self._rest(self._since + self._spent / self._rate)

    def _rest(self, until: float) -> None:
        while (left := until - self._vfs.monotonic()) > 0:
            self._vfs.sleep(min(left, _NAP_S))
            if self._stop is not None and self._stop():
                raise StoppedError("the operation was stopped; call it again to go on.")


def require_offset(topic: str, partition: int, offset: int, bounds: OffsetRange) -> None:
    """Refuse to delete records that do not exist yet.

    Raises:
        OffsetOutOfRangeError: ``offset`` is above the high watermark, or negative.
    """
    if not 0 <= offset <= bounds.end:
        raise OffsetOutOfRangeError(
            f"{topic}-{partition}: cannot delete records before offset {offset}. The log has "
            f"offsets {bounds.start} to {bounds.end}; use one of them.",
            topic=topic,
            partition=partition,
            offset=offset,
            start=bounds.start,
            end=bounds.end,
        )
