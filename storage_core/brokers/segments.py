"""The segments of one partition in a broker's directory: bases, indexes, the end of the log."""

from __future__ import annotations

import logging
import threading
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from ..errors import BrokenFrameError, DamagedLogError
from ..format.file_names import MAX_OFFSET
from ..format.selection import Selection
from ..format.sparse_index import NO_INDEX, SparseIndex
from ..io.byte_source import MappedSource, Source, WindowSource
from ..io.caching import LruCache
from ..io.durable import read_file
from ..io.io_errors import typed_read_errors
from ..layouts.broker_names import SegmentName
from ..segments.continuity import missing_records
from ..segments.listing import ListedAtOnce, Listing, ListingCache, file_sizes
from ..types import Int64s, IsolationLevel, TimeBounds
from ..vfs import FileStat, Vfs
from .codecs.rows import Ending
from .isolation import PartitionIsolation
from .layout import RowPartition
from .segment_reader import (
    JoinedSource,
    RowSegment,
    SealedFile,
    WalkedEnd,
    is_zero_tail,
    joined_index,
)
from .summaries import RECORDS_PER_ENTRY, Summaries, Summary
from .transactions import Isolation

_log = logging.getLogger("storage_core")
LAST_BYTES = 256
_MAX_INDEX_BYTES = 1 << 30
_JOINED_BYTES = 4 << 20
COMPACTED = b"cursus-compaction-v1\n"
_FileKey = tuple[str, FileStat]


class Added(NamedTuple):
    """What our writer appended to a file: from where, and where each record's frame begins."""

    position: int
    offset: int
    starts: Int64s
    data: memoryview


