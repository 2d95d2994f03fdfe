"""The limits of one micro-batch: how much of the backlog it reads."""

from __future__ import annotations

from collections.abc import Mapping

from storage_core import OffsetRange, Store

from ..options.stream_read_options import StreamReadOptions
from ..read.backlog_shares import share_by_backlog
from ..store import TopicPartition

Offsets = Mapping[TopicPartition, int]


def limited_ends(
    store: Store, options: StreamReadOptions, begin: Offsets, ends: Offsets
) -> dict[TopicPartition, int]:
    """The ends of one batch under ``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger``."""
    limited = dict(ends)
    if options.max_offsets_per_trigger is not None:
        shares = share_by_backlog(_backlogs(begin, limited), options.max_offsets_per_trigger)
        limited = {where: begin[where] + shares.get(where, 0) for where in limited}
    if options.max_bytes_per_trigger is not None:
        limited = _limited_by_bytes(store, begin, limited, options.max_bytes_per_trigger)
    return limited


def is_too_little(options: StreamReadOptions, begin: Offsets, ends: Offsets) -> bool:
    """Whether fewer records are available than ``minOffsetsPerTrigger``."""
    least = options.min_offsets_per_trigger
    return least is not None and sum(_backlogs(begin, ends).values()) < least


def _backlogs(begin: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    return {where: max(0, end - begin[where]) for where, end in ends.items()}


def _limited_by_bytes(
    store: Store, begin: Offsets, ends: Offsets, limit: int
) -> dict[TopicPartition, int]:
    """Divide the bytes like offsets, then end each partition at the index entry after its share.

    A soft limit: a partition with a backlog always advances, by one index interval at least.
    """
    sizes = {
        where: _bytes(store, where, begin[where], end)
        for where, end in ends.items()
        if end > begin[where]
    }
    shares = share_by_backlog(sizes, limit)
    return {
        where: end
        if sizes.get(where, 0) <= shares.get(where, 0)
        else _cut(store, where, begin[where], end, shares[where])
        for where, end in ends.items()
    }


def _bytes(store: Store, where: TopicPartition, start: int, end: int) -> int:
    total = 0
    for segment in store.segments(*where, by_names=True, offsets=OffsetRange(start, end)):
        overlap = min(end, segment.end) - max(start, segment.base)
        if overlap > 0:
            total += max(1, segment.size * overlap // max(1, segment.end - segment.base))
    return total


def _cut(store: Store, where: TopicPartition, start: int, end: int, share: int) -> int:
    """The first index entry at which at least ``share`` bytes from ``start`` on are covered."""
    left = share
    for segment in store.segments(*where, by_names=True, offsets=OffsetRange(start, end)):
        first, last = max(start, segment.base), min(end, segment.end)
        if first >= last:
            continue
        offsets, positions = store.index_entries(*where, segment)
        span = max(1, segment.end - segment.base)
        begin = segment.size * (first - segment.base) // span
        size = max(1, segment.size * (last - first) // span)
        if size < left:
            left -= size
            continue
        for offset, position in zip(offsets.tolist(), positions.tolist(), strict=True):
            if offset > first and position - begin >= left:
                return min(int(offset), last)
        return last
    return end
