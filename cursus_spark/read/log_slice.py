"""What one Spark task reads: splits of segments, planned by the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from storage_core import SegmentInfo


class SegmentSplit(NamedTuple):
    """Records of one segment: offsets and byte positions from start (inclusive) to end (exclusive).

    A named tuple, because a plan may have 100,000 of them.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        path: The segment.
        start_offset: First record to read.
        end_offset: One after the last record to read.
        start_position: Position of the first record, or of an index entry before it.
        end_position: Position of the end, or of an index entry after it.
        sealed: Whether the segment is sealed.
        base: Offset of the segment's first record.
    """

    topic: str
    partition: int
    path: str
    start_offset: int
    end_offset: int
    start_position: int
    end_position: int
    sealed: bool = True
    base: int = 0


class LogSlice(InputPartition):
    """What one task reads: splits of segments, in order.

    ``ids`` are the uuids of the topics when the query was planned. A DataFrame is planned once and
    may be read much later, when a new topic has the same name. ``versions`` are the schema versions
    of typed topics at that time. ``pins`` spare the tasks a look at the logs of an object store.
    ``store`` is the identity of the store.
    """

    def __init__(
        self,
        splits: Sequence[SegmentSplit],
        ids: Mapping[str, str] | None = None,
        versions: Mapping[str, int] | None = None,
        pins: Mapping[str, bytes] | None = None,
        store: str | None = None,
    ) -> None:
        super().__init__(None)
        self.splits = tuple(splits)
        self.ids = dict(ids or {})
        self.versions = dict(versions or {})
        self.pins = dict(pins or {})
        self.store = store

    def __getstate__(self) -> tuple[list[tuple[Any, ...]], tuple[Any, ...]]:
        """Plain tuples: named tuples take three times as long to pickle."""
        known = (self.ids, self.versions, self.pins, self.store)
        return [tuple(split) for split in self.splits], known

    def __setstate__(self, state: tuple[list[tuple[Any, ...]], tuple[Any, ...]]) -> None:
        splits, known = state
        self.__init__(tuple(map(SegmentSplit._make, splits)), *known)  # type: ignore[misc]


def segment_of(split: SegmentSplit) -> SegmentInfo:
    """The segment of a split, as the store's methods take it."""
    return SegmentInfo(split.base, split.end_offset, split.path, split.end_position, split.sealed)
