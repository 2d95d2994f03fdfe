"""The segments of one partition as maintenance reads them, wherever they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from ..format.frame_scan import StoredFrame
from ..format.selection import Schemas


class HasSize(Protocol):
    """A segment of some bytes."""

    @property
    def size(self) -> int: ...


class HasOffsets(HasSize, Protocol):
    """A segment that covers the offsets from ``base`` up to ``end``."""

    @property
    def base(self) -> int: ...
    @property
    def end(self) -> int: ...


Segment = TypeVar("Segment", bound=HasOffsets)


class SegmentFiles(Protocol[Segment]):
    """The sealed segments of one partition. ``schemas`` are those of a typed topic."""

    topic: str
    partition: int

    @property
    def directory(self) -> str:
        """Where the segments are, for messages."""

    @property
    def schemas(self) -> Schemas | None: ...
    def segments(self) -> list[Segment]: ...
    def frames(self, segment: Segment, *, bodies: bool = True) -> Iterator[StoredFrame]: ...
