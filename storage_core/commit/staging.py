"""Staging: a write task encodes records and syncs them in files that no reader looks at.

A task owns one handler for each topic-partition it writes. Frames are written with offsets that
count from 0, to files with names that no other task can have. Small parts of all partitions share
one file. A part that passes ``OWN_FILE_BYTES`` is in files of its own, which the commit turns into
segments by a rename. The first few partitions get such a file much sooner, because what they have
in the shared one must be written again. A task that crashes leaves files that staging garbage
collection deletes by age.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import arguments
from ..config import MIB, StoreConfig
from ..errors import StoreClosedError, WriteFailedError
from ..format.columns import Columns
from ..format.file_names import check_name
from ..format.frame import HEADER_BYTES, TRAILER_BYTES, EncodedFrame, draft_frame, finish_frame
from ..format.frame_builder import FrameBuilder
from ..format.record_sizes import check_sizes
from ..io.checksum import crc32c
from ..io.durable import sync_directories, write_all
from ..io.io_errors import write_failure
from ..io.parallel import map_on_threads
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile
from ..types import TopicPartitionHandler
from ..vfs import Buffer, Vfs

if TYPE_CHECKING:
    from ..schema import document
    from ..schema.fields import SchemaVersion
else:
    document = LazyModule("storage_core.schema.document")

# A smaller part is copied into the log by the commit; a larger one costs readers one more file.
OWN_FILE_BYTES = 4 * MIB
SUFFIX = ".frames"
_EARLY_FILES, _EARLY_BYTES = 8, MIB
_WAITING_BYTES = 64 * MIB
_SYNC_THREADS = 4

TopicPartition = tuple[str, int]
StageCheck = Callable[[Columns], None]
ConfigOf = Callable[[str], StoreConfig]
CheckOf = Callable[[str, int], StageCheck]
TopicOf = Callable[[str], TopicFile]


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Frames of one topic-partition in one staging file, as a task reports them to the committer.

    ``runs`` are (position, size) of the frames in order. ``checksum`` covers their headers and
    trailers, which cover the bodies. The commit may rename the file of an ``own_file`` part.
    ``schema`` is the schema version that the frames name, None in a records topic;
    ``schema_checksum`` is that of its columns, and of which of them are the key and the time.
    """

    topic: str
    partition: int
    path: str
    runs: tuple[tuple[int, int], ...]
    records: int
    checksum: int
    own_file: bool
    schema: int | None = None
    schema_checksum: int = 0

    @property
    def size(self) -> int:
        return sum(size for _, size in self.runs)


class _File:
    """One staging file being written."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self.path = f"{directory}/{uuid.uuid4()}{SUFFIX}"
        self.fd = vfs.open(self.path, "create")
        self.size = 0
        self._synced_from = 0
        self._closed = False

    def write(self, buffers: Sequence[Buffer]) -> tuple[int, int]:
        if self._closed:  # its descriptor may belong to another file now
            raise WriteFailedError(f"{self.path} is closed for writing.")
        position = self.size
        self.size = write_all(self._vfs, self.fd, buffers, position)
        if self.size - self._synced_from >= MIB:
            self._vfs.begin_writeback(self.fd, self._synced_from, self.size - self._synced_from)
            self._synced_from = self.size
        return position, self.size - position

    def finish(self) -> None:
        """Make the file durable and read-only: a task that still has it open must not change it."""
        try:
            self._vfs.fsync(self.fd)
            self._vfs.make_read_only(self.fd)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._vfs.close(self.fd)


class TaskFiles:
    """The staging files of one task, and the parts that are complete in them."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self._directory = directory
        self.opened: list[_File] = []
        self._ended = ""
        self.shared: _File | None = None
        self.parts: list[StagedPart] = []
        self.waiting_bytes = 0
        """Of records that wait in all handlers until they fill a frame."""

    def require_open(self) -> None:
        """Raise if the task is finished or was given up."""
        if self._ended:
            raise WriteFailedError(
                f"the staging in {self._directory} {self._ended}. Stage the records again."
            )

    @contextmanager
    def typed_errors(self) -> Iterator[None]:
        """Give the task up on an error of the file system."""
        self.require_open()
        try:
            yield
        except OSError as error:
            self.discard()
            raise write_failure(f"staging in {self._directory}", error) from error

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Give the task up on any error: records that it took are in none of its parts."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def create(self) -> _File:
        """A new file of this task."""
        if not self.opened and not self.parts:
            # A commit that is decided needs the directories after a power cut too.
            sync_directories(self._vfs, self._directory)
        created = _File(self._vfs, self._directory)
        self.opened.append(created)
        return created

    def has_room_for_early_file(self, size: int) -> bool:
        """Whether a part of this size gets its own file before it has to."""
        return size > _EARLY_BYTES and len(self.opened) < _EARLY_FILES

    def move(self, runs: Sequence[tuple[int, int]], target: _File) -> list[tuple[int, int]]:
        """Copy frames of the shared file to another; returns their new places."""
        moved = []
        for position, size in runs:
            assert self.shared is not None
            moved.append(target.write([self._vfs.pread(self.shared.fd, size, position)]))
        return moved

    def finish(self) -> list[StagedPart]:
        """Sync all files; nothing can be staged in them afterwards."""
        if self.opened:
            map_on_threads(_File.finish, self.opened, _SYNC_THREADS)
            self._vfs.fsync_dir(self._directory)
        self.opened, self.shared = [], None
        self._ended = "is finished"
        return self.parts

    def discard(self) -> None:
        """Close and delete all files; garbage collection deletes what is left."""
        files, self.opened, self.shared = self.opened, [], None
        self._ended = "was given up"
        for file in files:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                self._vfs.unlink(file.path)


