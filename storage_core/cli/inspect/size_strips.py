"""A strip of blocks per partition: its bytes over time, or over offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..common.formatting import moment, number
from .store_facts import PartitionFacts, SegmentFacts

_BLOCKS = " ▁▂▃▄▅▆▇█"


class Axis(NamedTuple):
    """The range of the strips: times if all segments have them, else offsets."""

    low: int
    high: int
    timed: bool

    @property
    def ends(self) -> tuple[str, str]:
        """Both ends as text."""
        shown = moment if self.timed else number
        return shown(self.low), shown(self.high)

    def place(self, segment: SegmentFacts) -> tuple[int, int]:
        """Start and end of a segment on the axis."""
        if self.timed and segment.first_time is not None and segment.last_time is not None:
            return segment.first_time, segment.last_time
        return segment.base, segment.end


def axis_of(partitions: Sequence[PartitionFacts]) -> Axis | None:
    """One axis for all partitions; None if they have no segments."""
    segments = [segment for partition in partitions for segment in partition.segments]
    if not segments:
        return None
    times = [
        (segment.first_time, segment.last_time)
        for segment in segments
        if segment.first_time is not None and segment.last_time is not None
    ]
    if len(times) == len(segments):
        return Axis(min(low for low, _ in times), max(high for _, high in times), True)
    low, high = min(segment.base for segment in segments), max(found.end for found in segments)
    return Axis(low, high, False)


def densities(partition: PartitionFacts, axis: Axis, width: int) -> list[float]:
    """Bytes in each of ``width`` cells, each segment distributed evenly over its range."""
    cells = [0.0] * width
    scale = width / max(1, axis.high - axis.low)
    for segment in partition.segments:
        low, high = axis.place(segment)
        start = min(width - 1.0, (low - axis.low) * scale)
        stop = max(start + 1e-9, min(float(width), (high - axis.low) * scale))
        for cell in range(int(start), min(width, int(stop) + 1)):
            share = min(stop, cell + 1) - max(start, cell)
            cells[cell] += segment.size * max(0.0, share) / (stop - start)
    return cells


def strips(partitions: Sequence[PartitionFacts], axis: Axis, width: int) -> list[str]:
    """One strip for each partition, all on the same scale."""
    rows = [densities(partition, axis, width) for partition in partitions]
    most = max((value for row in rows for value in row), default=0.0) or 1.0
    return ["".join(_block(value / most) for value in row) for row in rows]


def _block(share: float) -> str:
    if share <= 0:
        return _BLOCKS[0]
    return _BLOCKS[max(1, min(len(_BLOCKS) - 1, round(share * (len(_BLOCKS) - 1))))]
