"""One segment opened for reading, and the caches that make opening it again cheap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ..config import StoreConfig
from ..errors import BrokenFrameError, SegmentStateError
from ..format.columns import DecodedFrame
from ..format.frame_scan import StoredFrame, read_frames, segment_frames, walk_frames
from ..format.numbers import numbers_of
from ..format.selection import Selection
from ..format.sparse_index import (
    FOOTER_BYTES,
    IndexBuilder,
    IndexKind,
    SparseIndex,
    TimeIndex,
    bounds_of,
    is_sealed,
    parse_open,
)
from ..io.byte_source import MappedSource, Source, WindowSource
from ..io.caching import LruCache
from ..lazy import LazyModule
from ..types import Int64s, OffsetPosition, TimeBounds
from ..vfs import FileStat, Vfs
from .batches import to_batch
from .index_files import has_sound_indexes, read_index, read_statistics, sealed_index
from .listing import ListedAtOnce, Listing, ListingCache, file_sizes, log_path

if TYPE_CHECKING:
    from ..format import segment_statistics, typed_frames
    from . import continuity, segment_times
else:
    continuity = LazyModule("storage_core.segments.continuity")
    segment_statistics = LazyModule("storage_core.format.segment_statistics")
    segment_times = LazyModule("storage_core.segments.segment_times")
    typed_frames = LazyModule("storage_core.format.typed_frames")

_TIMES = frozenset(("_timestamp", "timestamp"))

Index = TypeVar("Index", SparseIndex, TimeIndex)
# A path and the file it led to: another file of the same name is another key. The inode number is
# not enough: the system gives it to another file once this one is deleted.
_FileKey = tuple[str, FileStat]


class FrameReader(ABC):
    """A segment's bytes and indexes. Not thread-safe; each read opens its own."""

    def __init__(self, base: int, source: Source) -> None:
        self.base = base
        self._source = source

    @abstractmethod
    def entries(self) -> SparseIndex:
        """The sparse index as far as there is one: a hint, checked before it is used."""

    @abstractmethod
    def known_times(self) -> TimeIndex | None:
        """The time index, if the segment has one."""

    @property
    def size(self) -> int:
        return self._source.size

    def frames(
        self, start: int, end: int, selection: Selection, *, scan: bool = False
    ) -> Iterator[DecodedFrame]:
        """The frames that overlap ``start`` to ``end``; with ``scan`` the caller wants all."""
        return read_frames(
            self._source,
            self.base,
            self.locate(start),
            start=start,
            end=end,
            selection=selection,
            scan=scan,
        )

    def locate(self, offset: int) -> OffsetPosition:
        """Where to start in order to find ``offset``: at most one index interval before it."""
        if offset <= self.base:
            return OffsetPosition(self.base, 0)
        found = self.entries().floor(offset, self.base)
        # Also of a sealed segment: while it is replaced, its index may be that of the other one.
        if found == OffsetPosition(self.base, 0):
            return found
        try:
            next(self._walk(found), None)
        except BrokenFrameError:
            return OffsetPosition(self.base, 0)
        return found

    def reach(self, stop: int) -> int:
        return stop

    def index_entries(self) -> tuple[Int64s, Int64s]:
        """Offsets and positions of the sparse index."""
        index = self.entries()
        return index.offsets, index.positions

    def first_at(self, timestamp: int, end: int) -> int | None:
        """First offset below ``end`` whose record is not older than ``timestamp``."""
        at = OffsetPosition(self.base, 0)
        times = self.known_times() if self.base < end else None
        # After the end there may be half a frame (a writer's, or a torn tail) or nothing.
        first = self.base if times is None else times.floor(timestamp, self.base)
        if first >= end:
            return None
        if times is not None:
            at = self.locate(first)
        for frame in self._walk(at):
            if frame.header.max_timestamp >= timestamp:
                found = self._first_in_frame(frame, timestamp)
                return found if found < end else None
            if frame.end_offset >= end:
                return None
        return None

    def end_of_older(self, timestamp: int, end: int) -> int | None:
        """Offset after the last record below ``end`` that is older than ``timestamp``."""
        if self.base >= end:  # after the end there may be half a frame: see ``first_at``
            return None
        times, first, last = self.known_times(), self.base, None
        in_order = times is not None and times.in_order(self.base)
        if times is not None and in_order:
            first = times.floor(timestamp, self.base)  # all records before it are older
        if first >= end:
            return end
        for frame in self._walk(self.locate(first)):
            if frame.header.records and frame.header.min_timestamp < timestamp:
                last = frame
            elif in_order and frame.header.records:
                break
            if frame.end_offset >= end:
                break
        if last is None:
            return first if first > self.base else None
        stored, stamps = self._times_of(last)
        older = stored[(stamps < timestamp) & (stored < end)]
        return int(older[-1]) + 1 if len(older) else last.offset

    def holds(self, offset: int) -> bool:
        return any(offset < frame.end_offset for frame in self._walk(self.locate(offset)))

    def verify(self) -> Iterator[StoredFrame]:
        """Walk the whole segment and check every byte. If it may be truncated, do not map it."""
        return walk_frames(self._source, self.base, bodies=True)

    def _walk(self, at: OffsetPosition) -> Iterator[StoredFrame]:
        return walk_frames(self._source, self.base, at=at, bodies=False)

    def _first_in_frame(self, stored: StoredFrame, timestamp: int) -> int:
        """First record of a frame that reaches ``timestamp``; its header says there is one."""
        offsets, stamps = self._times_of(stored)
        reached = offsets[stamps >= timestamp]
        return int(reached[0]) if len(reached) else stored.end_offset

    def _times_of(self, stored: StoredFrame) -> tuple[Int64s, Int64s]:
        """Offsets and timestamps of a frame's records."""
        at, end = OffsetPosition(stored.offset, stored.position), stored.end_offset
        wanted = Selection(("offset", "timestamp"))
        frames = read_frames(
            self._source, self.base, at, start=at.offset, end=end, selection=wanted
        )
        frame = next(frames, None)
        batch = frame and to_batch(frame, wanted, at.offset, end)
        if batch is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return numbers_of(batch.column("offset")), numbers_of(batch.column("timestamp"))


