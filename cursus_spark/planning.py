"""From offset ranges to tasks, on the driver, by file names and sparse indexes alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from storage_core import SegmentInfo, Store

from .options import ReadOptions
from .ranges import Available, TopicPartition, within
from .splitting import CutPoints, Piece, plan_tasks


class LogSlice(InputPartition):
    """What one task reads: pieces of segments, in order. Plain data; the task plans nothing."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)


def plan(
    store: Store, options: ReadOptions, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> list[LogSlice]:
    """The tasks that read ``ranges``: large segments cut, small neighbours packed together."""
    pieces = list(pieces_of(store, ranges))
    _require_all(options, ranges, pieces)

    def cuts(piece: Piece) -> CutPoints:
        info = segment_of(piece)
        return CutPoints(*store.index_entries(piece.topic, piece.partition, info))

    tasks = plan_tasks(
        pieces,
        cuts=cuts,
        max_bytes=options.max_bytes_per_partition,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        parallelism=os.cpu_count() or 1,
    )
    return [LogSlice(task) for task in tasks]


def _require_all(
    options: ReadOptions,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    pieces: Iterable[Piece],
) -> None:
    """Refuse to read less than asked for: retention may work between the bounds and the listing."""
    first: dict[TopicPartition, int] = {}
    for piece in pieces:
        first.setdefault((piece.topic, piece.partition), piece.start_offset)
    for where, (start, end) in ranges.items():
        found = first.get(where, end)
        if found > start:
            within(where, start, Available(found, end), fail=options.fail_on_data_loss)


def pieces_of(store: Store, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterable[Piece]:
    """The segments of each range, with their bytes in proportion where only a part is read."""
    for (topic, partition), (start, end) in ranges.items():
        for segment in store.segments(topic, partition):
            first, last = max(start, segment.base), min(end, segment.end)
            if first < last:
                share = segment.size / max(1, segment.end - segment.base)
                yield Piece(
                    topic,
                    partition,
                    segment.path,
                    first,
                    last,
                    int((first - segment.base) * share),
                    int((last - segment.base) * share),
                    segment.base,
                    segment.sealed,
                    segment.base,
                )


def segment_of(piece: Piece) -> SegmentInfo:
    """The segment of a piece, as the store wants it named."""
    return SegmentInfo(piece.base, piece.end_offset, piece.path, piece.end_position, piece.sealed)
