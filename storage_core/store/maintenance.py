"""Maintenance of a store: retention, deletion, compaction, merge, recompress and scrub.

Every operation works beside readers, writers and Spark jobs, one partition at a time. A caller can
stop it between two frames. What is finished stays, and the next call continues with the rest. A dry
run reports what would be done and what it would save. It needs no write permission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias, get_args

from .. import arguments
from ..config import CODECS, CleanupPolicy, Compression
from ..errors import ConfigError, StoppedError
from ..io.io_errors import typed_metadata_errors, typed_write_errors
from ..lazy import LazyModule
from .reads import StoreReads

if TYPE_CHECKING:
    from ..commit.staging_gc import StagedJob
    from ..maintenance import report
    from ..maintenance.partition import PartitionMaintenance
    from ..maintenance.report import Pace, Stop, UpkeepReport, Watch
    from ..segments.damage import Damage

    Run: TypeAlias = Callable[[PartitionMaintenance, Pace], UpkeepReport]
else:
    report = LazyModule("storage_core.maintenance.report")


class StoreMaintenance(StoreReads):
    """The maintenance operations of ``Store``. Safe for several threads and processes."""

    def damage(self, topic: str, partition: int) -> list[Damage]:
        """The damaged records of a partition, and where it is intact again. Changes nothing.

        It reads every byte of the partition. Only native stores can tell.
        """
        self._require_partition(topic, partition)
        with typed_metadata_errors(topic):
            return self._engine.maintenance(topic, partition).damage()

    def skip_damaged(self, topic: str, partition: int, start: int, end: int) -> str | None:
        """Give up the damaged records from ``start`` to ``end``; the end itself stays.

        Readers and writers then go on after them, and readers warn. The damaged bytes are saved
        beside the log; the return value is their path, None if there are none.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            start: First offset of one of the ranges that ``damage`` reports.
            end: The end of the same range.

        Raises:
            InvalidRecordError: this is not exactly the range of one damage. Nothing was changed.
        """
        self._require_writable()
        self._require_partition(topic, partition)
        arguments.integer("start", start)
        arguments.integer("end", end)
        with typed_metadata_errors(topic):
            target = self._engine.maintenance(topic, partition)
        return target.skip(start, end)

    def collect_garbage(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Delete what no reader needs in a store of objects; how many objects and bytes.

        That is data of crashed and aborted jobs, replaced and removed records, old commits and
        deleted topics, once they are older than ``staging_ttl_ms``. Writers do a part of it.

        Raises:
            ConfigError: the layout is not ``objects``.
        """
        if not dry_run:
            self._require_writable()
        with typed_write_errors("collecting garbage"):
            return self._engine.collect_garbage(dry_run=dry_run)

    def staged_jobs(self) -> list[StagedJob]:
        """Jobs with staged files: they run, or crashed. None in layout ``objects``.

        A commit removes what is older than ``staging_ttl_ms``.
        """
        with typed_metadata_errors():
            return self._engine.staged_jobs()

    def retain(
        self, topic: str | None = None, *, dry_run: bool = False
    ) -> dict[tuple[str, int], list[int]]:
        """Drop segments beyond the age or size limit of their topic; return their base offsets.

        ``dry_run`` takes no lock, changes nothing and needs no write permission.
        """
        dropped = {}
        with typed_write_errors("dropping old segments", topic):
            for name, partition in self._places(topic, dry_run=dry_run):
                target = self._engine.maintenance(name, partition)
                keep_from = self._keep_from(name, partition, target.config.retention_hold_groups)
                bases = target.expired(keep_from) if dry_run else target.retain(keep_from)
                if bases:
                    dropped[name, partition] = bases
        return dropped

    def delete_records(
        self,
        topic: str,
        before: Mapping[int, int],
        *,
        dry_run: bool = False,
        progress: Watch | None = None,
        stop: Stop | None = None,
    ) -> list[UpkeepReport]:
        """Delete the records below an offset, in each partition of ``before``.

        Records that a group in the topic's ``retention_hold_groups`` has not read stay. In a
        broker's directory only whole files are deleted, so the log may start below the offset.

        Args:
            topic: An existing topic.
            before: By partition the first offset that stays; the high watermark deletes all.
            dry_run: Only report what would be done.
            progress: Called after every frame.
            stop: Called after every frame; true stops the operation.

        Raises:
            OffsetOutOfRangeError: an offset is above the high watermark.
        """
        arguments.offsets("before", before, "a dict of partition to offset, such as {0: 100}")
        if not dry_run:
            self._require_writable()
        pace, reports = report.Pace(self._vfs, progress, stop), []
        for partition, offset in before.items():
            self._require_partition(topic, partition)
            with typed_metadata_errors(topic):
                target = self._engine.maintenance(topic, partition)
            keep_from = self._keep_from(topic, partition, target.config.retention_hold_groups)
            try:
                with _typed_errors(topic, dry_run=dry_run):
                    reports.append(target.delete_records(pace, offset, keep_from, dry_run=dry_run))
            except StoppedError:
                break
        return reports

    def compact(
        self,
        topic: str | None = None,
        *,
        min_dirty_ratio: float | None = None,
        policy: CleanupPolicy | None = None,
        dry_run: bool = False,
        progress: Watch | None = None,
        stop: Stop | None = None,
    ) -> list[UpkeepReport]:
        """Keep only the latest record of each key in sealed segments.

        Only in topics whose ``cleanup_policy`` includes compact. Offsets stay, with holes. The key
        of a typed row is that of its key columns.

        Args:
            topic: One topic; by default all topics that are compacted.
            min_dirty_ratio: Replaces the topic's ``min_cleanable_dirty_ratio``. 0 compacts however
                little is new.
            policy: Replaces ``cleanup_policy``, for layouts that store no topic settings.
            dry_run: Only report what would be removed. It reads all keys.
            progress: Called after every frame.
            stop: Called after every frame; true stops the operation.

        Raises:
            ConfigError: ``topic`` is not compacted, or is a typed topic without key columns.
        """

        if policy is not None:
            arguments.one_of("policy", policy, get_args(CleanupPolicy))
        if min_dirty_ratio is not None and not _is_ratio(min_dirty_ratio):
            raise ConfigError(f"min_dirty_ratio must be a number 0..1, got {min_dirty_ratio!r}.")

        def run(target: PartitionMaintenance, pace: Pace) -> UpkeepReport:
            if "compact" not in (policy or target.config.cleanup_policy):
                if topic is None:
                    return report.UpkeepReport("compact", "", 0)
                raise ConfigError(
                    f"topic {topic!r} is not compacted: its cleanup_policy is "
                    f"{target.config.cleanup_policy!r}. Set it to 'compact' or 'delete,compact': "
                    f"cursus alter PATH {topic} --set cleanup_policy=compact."
                )
            if not self.topic(target.topic).has_keys:
                if topic is None:
                    return report.UpkeepReport("compact", "", 0)
                raise ConfigError(
                    f"topic {topic!r} cannot be compacted: it is a typed topic without key "
                    "columns, so no row has a key. Create a topic with key_columns."
                )
            return target.compact(pace, min_dirty_ratio=min_dirty_ratio, dry_run=dry_run)

        return self._each(topic, run, report.Pace(self._vfs, progress, stop), dry_run=dry_run)

    def scrub(
        self,
        topic: str | None = None,
        *,
        bytes_per_second: int | None = None,
        progress: Watch | None = None,
        stop: Stop | None = None,
    ) -> list[UpkeepReport]:
        """Verify every checksum of the sealed segments. Changes nothing.

        Args:
            topic: One topic; by default all.
            bytes_per_second: Limit of the read rate; by default ``scrub_bytes_per_second``.
            progress: Called after every frame.
            stop: Called after every frame; true stops the operation.
        """
        arguments.integer("bytes_per_second", bytes_per_second, optional=True)
        rate = bytes_per_second or self._config.scrub_bytes_per_second
        pace = report.Pace(self._vfs, progress, stop, rate)
        return self._each(topic, lambda target, pace: target.scrub(pace), pace, dry_run=True)

    def merge(
        self,
        topic: str | None = None,
        *,
        below_bytes: int | None = None,
        at_least: int = 2,
        dry_run: bool = False,
        progress: Watch | None = None,
        stop: Stop | None = None,
    ) -> list[UpkeepReport]:
        """Merge neighbouring small sealed segments into full ones. Offsets and records stay.

        Args:
            topic: One topic; by default all.
            below_bytes: Segments below this size are small; by default half of ``segment_bytes``.
            at_least: Minimum number of segments for a merge.
            dry_run: Only report what would be done.
            progress: Called after every frame.
            stop: Called after every frame; true stops the operation.
        """

        arguments.integer("below_bytes", below_bytes, optional=True)
        arguments.integer("at_least", at_least)

        def run(target: PartitionMaintenance, pace: Pace) -> UpkeepReport:
            return target.merge(pace, below=below_bytes, at_least=at_least, dry_run=dry_run)

        return self._each(topic, run, report.Pace(self._vfs, progress, stop), dry_run=dry_run)

    def recompress(
        self,
        topic: str | None = None,
        *,
        compression: Compression | None = None,
        level: int | None = None,
        older_than_ms: int | None = None,
        dry_run: bool = False,
        progress: Watch | None = None,
        stop: Stop | None = None,
    ) -> list[UpkeepReport]:
        """Rewrite sealed segments with another codec. Offsets and records stay.

        Frames that already have this codec stay as they are, whatever their level.

        Args:
            topic: One topic; by default all.
            compression: The codec; by default the topic's.
            level: The zstd level; by default the topic's.
            older_than_ms: Only segments whose latest record is older than this.
            dry_run: Only estimate the result, from the first frames of every segment.
            progress: Called after every frame.
            stop: Called after every frame; true stops the operation.
        """
        if compression is not None:
            arguments.one_of("compression", compression, CODECS)
        arguments.integer("level", level, optional=True)
        arguments.integer("older_than_ms", older_than_ms, optional=True)
        before = None if older_than_ms is None else self._vfs.now_us() - older_than_ms * 1000

        def run(target: PartitionMaintenance, pace: Pace) -> UpkeepReport:
            wanted = report.Recompression(
                compression or target.config.compression,
                level or target.config.compression_level,
                before,
            )
            return target.recompress(pace, wanted=wanted, dry_run=dry_run)

        return self._each(topic, run, report.Pace(self._vfs, progress, stop), dry_run=dry_run)

    def _each(
        self, topic: str | None, run: Run, pace: Pace, *, dry_run: bool
    ) -> list[UpkeepReport]:
        """Run an operation on every partition until it is stopped. Empty reports are left out."""
        reports = []
        for name, partition in self._places(topic, dry_run=dry_run):
            try:
                with _typed_errors(name, dry_run=dry_run):
                    report = run(self._engine.maintenance(name, partition), pace)
            except StoppedError:
                break
            if report.segments_before or report.note or not report.done:
                reports.append(report)
            if report.note == "stopped":
                break
        return reports

    def _places(self, topic: str | None, *, dry_run: bool) -> Iterator[tuple[str, int]]:
        if not dry_run:
            self._require_writable()
        for name in self.topics() if topic is None else [topic]:
            for partition in range(self.topic(name).partitions):
                yield name, partition

    def _keep_from(self, topic: str, partition: int, groups: str) -> int | None:
        """The first offset that one of ``groups`` has not read; None if there is no group."""
        names = [name.strip() for name in groups.split(",") if name.strip()]
        offsets = []
        uuid = str(self.topic(topic).uuid)
        for name in names:
            with typed_metadata_errors():
                found = self._engine.groups.read(name)
            entry = found.get(topic, {"uuid": "", "offsets": {}})
            offsets.append(entry["offsets"].get(partition, 0) if entry["uuid"] == uuid else 0)
        return min(offsets, default=None)

    def _require_writable(self) -> None:
        with typed_metadata_errors():
            self._engine.require_writable()


def _is_ratio(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _typed_errors(topic: str, *, dry_run: bool) -> AbstractContextManager[None]:
    """Types errors outside the steps. The steps type their own, with more detail."""
    if dry_run:
        return typed_metadata_errors(topic)
    return typed_write_errors(f"maintenance of topic {topic!r}", topic)
