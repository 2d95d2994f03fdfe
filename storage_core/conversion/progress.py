"""What a conversion has to do and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..format.columns import Int64s
from ..store.reads import StoreReads
from ..types import OffsetRange

Phase = Literal["check", "copy", "verify"]


class Progress(NamedTuple):
    """How far a phase is: records and log bytes of the source, done and in all.

    Both are worked out from offsets, so a hole counts as if its records were there.
    """

    phase: Phase
    topic: str
    partition: int
    records: int
    total_records: int
    bytes: int
    total_bytes: int


class Part(NamedTuple):
    """A partition to convert, as it was at the beginning; ``marks`` are offsets and log bytes."""

    topic: str
    partition: int
    range: OffsetRange
    marks: tuple[Int64s, Int64s]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def bytes_before(self, offset: int) -> int:
        return int(np.interp(offset, *self.marks))


def parts_of(source: StoreReads, topic: str) -> Iterator[Part]:
    """A topic's partitions as they are now."""
    for partition, end in enumerate(source.visible_ends(topic)):
        start = min(source.offsets(topic, partition).start, end)
        segments = source.segments(topic, partition)
        offsets = np.array([*(found.base for found in segments), end], dtype=np.int64)
        sizes = np.cumsum([0, *(found.size for found in segments)])
        yield Part(topic, partition, OffsetRange(start, end), (offsets, sizes))


class Report:
    """Tells how far a conversion is."""

    def __init__(self, parts: Sequence[Part], tell: Callable[[Progress], None] | None) -> None:
        self._tell = tell
        self._records = sum(len(part.range) for part in parts)
        self._bytes = sum(int(part.marks[1][-1]) for part in parts)
        self._before: dict[str, tuple[int, int]] = {}
        records = size = 0
        for part in parts:
            self._before[part.name] = records, size
            records += len(part.range)
            size += int(part.marks[1][-1])

    def __call__(self, phase: Phase, part: Part, offset: int) -> None:
        if self._tell is not None:
            records, size = self._before[part.name]
            self._tell(
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
