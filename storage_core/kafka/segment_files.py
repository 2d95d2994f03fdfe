"""Which segments one Kafka partition has: by its files, its log start offset and its epochs."""

from __future__ import annotations

from functools import partial

from ..errors import DamagedMetadataError, DataLossError
from ..format.file_names import MAX_OFFSET
from ..format.sparse_index import NO_INDEX
from ..io.byte_source import WindowSource
from ..layouts.broker_names import KAFKA_NAMES
from ..segments.listing import Listing, ListingCache, file_sizes
from .checkpoints import Checkpoints, PartitionFiles, first_epoch_start
from .codecs.indexes import parse_time_index
from .segment_reader import Edges, KafkaSegment

_REMOTE = "remote"
"""In the place of a file name: segments that are not on this disk."""
_DELETED = ".log.deleted"


class SegmentFiles:
    """The files of one partition. Safe for several threads."""

    def __init__(
        self, of: PartitionFiles, listings: ListingCache, checkpoints: Checkpoints
    ) -> None:
        self._of = of
        self._vfs = of.vfs
        self._listings = listings
        self._checkpoints = checkpoints
        self._known: tuple[Listing, int | None, Listing] | None = None

    def all(self) -> Listing:
        """All that are here, also below the log start offset."""
        directory = self._of.name
        return self._listings.remember(directory, directory, partial(self._list, directory))

    def from_start(self) -> Listing:
        """Those from the log start offset on."""
        files, start = self.all(), self._checkpoints.log_start(self._of)
        known = self._known
        if known is not None and known[:2] == (files, start):
            return known[2]
        listing = self._cut(files, start)
        self._known = (files, start, listing)
        return listing

    def sizes(self, listing: Listing) -> list[int | None]:
        """Bytes of each; None of one that is gone."""
        found = file_sizes(self._vfs, listing)
        names = listing.names or ()
        return [
            self._size_of_other(listing, name) if size is None else size
            for name, size in zip(names, found, strict=True)
        ]

    def not_here(self, base: int) -> DataLossError:
        """The error of a read of what is not on this disk."""
        following = self.from_start().following(base)
        if following is None:
            following = max(base + 1, self._checkpoints.written_end(self._of))
        why = "the broker has moved them to its remote storage, or a copy lacks their files"
        if self._checkpoints.log_start(self._of) is None:
            why = "their files are missing, and by its leader epochs no retention deleted them"
        return DataLossError(
            f"{self._of.name}: offsets {base} to {following - 1} are not on this disk: {why}. "
            f"Start at {following}, or read them through the broker.",
            topic=self._of.topic,
            partition=self._of.partition,
            offset=base,
        )

    def _list(self, directory: str) -> Listing:
        found = KAFKA_NAMES.segments(self._vfs, self._of.topic, self._of.partition)
        for swap in KAFKA_NAMES.swapped(self._vfs, self._of.topic, self._of.partition):
            # The broker has begun to delete those of which it has the records.
            end = self._end_of_swap(f"{directory}/{swap.name}", swap.number)
            found = [each for each in found if not swap.number <= each.number < end]
            found = sorted([*found, swap])
        names = tuple(each.name for each in found)
        return Listing(directory, tuple(each.number for each in found), names=names)

    def _end_of_swap(self, path: str, base: int) -> int:
        """Where the records of a segment end that is not in its place yet; at least after one."""
        try:
            fd = self._vfs.open(path, "read")
        except FileNotFoundError:
            return base  # it has been put in its place
        segment = KafkaSegment(
            WindowSource(self._vfs, fd, self._vfs.fstat(fd).size),
            Edges(base, base, MAX_OFFSET, 0),
            index=NO_INDEX,
            times=lambda: parse_time_index(b"", base),
            is_delivered=None,
            missing=lambda *_: None,
        )
        try:
            return max(base + 1, segment.walk_to_end().due)
        finally:
            segment.close()

    def _cut(self, files: Listing, start: int | None) -> Listing:
        """Without what is below the log start offset; with what is above it and not here."""
        if not files.bases or files.names is None:
            lost = self._checkpoints.written_end(self._of)
            return Listing(files.directory, (start or 0,), names=(_REMOTE,)) if lost else files
        if start is None:
            # The broker lists only what does not start with a segment of this disk.
            start = self._start_by_epochs(files.bases[0])
        elif start < files.bases[0]:
            began = first_epoch_start(self._of)
            if began is None or began >= files.bases[0]:
                return files  # the broker has deleted segments, and not yet said so
        if start < files.bases[0]:
            names = (_REMOTE, *files.names)
            return Listing(files.directory, (start, *files.bases), names=names)
        first = files.holding(start)
        bases, names = (start, *files.bases[first + 1 :]), files.names[first:]
        return Listing(files.directory, bases, names=names)

    def _start_by_epochs(self, first: int) -> int:
        """Where the log starts by the leader epochs: retention forgets those that it deletes."""
        try:
            began = first_epoch_start(self._of)
        except DamagedMetadataError:
            return first
        if began is None or began >= first:
            return first
        # While there is a deleted segment the broker may not have written the epochs yet.
        names = self._vfs.listdir(self._of.name)
        return first if any(name.endswith(_DELETED) for name in names) else began

    def _size_of_other(self, listing: Listing, name: str) -> int | None:
        """Of a segment that is not here, or not in its place yet."""
        if name == _REMOTE:
            return 0
        stat = self._vfs.stat(f"{listing.directory}/{name}")
        return None if stat is None else stat.size


def is_remote(path: str) -> bool:
    """Whether the path stands for segments that are not on this disk."""
    return path.endswith(f"/{_REMOTE}")
