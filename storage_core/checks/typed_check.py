"""Problems of typed topics: their schema files, and frames that are not what their schema says.

A frame whose checksum is right may still be wrong: then a program wrote it so. Readers skip frames
by their statistics, so wrong ones hide rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import BrokenFrameError, InvalidSchemaError, StorageError
from ..format import typed_frames
from ..format.frame_scan import StoredFrame
from ..format.numbers import numbers_of
from ..format.typed_frames import TypedFrame
from ..metadata.schema_files import TopicSchemas
from ..metadata.slots import Watermark
from ..metadata.topic_file import TopicFile
from ..schema.evolution import covers
from ..schema.fields import SchemaVersion
from ..schema.keys import check_key_columns
from ..types import Problem
from ..vfs import Vfs


class TypedCheck:
    """The checks of one typed topic. ``watermark`` is None if the file is lost."""

    def __init__(self, vfs: Vfs, topic: str, found: TopicFile, watermark: Watermark | None) -> None:
        self._topic = topic
        self._found = found
        self._watermark = watermark
        self._schemas = TopicSchemas(vfs, topic, found.uuid)

    def schema_problems(self) -> Iterator[Problem]:
        """All problems of the schema files."""
        published = None if self._watermark is None else self._watermark.schema
        try:
            last = max([published or 1, *self._schemas.numbers()])
        except FileNotFoundError:
            last = published or 1
        for version in range(1, last + 1):
            try:
                self._check_columns(version)
            except StorageError as error:
                yield Problem.from_error(error)
        try:
            self._schemas.published()
        except StorageError as error:
            # Only recovery reads it. While the high watermarks are there, repair writes it again.
            yield Problem.from_error(error, "error" if published is None else "warning")

    def _check_columns(self, version: int) -> None:
        """Raise if a version is damaged, or lacks a column that the topic goes by."""
        schema, path = self._schemas.get(version), self._schemas.path_of(version)
        try:
            check_key_columns(schema.fields, self._found.key_columns)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"{path}: {error}", topic=self._topic, path=path) from error
        name = self._found.timestamp_column
        if name is not None and name not in schema.names:
            raise InvalidSchemaError(
                f"{path}: the schema lacks the timestamp column {name!r}. Restore the file from a "
                "copy.",
                topic=self._topic,
                path=path,
            )

    def frame_problem(self, frame: StoredFrame, partition: int, path: str) -> Problem | None:
        """What is wrong with a frame that passed its checksums."""
        header = frame.header
        if not header.records:  # it only covers a hole of compaction
            return None

        def problem(code: str, message: str) -> Problem:
            place = f"{self._topic}-{partition}: {path}, byte {frame.position}, offset"
            text = f"{place} {frame.offset}: {message}"
            where = (self._topic, partition, path, frame.position, frame.offset)
            return Problem("error", code, text, *where)

        try:
            schema = self._schemas.get(typed_frames.schema_version(header, frame.rest))
            rows = typed_frames.decode_rows(header, frame.rest, self._schemas)
        except BrokenFrameError as error:
            return problem("LOG_DAMAGED", f"{error}. Restore the segment from a copy.")
        except StorageError as error:
            return problem(error.code, f"the frame cannot be decoded: {error}")
        if self._is_visible(frame, partition) and not self._is_published(schema):
            return problem(
                "METADATA_DAMAGED",
                f"the rows have columns of schema version {schema.version}, which the published "
                "schema lacks. Restore the topic's files from a copy.",
            )
        wrong = typed_frames.wrong_statistics(header, frame.rest, rows.rows) or _wrong_times(
            frame, rows
        )
        if wrong is None:
            return None
        return problem(
            "STATISTICS_WRONG",
            f"{wrong}; reads with a where may miss rows. Recompress the topic with another codec: "
            "that computes them again.",
        )

    def _is_visible(self, frame: StoredFrame, partition: int) -> bool:
        return self._watermark is not None and frame.end_offset <= self._watermark.end(partition)

    def _is_published(self, schema: SchemaVersion) -> bool:
        assert self._watermark is not None
        published = self._watermark.schema
        if published is None:
            return True  # the file is of a records topic: said already
        try:
            return covers(self._schemas.get(published), schema)
        except StorageError:
            return True  # said already


def _wrong_times(frame: StoredFrame, rows: TypedFrame) -> str | None:
    if rows.timestamp is None:
        return None
    stamps, header = numbers_of(rows.timestamp), frame.header
    low, high = int(np.min(stamps)), int(np.max(stamps))
    if (low, high) == (header.min_timestamp, header.max_timestamp):
        return None
    found = f"{header.min_timestamp} to {header.max_timestamp}"
    return f"its header has times from {found}, its rows from {low} to {high}"
