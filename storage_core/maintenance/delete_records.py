"""Deleting records up to an offset, also in the middle of a segment.

Deletion markers remove whole segments. If the offset is inside a segment, the rest of that segment
is first written to a new one, named by the offset. While both exist, a reader gets the same records
from either. The deletion markers are the decision: without them recovery removes the new segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..format.frame_scan import StoredFrame
from ..segments.sealed import Sealed, SealedLog
from ..types import Int64s
from .report import Pace, UpkeepReport
from .segment_rewriter import Rewritten
from .segment_swap import Replacer


def planned_deletion(files: SealedLog, offset: int, end: int) -> UpkeepReport:
    """What deleting would do to a log that ends at ``end``; the active segment counts too."""
    whole, cut = _reached([*files.segments(), *files.active(end)], offset)
    return _report(files, whole, cut, cut.size if cut else 0, offset, done=not whole and not cut)


def delete_before(replacer: Replacer, offset: int, pace: Pace) -> UpkeepReport:
    """Delete all records below ``offset``."""
    files = replacer.files
    with replacer.held():
        pace.begin("delete_records", files.topic, files.partition, 0)
        if offset > files.last_base():
            replacer.seal_active()
        segments = files.segments()
        whole, cut = _reached(segments, offset)
        new = None if cut is None else _rest(replacer, cut, offset, pace)
        gone = [*whole, *([] if cut is None else [cut])]
        if gone and not replacer.cut_off(gone, offset, new):
            return UpkeepReport(
                "delete_records",
                files.topic,
                files.partition,
                start_offset=files.start_offset(),
                done=False,
                note="segments changed meanwhile",
            )
        return _report(files, whole, cut, new.size if new else 0, files.start_offset(), done=True)


def _reached(segments: Sequence[Sealed], offset: int) -> tuple[list[Sealed], Sealed | None]:
    """The segments that end at an offset or before, and the one that the offset cuts."""
    whole = [segment for segment in segments if segment.end <= offset]
    cut = [segment for segment in segments if segment.base < offset < segment.end]
    return whole, cut[0] if cut else None


def _rest(replacer: Replacer, segment: Sealed, offset: int, pace: Pace) -> Rewritten:
    with replacer.rewriter(offset) as writer:
        for frame in replacer.files.frames(segment):
            if frame.offset >= offset:
                writer.carry(frame)
            elif frame.end_offset > offset:
                rows = _rows_from(replacer.files, frame, offset)
                writer.add(frame, rows=rows, codec=frame.header.codec)
            pace.advance(frame.header.length)
        return writer.finish()


def _rows_from(files: SealedLog, frame: StoredFrame, offset: int) -> Int64s:
    deltas = frame.columns(files.schemas).offsets
    first = offset - frame.offset
    if deltas is not None:
        first = int(np.searchsorted(deltas, first))
    return np.arange(min(first, frame.header.records), frame.header.records, dtype=np.int64)


def _report(
    files: SealedLog,
    whole: Sequence[Sealed],
    cut: Sealed | None,
    after: int,
    start: int,
    *,
    done: bool,
) -> UpkeepReport:
    report = UpkeepReport("delete_records", files.topic, files.partition, start_offset=start)
    gone = [*whole, *([] if cut is None else [cut])]
    return replace(
        report,
        segments_before=len(gone),
        segments_after=0 if cut is None else 1,
        bytes_before=sum(segment.size for segment in gone),
        bytes_after=after,
        done=done,
    )
