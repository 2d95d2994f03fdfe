"""Merging small sealed segments into full ones: many small files make reads slow."""

from __future__ import annotations

from collections.abc import Sequence

from .report import Pace, UpkeepReport
from .segment_files import HasSize, Segment
from .segment_swap import Replacer


def merge_groups(
    segments: Sequence[Segment], segment_bytes: int, below: int | None = None, at_least: int = 2
) -> list[list[Segment]]:
    """Runs of neighbouring small segments that fit into one.

    By default a segment of half the size or more stays: rewriting it costs more than it saves.

    Args:
        segments: All sealed segments, in order.
        segment_bytes: Size of a full segment.
        below: A segment of this size or more stays as it is.
        at_least: Minimum number of segments of a merge.
    """
    groups: list[list[Segment]] = [[]]
    size, limit = 0, segment_bytes / 2 if below is None else below
    for segment in segments:
        small = segment.size < limit
        if not small or size + segment.size > segment_bytes:
            groups.append([])
            size = 0
        if small:
            groups[-1].append(segment)
            size += segment.size
    return [group for group in groups if len(group) >= max(2, at_least)]


def planned_merge(topic: str, partition: int, groups: Sequence[Sequence[HasSize]]) -> UpkeepReport:
    """What merging would do; joined frames save a little more than this."""
    size = sum(segment.size for group in groups for segment in group)
    return UpkeepReport(
        "merge",
        topic,
        partition,
        segments_before=sum(map(len, groups)),
        segments_after=len(groups),
        bytes_before=size,
        bytes_after=size,
        done=not groups,
    )


def merge_partition(
    replacer: Replacer, pace: Pace, high_watermark: int, below: int | None, at_least: int
) -> UpkeepReport:
    """Merge a partition's small segments. What is finished stays if the caller stops it."""
    with replacer.held():
        segments = replacer.files.segments(high_watermark)
        groups = merge_groups(segments, replacer.config.segment_bytes, below, at_least)
        return replacer.rewrite_each("merge", groups, pace)
