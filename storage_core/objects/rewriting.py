"""Replacing slices by others with the same records: uploaded, then committed as "these for those".

Appends never conflict with it. If a slice is gone when the commit is built, because retention or
another rewrite was first, the rewrite is given up, and garbage collection deletes its object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..config import StoreConfig
from ..errors import StoppedError
from ..format.frame import EncodedFrame
from ..format.frame_scan import StoredFrame, walk_frames
from ..format.selection import Schemas
from ..io import json_files
from ..io.io_errors import typed_read_errors
from ..maintenance.report import Action, Pace, UpkeepReport
from ..maintenance.segment_rewriter import FrameRewriter
from .commit_log import CommitLog, Draft
from .object_source import ObjectSource
from .slices import Slice
from .staging import FrameRun, new_key
from .state import Commit, LogState, Replacement


class SliceFiles:
    """The slices of one partition, to be read from the first byte to the last."""

    def __init__(self, log: CommitLog, topic: str, partition: int, schemas: Schemas | None) -> None:
        self.log = log
        self.topic = topic
        self.partition = partition
        self.schemas = schemas

    def segments(self) -> list[Slice]:
        """The slices now."""
        return self.log.refresh().partitions[self.partition].all()

    def frames(self, segment: Slice, *, bodies: bool = True) -> Iterator[StoredFrame]:
        """Its frames, every byte checked; without ``bodies`` only the headers.

        Raises:
            DamagedLogError: the slice is damaged.
            FileNotFoundError: its object has been deleted.
        """
        place = (segment.key, segment.position, segment.size)
        source = ObjectSource(self.log.backend, *place, on_missing=self.log.refresh)
        try:
            with typed_read_errors(self.topic, self.partition, segment.path):
                yield from walk_frames(source, segment.base, bodies=bodies)
        finally:
            source.close()


class SliceRewriter(FrameRewriter):
    """One new slice, in memory until it is uploaded."""

    def __init__(self, base: int, config: StoreConfig, schemas: Schemas | None) -> None:
        super().__init__(base, config, schemas)
        self.run = FrameRun(config.index_interval_bytes)

    def place(self, frame: EncodedFrame) -> None:
        self.run.add(frame)


def rewrite_each(
    action: Action,
    files: SliceFiles,
    groups: Sequence[Sequence[Slice]],
    config: StoreConfig,
    pace: Pace,
    *,
    codec: int | None = None,
    is_due: Callable[[Slice], bool] = lambda _: True,
) -> UpkeepReport:
    """Make one slice of each group. What is finished stays if the caller stops it."""
    report = UpkeepReport(action, files.topic, files.partition)
    try:
        pace.begin(action, files.topic, files.partition, sum(s.size for g in groups for s in g))
        for group in groups:
            if not any(map(is_due, group)):
                continue
            new = _rewritten(files, group, config, codec, pace)
            if _replace(files, Replacement(files.partition, tuple(group), (new,))):
                before = sum(each.size for each in group)
                report = report.counted(before, new.size, segments=len(group))
    except StoppedError:
        report = report.stopped()
    return report


def _rewritten(
    files: SliceFiles, group: Sequence[Slice], config: StoreConfig, codec: int | None, pace: Pace
) -> Slice:
    """Upload the records of a group as one slice."""
    writer = SliceRewriter(group[0].base, config, files.schemas)
    for each in group:
        for frame in files.frames(each):
            writer.carry(frame, codec)
            pace.advance(frame.header.length)
    writer.flush(holes=True)
    key = new_key(files.log.clock, "rewrite")
    placed, data = writer.run.placed(key, 0)
    files.log.backend.put(key, data)
    return placed.moved(group[0].base)


def _replace(files: SliceFiles, change: Replacement) -> bool:
    """Commit a replacement; False if one of the old slices is gone."""

    def build(state: LogState) -> Draft | None:
        if state.deleted or not state.partitions[files.partition].has(change):
            return None
        now = json_files.timestamp(files.log.clock)
        return Draft(Commit(replacements=(change,), written_at=now))

    return files.log.commit(build).happened