class ReadCaches:
    """Maps and parsed indexes of sealed segments, shared by all readers of a store."""

    def __init__(self, vfs: Vfs, config: StoreConfig) -> None:
        self.listings = ListingCache(vfs)
        self.maps: LruCache[_FileKey, MappedSource] = LruCache(config.map_cache_segments)
        self.offsets: LruCache[_FileKey, SparseIndex] = LruCache(config.index_cache_segments)
        self.times: LruCache[_FileKey, TimeIndex] = LruCache(config.index_cache_segments)


class NativeSegments(ListedAtOnce):
    """The segments of one partition, for its reader. Safe for several threads.

    ``exists`` says whether the topic is still there. A topic that was deleted and created again has
    files of the same names, and its rows may have other types. A planned read of a records
    topic does not ask: its task asked when it began.
    """

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        config: StoreConfig,
        caches: ReadCaches,
        exists: Callable[[], bool],
        *,
        typed: bool,
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._config = config
        self._caches = caches
        self._exists = exists
        self._typed = typed

    def listing(self) -> Listing:
        """The segments now."""
        return self._caches.listings.get(self._directory)

    def open(self, base: int, listing: Listing) -> SegmentReader:
        """Open one of them; the last may still grow."""
        sealed, seen = not listing.is_last(base), None
        planned = listing.names is not None and not self._typed
        while True:
            try:
                found = self._open(base, sealed=sealed)
                if planned or self._exists():  # still, so what was opened is of this topic
                    return found
                found.close()
                raise FileNotFoundError(found.path)
            except SegmentStateError:
                # Empty: the append that sealed it has failed since, and may be tried again.
                now = self._vfs.stat(listing.path(base))
                if now is not None and now == seen:
                    raise
                sealed, seen = not self.listing().is_last(base), now

    def _open(self, base: int, *, sealed: bool) -> SegmentReader:
        return SegmentReader(
            self._vfs, self._directory, base, self._config, self._caches, sealed=sealed
        )

    def known_times(self) -> Mapping[tuple[int, int], TimeBounds]:
        """The bounds that are kept of many sealed segments together."""
        if self._config.syncs_never:
            return {}
        return segment_times.read_times(self._vfs, self._directory)

    def time_bounds(self, base: int, listing: Listing) -> TimeBounds:
        """Bounds of a sealed segment's timestamps, without opening its log if possible."""
        stat = self._vfs.stat(listing.path(base))
        if stat is None:
            raise FileNotFoundError(listing.path(base))
        parsed = sealed_index(self._vfs, self._directory, base, "time", stat.size)
        if parsed is not None:
            return bounds_of(TimeIndex(*parsed), base)
        segment = self.open(base, listing)
        try:
            return bounds_of(segment.time_index(), base)
        finally:
            segment.close()

    def may_match(self, base: int, end: int, listing: Listing, selection: Selection) -> bool:
        """Whether a record of a segment that ends at ``end`` can match the predicate."""
        where = selection.where
        if where is None or not self._exists():
            return True
        times, rows = None, end - base
        if not listing.is_last(base) and not _TIMES.isdisjoint(where.columns):
            times = self.time_bounds(base, listing)
        bounds = typed_frames.bounds_of_place(selection, base, end, times)
        projection = selection.projection
        # Also of the last segment, which may be sealed: if it grows, its statistics are stale.
        if projection is not None and not bounds.keys() >= set(where.columns):
            versions = read_statistics(self._vfs, self._directory, base)
            if versions is not None:
                rows = sum(version.rows for version in versions)
                bounds.update(segment_statistics.bounds_of(projection, versions))
        return where.may_match({name: bounds.get(name) for name in where.columns}, rows)

    def end_of(self, base: int, listing: Listing) -> int:
        """Where a sealed segment below the high watermark ends, by its last frame."""
        return continuity.end_of(self._vfs, listing.path(base), base, verify=False)

    def sizes(self, listing: Listing) -> list[int | None]:
        return file_sizes(self._vfs, listing)

    def explained(self, base: int, listing: Listing, error: BrokenFrameError) -> BrokenFrameError:
        return continuity.missing_records(self._vfs, listing, base, error)

    def raise_damage(self) -> None:
        """Never raises: no reader goes beyond the high watermark, and recovery checks the rest."""


