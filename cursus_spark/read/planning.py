"""Plans the tasks of a read on the driver, from the names and sparse indexes of segments."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from storage_core import OffsetRange, SegmentInfo, Store
from storage_core.lazy import LazyModule

from ..logs import logger
from ..options.read_options import ReadOptions
from ..store import TopicPartition, identity_of
from .data_loss import (
    Available,
    aged_out,
    deleted_meanwhile,
    lose,
    planned,
    skipped_damage,
    vanished,
)
from .log_slice import LogSlice, SegmentSplit, segment_of
from .object_order import by_object
from .query_where import QueryWhere
from .ranges import batch_ranges
from .splits import CutPoints, plan_tasks
from .typed_task import typed_read
from .typed_topics import QueryColumns

if TYPE_CHECKING:
    from . import where_option
else:  # most queries have no predicate
    where_option = LazyModule("cursus_spark.read.where_option")

_log = logger()


def plan_batch(
    store: Store,
    options: ReadOptions,
    columns: QueryColumns | None = None,
    predicate: QueryWhere | None = None,
) -> list[LogSlice]:
    """The tasks of a batch query, from one snapshot of its topics."""

    def tasks(gone: frozenset[str]) -> list[LogSlice]:
        for topic in sorted(gone):
            lose(options, deleted_meanwhile(topic))
        ranges, ids = batch_ranges(store, options.without(gone))
        return plan(store, options, ranges, ids, columns, predicate)

    return planned(store, tasks)


def plan(
    store: Store,
    options: ReadOptions,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    ids: Mapping[str, str],
    columns: QueryColumns | None = None,
    predicate: QueryWhere | None = None,
) -> list[LogSlice]:
    """The tasks that read ``ranges``: large segments are divided, small ones share a task.

    ``ids`` are the uuids of the topics when the ranges were resolved.
    """
    versions: Mapping[str, int] = {}
    if columns is not None:
        versions = columns.check(store, dict.fromkeys(topic for topic, _ in ranges))

    def cuts(split: SegmentSplit) -> CutPoints:
        info = segment_of(split)
        return CutPoints(*store.index_entries(split.topic, split.partition, info))

    with _no_garbage():
        tasks = plan_tasks(
            _matching(store, options, segment_splits(store, options, ranges), versions, predicate),
            cuts=cuts,
            max_bytes=options.max_bytes_per_partition,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
            parallelism=os.cpu_count() or 1,
            arrange=partial(by_object, container=store.container),
        )
        pins = _pins(store, dict.fromkeys(topic for topic, _ in ranges))
        own = identity_of(store)
        return [_slice(task, ids, versions, pins, own) for task in tasks]


def _matching(
    store: Store,
    options: ReadOptions,
    splits: Iterable[SegmentSplit],
    versions: Mapping[str, int],
    predicate: QueryWhere | None,
) -> list[SegmentSplit]:
    """The splits of segments that can have a row of the predicate, as far as statistics tell."""
    found = list(splits)
    if predicate is None or not found:
        return found
    kept = []
    for where, group in groupby(found, lambda split: (split.topic, split.partition)):
        own, schema = list(group), None
        if where[0] in versions:
            stored = store.schema(where[0], versions[where[0]])
            assert stored is not None
            where_option.check_where(predicate.bound, where[0], stored, merge=options.merge_schema)
            schema = typed_read(
                where[0], stored, StructType([]), predicate, merge=options.merge_schema
            )[1]
        segments = map(segment_of, own)
        may_match = store.may_match(*where, segments, predicate.bound, schema)
        kept += [split for split, may in zip(own, may_match, strict=True) if may]
    _log.info("where: %d of %d segments skipped", len(found) - len(kept), len(found))
    return kept


def _pins(store: Store, topics: Iterable[str]) -> dict[str, bytes]:
    found = {topic: store.pinned(topic) for topic in topics}
    return {topic: pin for topic, pin in found.items() if pin is not None}


def _slice(
    splits: Sequence[SegmentSplit],
    ids: Mapping[str, str],
    versions: Mapping[str, int],
    pins: Mapping[str, bytes],
    store: str | None,
) -> LogSlice:
    topics = {split.topic for split in splits}
    return LogSlice(
        splits,
        {topic: ids[topic] for topic in topics},
        {topic: versions[topic] for topic in topics if topic in versions},
        {topic: pins[topic] for topic in topics if topic in pins},
        store,
    )


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Without the garbage collector, which would scan 100,000 splits repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def segment_splits(
    store: Store, options: ReadOptions, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> Iterable[SegmentSplit]:
    """One split for each segment of each range; bytes in proportion where only a part is read.

    A read by time leaves out those whose index says that they have no record of the interval.

    Raises:
        CursusError: records of a range are gone since it was resolved.
    """
    for where, (start, end) in ranges.items():
        (topic, partition), here = where, start
        for lost in store.skipped(topic, partition):
            if lost.start < end and start < lost.end:
                lose(options, skipped_damage(where, lost.start, lost.end))
        wanted = OffsetRange(start, end)
        segments = store.segments(*where, by_names=True, offsets=wanted)
        skipped = _outside_times(store, options, where, (start, end), segments)
        for segment in segments:
            if segment.end <= here or segment.base >= end:
                continue
            if segment.base > here:
                lose(options, aged_out(where, here, Available(segment.base, end)))
            first, last = max(start, segment.base), min(end, segment.end)
            here = last
            if segment.base in skipped:
                continue
            low, high = 0, segment.size
            if (first, last) != (segment.base, segment.end):
                share = segment.size / (segment.end - segment.base)
                low, high = int((first - segment.base) * share), int((last - segment.base) * share)
            yield SegmentSplit(
                topic,
                partition,
                segment.path,
                first,
                last,
                low,
                high,
                segment.sealed,
                segment.base,
            )
        if here < end:
            lose(options, vanished(where, here, end))


def _outside_times(
    store: Store,
    options: ReadOptions,
    where: TopicPartition,
    offsets: tuple[int, int],
    segments: Sequence[SegmentInfo],
) -> frozenset[int]:
    """Bases of the segments that have no record of the interval, as far as their indexes tell."""
    times, (start, end) = options.times(*where), offsets
    if times is None:
        return frozenset()
    inside = [each for each in segments if each.end > start and each.base < end]
    bounds = store.time_bounds(*where, inside)
    return frozenset(
        segment.base
        for segment, known in zip(inside, bounds, strict=True)
        if known is not None and not times.overlaps(*known)
    )