class RowEnd(NamedTuple):
    """The end of the active segment: where whole records end, and the damage after them if any.

    A file system uses names and inodes of deleted files again. So a file is the known one only if
    the bytes before the end are still those in ``last``; ``life`` is another number for every file.
    """

    path: str
    base: int
    stat: FileStat
    position: int
    offset: int
    torn: bool
    compacted: bool
    damage: BrokenFrameError | None
    entries: SparseIndex
    last: bytes
    life: int

    @property
    def size(self) -> int:
        return self.stat.size

    @property
    def is_whole(self) -> bool:
        """Whether nothing follows the last whole record."""
        return self.position == self.size and not self.torn and self.damage is None

    def summary(self) -> Summary | None:
        """The summary of this file, if all that it needs is known."""
        records, entries = self.offset - self.base, self.entries
        expected = self.base + RECORDS_PER_ENTRY * np.arange(-(-records // RECORDS_PER_ENTRY))
        if not self.is_whole or not np.array_equal(entries.offsets, expected):
            return None
        modified = self.stat.modified_ns
        return Summary(
            self.size, modified, records, self.size, Ending.WHOLE, None, entries.positions
        )

    def after(self, stat: FileStat, added: Added) -> RowEnd:
        """The end of the same file when ``added`` follows."""
        rows = np.arange(added.offset - self.base, added.offset - self.base + len(added.starts))
        due = np.flatnonzero(rows % RECORDS_PER_ENTRY == 0)
        entries = SparseIndex(added.offset + due, added.position + added.starts[due])
        return self._replace(
            stat=stat,
            position=stat.size,
            offset=added.offset + len(rows),
            torn=False,
            entries=_extended(self.entries, entries),
            last=(self.last + bytes(added.data[-LAST_BYTES:]))[-LAST_BYTES:],
        )

    def is_end_of(self, path: str, base: int, stat: FileStat) -> bool:
        """Whether this is the end of a file as it is now."""
        return (self.path, self.base, self.stat) == (path, base, stat)

    def may_continue(self, path: str, base: int, source: Source) -> bool:
        """Whether that file is this one with more after it."""
        if (self.path, self.base) != (path, base) or self.damage is not None:
            return False
        if source.size < self.size:
            return False
        before = self.position - len(self.last)
        return self.last == bytes(source.read(before, len(self.last)))


class RowCaches:
    """Maps and indexes shared by the partitions of one directory."""

    def __init__(self, vfs: Vfs, maps: int, indexes: int) -> None:
        self.listings = ListingCache(vfs)
        self.maps: LruCache[_FileKey, MappedSource] = LruCache(maps)
        self.indexes: LruCache[_FileKey, SparseIndex] = LruCache(indexes)


class RowSegments(ListedAtOnce):
    """Reading side of one partition. Safe for several threads."""

    def __init__(self, of: RowPartition, caches: RowCaches, level: IsolationLevel) -> None:
        self._of = of
        self._vfs = of.vfs
        self._layout = of.layout
        self._caches = caches
        self._summaries = Summaries(of)
        self._isolation = PartitionIsolation(of, level) if of.layout.isolated else None
        self._lock = threading.Lock()
        self._end: RowEnd | None = None
        self._lives = count()

    def listing(self) -> Listing:
        """The segments now; one stat when no file came or went."""
        directory = self._of.directory()
        return self._caches.listings.remember(
            self._of.name, directory, lambda: self._list(directory)
        )

    def _list(self, directory: str) -> Listing:
        found = self._of.files()
        if not self._layout.ordinal:
            by_base = {segment.number: segment.name for segment in found}
            if len(by_base) < len(found):
                raise self._duplicate_base(found)
            return Listing(directory, tuple(by_base), names=tuple(by_base.values()))
        names = [segment.name for segment in _without_gap(found)]
        sealed = self._summaries.sealed(directory, names[:-1])
        bases, kept, base = [], [], 0
        for name in names:
            summary = sealed.get(name)
            if summary is None or summary.records or summary.ending is not Ending.WHOLE:
                bases.append(base)
                kept.append(name)
            if summary is None or summary.ending is not Ending.WHOLE:
                break
            base += summary.records
        return Listing(directory, tuple(bases), names=tuple(kept))

    def open(self, base: int, listing: Listing) -> RowSegment:
        """Open one of them, a small one with those after it; the last one may still grow."""
        together = self._small_files(base, listing)
        if len(together) > 1:
            return self._open_joined(together, listing)
        path = listing.path(base)
        stat = self._vfs.stat(path)
        if stat is None:
            raise FileNotFoundError(path)
        key = (path, stat)
        source: Source
        if listing.is_last(base) or not stat.size:
            fd = self._vfs.open(path, "read")
            source = WindowSource(self._vfs, fd, self._vfs.fstat(fd).size)
            index = self._active_index(path, stat.size)
        else:
            source = self._caches.maps.get(key, lambda: MappedSource(self._vfs, path))
            if source.size != stat.size:  # compacted meanwhile
                return self.open(base, listing)
            index = self._caches.indexes.get(key, lambda: self._sealed_index(path, base, stat.size))
        return RowSegment(
            self._of,
            source,
            base=base,
            next_base=listing.following(base),
            holes=self._has_holes(path, stat.size),
            index=index,
            isolation=self._decide,
        )

    def _small_files(self, base: int, listing: Listing) -> list[SealedFile]:
        """Sealed files from this one on that are worth opening together."""
        files: list[SealedFile] = []
        if not self._layout.ordinal or listing.names is None:
            return files
        room = _JOINED_BYTES
        for at in range(listing.holding(base), len(listing.bases) - 1):
            summary = self._summaries.known(listing.names[at])
            if summary is None or summary.ending is not Ending.WHOLE or summary.size > room:
                break
            room -= summary.size
            path, first = f"{listing.directory}/{listing.names[at]}", listing.bases[at]
            files.append(SealedFile(path, first, summary.size, _index_of(summary, first)))
        return files

    def _open_joined(self, files: list[SealedFile], listing: Listing) -> RowSegment:
        return RowSegment(
            self._of,
            JoinedSource(self._vfs, files),
            base=files[0].base,
            next_base=listing.following(files[-1].base),
            holes=False,
            index=joined_index(files),
        )

    def verify(self, base: int, end: int, listing: Listing) -> None:
        """Read a segment up to offset ``end``.

        Raises:
            DamagedLogError: a row, a field or an offset is not sound.
        """
        with typed_read_errors(self._of.topic, self._of.partition, listing.path(base)):
            segment = self.open(base, listing)
            try:
                for _ in segment.frames(base, end, Selection(())):
                    pass
            except BrokenFrameError as error:
                raise missing_records(self._vfs, listing, base, error) from error
            finally:
                segment.close()

    def end(self) -> RowEnd | None:
        """Where the log ends now; walks only what was added since the last call."""
        listing = self.listing()
        if not listing.bases:
            return None
        base = listing.bases[-1]
        path = listing.path(base)
        stat = self._vfs.stat(path)
        if stat is None:
            return None
        with self._lock:
            known = self._end
            if known is None or not known.is_end_of(path, base, stat):
                self._end = self._find_end(path, base, known)
                if known is None:
                    self._log_torn_tail(self._end)
            return self._end

    def note_append(self, path: str, base: int, stat: FileStat, added: Added) -> None:
        """Know the end that our writer has just made: nobody has to read these bytes to find it.

        Only if the size says that no other program wrote there. The caller holds the partition.
        """
        with self._lock:
            known = self._end
            if stat.size != added.position + len(added.data):
                self._end = None
            elif known is not None and (known.path, known.position) == (path, added.position):
                self._end = known.after(stat, added)
            elif not added.position:
                if self._layout.ordinal:
                    self._note_sealed(known)
                empty = RowEnd(
                    path, base, stat, 0, base, False, False, None, NO_INDEX, b"", next(self._lives)
                )
                self._end = empty.after(stat, added)

    def _note_sealed(self, end: RowEnd | None) -> None:
        """Remember what is in the file before a new one, if all of it is known."""
        found = None if end is None else end.summary()
        if end is None or found is None:
            self._summaries.distrust()
        else:
            self._summaries.note(end.path.rpartition("/")[2], found)

    def _log_torn_tail(self, end: RowEnd) -> None:
        if end.torn and end.damage is None:
            _log.warning(
                "%s: the last %d bytes of %s are not a whole record: its writer was killed, or is "
                "writing now. Readers stop before them. If no writer runs, run `cursus repair %s` "
                "before you start the broker.",
                self._of.name,
                end.size - end.position,
                end.path,
                self._vfs.root,
            )

    def high_watermark(self) -> int:
        """The end for readers: of whole records, and with read_committed of what is stable."""
        found = self.end()
        if found is None:
            return 0
        isolation = self._decide()
        return found.offset if isolation is None else isolation.stable_end

    def time_bounds(self, base: int, listing: Listing) -> TimeBounds:  # noqa: ARG002
        """No bounds: the search then asks the segment, which raises that there are no times."""
        return TimeBounds(-MAX_OFFSET, MAX_OFFSET)

    def may_match(
        self,
        base: int,  # noqa: ARG002
        end: int,  # noqa: ARG002
        listing: Listing,  # noqa: ARG002
        selection: Selection,  # noqa: ARG002
    ) -> bool:
        """Yes: brokers keep no bounds of a file."""
        return True

    def end_of(self, base: int, listing: Listing) -> int:
        """Where a sealed file ends, by its records. In a compacted one the last may be gone."""
        following = listing.following(base)
        path = listing.path(base)
        stat = self._vfs.stat(path)
        if following is None or self._layout.ordinal or stat is None:
            return MAX_OFFSET
        if self._has_holes(path, stat.size):
            return following
        segment = self.open(base, listing)
        try:
            return segment.walk_to_end(None).offset
        finally:
            segment.close()

    def sizes(self, listing: Listing) -> list[int | None]:
        return file_sizes(self._vfs, listing)

    def explained(self, base: int, listing: Listing, error: BrokenFrameError) -> BrokenFrameError:
        return missing_records(self._vfs, listing, base, error)

    def raise_damage(self) -> None:
        """Raise if the log ends before its bytes do, because what follows is damaged."""
        found = self.end()
        if found is not None and found.damage is not None and self.high_watermark() == found.offset:
            with typed_read_errors(self._of.topic, self._of.partition, found.path):
                raise found.damage

    def _decide(self) -> Isolation | None:
        found, listing = self.end(), self.listing()
        # Without files the topic was deleted between the two looks.
        if self._isolation is None or found is None or not listing.bases:
            return None
        return self._isolation.decide(listing, found.offset, found.life, self.open)

    def _find_end(self, path: str, base: int, known: RowEnd | None) -> RowEnd:
        fd = self._vfs.open(path, "read")
        stat = self._vfs.fstat(fd)
        source = WindowSource(self._vfs, fd, stat.size)
        start = known if known is not None and known.may_continue(path, base, source) else None
        index = self._broker_index(path, stat.size) if start is None else start.entries
        compacted = self._has_holes(path, stat.size)
        segment = RowSegment(
            self._of,
            source,
            base=base,
            holes=compacted,
            index=index,
        )
        try:
            walked = segment.walk_to_end(None if start is None else (start.position, start.offset))
            before = max(0, walked.position - LAST_BYTES)
            return RowEnd(
                path,
                base,
                stat,
                walked.position,
                walked.offset,
                walked.ending is not Ending.WHOLE,
                compacted,
                self._damage(path, source, walked),
                _extended(index, walked.entries),
                bytes(source.read(before, walked.position - before)),
                next(self._lives) if start is None else start.life,
            )
        finally:
            segment.close()

    def _damage(self, path: str, source: Source, walked: WalkedEnd) -> BrokenFrameError | None:
        if walked.ending is Ending.WHOLE:
            return self._missing_file(path, walked)
        if self._is_crash_tail(path, source, walked):
            return None
        problem = str(walked.problem)
        return BrokenFrameError(problem, position=walked.position, offset=walked.offset)

    def _missing_file(self, path: str, walked: WalkedEnd) -> BrokenFrameError | None:
        """The error for a gap in the numbers of ordinal files: what follows has unknown offsets."""
        if not self._layout.ordinal:
            return None
        files = self._of.files()
        before = _without_gap(files)
        if len(before) == len(files) or not path.endswith("/" + before[-1].name):
            return None
        names, number = self._layout.names, before[-1].number + 1
        directory, of = path.rpartition("/")[0], self._of
        missing = f"{directory}/{names.format(self._vfs, of.topic, of.partition, number)}"
        return BrokenFrameError(
            f"{missing} is missing, so the records from offset {walked.offset} on are "
            f"unknown. Restore it from a copy, or move {files[len(before)].name} and the files "
            "after it away",
            path=missing,
            offset=walked.offset,
        )

    def _is_crash_tail(self, path: str, source: Source, walked: WalkedEnd) -> bool:
        """Whether the bytes after the last whole record are what a crash leaves at the end."""
        files = self._of.files()
        if files and not path.endswith("/" + files[-1].name):
            return False
        if walked.ending is Ending.TORN:
            return True
        return not self._layout.ordinal and is_zero_tail(source, walked.position)

    def _duplicate_base(self, found: list[SegmentName]) -> DamagedLogError:
        base = next(a.number for a, b in pairwise(found) if a.number == b.number)
        names = ", ".join(segment.name for segment in found if segment.number == base)
        return DamagedLogError(
            f"{self._of.name}: two files begin at offset {base}: {names}. Move one of them away.",
            topic=self._of.topic,
            partition=self._of.partition,
            offset=base,
        )

    def _has_holes(self, path: str, size: int) -> bool:
        if not self._layout.isolated:
            return False
        marker = read_file(self._vfs, f"{path}.compacted-{size}", len(COMPACTED) + 1)
        return marker == COMPACTED

    def _active_index(self, path: str, size: int) -> SparseIndex:
        known = self._end
        if known is not None and known.path == path:
            return known.entries
        return self._broker_index(path, size)

    def _sealed_index(self, path: str, base: int, size: int) -> SparseIndex:
        index = self._broker_index(path, size)
        if len(index.offsets) or self._has_holes(path, size):
            return index
        directory, _, name = path.rpartition("/")
        summary = self._summaries.sealed(directory, [name]).get(name)
        return NO_INDEX if summary is None else _index_of(summary, base)

    def _broker_index(self, path: str, size: int) -> SparseIndex:
        if self._layout.parse_index is None:
            return NO_INDEX
        data = read_file(self._vfs, path.removesuffix(".log") + ".index", _MAX_INDEX_BYTES)
        return NO_INDEX if not data else self._layout.parse_index(data, size)


def _without_gap(files: list[SegmentName]) -> list[SegmentName]:
    """Ordinal files up to the first number that is missing."""
    first = files[0].number if files else 0
    return [file for at, file in enumerate(files) if file.number == first + at]


def _index_of(summary: Summary, base: int) -> SparseIndex:
    offsets = base + RECORDS_PER_ENTRY * np.arange(len(summary.entries), dtype=np.int64)
    return SparseIndex(offsets, summary.entries)


def _extended(index: SparseIndex, entries: SparseIndex) -> SparseIndex:
    """An index with the entries that a walk met, which are newer."""
    if not len(entries.offsets):
        return index
    keep = index.positions < entries.positions[0]
    return SparseIndex(
        np.concatenate((index.offsets[keep], entries.offsets)),
        np.concatenate((index.positions[keep], entries.positions)),
    )
