"""When a partition is compacted: what is dirty, how far earlier passes came, which tombstones go.

``cleaned.json`` (``topics/<topic>/<partition>/`` in a native store) is the cleaner's checkpoint. It
is a hint. If it is lost, the whole partition counts as dirty, and tombstones stay for another
``delete_retention_ms``. A pass writes it durably once every segment below ``upto`` is clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from ..config import StoreConfig
from ..errors import DamagedMetadataError
from ..io import json_files
from ..vfs import Vfs
from .report import NOTHING_SEALED
from .segment_files import Segment

_FORMAT = 1
_MAX_PASSES = 32


class CleanPass(NamedTuple):
    """At this moment no record below ``upto`` had a later record of its key below ``upto``."""

    upto: int
    at_us: int


@dataclass(frozen=True, slots=True)
class CleanerCheckpoint:
    """The passes over one partition, oldest first.

    ``tombstones`` is how many tombstones the last pass kept, ``tombstones_below`` the offset below
    which it kept none.
    """

    passes: tuple[CleanPass, ...] = ()
    tombstones: int = 0
    tombstones_below: int = 0

    @property
    def first_dirty_offset(self) -> int:
        """Where records begin that no pass has seen."""
        return self.passes[-1].upto if self.passes else 0

    def delete_horizon(self, now_us: int, delete_retention_ms: int) -> int:
        """Tombstones below this offset have been kept long enough."""
        oldest = now_us - delete_retention_ms * 1000
        return max((each.upto for each in self.passes if each.at_us <= oldest), default=0)

    def after(self, upto: int, now_us: int, tombstones: int, horizon: int) -> CleanerCheckpoint:
        """The checkpoint after a pass that removed the tombstones below ``horizon``.

        Of the passes below the horizon only the last counts. If there are too many passes, one in
        the middle goes: its tombstones then wait for the next pass.
        """
        kept = [each for each in self.passes if each.upto >= horizon]
        while len(kept) >= _MAX_PASSES:
            del kept[len(kept) // 2]
        if upto > self.first_dirty_offset:
            kept.append(CleanPass(upto, now_us))
        return CleanerCheckpoint(tuple(kept), tombstones, horizon)

    @classmethod
    def read(cls, vfs: Vfs, path: str, topic_uuid: str) -> CleanerCheckpoint:
        """The checkpoint; an empty one if it is missing, damaged or of another topic."""
        try:
            return cls.from_fields(json_files.read(vfs, path), path, topic_uuid)
        except DamagedMetadataError:
            return cls()

    @classmethod
    def from_fields(
        cls, fields: Mapping[str, Any] | None, path: str, topic_uuid: str
    ) -> CleanerCheckpoint:
        """The checkpoint of a document, with the same exceptions."""
        if fields is None or fields.get("topic_uuid") != topic_uuid:
            return cls()
        try:
            rows = json_files.field(fields, "marks", list, path)
            return cls(
                tuple(_pass(row, path) for row in rows),
                json_files.field(fields, "tombstones", int, path),
                json_files.field(fields, "tombstones_below", int, path),
            )
        except DamagedMetadataError:
            return cls()

    def write(self, vfs: Vfs, path: str, topic_uuid: str) -> None:
        """Replace the checkpoint of a partition. The caller holds its maintenance lock."""
        json_files.replace(vfs, path, self.fields(topic_uuid))

    def fields(self, topic_uuid: str) -> dict[str, Any]:
        """The checkpoint as a document."""
        return {
            "format": _FORMAT,
            "topic_uuid": topic_uuid,
            "marks": [list(each) for each in self.passes],
            "tombstones": self.tombstones,
            "tombstones_below": self.tombstones_below,
        }


def _pass(row: object, path: str) -> CleanPass:
    if not isinstance(row, Sequence) or len(row) != 2 or {type(item) for item in row} != {int}:
        raise DamagedMetadataError(
            f"{path} has a mark {row!r}, expected an offset and a time.", path=path
        )
    return CleanPass(*row)


@dataclass(frozen=True, slots=True)
class LogToClean(Generic[Segment]):
    """The sealed segments of a partition, and how much of them is dirty."""

    segments: tuple[Segment, ...]
    dirty_bytes: int
    delete_horizon: int
    has_old_tombstones: bool

    @classmethod
    def of(
        cls,
        segments: Sequence[Segment],
        checkpoint: CleanerCheckpoint,
        config: StoreConfig,
        now_us: int,
    ) -> LogToClean[Segment]:
        horizon = checkpoint.delete_horizon(now_us, config.delete_retention_ms)
        first_dirty = checkpoint.first_dirty_offset
        return cls(
            tuple(segments),
            sum(segment.size for segment in segments if segment.end > first_dirty),
            horizon,
            bool(checkpoint.tombstones) and horizon > checkpoint.tombstones_below,
        )

    @property
    def total_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def dirty_ratio(self) -> float:
        """The part of the sealed segments that no pass has seen."""
        return self.dirty_bytes / max(1, self.total_bytes)

    def is_due(self, min_dirty_ratio: float) -> bool:
        dirty = self.dirty_bytes > 0 and self.dirty_ratio >= min_dirty_ratio
        return bool(self.segments) and (dirty or self.has_old_tombstones)

    def why_not_due(self, min_dirty_ratio: float) -> str:
        """Why a partition is not compacted now, for people."""
        if not self.segments:
            return NOTHING_SEALED
        if not self.dirty_bytes:
            return "nothing is new"
        return f"{self.dirty_ratio:.0%} is new, less than {min_dirty_ratio:.0%}"

    def bytes_to_read(self, start: int) -> int:
        """Bytes that a pass reads: the keys from ``start`` on, then every segment."""
        new = sum(segment.size for segment in self.segments if segment.end > start)
        return new + self.total_bytes
