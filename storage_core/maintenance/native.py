"""The maintenance of one native partition."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ..config import Compression, StoreConfig
from ..errors import RecoveryNeededError
from ..log.partition_log import PartitionLog
from ..segments.sealed import Sealed, SealedLog
from ..segments.segment_reader import ReadCaches
from ..types import Problem
from ..vfs import Vfs
from .compaction import NativeCompaction
from .delete_records import delete_before, planned_deletion
from .merge import merge_groups, merge_partition, planned_merge
from .partition import Guard, PartitionMaintenance
from .recompress import planned_recompression, recompress_partition
from .report import Pace, UpkeepReport
from .scrub import segment_problems
from .segment_swap import Replacer
from .topics import expired_segments, retain_partition


class NativeMaintenance(PartitionMaintenance):
    """One partition. ``log`` and ``guard`` are used only where something may change."""

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
        super().__init__(vfs, topic, partition, config, topic_uuid)
        self._caches = caches
        self._high_watermark = high_watermark
        self._log = log
        self._guard = guard
        self._files = SealedLog(vfs, topic, partition)

    def start_offset(self) -> int:
        return self._files.start_offset()

    def high_watermark(self) -> int:
        return self._high_watermark()

    def sealed(self, upto: int | None = None) -> list[Sealed]:
        return self._files.segments(upto)

    def expired(self, hold: int | None) -> list[int]:
        where = (self.topic, self.partition)
        return list(expired_segments(self.vfs, self.config, *where, self._caches, hold))

    def retain(self, hold: int | None) -> list[int]:
        log, where = self._log(), (self.topic, self.partition)
        return self._guard(log)(lambda: retain_partition(self.vfs, log, *where, self._caches, hold))

    def planned_deletion(self, offset: int, end: int, pace: Pace) -> UpkeepReport:  # noqa: ARG002
        return planned_deletion(self._files, offset, end)

    def delete_before(self, offset: int, pace: Pace) -> UpkeepReport:
        return delete_before(self._replacer(), offset, pace)

    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        replacer = None if dry_run else self._replacer()
        compaction = NativeCompaction(self, self._files, self.high_watermark(), replacer, pace)
        ratio = (
            self.config.min_cleanable_dirty_ratio if min_dirty_ratio is None else min_dirty_ratio
        )
        return self.with_start(compaction.run(ratio, dry_run=dry_run))

    def segments_to_scrub(self) -> list[Sealed]:
        """Only below the high watermark: an append that fails takes back what is above."""
        upto = None
        with suppress(RecoveryNeededError):  # the high watermark is lost: then all of them
            upto = self.high_watermark()
        return self.sealed(upto)

    def problems(self, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
        return segment_problems(self._files, segment, pace)

    def merge(self, pace: Pace, *, below: int | None, at_least: int, dry_run: bool) -> UpkeepReport:
        upto = self.high_watermark()
        if dry_run:
            groups = merge_groups(self.sealed(upto), self.config.segment_bytes, below, at_least)
            report = planned_merge(self.topic, self.partition, groups)
        else:
            report = merge_partition(self._replacer(), pace, upto, below, at_least)
        return self.with_start(report)

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
        return self.with_start(report)

    def _replacer(self, settings: dict[str, int] | None = None) -> Replacer:
        log = self._log()
        return Replacer(self._files, log, log.config.override(settings or {}), self._guard(log))
