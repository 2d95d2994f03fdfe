"""Looking after one partition of a broker's directory, while the broker is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..config import StoreConfig
from ..errors import ConfigError, StoppedError, StorageError
from ..io.durable import make_directories, sync_file
from ..io.io_errors import typed_read_errors, typed_write_errors
from ..io.locks import ensure_lock_file, locked
from ..layouts.broker_names import STATE_DIRECTORY
from ..maintenance import clean_marks
from ..maintenance.compaction_policy import MORE_PASSES, dirty_ratio_of, not_due
from ..maintenance.report import Pace, UpkeepReport, require_offset
from ..segments.listing import Listing
from ..segments.sealed import Sealed
from ..types import OffsetRange, Problem
from ..vfs import Vfs
from .compaction import BrokerCompactor, put_in_place
from .layout import BROKER_LAYOUT, RowLayout
from .log import RowLog
from .retention import drop_files, expired_files, require_droppable
from .segments import RowSegments


class BrokerMaintenance:
    """One partition. What only a native store can do is refused."""

    def __init__(
        self,
        vfs: Vfs,
        layout: RowLayout,
        topic: str,
        partition: int,
        config: StoreConfig,
        segments: RowSegments,
        topic_uuid: str,
        log: Callable[[], RowLog],
        guard: Callable[[Callable[[], bool]], bool],
    ) -> None:
        self._vfs = vfs
        self._layout = layout
        self._topic = topic
        self._partition = partition
        self._segments = segments
        self._uuid = topic_uuid
        self._log = log
        self._guard = guard
        self.config = config

    def expired(self, hold: int | None) -> list[int]:
        listing = self._segments.listing()
        return list(expired_files(self._vfs, self._layout, listing, self.config, hold))

    def retain(self, hold: int | None) -> list[int]:
        log, dropped = self._log(), list[int]()

        def run() -> bool:
            with log.exclusive():
                dropped[:] = self.expired(hold)
                drop_files(self._vfs, self._segments.listing(), dropped)
            return bool(dropped)

        self._guard(run)
        return dropped

    def delete_records(
        self, pace: Pace, before: int, hold: int | None, *, dry_run: bool
    ) -> UpkeepReport:
        """Drop the files that end at the offset or before."""
        require_droppable(self._layout)
        bounds = OffsetRange(self._start_offset(), self._segments.high_watermark())
        require_offset(self._topic, self._partition, before, bounds)
        offset = before if hold is None else min(before, hold)
        pace.begin("delete_records", self._topic, self._partition, 0)
        if dry_run:
            return self._deletion(offset, before, done=False)
        log, reports = self._log(), list[UpkeepReport]()

        def run() -> bool:
            with log.exclusive():
                listing = self._segments.listing()
                reports[:] = [self._deletion(offset, before, done=True)]
                drop_files(self._vfs, listing, _below(listing, offset))
            return True

        self._guard(run)
        return replace(reports[0], start_offset=self._start_offset())

    def _deletion(self, offset: int, asked: int, *, done: bool) -> UpkeepReport:
        listing = self._segments.listing()
        gone = _below(listing, offset)
        stats = [self._vfs.stat(listing.path(base)) for base in gone]
        start = listing.bases[len(gone)] if listing.bases else 0
        held = f"a group that holds retention has read up to {offset}"
        return UpkeepReport(
            "delete_records",
            self._topic,
            self._partition,
            segments_before=len(gone),
            bytes_before=sum(0 if stat is None else stat.size for stat in stats),
            start_offset=start,
            done=done or not gone,
            note=held if offset < asked else "",
        )

    def _start_offset(self) -> int:
        bases = self._segments.listing().bases
        return bases[0] if bases else 0

    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        if self._layout is not BROKER_LAYOUT:
            raise ConfigError(
                f"layout {self._layout.name} has no keys, so nothing can be compacted."
            )
        ratio = min_dirty_ratio
        ratio = self.config.min_cleanable_dirty_ratio if ratio is None else ratio
        where = f"{self._topic}-{self._partition}"
        lock = f"{STATE_DIRECTORY}/locks/{where}.upkeep"
        if dry_run:
            report = self._compacted(pace, ratio, None)
        else:
            with typed_write_errors(f"compacting {where}", self._topic):
                ensure_lock_file(self._vfs, lock)
                with locked(self._vfs, lock, self.config.lock_timeout_ms):
                    report = self._compacted(pace, ratio, self._log())
        return replace(report, start_offset=self._start_offset())

    def _compacted(self, pace: Pace, ratio: float, log: RowLog | None) -> UpkeepReport:
        """Compact if it is due; without a log only look."""
        report = UpkeepReport("compact", self._topic, self._partition)
        path = f"{STATE_DIRECTORY}/cleaned/{self._topic}-{self._partition}.json"
        marks = clean_marks.read(self._vfs, path, self._uuid)
        segments = self._sealed()
        dirt = dirty_ratio_of(segments, marks, self.config, self._vfs.now_us())
        if not dirt.is_due(ratio):
            return replace(report, note=not_due(dirt, ratio))
        compactor = BrokerCompactor(self._vfs, self.config.compaction_memory_bytes, pace)
        # From the first file on: what stayed for its producer goes when that has a later record.
        start, end = 0, segments[-1].end
        try:
            producers = sum(segment.size for segment in segments)
            total = producers + dirt.total_bytes(start)
            pace.begin("compact", self._topic, self._partition, total)
            if log is not None:
                self._sync(segments)
            with typed_read_errors(self._topic, self._partition, segments[0].path):
                compactor.note_producers(segments)
            while segments:  # retention may take them meanwhile
                with typed_read_errors(self._topic, self._partition, segments[0].path):
                    upto = compactor.fill(segments, start)
                for segment in segments if log is None else self._sealed():
                    if segment.base < upto:
                        report = self._one(compactor, segment, log, report)
                if log is None:
                    return _planned(report, more=upto < end)
                marks = marks.after(upto, self._vfs.now_us(), tombstones=0, horizon=0)
                make_directories(self._vfs, path.rpartition("/")[0])
                clean_marks.write(self._vfs, path, self._uuid, marks)
                if upto >= end or upto == start:
                    break
                start, segments = upto, self._sealed()
            return report
        except StoppedError:
            return replace(report, done=False, note="stopped")

    def _sync(self, segments: Sequence[Sealed]) -> None:
        """What is removed is gone for good, so what it goes for must outlive a power cut too."""
        for segment in segments:
            with suppress(FileNotFoundError):  # retention was faster
                sync_file(self._vfs, segment.path)

    def _one(
        self, compactor: BrokerCompactor, segment: Sealed, log: RowLog | None, report: UpkeepReport
    ) -> UpkeepReport:
        if log is None:
            with typed_read_errors(self._topic, self._partition, segment.path):
                gone, saved = compactor.estimate(segment)
            return report.counted(segment.size, segment.size - saved, gone) if gone else report
        new = compactor.rewrite(segment)
        if new is None:
            return report

        def swap() -> bool:
            with log.exclusive():
                return put_in_place(self._vfs, segment.path.rpartition("/")[0], segment, new)

        if self._guard(swap):
            return report.counted(segment.size, new.size, new.removed)
        return report

    def _sealed(self) -> list[Sealed]:
        """The closed files that everybody sees whole."""
        listing, visible = self._segments.listing(), self._segments.high_watermark()
        found = []
        for base, end in zip(listing.bases, listing.bases[1:], strict=False):
            stat = self._vfs.stat(listing.path(base))
            if stat is not None and end <= visible:
                found.append(Sealed(base, end, listing.path(base), stat))
        return found

    def scrub(self, pace: Pace) -> UpkeepReport:
        """Read every closed file: rows have no checksum, but framing, fields and offsets."""
        report = UpkeepReport(
            "scrub", self._topic, self._partition, start_offset=self._start_offset()
        )
        listing = self._segments.listing()
        sizes = [self._vfs.stat(listing.path(base)) for base in listing.bases[:-1]]
        try:
            total = sum(0 if stat is None else stat.size for stat in sizes)
            pace.begin("scrub", self._topic, self._partition, total)
            for base, end, stat in zip(listing.bases, listing.bases[1:], sizes, strict=False):
                size = 0 if stat is None else stat.size
                found = self._problems(listing, base, end)
                pace.advance(size)
                report = replace(report.counted(size, size), problems=(*report.problems, *found))
        except StoppedError:
            return replace(report, done=False, note="stopped")
        return report

    def _problems(self, listing: Listing, base: int, end: int) -> tuple[Problem, ...]:
        try:
            with typed_read_errors(self._topic, self._partition, listing.path(base)):
                segment = self._segments.open(base, listing)
                try:
                    for _ in segment.frames(base, end):
                        pass
                finally:
                    segment.close()
        except FileNotFoundError:  # retention was faster
            return ()
        except StorageError as error:
            return (Problem.from_error(error),)
        return ()

    def merge(self, pace: Pace, **asked: object) -> UpkeepReport:  # noqa: ARG002
        raise self._native_only("segments are merged")

    def recompress(self, pace: Pace, **asked: object) -> UpkeepReport:  # noqa: ARG002
        raise self._native_only("records are compressed")

    def _native_only(self, what: str) -> ConfigError:
        return ConfigError(
            f"layout {self._layout.name} is what its broker reads: {what} only in native stores. "
            "Convert the directory to one."
        )


def _planned(report: UpkeepReport, *, more: bool) -> UpkeepReport:
    note = MORE_PASSES if more else ""
    return replace(report, done=not report.segments_before and not more, note=note)


def _below(listing: Listing, offset: int) -> Sequence[int]:
    """Bases of the closed files that end at ``offset`` or before."""
    ends = listing.bases[1:]
    return listing.bases[: sum(end <= offset for end in ends)]
