"""The life of a log after it was written: retention, merging, codecs, compaction, checksums.

Every operation works beside readers, writers and Spark jobs, a partition at a time. It can be
stopped between two frames; what is finished stays, and the next call goes on with the rest. A dry
run says what would be done and what it would save, and needs no right to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from ..config import CleanupPolicy, Compression
from ..errors import ConfigError, StoppedError
from ..io.io_errors import typed_metadata_errors, typed_write_errors
from ..lazy import LazyModule
from ..metadata import consumer_groups
from .reads import StoreReads

if TYPE_CHECKING:
    from ..maintenance import report
    from ..maintenance.partition import PartitionMaintenance
    from ..maintenance.report import Pace, Stop, UpkeepReport, Watch

    Run: TypeAlias = Callable[[PartitionMaintenance, Pace], UpkeepReport]
else:
    report = LazyModule("storage_core.maintenance.report")


class StoreMaintenance(StoreReads):
    """A store whose logs can be looked after. Safe for several threads and processes."""

    def retain(
        self, topic: str | None = None, *, dry_run: bool = False
    ) -> dict[tuple[str, int], list[int]]:
        """Drop segments past the age or size limit of their topic; return their base offsets.

        With ``dry_run`` nothing is locked or changed, and the store need not be writable.
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
        """Delete the records below an offset, for each partition named; they are gone for readers.

        Not past a group that the topic's ``retention_hold_groups`` names. In a broker's directory
        only whole files go, so that the log may start a little before the offset.

        Args:
            topic: An existing topic.
            before: By partition the first offset that stays; the visible end deletes all.
            dry_run: Only say what would be done.
            progress: Called after every frame.
            stop: Asked after every frame whether to stop.

        Raises:
            OffsetOutOfRangeError: an offset is behind the visible end.
        """
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
        """Remove records of closed segments whose key has a later one there.

        Only in topics whose ``cleanup_policy`` says compact. Offsets stay; there are holes.

        Args:
            topic: One topic; by default all that are compacted.
            min_dirty_ratio: Instead of the topic's ``min_cleanable_dirty_ratio``; 0: whatever is
                new, as little as it may be.
            policy: Instead of ``cleanup_policy``, for directories that keep no settings of topics.
            dry_run: Only say what would be removed, by reading all keys.
            progress: Called after every frame.
            stop: Asked after every frame whether to stop.

        Raises:
            ConfigError: the topic that was named is not compacted.
        """

        def run(target: PartitionMaintenance, pace: Pace) -> UpkeepReport:
            if "compact" not in (policy or target.config.cleanup_policy):
                if topic is None:
                    return report.UpkeepReport("compact", "", 0)
                raise ConfigError(
                    f"topic {topic!r} is not compacted: its cleanup_policy is "
                    f"{target.config.cleanup_policy!r}. Set it to 'compact' or 'delete,compact'."
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
        """Verify every checksum of the closed segments. Changes nothing.

        Args:
            topic: One topic; all of them by default.
            bytes_per_second: How fast to read; by default ``scrub_bytes_per_second``.
            progress: Called after every frame.
            stop: Asked after every frame whether to stop.
        """
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
        """Merge neighbouring small closed segments into full ones; offsets and records stay.

        Args:
            topic: One topic; all of them by default.
            below_bytes: What counts as small; half of ``segment_bytes`` by default.
            at_least: Fewest segments that are worth a merge.
            dry_run: Only say what would be done.
            progress: Called after every frame.
            stop: Asked after every frame whether to stop.
        """

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
        """Put closed segments under another codec; offsets and records stay.

        Frames that are under it already stay as they are, whatever their level.

        Args:
            topic: One topic; all of them by default.
            compression: The codec; by default the topic's own.
            level: zstd level; by default the topic's own.
            older_than_ms: Only segments whose newest record is older.
            dry_run: Only say what would be done, by trying the first frames of every segment.
            progress: Called after every frame.
            stop: Asked after every frame whether to stop.
        """
        before = None if older_than_ms is None else self._vfs.now_us() - older_than_ms * 1000

        def run(target: PartitionMaintenance, pace: Pace) -> UpkeepReport:
            return target.recompress(
                pace,
                compression=compression or target.config.compression,
                level=level or target.config.compression_level,
                before_us=before,
                dry_run=dry_run,
            )

        return self._each(topic, run, report.Pace(self._vfs, progress, stop), dry_run=dry_run)

    def _each(
        self, topic: str | None, run: Run, pace: Pace, *, dry_run: bool
    ) -> list[UpkeepReport]:
        """Run an operation on every partition, until it is stopped; those it has nothing to say of
        are left out."""
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
        """The first offset that a group which holds retention has not read; None without any."""
        names = [name.strip() for name in groups.split(",") if name.strip()]
        offsets = []
        uuid = str(self.topic(topic).uuid)
        for name in names:
            with typed_metadata_errors():
                found = consumer_groups.read(self._vfs, self._engine.groups_directory, name)
            entry = found.get(topic, {"uuid": "", "offsets": {}})
            offsets.append(entry["offsets"].get(partition, 0) if entry["uuid"] == uuid else 0)
        return min(offsets, default=None)

    def _require_writable(self) -> None:
        with typed_metadata_errors():
            self._engine.require_writable()


def _typed_errors(topic: str, *, dry_run: bool) -> AbstractContextManager[None]:
    """Those of calls between the steps; the steps say more of their own."""
    if dry_run:
        return typed_metadata_errors(topic)
    return typed_write_errors(f"looking after topic {topic!r}", topic)
