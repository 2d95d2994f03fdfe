"""The segments of one Kafka partition: files, indexes, high watermark, last stable offset."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial

from ..brokers.codecs.rows import Ending
from ..errors import BrokenFrameError, DamagedMetadataError, DataLossError
from ..format.file_names import MAX_OFFSET
from ..format.selection import Selection
from ..format.sparse_index import NO_INDEX, SparseIndex
from ..io.byte_source import WindowSource
from ..io.caching import LruCache
from ..io.durable import opened, read_file
from ..io.io_errors import typed_read_errors
from ..layouts.broker_names import base_of
from ..segments.listing import ListedAtOnce, Listing, ListingCache
from ..segments.partition_reader import PartitionReader
from ..types import IsolationLevel, TimeBounds
from ..vfs import FileStat, Vfs
from .checkpoints import HIGH_WATERMARKS, Checkpoints, PartitionFiles
from .codecs.batches import NO_BATCHES
from .codecs.indexes import TimeEntries, parse_offset_index, parse_snapshot, parse_time_index
from .segment_files import SegmentFiles, is_remote
from .segment_reader import Chunk, Edges, KafkaSegment, broken
from .transactions import OpenTransactions, Outcomes

_log = logging.getLogger("storage_core")
_QUORUM = "__cluster_metadata"
"""The log of the controllers, whose high watermark is in no file."""
_MAX_INDEX_BYTES = 1 << 30
_TRIES = 5
_CLEANER_S, _CLEANER_LOOKS = 0.2, 5
_INDEX_PIECE, _MOST_ENTRY_BYTES = 96 << 10, 12
_FileKey = tuple[str, FileStat]
_NOTHING = Chunk(memoryview(b""), 0, NO_BATCHES, 0, 0, Ending.WHOLE, None)


class KafkaReader(PartitionReader):
    """Reads of one partition; a time is not looked for in silence where damage ends the search."""

    def offset_for_timestamp(self, timestamp: int, end: int) -> int | None:
        found = super().offset_for_timestamp(timestamp, end)
        if found is None:
            self.require_sound_end()
        return found

    def end_of_older(self, timestamp: int, end: int) -> int | None:
        found = super().end_of_older(timestamp, end)
        self.require_sound_end()
        return found


class KafkaCaches:
    """Listings and indexes shared by the partitions of one directory."""

    def __init__(self, vfs: Vfs, indexes: int) -> None:
        self.listings = ListingCache(vfs)
        self.indexes: LruCache[_FileKey, SparseIndex] = LruCache(indexes)


class KafkaSegments(ListedAtOnce):
    """Reading side of one partition. Safe for several threads."""

    def __init__(
        self,
        of: PartitionFiles,
        caches: KafkaCaches,
        checkpoints: Checkpoints,
        level: IsolationLevel,
    ) -> None:
        self._of = of
        self._vfs = of.vfs
        self._caches = caches
        self._checkpoints = checkpoints
        self._files = SegmentFiles(of, caches.listings, checkpoints)
        self._level = level
        self._lock = threading.Lock()
        self._end: tuple[str, FileStat, Chunk] | None = None
        self._open: OpenTransactions | None = None
        self._warned = False
        self._looks = _CLEANER_LOOKS
        self._damage: tuple[str, BrokenFrameError | DataLossError] | None = None

    def listing(self) -> Listing:
        """The segments now, from the log start offset on."""
        return self._files.from_start()

    def open(self, base: int, listing: Listing) -> KafkaSegment:
        """Open one of them; the last may still grow."""
        path = listing.path(base)
        if is_remote(path):
            raise self._files.not_here(base)
        stat = self._vfs.stat(path)
        if stat is None:
            raise FileNotFoundError(path)
        edges, key = self._edges(path, base), (path, stat)
        # Never a map: a leader change may truncate the file, and to touch a mapped page that is
        # gone kills the process.
        fd = self._vfs.open(path, "read")
        source = WindowSource(self._vfs, fd, self._vfs.fstat(fd).size)
        return self._segment(path, source, edges, key)

    def _segment(
        self, path: str, source: WindowSource, edges: Edges, key: _FileKey
    ) -> KafkaSegment:
        outcomes = Outcomes(self.chunks_from) if self._level == "read_committed" else None
        return KafkaSegment(
            source,
            edges,
            index=self._caches.indexes.get(key, partial(self._index, path, source.size)),
            times=partial(self._times, path),
            is_delivered=None if outcomes is None else outcomes.is_delivered,
            missing=partial(self._require_compacted, path),
        )

    def _edges(self, path: str, first: int) -> Edges:
        base = base_of(path)
        following = self._files.all().following(base)
        limit = MAX_OFFSET if following is None else following
        end = 0
        if self._level != "log_end":
            end = self._checkpoints.high_watermark(self._of) or 0
            if end == self._checkpoints.log_start(self._of):
                end = 0  # records were deleted up to there, maybe in the middle of a batch
        return Edges(base, first, limit, end)

    def _index(self, path: str, size: int) -> SparseIndex:
        data = self._entries(beside(path, ".index"))
        return NO_INDEX if not data else parse_offset_index(data, base_of(path), size)

    def _times(self, path: str) -> TimeEntries:
        return parse_time_index(self._entries(beside(path, ".timeindex")), base_of(path))

    def _entries(self, path: str) -> bytes:
        """An index up to the zeros with which the broker fills that of an active segment: 10 MB."""
        pieces: list[bytes] = []
        try:
            with opened(self._vfs, path, "read") as fd:
                while sum(map(len, pieces)) < _MAX_INDEX_BYTES:
                    pieces.append(self._vfs.pread(fd, _INDEX_PIECE, _INDEX_PIECE * len(pieces)))
                    if not any(pieces[-1][-_MOST_ENTRY_BYTES:]):
                        break
        except FileNotFoundError:
            return b""
        return b"".join(pieces)

    def chunks_from(self, offset: int) -> Iterator[Chunk]:
        """Chunks of all segments from about an offset to the end of the log.

        Raises:
            BrokenFrameError: a batch below the high watermark is not sound.
        """
        listing = self.listing()
        for base in listing.bases[max(0, listing.holding(offset)) :]:
            if is_remote(listing.path(base)):
                continue
            segment = self.open(base, listing)
            try:
                for chunk in segment.chunks_from(offset):
                    yield chunk
                    if chunk.problem is None:
                        continue
                    if chunk.due >= segment.edges.high_watermark and listing.is_last(base):
                        return
                    raise broken(chunk)
                # A marker that was cut off must not be taken for one that never was.
                segment.require_end(chunk)
            finally:
                segment.close()

    def high_watermark(self) -> int:
        """The end for readers at this isolation."""
        for _ in range(_TRIES - 1):
            try:
                return self._end_for_readers()
            except FileNotFoundError:
                continue  # retention or compaction has removed it since it was listed
        return self._end_for_readers()

    def _end_for_readers(self) -> int:
        if self._level == "log_end":
            return self.log_end()
        found = self._checkpoints.high_watermark(self._of)
        if found is None:
            self._warn_unknown()
            return 0
        if self._level == "read_uncommitted":
            return found
        with self._lock:
            return self._stable_end(found)

    def _warn_unknown(self) -> None:
        if self._warned or not any(self.sizes(self.listing())):
            return
        if self._of.topic != _QUORUM and self._checkpoints.is_of_stopped_broker():
            raise DamagedMetadataError(
                f"{HIGH_WATERMARKS} does not name {self._of.name}, which has records, and the "
                "broker was stopped in order: it names all partitions then. Copy the file of the "
                "same disk and moment, or read to the last whole batch with isolation=log_end.",
                topic=self._of.topic,
                partition=self._of.partition,
                path=HIGH_WATERMARKS,
            )
        self._warned = True
        _log.warning(
            "%s: the broker has not yet written a high watermark for it, so none of its records "
            "is read. It does so every few seconds. With isolation=log_end they are read.",
            self._of.name,
        )

    def log_end(self) -> int:
        """Where the sound batches end, replicated or not."""
        return self._last_chunk().due

    def _last_chunk(self) -> Chunk:
        listing = self.listing()
        if not listing.bases:
            return _NOTHING
        base = listing.bases[-1]
        path = listing.path(base)
        stat = self._vfs.stat(path)
        known = self._end
        if known is not None and known[:2] == (path, stat):
            return known[2]
        segment = self.open(base, listing)
        try:
            chunk = segment.walk_to_end()._replace(data=memoryview(b""))
        finally:
            segment.close()
        if stat is not None:
            self._end = (path, stat, chunk)
        return chunk

    def _stable_end(self, high_watermark: int) -> int:
        """The last stable offset; what is known of transactions is kept for the next call."""
        known = self._open
        if known is None or known.end > high_watermark:
            known = self._from_snapshot(high_watermark)
        damage: tuple[str, BrokenFrameError | DataLossError] | None = None
        start: int | None = known.end
        while start is not None and start < high_watermark:
            try:
                for chunk in self.chunks_from(start):
                    known = known.after(chunk, high_watermark)
                    if chunk.due >= high_watermark:
                        break
                break
            except (BrokenFrameError, DataLossError) as error:
                # A read stops there. What it starts after the damage may go on.
                listing, offset = self.listing(), max(start, error.offset or 0)
                damage = (listing.path(listing.bases[max(0, listing.holding(offset))]), error)
                start = listing.following(offset)
        if damage is None and known.end < high_watermark:
            damage, start = self._hole_at_end(known.end, high_watermark), None
        self._open = known if damage is None else None
        # A file that was cut has no damage to find: the read will not get to the end.
        end = known.end if damage is not None and start is None else high_watermark
        stable = min(end, known.lowest, high_watermark)
        self._damage = damage if stable < high_watermark else None
        return stable

    def _hole_at_end(
        self, start: int, end: int
    ) -> tuple[str, BrokenFrameError | DataLossError] | None:
        """What is wrong if no batch has the last offsets below the high watermark."""
        listing = self.listing()
        if not listing.bases or start < listing.bases[0]:
            return None
        base = listing.bases[listing.holding(start)]
        path = listing.path(base)
        if is_remote(path):
            return path, self._files.not_here(base)
        segment = self.open(base, listing)
        try:
            self._require_compacted(path, segment, start, end)
        except (BrokenFrameError, DataLossError) as error:
            return path, error
        finally:
            segment.close()
        return None

    def _from_snapshot(self, high_watermark: int) -> OpenTransactions:
        """The open transactions at the last snapshot of the producers below an offset."""
        directory = self._of.name
        for name in sorted(self._vfs.listdir(directory), reverse=True):
            stem, _, kind = name.partition(".")
            if kind != "snapshot" or not stem.isdigit() or int(stem) > high_watermark:
                continue
            data = read_file(self._vfs, f"{directory}/{name}", _MAX_INDEX_BYTES)
            found = None if data is None else parse_snapshot(data)
            if found is not None:
                return OpenTransactions(int(stem), found)
        return OpenTransactions(0, {})

    def time_bounds(self, base: int, listing: Listing) -> TimeBounds:
        """The latest time by the broker's index, checked; the earliest is not known."""
        if is_remote(listing.path(base)):
            return TimeBounds(-MAX_OFFSET, MAX_OFFSET)
        segment = self.open(base, listing)
        try:
            return TimeBounds(-MAX_OFFSET, segment.largest_time())
        finally:
            segment.close()

    def may_match(
        self,
        base: int,  # noqa: ARG002
        end: int,  # noqa: ARG002
        listing: Listing,  # noqa: ARG002
        selection: Selection,  # noqa: ARG002
    ) -> bool:
        """Yes: the broker keeps no bounds of keys or values."""
        return True

    def end_of(self, base: int, listing: Listing) -> int:
        """Where the records of a sealed segment end; where the next begins if it was compacted."""
        following = listing.following(base)
        if following is None or is_remote(listing.path(base)):
            return MAX_OFFSET
        segment = self.open(base, listing)
        try:
            end = segment.walk_to_end().due
            return following if end < following and self.is_compacted(segment, end) else end
        finally:
            segment.close()

    def sizes(self, listing: Listing) -> list[int | None]:
        return self._files.sizes(listing)

    def explained(
        self,
        base: int,  # noqa: ARG002
        listing: Listing,  # noqa: ARG002
        error: BrokenFrameError,
    ) -> BrokenFrameError:
        return error

    def raise_damage(self) -> None:
        """Raise if the end for readers is where damage begins."""
        if self._level == "log_end":
            self._raise_end_damage()
        elif self._level == "read_committed":
            self.high_watermark()
            if self._damage is not None:
                path, error = self._damage
                with typed_read_errors(self._of.topic, self._of.partition, path):
                    raise error

    def _raise_end_damage(self) -> None:
        """A batch that is cut off is what a crash leaves; anything else is damage."""
        chunk = self._last_chunk()
        if chunk.ending is Ending.DAMAGED:
            path = self.listing().path(self.listing().bases[-1])
            with typed_read_errors(self._of.topic, self._of.partition, path):
                raise broken(chunk)

    def is_compacted(self, segment: KafkaSegment, offset: int) -> bool:
        """Whether the broker's log cleaner may have removed an offset of a sealed segment."""
        cleaned = self._checkpoints.cleaned_upto(self._of)
        if offset < cleaned or segment.has_holes() or self._is_cleaning_beyond(cleaned):
            return True
        return segment.is_empty and self._is_emptied(segment.edges.base, offset)

    def _is_emptied(self, base: int, offset: int) -> bool:
        """Whether the cleaner has just emptied a segment: it says so when it has done all of them.

        Until then the old file may be there, under the name of a deleted one.
        """
        old = f"{self._of.name}/{base:020d}.log.deleted"
        while True:
            known = self._vfs.stat(old) is not None
            if known or offset < self._checkpoints.cleaned_upto(self._of):
                return True
            if self._looks <= 0:
                return False
            self._looks -= 1
            self._vfs.sleep(_CLEANER_S)

    def _is_cleaning_beyond(self, cleaned: int) -> bool:
        """Whether the cleaner is at work: it says how far it came when it has done all segments."""
        listing = self.listing()
        for base in listing.bases[:-1] if cleaned else ():
            if base < cleaned or is_remote(listing.path(base)):
                continue
            try:
                segment = self.open(base, listing)
            except FileNotFoundError:
                continue  # retention has removed it
            try:
                if segment.has_holes():
                    return True
            finally:
                segment.close()
        return False

    def _require_compacted(self, path: str, segment: KafkaSegment, start: int, end: int) -> None:
        """Raise unless compaction may have removed offsets that no batch has."""
        is_active = segment.edges.limit == MAX_OFFSET  # which the cleaner leaves alone
        if not is_active and self.is_compacted(segment, start):
            return
        if is_active:
            raise BrokenFrameError(
                f"no batch has the offsets {start} to {end - 1}, which are below the high "
                "watermark: the file was cut, or it and the checkpoint files are not of one moment",
                offset=start,
            )
        raise DataLossError(
            f"{self._of.name}: offsets {start} to {end - 1} are missing. {path} ends at offset "
            f"{start}, and nothing tells that the topic is compacted. Restore the file and those "
            "after it from a copy, or continue with failOnDataLoss=false.",
            topic=self._of.topic,
            partition=self._of.partition,
            path=path,
            offset=start,
        )


def beside(path: str, kind: str) -> str:
    """The index of a log, which has the same ending if the log is not in its place yet."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name.replace('.log', kind)}"