class SegmentReader(FrameReader):
    """A segment's bytes and indexes. Sealed segments are mapped, the active one is read.

    A map may be touched below the high watermark only: an append that fails truncates the segments
    it had sealed, and touching a page that is gone kills the process. So the caller of ``verify``
    maps a segment only if all of it is below. Not thread-safe; each read opens its own.
    """

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        base: int,
        config: StoreConfig,
        caches: ReadCaches,
        *,
        sealed: bool,
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._interval = config.index_interval_bytes
        self._caches = caches
        self.path = log_path(directory, base)
        self._key: _FileKey | None = None
        source: Source
        if sealed:
            stat = vfs.stat(self.path)
            if stat is None:
                raise FileNotFoundError(self.path)
            self._key = (self.path, stat)
            source = caches.maps.get(self._key, lambda: MappedSource(vfs, self.path))
        else:
            fd = vfs.open(self.path, "read")
            source = WindowSource(vfs, fd, vfs.fstat(fd).size)
        super().__init__(base, source)

    def close(self) -> None:
        """Close the file of the active segment; maps stay in the cache."""
        if isinstance(self._source, WindowSource):
            self._source.close()

    def entries(self) -> SparseIndex:
        return self._open_index() if self._key is None else self.offset_index()

    def known_times(self) -> TimeIndex | None:
        return None if self._key is None else self.time_index()

    def largest_timestamp_in_log(self) -> int:
        """The same from the log's headers: an index may be wrong, and deletion must not be."""
        return self._build_indexes().time_index().largest

    def offset_index(self) -> SparseIndex:
        """Entries of a sealed segment: from its file when sound, else from the log."""
        return self._cached(self._caches.offsets, self._load_offsets)

    def time_index(self) -> TimeIndex:
        """Time entries of a sealed segment: from its file when sound, else from the log."""
        return self._cached(self._caches.times, self._load_times)

    def index_is_sound(self) -> bool:
        """Whether both index files of a sealed segment can be used as they are."""
        return has_sound_indexes(self._vfs, self._directory, self.base, self.size)

    def _cached(self, cache: LruCache[_FileKey, Index], load: Callable[[], Index]) -> Index:
        return load() if self._key is None else cache.get(self._key, load)

    def _load_offsets(self) -> SparseIndex:
        parsed = self._sealed_index("offset")
        if parsed is not None:
            return SparseIndex(*parsed)
        return self._build_indexes().offset_index()

    def _load_times(self) -> TimeIndex:
        parsed = self._sealed_index("time")
        if parsed is not None:
            return TimeIndex(*parsed)
        return self._build_indexes().time_index()

    def _build_indexes(self) -> IndexBuilder:
        """Both indexes from the headers. Full scans use pread, not mmap.

        If the file was truncated since it was opened, the frames before the cut are enough: they
        are all below the high watermark.
        """
        builder = IndexBuilder(self._interval)
        try:
            for frame in segment_frames(self._vfs, self.path, self.base, bodies=False):
                builder.add(frame.offset, frame.position, frame.header)
        except BrokenFrameError:
            if self._key is None or self._vfs.stat(self.path) == self._key[1]:
                raise
        return builder

    def _sealed_index(self, kind: IndexKind) -> tuple[Int64s, Int64s] | None:
        return sealed_index(self._vfs, self._directory, self.base, kind, self.size)

    def _open_index(self) -> SparseIndex:
        """Entries of the active segment, whose index may have just been sealed."""
        data = read_index(self._vfs, self._directory, self.base, "offset") or b""
        if is_sealed("offset", data):
            data = data[:-FOOTER_BYTES]
        return parse_open(data, self.size)
