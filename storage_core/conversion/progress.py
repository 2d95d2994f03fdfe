"""The partitions of a conversion's source, and its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..errors import PartitionNotFoundError
from ..store.reads import StoreReads
from ..types import Int64s, OffsetRange

_log = logging.getLogger("storage_core")
Phase = Literal["check", "copy", "verify"]


class Progress(NamedTuple):
    """Progress of a phase: records and log bytes of the source, done and in total.

    Both are computed from offsets, so a hole counts like records.
    """

    phase: Phase
    topic: str
    partition: int
    records: int
    total_records: int
    bytes: int
    total_bytes: int


class SourcePartition(NamedTuple):
    """A partition as it was at the start; ``sizes`` are segment offsets and bytes before them."""

    topic: str
    partition: int
    range: OffsetRange
    sizes: tuple[Int64s, Int64s]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def bytes_before(self, offset: int) -> int:
        return int(np.interp(offset, *self.sizes))


def source_partitions(source: StoreReads, topic: str) -> Iterator[SourcePartition]:
    """The partitions of a topic as they are now.

    Those that a Kafka broker has on another disk are left out, with a warning.
    """
    for partition, end in enumerate(source.visible_ends(topic)):
        try:
            start = min(source.offsets(topic, partition).start, end)
        except PartitionNotFoundError as error:
            _log.warning("%s-%d is not converted: %s", topic, partition, error)
            continue
        segments = source.segments(topic, partition, by_names=True)
        offsets = np.array([*(found.base for found in segments), end], dtype=np.int64)
        bytes_before = np.cumsum([0, *(found.size for found in segments)])
        yield SourcePartition(topic, partition, OffsetRange(start, end), (offsets, bytes_before))


class ProgressReporter:
    """Calls ``progress`` with the progress of a conversion."""

    def __init__(
        self, parts: Sequence[SourcePartition], progress: Callable[[Progress], None] | None
    ) -> None:
        self._progress = progress
        self._records = sum(len(part.range) for part in parts)
        self._bytes = sum(int(part.sizes[1][-1]) for part in parts)
        self._before: dict[str, tuple[int, int]] = {}
        records = size = 0
        for part in parts:
            self._before[part.name] = records, size
            records += len(part.range)
            size += int(part.sizes[1][-1])

    def __call__(self, phase: Phase, part: SourcePartition, offset: int) -> None:
        if self._progress is not None:
            records, size = self._before[part.name]
            self._progress(
                Progress(
                    phase,
                    part.topic,
                    part.partition,
                    records + offset - part.range.start,
                    self._records,
                    size + part.bytes_before(offset),
                    self._bytes,
                )
            )
