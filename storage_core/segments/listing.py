"""The segments of a partition by their file names, and a cache of that listing."""

from __future__ import annotations

import bisect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..format.file_names import (
    BROKEN,
    LOG,
    REWRITE,
    parse_range_marker,
    parse_segment_files,
    parse_skipped,
    segment_file,
)
from ..io.caching import may_cache_listing
from ..types import TimeBounds
from ..vfs import Vfs


@dataclass(frozen=True, slots=True)
class Listing:
    """Segments of a partition; ``bases`` leaves out those with a deletion marker.

    A marker covers its own segment and all before it: retention removes from the start, and a power
    cut may keep a later marker and lose an earlier one. A range marker covers the segments of its
    range: a merge has put their records into the segment before them. ``merged`` are the bounds of
    range markers, ``covered`` the bases of what is left of their segments. ``names`` are the file
    names of the logs, where they do not follow from the bases; without a directory, their paths.
    ``skipped`` are ranges of offsets that were damaged and that a user gave up.
    """

    directory: str
    bases: tuple[int, ...] = ()
    markers: tuple[int, ...] = ()
    indexes: frozenset[int] = frozenset()
    time_indexes: frozenset[int] = frozenset()
    unrecognised: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    merged: tuple[tuple[int, int], ...] = ()
    covered: tuple[int, ...] = ()
    skipped: tuple[tuple[int, int], ...] = ()

    def path(self, base: int) -> str:
        """Path of a segment's log."""
        if self.names is None:
            return log_path(self.directory, base)
        return self._path(self.names[self.holding(base)])

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}" if self.directory else name

    def paths(self) -> list[str]:
        """Paths of the logs of all segments."""
        if self.names is None:
            return [log_path(self.directory, base) for base in self.bases]
        return [self._path(name) for name in self.names]

    def holding(self, offset: int) -> int:
        """Index in ``bases`` of the segment that contains ``offset``; -1 if it is before all."""
        return bisect.bisect_right(self.bases, offset) - 1

    def is_last(self, base: int) -> bool:
        return not self.bases or self.bases[-1] == base

    def following(self, base: int) -> int | None:
        """Base of the segment after this one, if there is one."""
        at = self.holding(base) + 1
        return self.bases[at] if at < len(self.bases) else None


class ListedAtOnce(ABC):
    """Segments whose listing is read as a whole: each part of it is all of it."""

    @abstractmethod
    def listing(self) -> Listing:
        """The segments now."""

    def start(self) -> int:
        """First offset still in the log; 0 for an empty partition."""
        bases = self.listing().bases
        return bases[0] if bases else 0

    def part(self, offset: int) -> Listing:  # noqa: ARG002
        return self.listing()

    def parts(self, start: int, end: int, times: TimeBounds) -> tuple[Listing]:  # noqa: ARG002
        return (self.listing(),)

    def known_times(self) -> Mapping[tuple[int, int], TimeBounds]:
        """None: only native stores keep the bounds of many segments together."""
        return {}


def list_segments(vfs: Vfs, directory: str) -> Listing:
    """Read the directory. A missing one has no segments."""
    try:
        names = vfs.listdir(directory)
    except FileNotFoundError:
        return Listing(directory)
    logs, indexes, time_indexes, statistics, markers, unrecognised = parse_segment_files(names)
    last = max(markers, default=-1)
    merged = tuple(sorted(filter(None, map(parse_range_marker, unrecognised))))
    covered = (
        [
            base
            for base in {*logs, *indexes, *time_indexes, *statistics}
            if any(first <= base < end for first, end in merged)
        ]
        if merged
        else []
    )
    skipped = tuple(sorted(filter(None, map(parse_skipped, unrecognised))))
    return Listing(
        directory,
        bases=tuple(sorted({base for base in logs if base > last}.difference(covered))),
        markers=tuple(sorted({*markers, *(base for base in logs if base <= last)})),
        indexes=frozenset(indexes),
        time_indexes=frozenset(time_indexes),
        unrecognised=tuple(
            sorted(
                name
                for name in unrecognised
                if not name.endswith((BROKEN, REWRITE, ".tmp"))
                and not parse_range_marker(name)
                and not parse_skipped(name)
            )
        ),
        merged=merged,
        covered=tuple(sorted(covered)),
        skipped=skipped,
    )


class ListingCache:
    """Keeps listings while the directory's modification time is the same. Thread-safe."""

    def __init__(self, vfs: Vfs) -> None:
        self._vfs = vfs
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, tuple[int, int], Listing]] = {}

    def get(self, directory: str) -> Listing:
        """The current listing of a native directory: one stat when nothing changed."""
        return self.remember(directory, directory, lambda: list_segments(self._vfs, directory))

    def remember(self, key: str, directory: str, build: Callable[[], Listing]) -> Listing:
        """The listing cached as ``key``, built again when ``directory`` has changed."""
        found = self._vfs.stat(directory)
        if found is None:
            return Listing(directory)
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[:2] == (found.modified_ns, found.identity):
            return known[2]
        listing = build()
        if may_cache_listing(self._vfs, found):
            with self._lock:
                self._known[key] = (found.modified_ns, found.identity, listing)
        return listing


def file_sizes(vfs: Vfs, listing: Listing) -> list[int | None]:
    """The size of each segment's log; None of one that is gone."""
    sizes = vfs.sizes(listing.directory, LOG)
    names = listing.names or [segment_file(base, LOG) for base in listing.bases]
    return [sizes.get(name) for name in names]


def log_path(directory: str, base: int) -> str:
    """Path of a segment's log."""
    return f"{directory}/{segment_file(base, LOG)}"
