"""From offset ranges to tasks, on the driver, by file names and sparse indexes alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import InputPartition

from storage_core import SegmentInfo, Store

from ..options.query_options import ReadOptions
from .ranges import Available, TopicPartition, aged_out, lose, vanished
from .splits import CutPoints, Piece, plan_tasks


class LogSlice(InputPartition):
    """What one task reads: pieces of segments, in order. Plain data; the task plans nothing.

    ``ids`` are the uuids of the topics when the query was planned. A DataFrame is planned once and
    may be read much later, from a topic of the same name and other records.
    """

    def __init__(self, pieces: Sequence[Piece], ids: Mapping[str, str] | None = None) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)
        self.ids = dict(ids or {})

    def __getstate__(self) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
        """Plain tuples: named ones take three times as long to pickle."""
        return [tuple(piece) for piece in self.pieces], self.ids

    def __setstate__(self, state: tuple[list[tuple[Any, ...]], dict[str, str]]) -> None:
        self.__init__(tuple(map(Piece._make, state[0])), state[1])  # type: ignore[misc]


def plan(
    store: Store, options: ReadOptions, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> list[LogSlice]:
    """The tasks that read ``ranges``: large segments cut, small neighbours packed together."""
    ids = {topic: str(store.topic(topic).uuid) for topic in {topic for topic, _ in ranges}}

    def cuts(piece: Piece) -> CutPoints:
        info = segment_of(piece)
        return CutPoints(*store.index_entries(piece.topic, piece.partition, info))

    with _no_garbage():
        tasks = plan_tasks(
            list(pieces_of(store, options, ranges)),
            cuts=cuts,
            max_bytes=options.max_bytes_per_partition,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
            parallelism=os.cpu_count() or 1,
        )
        return [LogSlice(task, {piece.topic: ids[piece.topic] for piece in task}) for task in tasks]


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Without the collector, which would look through 100,000 pieces again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def pieces_of(
    store: Store, options: ReadOptions, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> Iterable[Piece]:
    """The segments of each range, with their bytes in proportion where only a part is read.

    Raises:
        CursusError: retention removed some of a range since it was fixed.
    """
    for where, (start, end) in ranges.items():
        (topic, partition), here = where, start
        for segment in store.segments(*where):
            if segment.end <= here or segment.base >= end:
                continue
            if segment.base > here:
                lose(options, aged_out(where, here, Available(segment.base, end)))
            first, last = max(start, segment.base), min(end, segment.end)
            low, high = 0, segment.size
            if (first, last) != (segment.base, segment.end):
                share = segment.size / (segment.end - segment.base)
                low, high = int((first - segment.base) * share), int((last - segment.base) * share)
            yield Piece(
                topic,
                partition,
                segment.path,
                first,
                last,
                low,
                high,
                segment.base,
                segment.sealed,
                segment.base,
            )
            here = last
        if here < end:
            lose(options, vanished(where, here, end))


def segment_of(piece: Piece) -> SegmentInfo:
    """The segment of a piece, as the store wants it named."""
    return SegmentInfo(piece.base, piece.end_offset, piece.path, piece.end_position, piece.sealed)
