"""Replacing slices by others with the same records: uploaded, then committed as "these for those".

Appends never conflict with it. If a slice is gone when the commit is built, because retention or
another rewrite was first, the rewrite is given up, and garbage collection deletes its object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ...config import StoreConfig
from ...errors import BrokenFrameError, StoppedError
from ...format.frame import EncodedFrame
from ...format.frame_scan import StoredFrame, walk_frames
from ...format.selection import Schemas
from ...io import json_files
from ...io.io_errors import typed_read_errors
from ...maintenance.report import Action, Pace, UpkeepReport
from ...maintenance.segment_rewriter import FrameRewriter
from ...vfs import Buffer
from ..commit_log import CommitLog, Draft
from ..names import new_key
from ..object_source import ObjectSource
from ..slices import Slice
from ..staging import FrameRun
from ..state import Commit, LogState, Replacement


class SliceFiles:
    """The slices of one partition, to be read from the first byte to the last."""

    def __init__(self, log: CommitLog, topic: str, partition: int, schemas: Schemas | None) -> None:
        self.log = log
        self.topic = topic
        self.partition = partition
        self.schemas = schemas

    @property
    def directory(self) -> str:
        """The log that names the slices."""
        return self.log.prefix

    def segments(self) -> list[Slice]:
        """The slices now."""
        return self.log.refresh().partitions[self.partition].all()

    def frames(self, segment: Slice, *, bodies: bool = True) -> Iterator[StoredFrame]:
        """Its frames, every byte checked; without ``bodies`` only the headers.

        Raises:
            DamagedLogError: the slice is damaged, or its object is missing.
            FileNotFoundError: the slice is no longer in the log, and its object has been deleted.
        """
        place = (segment.key, segment.position, segment.size)
        source = ObjectSource(self.log.backend, *place, on_missing=self.log.refresh)
        try:
            with typed_read_errors(self.topic, self.partition, segment.path):
                try:
                    yield from walk_frames(source, segment.base, bodies=bodies)
                except FileNotFoundError as error:
                    if segment not in self.segments():
                        raise
                    raise BrokenFrameError(f"the object {segment.key} is missing") from error
        finally:
            source.close()


class SliceRewriter(FrameRewriter):
    """One new slice, in memory until it is uploaded."""

    def __init__(self, base: int, config: StoreConfig, schemas: Schemas | None) -> None:
        super().__init__(base, config, schemas)
        self._run = FrameRun(config.index_interval_bytes)

    def place(self, frame: EncodedFrame) -> None:
        self._run.add(frame)

    def finish(self) -> FrameRun:
        """All frames."""
        self.flush(holes=True)
        return self._run


class Rewrite(NamedTuple):
    """Slices, one after another, and the frames that take their place."""

    old: tuple[Slice, ...]
    new: FrameRun


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
            with suppress(FileNotFoundError):  # retention or another rewrite was first
                new = _rewritten(files, group, config, codec, pace)
                if all(replace(files, [Rewrite(tuple(group), new)])):
                    before = sum(each.size for each in group)
                    report = report.counted(before, new.size, segments=len(group))
    except StoppedError:
        report = report.stopped()
    return report


def _rewritten(
    files: SliceFiles, group: Sequence[Slice], config: StoreConfig, codec: int | None, pace: Pace
) -> FrameRun:
    """The records of a group as one slice."""
    writer = SliceRewriter(group[0].base, config, files.schemas)
    for each in group:
        for frame in files.frames(each):
            writer.carry(frame, codec)
            pace.advance(frame.header.length)
    return writer.finish()


def replace(files: SliceFiles, rewrites: Sequence[Rewrite]) -> list[bool]:
    """Upload new slices as one object and commit them; for each, whether it took its place.

    It does not if one of its old slices is gone, or does not end where the new one ends.
    """
    key, position = new_key(files.log.clock), 0
    changes, buffers = list[Replacement](), list[Buffer]()
    for old, run in rewrites:
        placed, data = run.placed(key, position)
        changes.append(Replacement(files.partition, old, (placed.moved(old[0].base),)))
        buffers += data
        position += placed.stored
    files.log.backend.put(key, buffers)
    placed_now: list[bool] = []

    def build(state: LogState) -> Draft | None:
        placed_now[:] = [not state.deleted and _fits(state, change) for change in changes]
        chosen = [change for change, fits in zip(changes, placed_now, strict=True) if fits]
        now = json_files.timestamp(files.log.clock)
        return Draft(Commit(replacements=chosen, written_at=now)) if chosen else None

    files.log.commit(build)
    return placed_now


def _fits(state: LogState, change: Replacement) -> bool:
    same_offsets = change.old[-1].end == change.new[-1].end
    return same_offsets and state.partitions[change.partition].has(change)
