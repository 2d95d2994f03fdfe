"""Maintenance of one partition of objects: each operation is one commit."""

from __future__ import annotations

from functools import partial

from ...config import StoreConfig
from ...errors import ConfigError
from ...format.selection import Schemas
from ...io import json_files
from ...maintenance.merge import merge_groups, planned_merge
from ...maintenance.partition import PartitionMaintenance, SegmentToScrub
from ...maintenance.recompress import has_other_codec, planned_recompression
from ...maintenance.report import Pace, Recompression, UpkeepReport
from ...maintenance.retention import has_limits, segments_to_drop
from ...metadata.topic_file import TopicFile
from ...segments.damage import Damage
from ...segments.listing import Listing
from ...types import Problem
from ...vfs import Vfs
from ..commit_log import CommitLog, Draft
from ..slices import Slice
from ..state import Commit, LogState, PartitionState
from .checks import slice_problems
from .compaction import ObjectCompaction
from .rewriting import SliceFiles, rewrite_each

_NO_SKIP = (
    "layout objects cannot skip damaged records, because no object is changed in place. check "
    "names the damaged object: restore it from a copy, or read from a later offset."
)


class ObjectMaintenance(PartitionMaintenance):
    """One partition. Removing records is a trim in a commit: garbage collection frees the space."""

    def __init__(
        self,
        vfs: Vfs,
        topic: str,
        partition: int,
        config: StoreConfig,
        known: TopicFile,
        log: CommitLog,
        schemas: Schemas | None,
    ) -> None:
        super().__init__(vfs, topic, partition, config, str(known.uuid))
        self._log = log
        self._schemas = schemas
        self._key_columns = known.key_columns

    def _state(self) -> PartitionState:
        return self._log.refresh().partitions[self.partition]

    def listing(self) -> Listing:
        state = self._state()
        bases = [max(each.base, state.start) for each in state.all()]
        names = (*(each.path for each in state.all()), "")
        return Listing("", (*bases, state.end), names=names)

    def high_watermark(self) -> int:
        return self._state().end

    def expired(self, keep_from: int | None) -> list[int]:
        return self._expired(self._state(), keep_from)

    def _expired(self, state: PartitionState, keep_from: int | None) -> list[int]:
        """Bases of the slices that the topic's limits no longer cover; the last one stays."""
        if not has_limits(self.config):
            return []
        slices = state.all()
        count = segments_to_drop(
            [each.size for each in slices],
            lambda position: slices[position].largest,
            now_us=self.vfs.now_us(),
            retention_ms=self.config.retention_ms,
            retention_bytes=self.config.retention_bytes,
            ends=[each.end for each in slices],
            keep_from=keep_from,
        )
        return [max(each.base, state.start) for each in slices[:count]]

    def retain(self, keep_from: int | None) -> list[int]:
        dropped: list[int] = []

        def build(state: LogState) -> Draft | None:
            here = state.partitions[self.partition]
            dropped[:] = self._expired(here, keep_from)
            return self._trim(here, here.all()[len(dropped)].base) if dropped else None

        self._log.commit(build)
        return dropped

    def _trim(self, here: PartitionState, offset: int) -> Draft | None:
        if offset <= here.start:
            return None
        now = json_files.timestamp(self.vfs)
        return Draft(Commit(trims={self.partition: offset}, written_at=now))

    def planned_deletion(self, offset: int, end: int, pace: Pace) -> UpkeepReport:  # noqa: ARG002
        pace.begin("delete_records", self.topic, self.partition, 0)
        return self._deletion(self._state(), offset, done=False)

    def delete_before(self, offset: int, pace: Pace) -> UpkeepReport:
        pace.begin("delete_records", self.topic, self.partition, 0)
        before: list[PartitionState] = []

        def build(state: LogState) -> Draft | None:
            before[:] = [state.partitions[self.partition]]
            return self._trim(before[0], offset)

        self._log.commit(build)
        return self.with_start(self._deletion(before[0], offset, done=True))

    def _deletion(self, state: PartitionState, offset: int, *, done: bool) -> UpkeepReport:
        gone = [each for each in state.all() if each.end <= offset]
        return UpkeepReport(
            "delete_records",
            self.topic,
            self.partition,
            segments_before=len(gone),
            bytes_before=sum(each.size for each in gone),
            start_offset=max(state.start, offset),
            done=done or offset <= state.start,
        )

    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        compaction = ObjectCompaction(self, self._files(), pace, self._key_columns)
        return self.with_start(compaction.run(min_dirty_ratio, dry_run=dry_run))

    def merge(self, pace: Pace, *, below: int | None, at_least: int, dry_run: bool) -> UpkeepReport:
        files = self._files()
        groups = merge_groups(files.segments(), self.config.segment_bytes, below, at_least)
        if dry_run:
            report = planned_merge(self.topic, self.partition, groups)
        else:
            report = rewrite_each("merge", files, groups, self.config, pace)
        return self.with_start(report)

    def recompress(self, pace: Pace, *, wanted: Recompression, dry_run: bool) -> UpkeepReport:
        files = self._files()
        if dry_run:
            report = planned_recompression(files, wanted)
        else:
            report = rewrite_each(
                "recompress",
                files,
                [[each] for each in files.segments()],
                self.config.override({"compression_level": wanted.level}),
                pace,
                codec=wanted.codec,
                is_due=lambda each: has_other_codec(files, each, wanted),
            )
        return self.with_start(report)

    def _files(self) -> SliceFiles:
        return SliceFiles(self._log, self.topic, self.partition, self._schemas)

    def damage(self) -> list[Damage]:
        raise ConfigError(_NO_SKIP)

    def skip(self, start: int, end: int) -> str | None:  # noqa: ARG002
        raise ConfigError(_NO_SKIP)

    def segments_to_scrub(self) -> list[SegmentToScrub]:
        return [SegmentToScrub(each.size, partial(self._problems, each)) for each in self._slices()]

    def _problems(self, found: Slice, pace: Pace) -> tuple[Problem, ...]:
        problems = tuple(slice_problems(self._log.backend, self.topic, self.partition, found))
        pace.advance(found.size)
        if problems and found not in self._slices():
            return ()  # removed or replaced meanwhile
        return problems

    def _slices(self) -> list[Slice]:
        return self._state().all()
