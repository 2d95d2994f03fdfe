"""Small values that pass between folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from .errors import StorageError

IsolationLevel = Literal["read_committed", "read_uncommitted", "log_end"]
"""Which records of a broker's transactions a reader gets; ``log_end`` also those not replicated."""

TIMESTAMP_SUPPLIED = 0
TIMESTAMP_APPENDED = 1
TIMESTAMP_ABSENT = -1

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s: TypeAlias = npt.NDArray[np.int64]
    Integers: TypeAlias = npt.NDArray[np.signedinteger]
else:
    Int64s = Integers = np.ndarray  # numpy.typing takes as long to import as ten modules of ours


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` (inclusive) to ``end`` (exclusive)."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class TopicPartitionHandler(Protocol):
    """What one writer writes one topic-partition through; it keeps the order of the records.

    ``DiskHandler`` takes single records and writes them to the log. ``StagingHandler`` takes the
    columns of a Spark task and writes them to staging files, which a commit publishes.
    """

    topic: str
    partition: int

    def flush(self) -> None:
        """Write every record accepted so far."""

    def close(self) -> None:
        """Flush and accept no more records. Safe to call twice."""


class OffsetPosition(NamedTuple):
    """Where a frame or record that starts at ``offset`` stands in its segment file."""

    offset: int
    position: int


class TimeRange(NamedTuple):
    """Timestamps ``start`` (inclusive) to ``end`` (exclusive), microseconds since 1970."""

    start: int = -(1 << 63)
    end: int = 1 << 63

    def overlaps(self, smallest: int, largest: int) -> bool:
        """Whether a record whose timestamp lies between two bounds may be in the range."""
        return smallest < self.end and largest >= self.start


# The timestamp of records without one, where a number is needed: below all others.
NO_TIMESTAMP = -(1 << 63)


class TimeBounds(NamedTuple):
    """No timestamp of a segment is below ``smallest`` or above ``largest``."""

    smallest: int
    largest: int


class ActiveFile(NamedTuple):
    """The file that a partition's appends go to: its number (base offset or ordinal) and bytes.

    The file need not exist yet: an append creates it.
    """

    number: int
    size: int
    path: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of ``Store.check``."""

    severity: Literal["error", "warning"]
    code: str
    message: str
    topic: str | None = None
    partition: int | None = None
    path: str | None = None
    position: int | None = None
    offset: int | None = None

    @classmethod
    def from_error(
        cls, error: StorageError, severity: Literal["error", "warning"] = "error"
    ) -> Problem:
        """What an error says, with the place it names."""
        return cls(
            severity,
            error.code,
            str(error),
            error.topic,
            error.partition,
            error.path,
            error.position,
            error.offset,
        )


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery of one partition found and did."""

    topic: str
    partition: int
    end_offset: int
    cut_bytes: int = 0
    saved_as: str | None = None
    rebuilt_indexes: int = 0
    removed_segments: int = 0


class SegmentContents(NamedTuple):
    """Records of a segment, and their smallest and largest time if it has any."""

    records: int
    first_time: int | None
    last_time: int | None


class SegmentInfo(NamedTuple):
    """One segment as planning sees it: offsets and bytes, no data read.

    A named tuple, because a plan looks at 100,000 of them.
    """

    base: int
    end: int
    path: str
    size: int
    sealed: bool