class StagingHandler(TopicPartitionHandler):
    """The handler through which a write task stages one topic-partition. Used by one thread.

    Records wait until they fill a frame. Get one from ``Stage.get_handler``.
    """

    def __init__(
        self,
        files: TaskFiles,
        topic: str,
        partition: int,
        config: StoreConfig,
        check: StageCheck,
        make_room: Callable[[], None],
        found: TopicFile,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._found = found
        self.closed = False
        self._files = files
        self._config = config
        self._check = check
        self._make_room = make_room
        self._waiting = FrameBuilder(config.frame_records, config.frame_bytes)
        self._own: _File | None = None
        self._becomes_segments = False
        self._schema: SchemaVersion | None = None
        self._runs: list[tuple[int, int]] = []
        self._size = self._records = self._checksum = 0

    def append(self, columns: Columns) -> None:
        """Stage records after those appended before.

        Raises:
            RecordTooLargeError: one is larger than the topic allows.
            InvalidRecordError: the layout cannot store one. A commit that met it after its point
                of no return would block the partition for good.
        """
        with self._files.typed_errors():
            self._require_open()
            if not columns.count:
                return
            check_sizes(columns.bounds, self._config.max_record_bytes)
            self._check(columns)
            self._keep_schema(columns)
            self._waiting.add(columns)
            self._files.waiting_bytes += columns.size
            if self._waiting.is_full:
                self._encode(keep_rest=True)
            elif self._files.waiting_bytes >= _WAITING_BYTES:
                self._make_room()

    def flush(self) -> None:
        """Write every record accepted so far to the staging files; ``Stage.finish`` syncs them."""
        with self._files.typed_errors():
            self._encode(keep_rest=False)

    def close(self) -> None:
        """Flush and accept no more records. Safe to call twice."""
        if not self.closed:
            self.flush()
            self._end_part()
            self.closed = True

    def _require_open(self) -> None:
        if self.closed:
            raise StoreClosedError(
                f"the handler of {self.topic}-{self.partition} was closed. Get a new one to write.",
                topic=self.topic,
                partition=self.partition,
            )

    def _keep_schema(self, columns: Columns) -> None:
        """Frames of a part name one schema version, so rows of another begin a new part."""
        if columns.schema is not self._schema and columns.schema != self._schema:
            self._encode(keep_rest=False)
            self._end_part()
            self._own, self._becomes_segments, self._schema = None, False, columns.schema

    def _encode(self, *, keep_rest: bool) -> None:
        """Encode what waits as frames; a last incomplete one may wait for more records."""
        while self._waiting.is_full or (self._waiting.rows and not keep_rest):
            with self._files.whole():
                columns = self._waiting.take()
                self._files.waiting_bytes -= columns.size
                frame = finish_frame(
                    draft_frame(
                        columns,
                        relative_offset=self._records,
                        recovery_point=0,
                        compression=self._config.compression,
                        level=self._config.compression_level,
                    )
                )
                self._place(frame)

    def _place(self, frame: EncodedFrame) -> None:
        size = self._size + frame.header.length
        # From this size on the part becomes segments, none of which may pass its limit.
        self._becomes_segments |= size > min(OWN_FILE_BYTES, self._config.segment_bytes)
        if self._own is not None and size > self._config.segment_bytes:
            self._end_part()
            self._own = self._files.create()
            frame = _first_of_file(frame)
        elif self._own is None and (
            self._becomes_segments or self._files.has_room_for_early_file(size)
        ):
            self._move_to_own_file()
        run = self._target().write(frame.buffers)
        self._runs.append(run)
        self._size += run[1]
        self._records += frame.header.records
        self._checksum = frame_checksum(frame.buffers, self._checksum)

    def _target(self) -> _File:
        if self._own is None and self._files.shared is None:
            self._files.shared = self._files.create()
        target = self._own or self._files.shared
        assert target is not None
        return target

    def _move_to_own_file(self) -> None:
        """Leave the shared file: only a part alone in its file can become a segment by a rename."""
        shared = self._files.shared
        if shared is not None and shared.size == self._size:
            self._own, self._files.shared = shared, None
            return
        self._own = self._files.create()
        self._runs = self._files.move(self._runs, self._own)

    def _end_part(self) -> None:
        if self._runs:
            part = StagedPart(
                self.topic,
                self.partition,
                self._target().path,
                tuple(self._runs),
                self._records,
                self._checksum,
                self._becomes_segments,
                None if self._schema is None else self._schema.version,
                0 if self._schema is None else checksum_of(self._schema, self._found),
            )
            self._files.parts.append(part)
        self._runs = []
        self._size = self._records = self._checksum = 0


class Stage:
    """Staging of one task: its handlers, by topic and partition. Used by one thread."""

    def __init__(
        self,
        vfs: Vfs,
        root: str,
        job: str,
        config_of: ConfigOf,
        check_of: CheckOf,
        topic_of: TopicOf,
    ) -> None:
        self._files = self._open(vfs, f"{root}/{check_name('job', job)}")
        self._config_of = config_of
        self._check_of = check_of
        self._topic_of = topic_of
        self._handlers: dict[TopicPartition, StagingHandler] = {}

    def _open(self, vfs: Vfs, directory: str) -> TaskFiles:
        return TaskFiles(vfs, directory)

    def _make_handler(
        self,
        topic: str,
        partition: int,
        config: StoreConfig,
        check: StageCheck,
        found: TopicFile,
    ) -> StagingHandler:
        return StagingHandler(self._files, topic, partition, config, check, self._flush_all, found)

    def get_handler(self, topic: str, partition: int) -> StagingHandler:
        """The handler of a topic-partition: always the same one, until it is closed."""
        arguments.integer("partition", partition)
        arguments.instance("topic", topic, str, "the name of a topic")
        handler = self._handlers.get((topic, partition))
        if handler is None or handler.closed:
            with self._files.typed_errors():
                check, config = self._check_of(topic, partition), self._config_of(topic)
                found = self._topic_of(topic)
            handler = self._make_handler(topic, partition, config, check, found)
            self._handlers[topic, partition] = handler
        return handler

    def write(self, topic: str, partition: int, columns: Columns) -> None:
        """Stage records; their order within the topic-partition is kept.

        Raises:
            RecordTooLargeError: one is larger than the topic allows.
            InvalidRecordError: the layout cannot store one.
        """
        arguments.instance("columns", columns, Columns, "what make_columns returned")
        self._files.require_open()
        if columns.count:
            self.get_handler(topic, partition).append(columns)

    def finish(self) -> list[StagedPart]:
        """Sync everything and return the parts, in an order that keeps each partition's.

        Nothing can be staged here afterwards.
        """
        with self._files.typed_errors():
            self._flush_all()
            for handler in self._handlers.values():
                handler.close()
            self._handlers.clear()
            return self._files.finish()

    def discard(self) -> None:
        """Give the task up and delete its files; garbage collection deletes what is left."""
        self._handlers.clear()
        self._files.discard()

    def _flush_all(self) -> None:
        for handler in self._handlers.values():
            handler.flush()


def _first_of_file(frame: EncodedFrame) -> EncodedFrame:
    """The same frame at relative offset 0."""
    return frame.moved(relative_offset=0, recovery_point=0)


def checksum_of(schema: SchemaVersion, topic: TopicFile) -> int:
    """The ``schema_checksum`` of parts of a typed topic."""
    return document.checksum(schema, topic.key_columns, topic.timestamp_column)


def frame_checksum(buffers: list[bytes | memoryview], before: int) -> int:
    """CRC32C over headers and trailers of frames, continued from ``before``."""
    headers = crc32c(buffers[0][:HEADER_BYTES], before)
    checksum: int = crc32c(buffers[-1][-TRAILER_BYTES:], headers)
    return checksum
