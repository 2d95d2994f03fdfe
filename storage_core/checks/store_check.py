"""A look at a whole store that changes nothing and reports every problem it finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from ..config import StoreConfig
from ..errors import StorageError
from ..format.file_names import MARKER, range_marker_file, segment_file, segments_directory
from ..io import json_files as metafile
from ..io.durable import read_file
from ..io.io_errors import typed_read_errors
from ..metadata import high_watermark as watermark
from ..metadata import identity
from ..metadata.catalog import Catalog
from ..metadata.checkpoint import PATH as CHECKPOINT_PATH
from ..metadata.topic_file import TopicFile
from ..segments import deletion_markers
from ..segments.listing import Listing, list_segments, log_path
from ..segments.segment_reader import ReadCaches, SegmentReader
from ..types import Problem
from ..vfs import FileStat, Vfs


class _ChangedError(Exception):
    """The files are not as they were listed: a writer or retention was there meanwhile."""


@dataclass(slots=True)
class _Progress:
    """How far the look at a partition has come, and what was found in the segments before."""

    end: int | None = None
    found: list[tuple[int, Problem]] = field(default_factory=list)
    missed: tuple[Listing, int, FileStat | None] | None = None

    def go_back(self, visible: int | None) -> None:
        """Behind the visible end the next look may find other records."""
        if self.end is not None and visible is not None:
            self.end = min(self.end, visible)

    def go_on(self, listing: Listing) -> tuple[int, ...]:
        """The segments left to look at: from the one that holds the end now."""
        begin = 0 if self.end is None else max(0, listing.holding(self.end))
        left = listing.bases[begin:]
        self.found = [(base, found) for base, found in self.found if not left or base < left[0]]
        return left


class Checker:
    """Reads everything in a store once, checksums included. Others may write meanwhile."""

    def __init__(self, vfs: Vfs, config: StoreConfig, catalog: Catalog) -> None:
        self._vfs = vfs
        self._config = config
        self._catalog = catalog
        self._caches = ReadCaches(vfs, config)

    def run(self) -> Iterator[Problem]:
        """All problems, in the order of the directory tree."""
        store_uuid = None
        try:
            found = identity.read(self._vfs)
            store_uuid = None if found is None else found.uuid
            if found is None:
                yield Problem(
                    "error",
                    "IDENTITY_MISMATCH",
                    f"{identity.PATH} is missing: nothing can be written. Run repair.",
                    path=identity.PATH,
                )
        except StorageError as error:
            yield Problem.from_error(error)
        try:
            metafile.read(self._vfs, CHECKPOINT_PATH)
        except StorageError as error:
            yield Problem.from_error(error, severity="warning")
        try:
            topics = self._catalog.names()
        except StorageError as error:
            yield Problem.from_error(error)
            return
        for topic in topics:
            try:
                yield from self._check_topic(topic, self._catalog.get(topic), store_uuid)
            except StorageError as error:
                yield Problem.from_error(error)

    def _check_topic(
        self, topic: str, found: TopicFile, store_uuid: UUID | None
    ) -> Iterator[Problem]:
        if store_uuid is not None and found.store_uuid != store_uuid:
            yield Problem(
                "error",
                "IDENTITY_MISMATCH",
                f"topic {topic!r} belongs to store {found.store_uuid}, not {store_uuid}.",
                topic=topic,
            )
        marks = watermark.read(self._vfs, topic, found.uuid.bytes)
        if marks is None:
            path = watermark.path_of(topic)
            message = f"{path} is missing or damaged. The next append or repair rebuilds it."
            yield Problem("error", "RECOVERY_NEEDED", message, topic=topic, path=path)
        for partition in range(found.partitions):
            visible = None if marks is None else marks.end(partition)
            yield from self._check_partition(topic, partition, visible)

    def _check_partition(self, topic: str, partition: int, visible: int | None) -> list[Problem]:
        """All of one partition. Where files change under our eyes it is looked at again.

        What was found before that stays: else a busy partition would never be done.
        """
        directory = segments_directory(topic, partition)
        progress = _Progress()
        while True:
            listing = list_segments(self._vfs, directory)
            try:
                self._check_segments(topic, partition, visible, listing, progress)
                break
            except _ChangedError:
                progress.go_back(visible)
        found = [*self._leftovers(topic, partition, listing)]
        found += [problem for _, problem in progress.found]
        end = progress.end or 0
        if visible is not None and end < visible:
            message = f"the log ends at {end}, but {visible} records were published."
            found.append(Problem("error", "LOG_DAMAGED", message, topic, partition, directory))
        return found

    def _leftovers(self, topic: str, partition: int, listing: Listing) -> Iterator[Problem]:
        """What is in the directory beside segments."""

        def warning(code: str, message: str, path: str) -> Problem:
            return Problem("warning", code, message, topic, partition, path)

        directory = listing.directory
        for name in listing.unrecognised:
            path = f"{directory}/{name}"
            yield warning("STRANGER", f"{path} is none of ours.", path)
        for base in listing.markers:
            path = f"{directory}/{segment_file(base, MARKER)}"
            torn = deletion_markers.unpack_marker(read_file(self._vfs, path, 1024) or b"") is None
            message = f"{path}: an unfinished deletion{' (torn)' if torn else ''}; repair ends it."
            yield warning("RECOVERY_NEEDED", message, path)
        for first, end in listing.merged:
            path = f"{directory}/{range_marker_file(first, end)}"
            message = f"{path}: an unfinished merge; the next writer or repair ends it."
            yield warning("RECOVERY_NEEDED", message, path)

    def _check_segments(
        self,
        topic: str,
        partition: int,
        visible: int | None,
        listing: Listing,
        progress: _Progress,
    ) -> None:
        """Go on from where ``progress`` is, in the segment that holds it now.

        Raises:
            _ChangedError: a segment came or went meanwhile.
        """
        left = progress.go_on(listing)
        for base in left:
            path = log_path(listing.directory, base)
            expected = base if progress.end is None or base == left[0] else progress.end
            problems = []
            if base < expected:
                message = f"{path} is in the segment before it too: an unfinished merge."
                problems.append(
                    Problem("warning", "RECOVERY_NEEDED", message, topic, partition, path)
                )
            elif base > expected:
                message = f"offsets {expected} to {base - 1} are missing before {path}."
                problems.append(Problem("error", "LOG_DAMAGED", message, topic, partition, path))
            try:
                end, found = self._check_segment(topic, partition, base, visible, listing)
            except FileNotFoundError as error:
                self._require_missed_again(listing, base, progress, error)
                message = f"{path} is listed in its directory but cannot be opened: {error}"
                end = listing.following(base) or base
                found = [Problem("error", "LOG_DAMAGED", message, topic, partition, path)]
            progress.found += [(base, problem) for problem in (*problems, *found)]
            progress.end = max(end, expected)

    def _require_missed_again(
        self, listing: Listing, base: int, progress: _Progress, error: FileNotFoundError
    ) -> None:
        """A listed file was not there: look again, unless that gives the same answer every time."""
        missed = (listing, base, self._vfs.stat(listing.path(base)))
        if progress.missed != missed:
            progress.missed = missed
            raise _ChangedError from error

    def _check_segment(
        self, topic: str, partition: int, base: int, visible: int | None, listing: Listing
    ) -> tuple[int, list[Problem]]:
        """End offset of the sound part, and what is wrong with the segment."""
        path = listing.path(base)
        following = listing.following(base)
        before = self._vfs.stat(path)
        problems: list[Problem] = []
        end = base
        try:
            with typed_read_errors(topic, partition, path):
                segment = SegmentReader(
                    self._vfs, listing.directory, base, self._config, self._caches,
                    # Else it may be cut under our eyes, which a map does not survive.
                    closed=following is not None and visible is not None and following <= visible,
                )  # fmt: skip
                try:
                    if following is not None and not segment.index_is_sound():
                        message = f"{path}: its index is missing or stale; reads rebuild it."
                        problems.append(
                            Problem("warning", "INDEX_STALE", message, topic, partition, path)
                        )
                    for frame in segment.verify():
                        end = frame.end_offset
                finally:
                    segment.close()
        except StorageError as error:
            if following is None and visible is not None and end >= visible:
                message = (
                    f"{path} ends in bytes of an append that never finished, from byte "
                    f"{error.position} on. Nothing is lost: the next writer or repair cuts them."
                )
                problem = Problem.from_error(error, severity="warning")
                problems.append(replace(problem, code="RECOVERY_NEEDED", message=message))
            else:
                problems.append(Problem.from_error(error))
        if problems or end != (following or end):
            self._require_unchanged(listing, base, before)
        return end, problems

    def _require_unchanged(self, listing: Listing, base: int, before: FileStat | None) -> None:
        """Raise if a segment was cut, replaced or not closed while we looked at it.

        In this order: an append that is taken back removes the later file first, and one that is
        tried again writes it last. The last segment may grow all the time, so only a cut counts.
        """
        following = listing.following(base)
        if following is not None and self._vfs.stat(listing.path(following)) is None:
            raise _ChangedError
        now = self._vfs.stat(listing.path(base))
        if now is None or before is None or now.size < before.size:
            raise _ChangedError
        if following is not None and now != before:
            raise _ChangedError
