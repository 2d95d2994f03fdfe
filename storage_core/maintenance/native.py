"""Looking after one native partition: retention, merging, codecs, compaction, checksums."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ..config import Compression, StoreConfig
from ..errors import RecoveryNeededError
from ..log.partition_log import PartitionLog
from ..segments.sealed import SealedLog
from ..segments.segment_reader import ReadCaches
from ..types import OffsetRange
from ..vfs import Vfs
from . import clean_marks
from .compaction import compact_partition, planned_compaction
from .compaction_policy import dirty_ratio_of, not_due
from .delete_records import delete_before, planned_deletion
from .merge import merge_groups, merge_partition, planned_merge
from .recompress import planned_recompression, recompress_partition
from .report import Pace, UpkeepReport, require_offset
from .scrub import scrub_partition
from .segment_swap import Replacer
from .topics import expired_segments, retain_partition

Guard = Callable[[Callable[[], bool]], bool]


class NativeMaintenance:
    """One partition. Dry runs need neither lock nor log; nothing else needs a second look."""

    def __init__(
        self,
        vfs: Vfs,
        topic: str,
        partition: int,
        config: StoreConfig,
        caches: ReadCaches,
        topic_uuid: str,
        high_watermark: Callable[[], int],
        log: Callable[[], PartitionLog],
        guard: Callable[[PartitionLog], Guard],
    ) -> None:
        self._vfs = vfs
        self._topic = topic
        self._partition = partition
        self._caches = caches
        self._uuid = topic_uuid
        self._high_watermark = high_watermark
        self._log = log
        self._guard = guard
        self.config = config
        self._files = SealedLog(vfs, topic, partition)

    def expired(self, hold: int | None) -> list[int]:
        where = (self._topic, self._partition)
        found = expired_segments(self._vfs, self.config, *where, self._caches, hold)
        return list(found)

    def retain(self, hold: int | None) -> list[int]:
        log, dropped = self._log(), list[int]()

        def run() -> bool:
            where = (self._topic, self._partition)
            dropped[:] = retain_partition(self._vfs, log, *where, self._caches, hold)
            return bool(dropped)

        self._guard(log)(run)
        return dropped

    def delete_records(
        self, pace: Pace, before: int, hold: int | None, *, dry_run: bool
    ) -> UpkeepReport:
        bounds = OffsetRange(self._files.start_offset(), self._high_watermark())
        require_offset(self._topic, self._partition, before, bounds)
        offset = before if hold is None else min(before, hold)
        if dry_run:
            report = planned_deletion(self._files, offset, bounds.end)
        else:
            report = delete_before(self._replacer(), offset, pace)
        if offset < before:
            report = replace(report, note=f"a group that holds retention has read up to {offset}")
        return report

    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        config = self.config
        ratio = config.min_cleanable_dirty_ratio if min_dirty_ratio is None else min_dirty_ratio
        if not dry_run:
            report = compact_partition(
                self._replacer(), self._uuid, self._high_watermark(), ratio, pace
            )
            return self._with_start(report)
        path = clean_marks.native_path(self._topic, self._partition)
        marks = clean_marks.read(self._vfs, path, self._uuid)
        segments = self._files.segments(self._high_watermark())
        dirt = dirty_ratio_of(segments, marks, config, self._vfs.now_us())
        if not dirt.is_due(ratio):
            report = UpkeepReport("compact", self._topic, self._partition)
            return self._with_start(replace(report, note=not_due(dirt, ratio)))
        return self._with_start(planned_compaction(self._files, config, dirt, marks.upto, pace))

    def scrub(self, pace: Pace) -> UpkeepReport:
        upto = None
        with suppress(RecoveryNeededError):  # lost: then all that is closed
            upto = self._high_watermark()
        return self._with_start(scrub_partition(self._files, upto, pace))

    def merge(self, pace: Pace, *, below: int | None, at_least: int, dry_run: bool) -> UpkeepReport:
        if dry_run:
            groups = merge_groups(
                self._files.segments(self._high_watermark()),
                self.config.segment_bytes,
                below,
                at_least,
            )
            report = planned_merge(self._topic, self._partition, groups)
        else:
            report = merge_partition(
                self._replacer(), pace, self._high_watermark(), below, at_least
            )
        return self._with_start(report)

    def recompress(
        self,
        pace: Pace,
        *,
        compression: Compression,
        level: int,
        before_us: int | None,
        dry_run: bool,
    ) -> UpkeepReport:
        if dry_run:
            report = planned_recompression(self._files, compression, level, before_us)
        else:
            replacer = self._replacer({"compression_level": level})
            report = recompress_partition(replacer, compression, before_us, pace)
        return self._with_start(report)

    def _replacer(self, settings: dict[str, int] | None = None) -> Replacer:
        log = self._log()
        config = log.config.override(settings or {})
        return Replacer(self._files, log, config, self._guard(log))

    def _with_start(self, report: UpkeepReport) -> UpkeepReport:
        return replace(report, start_offset=self._files.start_offset())
