"""Reading one partition: no locks, nothing after the high watermark, every frame checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError, DataLossError, StorageError
from ..format.columns import DecodedFrame
from ..format.file_names import MAX_OFFSET
from ..format.selection import Selection
from ..io.io_errors import typed_metadata_errors, typed_read_errors
from ..types import Int64s, OffsetRange, SegmentInfo, TimeBounds
from .batches import to_batch
from .listing import Listing

_ALWAYS = TimeBounds(-(1 << 63), (1 << 63) - 1)
_log = logging.getLogger("storage_core")


class OpenSegment(Protocol):
    """One segment opened for reading. Used by one thread, closed after use."""

    def reach(self, stop: int) -> int:
        """How far this opening reads, at least to ``stop``: small files may be opened together."""

    def frames(
        self, start: int, end: int, selection: Selection, *, scan: bool = False
    ) -> Iterator[DecodedFrame]:
        """The frames that overlap ``start`` to ``end``, as far as the segment goes.

        Those without a record that ``selection`` wants may be left out. With ``scan`` the caller
        wants all of them, so the first step reads many ahead.
        """

    def index_entries(self) -> tuple[Int64s, Int64s]:
        """Offsets and positions of the sparse index."""

    def first_at(self, timestamp: int, end: int) -> int | None:
        """First offset below ``end`` whose record is not older than ``timestamp``."""

    def end_of_older(self, timestamp: int, end: int) -> int | None:
        """Offset after the last record below ``end`` that is older than ``timestamp``."""

    def holds(self, offset: int) -> bool:
        """Whether a sealed segment ends after ``offset``, by its frames and not by file names."""

    def close(self) -> None: ...


class Segments(Protocol):
    """The segments of one partition, whatever their layout. Safe for several threads."""

    def listing(self) -> Listing:
        """The segments now; one stat when nothing changed."""

    def start(self) -> int:
        """First offset still in the log; 0 for an empty partition."""

    def part(self, offset: int) -> Listing:
        """A part of the listing: the segment that holds an offset, and as many as are at hand."""

    def parts(self, start: int, end: int, times: TimeBounds) -> Iterable[Listing]:
        """The listing in parts, in order, without those that cannot be wanted.

        Args:
            start: Segments that end up to this offset are not wanted.
            end: Nor those that begin here or later.
            times: Nor those without records from the first to the second timestamp.
        """

    def open(self, base: int, listing: Listing) -> OpenSegment:
        """Open one of them; the last may still grow."""

    def known_times(self) -> Mapping[tuple[int, int], TimeBounds]:
        """What is kept of the timestamps of many segments together, by base and following base."""

    def time_bounds(self, base: int, listing: Listing) -> TimeBounds:
        """Bounds of the timestamps of a sealed segment."""

    def may_match(self, base: int, end: int, listing: Listing, selection: Selection) -> bool:
        """Whether a record of a segment that ends at ``end`` can match the predicate.

        By what is kept of the segment as a whole: where that is missing or damaged, the answer is
        yes.
        """

    def end_of(self, base: int, listing: Listing) -> int:
        """Where the records of a sealed segment below the high watermark end.

        Raises:
            BrokenFrameError: the segment is damaged.
        """

    def sizes(self, listing: Listing) -> list[int | None]:
        """Bytes of each segment; None of one that is gone."""

    def explained(self, base: int, listing: Listing, error: BrokenFrameError) -> BrokenFrameError:
        """The error of a read that stopped in a segment, or a better one if a file is missing."""

    def raise_damage(self) -> None:
        """Raise if there are bytes after the end of the log that are damaged records."""


class PartitionReader:
    """Reads of one topic-partition. Safe for several threads."""

    def __init__(self, topic: str, partition: int, segments: Segments) -> None:
        self._topic = topic
        self._partition = partition
        self._segments = segments
        # By base and end: after a merge the same base has more records. With fewer, bounds stay
        # true. Only of segments below the high watermark: a writer may still replace the rest.
        self._bounds: dict[tuple[int, int], TimeBounds] = {}
        self._maxima: tuple[Listing | None, Int64s] = (None, np.empty(0, np.int64))
        self._times_of: Listing | None = None

    def listing(self) -> Listing:
        """The partition's segments now."""
        with typed_metadata_errors(self._topic):
            return self._segments.listing()

    def start_offset(self) -> int:
        """First offset still in the log; 0 for an empty partition."""
        with typed_metadata_errors(self._topic):
            return self._segments.start()

    def part(self, offset: int) -> Listing:
        """The segment that holds an offset, and as many of the listing as are at hand."""
        with typed_metadata_errors(self._topic):
            return self._segments.part(offset)

    def skipped(self) -> list[OffsetRange]:
        """The ranges of damaged records in the log that were given up."""
        found, start = self.part(MAX_OFFSET).skipped, self.start_offset()
        return [OffsetRange(first, end) for first, end in found if end > start]

    def _parts(self, end: int, times: TimeBounds = _ALWAYS, start: int = 0) -> Iterator[Listing]:
        with typed_metadata_errors(self._topic):
            yield from self._segments.parts(start, end, times)

    def segments(
        self,
        end: int,
        by_names: bool = False,
        wanted: OffsetRange | None = None,
    ) -> list[SegmentInfo]:
        """The segments that hold offsets below ``end``.

        With ``by_names`` each ends where the next begins, and no file is opened. Segments without
        ``wanted`` offsets may be left out.
        """
        found = list[SegmentInfo]()
        start, stop = (0, end) if wanted is None else (wanted.start, min(end, wanted.end))
        for part in list(self._parts(stop, _ALWAYS, start)):
            listing = part
            while True:
                sizes = self._segments.sizes(listing)
                if None not in sizes:
                    break
                again = self.part(listing.bases[0])
                if again == listing:
                    break
                listing = again
            found += self._infos(listing, sizes, end, by_names=by_names)
        return found

    def _infos(
        self, listing: Listing, sizes: Sequence[int | None], end: int, *, by_names: bool
    ) -> Iterator[SegmentInfo]:
        bases = listing.bases
        following = (*bases[1:], end)[: len(bases)]
        for path, size, base, after in zip(listing.paths(), sizes, bases, following, strict=True):
            if size is not None and path and base < end:
                sealed, stop = base != bases[-1], min(after, end)
                if not by_names and stop == after and sealed:
                    stop = self._end_of(base, stop, listing)
                yield SegmentInfo(base, stop, path, size, sealed)

    def _end_of(self, base: int, following: int, listing: Listing) -> int:
        """Where a sealed segment ends; of one that is damaged or gone, where the next begins."""
        try:
            return min(following, self._segments.end_of(base, listing))
        except (BrokenFrameError, FileNotFoundError):
            return following

    def read_slice(
        self, segment: SegmentInfo, start: int, end: int, selection: Selection
    ) -> Iterator[pa.RecordBatch]:
        """What is selected of ``start <= offset < end`` in one segment that was listed before.

        If it has been replaced since, the records are read from where they are now.

        Raises:
            DataLossError: the segment has been removed since.
        """
        listing, position = _listing_of(segment), start
        try:
            with self._opened(segment.base, listing) as opened:
                for frame in opened.frames(start, end, selection, scan=True):
                    batch = to_batch(frame, selection, start, end)
                    if batch is not None:
                        yield batch
                    position = max(position, frame.first_offset + frame.span)
        except FileNotFoundError:
            # An object may go in the middle of a read: what was returned is not read again.
            if position < end:
                self._require_merged(segment, position)
                yield from self.read(position, end, selection)

    def read_rest(self, lost: int, end: int, selection: Selection) -> Iterator[pa.RecordBatch]:
        """What is left of ``lost`` to ``end``: ``delete_records`` may have cut a segment in two."""
        start = self.start_offset()
        if lost < start < end:
            yield from self.read(start, end, selection)

    def index_entries(self, segment: SegmentInfo) -> tuple[Int64s, Int64s]:
        """Offsets and positions where a segment that was listed can be cut."""
        try:
            with self._opened(segment.base, _listing_of(segment)) as opened:
                return opened.index_entries()
        except FileNotFoundError:
            self._require_merged(segment, segment.base)
            return np.empty(0, np.int64), np.empty(0, np.int64)

    def read(
        self, start: int, end: int, selection: Selection, *, to_the_end: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What is selected of ``start <= offset < end``; the caller has checked the bounds.

        With ``to_the_end`` the caller wants all records: damage after ``end`` is then an error.
        """
        position, warned = start, set[tuple[int, int]]()
        while position < end:
            listing = self.part(position)
            base, stop = self._segment_of(position, end, listing)
            if listing.skipped:
                self._warn_of_skipped(listing, position, stop, warned)
            if selection.where is not None and not self._may_match(base, stop, listing, selection):
                selection.counts.segments += 1
                position = stop
                continue
            try:
                with self._opened(base, listing) as segment:
                    stop = min(end, segment.reach(stop))
                    # A reader that comes from the segment before will hardly stop at once.
                    scan = position > start
                    for frame in segment.frames(position, stop, selection, scan=scan):
                        batch = to_batch(frame, selection, position, stop)
                        if batch is not None:
                            yield batch
                            position = frame.first_offset + frame.span
                position = stop
            except FileNotFoundError:
                self._require_change(position, listing)
        if to_the_end:
            self.require_sound_end()

    def _warn_of_skipped(
        self, listing: Listing, start: int, end: int, warned: set[tuple[int, int]]
    ) -> None:
        for first, last in listing.skipped:
            if first < end and start < last and (first, last) not in warned:
                warned.add((first, last))
                _log.warning(
                    "%s-%d: records %d to %d were damaged and are skipped.",
                    self._topic,
                    self._partition,
                    first,
                    last - 1,
                )

    def require_sound_end(self) -> None:
        """Raise if damaged records follow the high watermark."""
        with typed_read_errors(self._topic, self._partition, self.part(MAX_OFFSET).directory):
            self._segments.raise_damage()

    def offset_for_timestamp(self, timestamp: int, end: int) -> int | None:
        """First offset below ``end`` whose record is not older than ``timestamp``."""
        newer = TimeBounds(timestamp, _ALWAYS.largest)
        return self._first_found(
            lambda: self._parts(end, newer), lambda part: self._search(part, timestamp, end)
        )

    def end_of_older(self, timestamp: int, end: int) -> int | None:
        """Offset after the last record below ``end`` that is older than ``timestamp``."""
        older = TimeBounds(_ALWAYS.smallest, timestamp - 1)
        return self._first_found(
            lambda: reversed(list(self._parts(end, older))),
            lambda part: self._search_back(part, timestamp, end),
        )

    def _first_found(
        self,
        parts: Callable[[], Iterable[Listing]],
        search: Callable[[Listing], int | None],
    ) -> int | None:
        """What a search finds in the first part that has it; again if a file is gone meanwhile."""
        while True:
            for listing in parts():
                try:
                    found = search(listing)
                except FileNotFoundError:
                    self._require_change(max(listing.bases[0], self.start_offset()), listing)
                    break
                if found is not None:
                    return found
            else:
                return None

    def time_bounds(self, segment: SegmentInfo) -> TimeBounds | None:
        """Bounds of the timestamps of a segment that was listed; None if they are not known."""
        if not segment.sealed:
            return None
        try:
            return self._time_bounds(segment.base, segment.end, _listing_of(segment))
        except FileNotFoundError:
            return None

    def may_match(self, segment: SegmentInfo, selection: Selection) -> bool:
        """Whether a record of a segment that was listed can match the predicate."""
        return self._may_match(segment.base, segment.end, _listing_of(segment), selection)

    def _may_match(self, base: int, end: int, listing: Listing, selection: Selection) -> bool:
        try:
            return self._segments.may_match(base, end, listing, selection)
        except (StorageError, FileNotFoundError):
            return True  # who reads the segment finds what is wrong with it

    def _take_known_times(self, listing: Listing, end: int) -> None:
        """Look once for what is kept of all segments of a listing, before each is looked at."""
        if self._times_of is not listing:
            with typed_read_errors(self._topic, self._partition, listing.directory):
                known = self._segments.known_times()
            below = {key: bounds for key, bounds in known.items() if key[1] <= end}
            self._bounds = below | self._bounds
            self._times_of = listing

    def _search_back(self, listing: Listing, timestamp: int, end: int) -> int | None:
        self._take_known_times(listing, end)
        for base in reversed(listing.bases):
            if base >= end:
                continue
            # The index tells which sealed segments have no older record; the others are walked.
            following, smallest = listing.following(base), timestamp - 1
            if following is not None and following <= end:
                smallest = self._time_bounds(base, following, listing).smallest
            if smallest >= timestamp:
                continue
            with self._opened(base, listing) as segment:
                found = segment.end_of_older(timestamp, end)
            if found is not None:
                return found
        return None

    def _search(self, listing: Listing, timestamp: int, end: int) -> int | None:
        newest = self._newest(listing, end)
        first = int(np.searchsorted(newest, timestamp))
        for base in listing.bases[first:]:
            following = listing.following(base)
            known = None if following is None else self._bounds.get((base, following))
            if known is not None and known.largest < timestamp:
                continue
            with self._opened(base, listing) as segment:
                found = segment.first_at(timestamp, end)
            if found is not None or base >= end:
                return found
        return None

    def _newest(self, listing: Listing, end: int) -> Int64s:
        """For each segment that ends below the high watermark the newest timestamp up to there.

        They rise, so they can be bisected.
        """
        known, newest = self._maxima
        final = max(0, listing.holding(end))
        if known is not listing or len(newest) != final:
            self._take_known_times(listing, end)
            each = [
                self._time_bounds(base, following, listing).largest
                for base, following in pairwise(listing.bases[: final + 1])
            ]
            newest = np.maximum.accumulate(np.array(each, dtype=np.int64))
            self._maxima = (listing, newest)
        return newest

    def _time_bounds(self, base: int, following: int, listing: Listing) -> TimeBounds:
        key = (base, following)
        if key not in self._bounds:
            with typed_read_errors(self._topic, self._partition, listing.path(base)):
                self._bounds[key] = self._segments.time_bounds(base, listing)
        return self._bounds[key]

    def _segment_of(self, offset: int, end: int, listing: Listing) -> tuple[int, int]:
        """Base of the segment that holds ``offset``, and where it or the read ends."""
        at = listing.holding(offset)
        if at < 0:
            raise self._lost(offset)
        last = at + 1 == len(listing.bases)
        return listing.bases[at], end if last else min(end, listing.bases[at + 1])

    @contextmanager
    def _opened(self, base: int, listing: Listing) -> Iterator[OpenSegment]:
        with typed_read_errors(self._topic, self._partition, listing.path(base)):
            segment = self._segments.open(base, listing)
            try:
                yield segment
            except BrokenFrameError as error:
                raise self._segments.explained(base, self.part(base), error) from error
            finally:
                segment.close()

    def _require_change(self, offset: int, listing: Listing) -> None:
        """A listed file is missing: fine if retention removed it since, else records are lost."""
        now = self.part(offset)
        if now == listing or now.holding(offset) < 0:
            raise self._lost(offset)

    def _require_merged(self, segment: SegmentInfo, offset: int) -> None:
        """A file is missing: fine if a merge has put its records into another one."""
        listing = self.part(offset)
        at = listing.holding(offset)
        base = listing.bases[at] if at >= 0 else None
        if base is None or listing.path(base) == segment.path or listing.is_last(base):
            raise self._lost(offset)
        with self._opened(base, listing) as holder:
            if not holder.holds(offset):
                raise self._lost(offset)

    def _lost(self, offset: int) -> DataLossError:
        start = self.start_offset()
        name = f"{self._topic}-{self._partition}"
        return DataLossError(
            f"{name}: records {offset} to {start - 1} are no longer in the log "
            f"(it now starts at {start}). Continue from {start}."
            if start > offset
            else f"{name}: the segment with offset {offset} is missing. Run check.",
            topic=self._topic,
            partition=self._partition,
            offset=offset,
        )


def _listing_of(segment: SegmentInfo) -> Listing:
    """A listing of one known segment, followed by another if it is sealed."""
    directory, _, name = segment.path.rpartition("/")
    if segment.sealed:
        return Listing(directory, (segment.base, MAX_OFFSET), names=(name, ""))
    return Listing(directory, (segment.base,), names=(name,))
