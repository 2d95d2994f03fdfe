"""The maintenance of one partition: what is alike in every layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ..config import StoreConfig
from ..errors import ConfigError, StoppedError
from ..segments.damage import Damage
from ..segments.listing import Listing
from ..segments.sealed import Sealed, sealed_segments
from ..types import OffsetRange, Problem
from ..vfs import Vfs
from .report import Pace, Recompression, UpkeepReport, require_offset
from .retention import expired_segments, has_limits

Result = TypeVar("Result")
_ONLY_NATIVE = (
    "only a native store has frames that can be skipped; these are a broker's own files. Restore "
    "the file from a copy, or read from a later offset."
)


class Guard(Protocol):
    """Runs an action on a partition once no commit is pending there."""

    def __call__(self, action: Callable[[], Result]) -> Result: ...


class SegmentToScrub(NamedTuple):
    """A segment, and how to find what is wrong with it; nothing, if it is gone or replaced."""

    size: int
    problems: Callable[[Pace], tuple[Problem, ...]]


class PartitionMaintenance(ABC):
    """One partition. No removal passes the offset ``keep_from``, if there is one.

    A dry run takes no lock, changes nothing and needs no right to write.
    """

    def __init__(
        self, vfs: Vfs, topic: str, partition: int, config: StoreConfig, topic_uuid: str
    ) -> None:
        self.vfs = vfs
        self.topic = topic
        self.partition = partition
        self.config = config
        self.topic_uuid = topic_uuid

    @abstractmethod
    def listing(self) -> Listing:
        """The segments now."""

    @abstractmethod
    def high_watermark(self) -> int:
        """The end for readers: what is above may still be taken back."""

    def start_offset(self) -> int:
        """The log start offset; 0 if the log is empty."""
        bases = self.listing().bases
        return bases[0] if bases else 0

    @abstractmethod
    def expired(self, keep_from: int | None) -> list[int]:
        """Bases of the segments that ``retain`` would drop now."""

    @abstractmethod
    def retain(self, keep_from: int | None) -> list[int]:
        """Drop the segments that the topic's limits no longer cover; return their bases."""

    def delete_records(
        self, pace: Pace, before: int, keep_from: int | None, *, dry_run: bool
    ) -> UpkeepReport:
        """Delete the records below the offset ``before``."""
        self.require_deletable()
        bounds = OffsetRange(self.start_offset(), self.high_watermark())
        require_offset(self.topic, self.partition, before, bounds)
        offset = before if keep_from is None else min(before, keep_from)
        if dry_run:
            report = self.planned_deletion(offset, bounds.end, pace)
        else:
            report = self.delete_before(offset, pace)
        if offset < before:
            report = replace(report, note=f"a group that holds retention has read up to {offset}")
        return report

    def require_deletable(self) -> None:  # noqa: B027
        """Raise ConfigError where the layout cannot lose its oldest records."""

    @abstractmethod
    def planned_deletion(self, offset: int, end: int, pace: Pace) -> UpkeepReport:
        """What ``delete_before`` would do to a log that ends at ``end``."""

    @abstractmethod
    def delete_before(self, offset: int, pace: Pace) -> UpkeepReport:
        """Delete the records below an offset."""

    @abstractmethod
    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        """Remove records whose key has a later one, if enough is dirty; else say why not."""

    @abstractmethod
    def merge(self, pace: Pace, *, below: int | None, at_least: int, dry_run: bool) -> UpkeepReport:
        """Merge neighbouring sealed segments that are small."""

    @abstractmethod
    def recompress(self, pace: Pace, *, wanted: Recompression, dry_run: bool) -> UpkeepReport:
        """Put sealed segments under another codec."""

    def scrub(self, pace: Pace) -> UpkeepReport:
        """Read every sealed segment; changes nothing and takes no lock."""
        report = UpkeepReport("scrub", self.topic, self.partition)
        segments = self.segments_to_scrub()
        try:
            total = sum(each.size for each in segments)
            pace.begin("scrub", self.topic, self.partition, total)
            for size, problems in segments:
                found = problems(pace)
                report = replace(report.counted(size, size), problems=(*report.problems, *found))
        except StoppedError:
            report = report.stopped()
        return self.with_start(report)

    @abstractmethod
    def segments_to_scrub(self) -> list[SegmentToScrub]:
        """The sealed segments now."""

    def damage(self) -> list[Damage]:
        """All damage below the high watermark, with what is intact after it."""
        raise ConfigError(_ONLY_NATIVE)

    def skip(self, start: int, end: int) -> str | None:  # noqa: ARG002
        """Give up damaged records; return where their bytes are saved."""
        raise ConfigError(_ONLY_NATIVE)

    def with_start(self, report: UpkeepReport) -> UpkeepReport:
        """The report with the log start offset as it is now."""
        return replace(report, start_offset=self.start_offset())


class FileMaintenance(PartitionMaintenance):
    """One partition whose segments are files."""

    def sealed(self, upto: int | None = None) -> list[Sealed]:
        """The sealed segments now, in order; only those that end at ``upto`` or before."""
        return sealed_segments(self.vfs, self.listing(), upto)

    def expired(self, keep_from: int | None) -> list[int]:
        if not has_limits(self.config):
            return []
        self.require_deletable()
        return expired_segments(
            self.vfs, self.listing(), self.config, self.largest_timestamp, keep_from
        )

    @abstractmethod
    def largest_timestamp(self, base: int, path: str) -> int:
        """The time by which retention judges a sealed segment, in microseconds."""

    def segments_to_scrub(self) -> list[SegmentToScrub]:
        return [
            SegmentToScrub(segment.size, partial(self._problems, segment))
            for segment in self.sealed(self.scrubbed_upto())
        ]

    def scrubbed_upto(self) -> int | None:
        """Where a scrub ends; None: after the last sealed segment."""
        return None

    def _problems(self, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
        # Retention or a rewrite may remove or change a segment meanwhile: no problem then.
        with suppress(FileNotFoundError):
            found = self.problems(segment, pace)
            if self.vfs.stat(segment.path) == segment.stat:
                return found
        return ()

    @abstractmethod
    def problems(self, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
        """What is wrong with a sealed segment."""
