"""The sealed segments of one partition, to be read from the first byte to the last."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ..format.file_names import segments_directory
from ..format.frame_scan import StoredFrame, segment_frames
from ..format.selection import Schemas
from ..io.io_errors import typed_read_errors
from ..vfs import FileStat, Vfs
from .listing import Listing, list_segments, log_path


class Sealed(NamedTuple):
    """A sealed segment as it was listed."""

    base: int
    end: int
    path: str
    stat: FileStat

    @property
    def size(self) -> int:
        return self.stat.size


def sealed_segments(vfs: Vfs, listing: Listing, upto: int | None) -> list[Sealed]:
    """All segments of a listing but the last; with ``upto`` only those that end there or before."""
    found = []
    for base, end in pairwise(listing.bases):
        stat = vfs.stat(listing.path(base))
        if stat is not None and (upto is None or end <= upto):
            found.append(Sealed(base, end, listing.path(base), stat))
    return found


class SealedLog:
    """All segments of a partition but the last; no writer changes them. Read-only.

    ``schemas`` are those of a typed topic.
    """

    def __init__(
        self, vfs: Vfs, topic: str, partition: int, schemas: Schemas | None = None
    ) -> None:
        self.vfs = vfs
        self.schemas = schemas
        self.topic = topic
        self.partition = partition
        self.directory = segments_directory(topic, partition)

    def start_offset(self) -> int:
        """First offset of the log; 0 if it is empty."""
        bases = list_segments(self.vfs, self.directory).bases
        return bases[0] if bases else 0

    def last_base(self) -> int:
        """Base of the active segment; 0 if there is none."""
        bases = list_segments(self.vfs, self.directory).bases
        return bases[-1] if bases else 0

    def segments(self, upto: int | None = None) -> list[Sealed]:
        """The sealed segments now, in order; only those that end at ``upto`` or before.

        An append that fails may still remove what is after the high watermark.
        """
        return sealed_segments(self.vfs, list_segments(self.vfs, self.directory), upto)

    def active(self, end: int) -> list[Sealed]:
        """The active segment, as it would be if sealed at ``end``; none if empty."""
        base = self.last_base()
        path = log_path(self.directory, base)
        stat = self.vfs.stat(path)
        return [] if stat is None or end <= base else [Sealed(base, end, path, stat)]

    def frames(self, segment: Sealed, *, bodies: bool = True) -> Iterator[StoredFrame]:
        """Its frames, every byte checked; without ``bodies`` only the headers.

        Raises:
            DamagedLogError: the segment is damaged.
            FileNotFoundError: the segment has been removed.
        """
        with typed_read_errors(self.topic, self.partition, segment.path):
            yield from segment_frames(self.vfs, segment.path, segment.base, bodies=bodies)
