"""The compaction of a partition of objects.

Every slice is sealed. New slices are uploaded many in one object and committed together. Nothing
keeps other maintenance out. It does no harm: a slice that another operation has replaced stays as
that one left it, a pass that misses one leaves no checkpoint, and no operation brings a record
back. So a checkpoint that was true once stays true, and of two that race either may be the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from ...errors import DamagedMetadataError
from ...io import json_files
from ...maintenance.compaction import Change, FrameCompaction
from ...maintenance.compaction_policy import CleanerCheckpoint
from ...maintenance.partition import PartitionMaintenance
from ...maintenance.report import Pace
from ...maintenance.segment_rewriter import FrameRewriter
from ..backend import read_object
from ..slices import Slice
from ..staging import FrameRun
from .rewriting import Rewrite, SliceFiles, SliceRewriter, replace

# New slices that wait in memory for one upload and one commit.
_UPLOAD_BYTES = 32 << 20


class ObjectCompaction(FrameCompaction[Slice, FrameRun]):
    """The compaction of the slices of one partition."""

    def __init__(
        self, of: PartitionMaintenance, files: SliceFiles, pace: Pace, key_columns: Sequence[str]
    ) -> None:
        path = f"{files.log.prefix}cleaned/{of.partition}.json"
        super().__init__(of, files, path, pace, key_columns)
        self._slices = files
        self._backend = files.log.backend

    def checkpoint(self) -> CleanerCheckpoint:
        data = read_object(self._backend, self._path)
        try:
            fields = None if data is None else json_files.load(data, self._path)
        except DamagedMetadataError:
            fields = None
        return CleanerCheckpoint.from_fields(fields, self._path, self._of.topic_uuid)

    def save(self, checkpoint: CleanerCheckpoint) -> None:
        self._backend.put(self._path, [json_files.dump(checkpoint.fields(self._of.topic_uuid))])

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sealed(self) -> list[Slice]:
        return self._slices.segments()

    def sync(self, segments: Sequence[Slice]) -> None:
        """Nothing to do: what a commit names is durable."""

    def write(self, segment: Slice, fill: Callable[[FrameRewriter], None]) -> FrameRun:
        writer = SliceRewriter(segment.base, self._of.config, self._slices.schemas)
        fill(writer)
        return writer.finish()

    def replaced(
        self, changes: Iterator[Change[Slice, FrameRun]]
    ) -> Iterator[tuple[Change[Slice, FrameRun], bool]]:
        waiting, size = list[Change[Slice, FrameRun]](), 0
        for change in changes:
            waiting.append(change)
            size += change.new.size
            if size >= _UPLOAD_BYTES:
                yield from self._replace(waiting)
                waiting, size = [], 0
        yield from self._replace(waiting)

    def _replace(
        self, waiting: Sequence[Change[Slice, FrameRun]]
    ) -> Iterator[tuple[Change[Slice, FrameRun], bool]]:
        if waiting:
            rewrites = [Rewrite((change.segment,), change.new) for change in waiting]
            yield from zip(waiting, replace(self._slices, rewrites), strict=True)
