"""The maintenance of one native partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ..config import StoreConfig
from ..errors import RecoveryNeededError
from ..format.selection import Schemas
from ..io.io_errors import typed_read_errors
from ..log.partition_log import PartitionLog
from ..segments.damage import Damage
from ..segments.deletion_markers import drop_segments
from ..segments.listing import Listing, list_segments
from ..segments.sealed import Sealed, SealedLog
from ..segments.segment_reader import ReadCaches, SegmentReader
from ..types import Problem
from ..vfs import Vfs
from . import skip as skipping
from .compaction import NativeCompaction
from .delete_records import delete_before, planned_deletion
from .merge import merge_groups, merge_partition, planned_merge
from .partition import FileMaintenance, Guard
from .recompress import planned_recompression, recompress_partition
from .report import Pace, Recompression, UpkeepReport
from .retention import has_limits
from .scrub import segment_problems
from .segment_swap import Replacer


class NativeMaintenance(FileMaintenance):
    """One partition. ``log`` and ``guard`` are used only where something may change.

    ``schemas`` and ``key_columns`` are those of a typed topic.
    """

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
        schemas: Schemas | None = None,
        key_columns: Sequence[str] = (),
    ) -> None:
        super().__init__(vfs, topic, partition, config, topic_uuid)
        self._caches = caches
        self._high_watermark = high_watermark
        self._log = log
        self._guard = guard
        self._key_columns = key_columns
        self._files = SealedLog(vfs, topic, partition, schemas)

    def listing(self) -> Listing:
        return list_segments(self.vfs, self._files.directory)

    def high_watermark(self) -> int:
        return self._high_watermark()

    def largest_timestamp(self, base: int, path: str) -> int:
        directory = self._files.directory
        with typed_read_errors(self.topic, self.partition, path):
            segment = SegmentReader(
                self.vfs, directory, base, self.config, self._caches, sealed=True
            )
            return segment.largest_timestamp_in_log()

    def retain(self, keep_from: int | None) -> list[int]:
        log = self._log()

        def run() -> list[int]:
            if not has_limits(self.config):
                return []
            with log.exclusive():
                bases = self.expired(keep_from)
                if bases:
                    new_start = self.listing().following(bases[-1])
                    assert new_start is not None  # the active segment always stays
                    drop_segments(self.vfs, self._files.directory, bases, new_start)
                return bases

        return self._guard(log)(run)

    def planned_deletion(self, offset: int, end: int, pace: Pace) -> UpkeepReport:  # noqa: ARG002
        return planned_deletion(self._files, offset, end)

    def delete_before(self, offset: int, pace: Pace) -> UpkeepReport:
        return delete_before(self._replacer(), offset, pace)

    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        replacer = None if dry_run else self._replacer()
        compaction = NativeCompaction(
            self, self._files, self.high_watermark(), replacer, pace, self._key_columns
        )
        return self.with_start(compaction.run(min_dirty_ratio, dry_run=dry_run))

    def scrubbed_upto(self) -> int | None:
        """The high watermark: an append that fails takes back what is above."""
        with suppress(RecoveryNeededError):  # the high watermark is lost: then all of them
            return self.high_watermark()
        return None

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

    def recompress(self, pace: Pace, *, wanted: Recompression, dry_run: bool) -> UpkeepReport:
        if dry_run:
            report = planned_recompression(self._files, wanted)
        else:
            replacer = self._replacer({"compression_level": wanted.level})
            report = recompress_partition(replacer, wanted, pace)
        return self.with_start(report)

    def damage(self) -> list[Damage]:
        return skipping.damage_of(self._files, self.high_watermark())

    def skip(self, start: int, end: int) -> str | None:
        high_watermark = self.high_watermark()
        return skipping.skip(self._files, self._log(), self.config, high_watermark, start, end)

    def _replacer(self, settings: dict[str, int] | None = None) -> Replacer:
        log = self._log()
        return Replacer(self._files, log, log.config.override(settings or {}), self._guard(log))
