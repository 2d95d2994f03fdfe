"""A look at a whole store that changes nothing and reports every problem it finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal
from uuid import UUID

from . import identity, metafile, retention, watermark
from .catalog import Catalog
from .checkpoint import PATH as CHECKPOINT_PATH
from .config import StoreConfig
from .durable import read_file
from .errors import StorageError
from .faults import typed_read_errors
from .layouts.base import Layout
from .listing import list_segments, log_path
from .naming import TOMB, range_tomb_file, segment_file
from .records import Problem
from .segment_reader import ReadCaches, SegmentReader
from .topicfile import TopicFile
from .vfs import Vfs


class Checker:
    """Reads everything in a store once, checksums included."""

    def __init__(self, vfs: Vfs, layout: Layout, config: StoreConfig, catalog: Catalog) -> None:
        self._vfs = vfs
        self._layout = layout
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
            yield problem_of(error)
        try:
            metafile.read(self._vfs, CHECKPOINT_PATH)
        except StorageError as error:
            yield problem_of(error, severity="warning")
        try:
            topics = self._catalog.names()
        except StorageError as error:
            yield problem_of(error)
            return
        for topic in topics:
            try:
                yield from self._check_topic(topic, self._catalog.get(topic), store_uuid)
            except StorageError as error:
                yield problem_of(error)

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

    def _check_partition(
        self, topic: str, partition: int, visible: int | None
    ) -> Iterator[Problem]:
        directory = self._layout.log_directory(topic, partition)
        listing = list_segments(self._vfs, directory)

        def problem(
            severity: Literal["error", "warning"], code: str, message: str, path: str
        ) -> Problem:
            return Problem(severity, code, message, topic, partition, path)

        for name in listing.strangers:
            path = f"{directory}/{name}"
            yield problem("warning", "STRANGER", f"{path} is none of ours.", path)
        for base in listing.tombs:
            path = f"{directory}/{segment_file(base, TOMB)}"
            torn = retention.unpack_tomb(read_file(self._vfs, path, 1024) or b"") is None
            message = f"{path}: an unfinished deletion{' (torn)' if torn else ''}; repair ends it."
            yield problem("warning", "RECOVERY_NEEDED", message, path)
        for first, end in listing.merged:
            path = f"{directory}/{range_tomb_file(first, end)}"
            message = f"{path}: an unfinished merge; the next writer or repair ends it."
            yield problem("warning", "RECOVERY_NEEDED", message, path)
        expected = listing.bases[0] if listing.bases else 0
        for base in listing.bases:
            path = log_path(directory, base)
            if base < expected:
                message = f"{path} is in the segment before it too: an unfinished merge."
                yield problem("warning", "RECOVERY_NEEDED", message, path)
            elif base > expected:
                message = f"offsets {expected} to {base - 1} are missing before {path}."
                yield problem("error", "LOG_DAMAGED", message, path)
            end, problems = self._check_segment(
                topic, partition, base, visible, closed=not listing.is_last(base)
            )
            yield from problems
            expected = max(end, expected)
        if visible is not None and expected < visible:
            message = f"the log ends at {expected}, but {visible} records were published."
            yield problem("error", "LOG_DAMAGED", message, directory)

    def _check_segment(
        self, topic: str, partition: int, base: int, visible: int | None, *, closed: bool
    ) -> tuple[int, list[Problem]]:
        """End offset of the sound part, and what is wrong with the segment."""
        directory = self._layout.log_directory(topic, partition)
        path = log_path(directory, base)
        problems: list[Problem] = []
        end = base
        try:
            with typed_read_errors(topic, partition, path):
                segment = SegmentReader(
                    self._vfs, self._layout, directory, base, self._config, self._caches,
                    closed=closed,
                )  # fmt: skip
                try:
                    if closed and not segment.index_is_sound():
                        message = f"{path}: its index is missing or stale; reads rebuild it."
                        problems.append(
                            Problem("warning", "INDEX_STALE", message, topic, partition, path)
                        )
                    for extent in segment.verify():
                        end = extent.end_offset
                finally:
                    segment.close()
        except StorageError as error:
            if not closed and visible is not None and end >= visible:
                message = (
                    f"{path} ends in bytes of an append that never finished, from byte "
                    f"{error.position} on. Nothing is lost: the next writer or repair cuts them."
                )
                problem = problem_of(error, severity="warning")
                problems.append(replace(problem, code="RECOVERY_NEEDED", message=message))
            else:
                problems.append(problem_of(error))
        return end, problems


def problem_of(error: StorageError, severity: str = "error") -> Problem:
    """An error as a finding."""
    return Problem(
        "warning" if severity == "warning" else "error",
        error.code,
        str(error),
        topic=error.topic,
        partition=error.partition,
        path=error.path,
        position=error.position,
        offset=error.offset,
    )
