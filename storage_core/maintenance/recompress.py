"""Putting sealed segments under another codec: new ones fast to write, old ones small."""

from __future__ import annotations

from ..format.frame import draft_frame, finish_frame
from .report import Pace, Recompression, UpkeepReport
from .segment_files import Segment, SegmentFiles
from .segment_swap import Replacer

# How much of a segment a dry run encodes to see what it would save.
_SAMPLE_BYTES = 2 << 20


def has_other_codec(files: SegmentFiles[Segment], segment: Segment, wanted: Recompression) -> bool:
    """Whether a segment is old enough and has a frame under another codec, from its headers."""
    other = False
    for frame in files.frames(segment, bodies=False):
        header = frame.header
        if wanted.before_us is not None and header.max_timestamp >= wanted.before_us:
            return False
        # A frame without a body has nothing to compress.
        other = other or (header.codec != wanted.codec and header.raw_length > 0)
    return other


def planned_recompression(files: SegmentFiles[Segment], wanted: Recompression) -> UpkeepReport:
    """What recompressing would save, estimated from the first frames of every segment."""
    due = [segment for segment in files.segments() if has_other_codec(files, segment, wanted)]
    return UpkeepReport(
        "recompress",
        files.topic,
        files.partition,
        segments_before=len(due),
        segments_after=len(due),
        bytes_before=sum(segment.size for segment in due),
        bytes_after=sum(_estimate(files, segment, wanted) for segment in due),
        done=not due,
    )


def _estimate(files: SegmentFiles[Segment], segment: Segment, wanted: Recompression) -> int:
    old = new = 0
    for frame in files.frames(segment):
        columns = frame.columns(files.schemas)
        encoded = finish_frame(
            draft_frame(
                columns,
                relative_offset=0,
                recovery_point=0,
                compression=wanted.compression,
                level=wanted.level,
                deltas=columns.offsets,
                span=frame.header.span,
            )
        )
        old, new = old + frame.header.length, new + encoded.header.length
        if old >= _SAMPLE_BYTES:
            break
    return segment.size * new // max(1, old)


def recompress_partition(replacer: Replacer, wanted: Recompression, pace: Pace) -> UpkeepReport:
    """Rewrite what has another codec. What is finished stays if the caller stops it."""
    files = replacer.files
    with replacer.held():
        return replacer.rewrite_each(
            "recompress",
            [[segment] for segment in files.segments()],
            pace,
            codec=wanted.codec,
            is_due=lambda segment: has_other_codec(files, segment, wanted),
        )
