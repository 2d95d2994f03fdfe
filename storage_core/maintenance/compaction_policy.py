"""Whether a partition is worth a compaction: how much is new, and which null values are old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import StoreConfig
from ..segments.sealed import Sealed
from .clean_marks import CleanMarks

MORE_PASSES = "the keys need more than one pass; this is the first"


@dataclass(frozen=True, slots=True)
class Dirt:
    """What a partition would be compacted for."""

    segments: tuple[Sealed, ...]
    new_bytes: int
    horizon: int
    old_tombstones: bool

    @property
    def ratio(self) -> float:
        """Part of the closed segments that came since the last compaction."""
        return self.new_bytes / max(1, sum(segment.size for segment in self.segments))

    def total_bytes(self, start: int) -> int:
        """Bytes that a pass reads: what is new from ``start`` on, then everything."""
        new = sum(segment.size for segment in self.segments if segment.end > start)
        return new + sum(segment.size for segment in self.segments)

    def is_due(self, min_ratio: float) -> bool:
        new = self.new_bytes > 0 and self.ratio >= min_ratio
        return bool(self.segments) and (new or self.old_tombstones)


def dirty_ratio_of(
    segments: Sequence[Sealed], marks: CleanMarks, config: StoreConfig, now_us: int
) -> Dirt:
    """What there is to compact in these segments."""
    horizon = marks.horizon(now_us, config.delete_retention_ms)
    return Dirt(
        tuple(segments),
        sum(segment.size for segment in segments if segment.end > marks.upto),
        horizon,
        bool(marks.tombstones) and horizon > marks.tombstones_below,
    )


def not_due(dirt: Dirt, min_ratio: float) -> str:
    """Why a partition is not compacted now, for people."""
    if not dirt.new_bytes:
        return "nothing is new"
    return f"{dirt.ratio:.0%} is new, less than {min_ratio:.0%}"
