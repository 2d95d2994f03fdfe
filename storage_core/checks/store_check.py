"""Checks a whole store and reports every problem; changes nothing.

``Checker`` reads the logs. ``state_problems`` reads the files next to them: a damaged intent or
ledger entry stops every writer, and a damaged group loses its offsets, while every log is intact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from ..commit.intents import Intents
from ..commit.ledger import Ledger
from ..config import StoreConfig
from ..errors import DamagedMetadataError, StorageError
from ..format.file_names import (
    MARKER,
    is_name,
    range_marker_file,
    segment_file,
    segments_directory,
)
from ..format.frame_scan import StoredFrame
from ..io import json_files
from ..io.durable import read_file
from ..io.io_errors import typed_read_errors
from ..metadata import high_watermark as watermark_file
from ..metadata import identity, topic_file
from ..metadata.catalog import TOPICS, Catalog
from ..metadata.checkpoint import PATH as CHECKPOINT_PATH
from ..metadata.consumer_groups import read as read_group
from ..metadata.topic_file import TopicFile
from ..segments import deletion_markers
from ..segments.listing import Listing, list_segments, log_path
from ..segments.segment_reader import ReadCaches, SegmentReader
from ..types import Problem
from ..vfs import FileStat, Vfs
from .typed_check import TypedCheck

_SUFFIX = ".json"
# A commit in progress is not a problem; one as old as this was interrupted.
_INTERRUPTED_US = 60_000_000
# Writing a slot of high watermarks takes less, also on a busy machine.
_SLOT_S = 0.3


class _ChangedError(Exception):
    """The files are not as they were listed: a writer or retention changed them meanwhile."""


@dataclass(slots=True)
class _Progress:
    """How far the check of a partition is, and the problems of the segments before that."""

    end: int | None = None
    found: list[tuple[int, Problem]] = field(default_factory=list)
    missed: tuple[Listing, int, FileStat | None] | None = None

    def step_back(self, high_watermark: int | None) -> None:
        """The next pass may find other records past the high watermark."""
        if self.end is not None and high_watermark is not None:
            self.end = min(self.end, high_watermark)

    def remaining(self, listing: Listing) -> tuple[int, ...]:
        """The segments still to check: from the one that contains the end now."""
        begin = 0 if self.end is None else max(0, listing.holding(self.end))
        left = listing.bases[begin:]
        self.found = [(base, found) for base, found in self.found if not left or base < left[0]]
        return left


class Checker:
    """Reads everything in a store once and verifies checksums. Others may write meanwhile."""

    def __init__(self, vfs: Vfs, config: StoreConfig, catalog: Catalog) -> None:
        self._vfs = vfs
        self._config = config
        self._catalog = catalog
        self._caches = ReadCaches(vfs, config)
        self._typed: TypedCheck | None = None
        """The checks of the current topic, if it is a typed one."""

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
                    f"{identity.PATH} is missing, so no writer can open the store. Run repair.",
                    path=identity.PATH,
                )
        except StorageError as error:
            yield Problem.from_error(error)
        try:
            json_files.read(self._vfs, CHECKPOINT_PATH)
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
        yield from self._nameless(topics)

    def _nameless(self, topics: Sequence[str]) -> Iterator[Problem]:
        """Directories of topics whose ``topic.json`` is lost: nobody else would miss them."""
        if self._vfs.stat(TOPICS) is None:
            return
        for name in sorted(set(self._vfs.listdir(TOPICS)).difference(topics)):
            path = topic_file.path_of(name)
            if not is_name(name) or self._vfs.stat(segments_directory(name, 0)) is None:
                continue
            if self._vfs.stat(path) is None and self._vfs.stat(f"{TOPICS}/{name}") is not None:
                message = f"{path} is missing, so nobody sees the topic. Restore it from a copy."
                yield Problem("error", DamagedMetadataError.code, message, topic=name, path=path)

    def _check_topic(
        self, topic: str, found: TopicFile, store_uuid: UUID | None
    ) -> Iterator[Problem]:
        if store_uuid is not None and found.store_uuid != store_uuid:
            yield Problem(
                "error",
                "IDENTITY_MISMATCH",
                f"topic {topic!r} belongs to store {found.store_uuid}, not to this one "
                f"({store_uuid}). Copy whole stores, not single topics.",
                topic=topic,
            )
        watermark = watermark_file.read(self._vfs, topic, found.uuid.bytes)
        if watermark is None:
            # A slot may look torn because it is being written. A check takes no lock.
            self._vfs.sleep(_SLOT_S)
            watermark = watermark_file.read(self._vfs, topic, found.uuid.bytes)
        if watermark is not None and (watermark.schema is not None) != found.is_typed:
            watermark = None
        if watermark is None:
            path = watermark_file.path_of(topic)
            message = f"{path} is missing or damaged. The next append or repair rebuilds it."
            yield Problem("error", "RECOVERY_NEEDED", message, topic=topic, path=path)
        self._typed = None
        if found.is_typed:
            self._typed = TypedCheck(self._vfs, topic, found, watermark)
            yield from self._typed.schema_problems()
        for partition in range(found.partitions):
            high_watermark = None if watermark is None else watermark.end(partition)
            yield from self._check_partition(topic, partition, high_watermark)

    def _check_partition(
        self, topic: str, partition: int, high_watermark: int | None
    ) -> list[Problem]:
        """All problems of one partition. If files change during the check, it continues from there.

        Starting again from the first segment would never end in a busy partition.
        """
        directory = segments_directory(topic, partition)
        progress = _Progress()
        while True:
            listing = list_segments(self._vfs, directory)
            try:
                self._check_segments(topic, partition, high_watermark, listing, progress)
                break
            except _ChangedError:
                progress.step_back(high_watermark)
        found = [*self._leftovers(topic, partition, listing)]
        found += self._lost_beginning(topic, partition, listing)
        found += [problem for _, problem in progress.found]
        end = progress.end or 0
        if high_watermark is not None and end < high_watermark:
            message = (
                f"{topic}-{partition}: the log ends at offset {end}, below the high watermark "
                f"{high_watermark}. Records are missing; restore the files from a copy."
            )
            found.append(Problem("error", "LOG_DAMAGED", message, topic, partition, directory))
        return found

    def _lost_beginning(self, topic: str, partition: int, listing: Listing) -> Iterator[Problem]:
        """Segments before the first one that are lost: the log seems to begin after them.

        A deletion removes the indexes of a segment before it.
        """
        lost = _without_log(listing)
        if lost:  # a deletion may be under way
            lost &= _without_log(list_segments(self._vfs, listing.directory))
        for base in sorted(lost):
            path = log_path(listing.directory, base)
            message = (
                f"{path} is missing, but its indexes are there. Restore it from a copy, or delete "
                "the indexes too, if its records are not wanted."
            )
            yield Problem("error", "LOG_DAMAGED", message, topic, partition, path)

    def _leftovers(self, topic: str, partition: int, listing: Listing) -> Iterator[Problem]:
        """Problems of the files that are not segments."""

        def warning(code: str, message: str, path: str) -> Problem:
            return Problem("warning", code, message, topic, partition, path)

        directory = listing.directory
        for name in listing.unrecognised:
            path = f"{directory}/{name}"
            yield warning("STRANGER", f"{path} is an unrecognised file; nothing uses it.", path)
        for base in listing.markers:
            path = f"{directory}/{segment_file(base, MARKER)}"
            torn = deletion_markers.unpack_marker(read_file(self._vfs, path, 1024) or b"") is None
            state = " (torn marker)" if torn else ""
            message = f"{path}: an interrupted deletion{state}; repair finishes it."
            yield warning("RECOVERY_NEEDED", message, path)
        for first, end in listing.merged:
            path = f"{directory}/{range_marker_file(first, end)}"
            message = f"{path}: an interrupted merge; the next writer or repair finishes it."
            yield warning("RECOVERY_NEEDED", message, path)

    def _check_segments(
        self,
        topic: str,
        partition: int,
        high_watermark: int | None,
        listing: Listing,
        progress: _Progress,
    ) -> None:
        """Continue at ``progress.end``, in the segment that contains it now.

        Raises:
            _ChangedError: a segment was added or removed meanwhile.
        """
        left = progress.remaining(listing)
        for base in left:
            path = log_path(listing.directory, base)
            expected = base if progress.end is None or base == left[0] else progress.end
            problems = []
            if base < expected:
                message = f"{path} is also in the segment before it: an interrupted merge."
                problems.append(
                    Problem("warning", "RECOVERY_NEEDED", message, topic, partition, path)
                )
            elif base > expected:
                message = (
                    f"offsets {expected} to {base - 1} are missing before {path}. Restore the "
                    "segment from a copy."
                )
                problems.append(Problem("error", "LOG_DAMAGED", message, topic, partition, path))
            try:
                end, found = self._check_segment(topic, partition, base, high_watermark, listing)
            except FileNotFoundError as error:
                self._require_missing_twice(listing, base, progress, error)
                message = f"{path} is listed in its directory but cannot be opened: {error}"
                end = listing.following(base) or base
                found = [Problem("error", "LOG_DAMAGED", message, topic, partition, path)]
            progress.found += [(base, problem) for problem in (*problems, *found)]
            progress.end = max(end, expected)

    def _require_missing_twice(
        self, listing: Listing, base: int, progress: _Progress, error: FileNotFoundError
    ) -> None:
        """A listed file is missing: list the directory again, unless that shows it again."""
        missed = (listing, base, self._vfs.stat(listing.path(base)))
        if progress.missed != missed:
            progress.missed = missed
            raise _ChangedError from error

    def _check_segment(
        self, topic: str, partition: int, base: int, high_watermark: int | None, listing: Listing
    ) -> tuple[int, list[Problem]]:
        """End offset of the intact part, and the problems of the segment."""
        path = listing.path(base)
        following = listing.following(base)
        is_final = (
            following is not None and high_watermark is not None and following <= high_watermark
        )
        before = self._vfs.stat(path)
        problems: list[Problem] = []
        end = base
        try:
            with typed_read_errors(topic, partition, path):
                segment = SegmentReader(
                    self._vfs, listing.directory, base, self._config, self._caches,
                    # A writer may truncate any other file, which kills a process that maps it.
                    sealed=is_final,
                )  # fmt: skip
                try:
                    if following is not None and not segment.index_is_sound():
                        message = f"{path}: the index is missing or stale; readers rebuild it."
                        problems.append(
                            Problem("warning", "INDEX_STALE", message, topic, partition, path)
                        )
                    for frame in segment.verify():
                        end = frame.end_offset
                        self._check_frame(frame, partition, path, problems)
                finally:
                    segment.close()
        except StorageError as error:
            if following is None and high_watermark is not None and end >= high_watermark:
                message = (
                    f"{path} ends with an unfinished append, from byte {error.position} on. No "
                    "acknowledged record is lost: the next writer or repair truncates the file."
                )
                problem = Problem.from_error(error, severity="warning")
                problems.append(replace(problem, code="RECOVERY_NEEDED", message=message))
            else:
                problems.append(Problem.from_error(error))
        if problems or end != (following or end):
            self._require_unchanged(listing, base, before)
        return end, problems

    def _check_frame(
        self, frame: StoredFrame, partition: int, path: str, problems: list[Problem]
    ) -> None:
        """Add a problem of a typed frame; of each kind only the first in a segment."""
        found = None
        if self._typed is not None:
            found = self._typed.frame_problem(frame, partition, path)
        if found is not None and found.code not in {problem.code for problem in problems}:
            problems.append(found)

    def _require_unchanged(self, listing: Listing, base: int, before: FileStat | None) -> None:
        """Raise if a segment was truncated, replaced or unsealed during its check.

        In this order: an append that is rolled back removes the later file first, and its retry
        writes that file last. The last segment may grow at any time, so only a truncation counts.
        """
        following = listing.following(base)
        if following is not None and self._vfs.stat(listing.path(following)) is None:
            raise _ChangedError
        now = self._vfs.stat(listing.path(base))
        if now is None or before is None or now.size < before.size:
            raise _ChangedError
        if following is not None and now != before:
            raise _ChangedError


def state_problems(vfs: Vfs, intents: Intents, ledger: Ledger, groups: str) -> Iterator[Problem]:
    """All problems of intents, ledger and consumer groups; ``groups`` is their directory."""
    yield from _damaged(vfs, intents.directory, intents.read)
    yield from _damaged(vfs, ledger.directory, ledger.read)
    yield from _damaged(vfs, groups, lambda path: read_group(vfs, groups, _name_in(path)))
    yield from _interrupted(vfs, intents.directory)


def _damaged(vfs: Vfs, directory: str, read: Callable[[str], object]) -> Iterator[Problem]:
    for path in _files(vfs, directory):
        if not is_name(_name_in(path)):
            message = f"{path} is an unrecognised file; nothing uses it."
            yield Problem("warning", "STRANGER", message, path=path)
            continue
        try:
            read(path)
        except StorageError as error:
            yield Problem.from_error(error)


def _interrupted(vfs: Vfs, directory: str) -> Iterator[Problem]:
    for path in _files(vfs, directory):
        stat = vfs.stat(path)
        if stat is not None and vfs.now_us() - stat.modified_ns // 1000 > _INTERRUPTED_US:
            message = (
                f"{path}: an interrupted commit is pending; the next writer or repair finishes it."
            )
            yield Problem("warning", "RECOVERY_NEEDED", message, path=path)


def _files(vfs: Vfs, directory: str) -> list[str]:
    try:
        names = sorted(vfs.listdir(directory))
    except FileNotFoundError:
        return []
    return [f"{directory}/{name}" for name in names if name.endswith(_SUFFIX)]


def _name_in(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(_SUFFIX)


def _without_log(listing: Listing) -> set[int]:
    """The segments before the first one of which only the indexes are left."""
    indexed = listing.indexes & listing.time_indexes
    gone = {*listing.bases, *listing.markers, *listing.covered}
    first = listing.bases[0] if listing.bases else 0
    return {base for base in indexed if base < first and base not in gone}
