"""The private files of a write task: records encoded and synced, but not yet part of any log.

A task writes frames with offsets that count from 0, under a name nobody else can have. Small parts
of all partitions share one file; a part that passes ``OWN_FILE_BYTES`` is in files of its own,
which the commit turns into segments by a rename. The first few get such a file much sooner, because
what they have in the shared one must be written again. Nothing here is visible to any reader, and a
task that dies leaves files that are swept by age.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import crc32c

from ..config import MIB, StoreConfig
from ..errors import WriteFailedError
from ..format.columns import Columns
from ..format.file_names import check_name
from ..format.frame import HEADER_BYTES, TRAILER_BYTES
from ..format.frame_builder import FrameBuilder
from ..format.frame_encode import EncodedFrame, draft_frame, finish_frame
from ..format.record_sizes import check_sizes
from ..io.durable import sync_directories, write_all
from ..io.io_errors import write_failure
from ..io.parallel import spread_waits
from ..vfs import Buffer, Vfs

OWN_FILE_BYTES = 16 * MIB
SUFFIX = ".frames"
_EARLY_FILES, _EARLY_BYTES = 8, MIB
_BUFFERED_BYTES = 64 * MIB
_SYNC_THREADS = 4

TopicPartition = tuple[str, int]
StageCheck = Callable[[Columns], None]
ConfigOf = Callable[[str], StoreConfig]
CheckOf = Callable[[str, int], StageCheck]


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Frames of one topic-partition in one staging file: what a task tells the committer.

    ``runs`` are (position, size) of the frames in their order; ``checksum`` covers the headers and
    trailers, which in turn cover the bodies. ``own_file`` parts may be renamed into place.
    """

    topic: str
    partition: int
    path: str
    runs: tuple[tuple[int, int], ...]
    records: int
    checksum: int
    own_file: bool

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
        if self._closed:  # its descriptor may be another file's by now
            raise WriteFailedError(f"{self.path} takes no more frames: it is closed.")
        position = self.size
        self.size = write_all(self._vfs, self.fd, buffers, position)
        if self.size - self._synced_from >= MIB:
            self._vfs.begin_writeback(self.fd, self._synced_from, self.size - self._synced_from)
            self._synced_from = self.size
        return position, self.size - position

    def finish(self) -> None:
        """Make the file durable and final: a zombie that kept it open must not change it."""
        try:
            self._vfs.fsync(self.fd)
            self._vfs.make_read_only(self.fd)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._vfs.close(self.fd)


@dataclass(slots=True)
class _Part:
    """What was staged of one topic-partition so far."""

    config: StoreConfig
    check: StageCheck
    queue: FrameBuilder
    runs: list[tuple[int, int]] = field(default_factory=list)
    records: int = 0
    checksum: int = 0
    own: _File | None = None
    becomes_segments: bool = False

    @property
    def size(self) -> int:
        return sum(size for _, size in self.runs)

    @property
    def own_file_bytes(self) -> int:
        """From this size on the part becomes segments, none of which may pass its limit."""
        return min(OWN_FILE_BYTES, self.config.segment_bytes)


class Stage:
    """Staging of one task. Used by one thread."""

    def __init__(
        self, vfs: Vfs, root: str, job: str, config_of: ConfigOf, check_of: CheckOf
    ) -> None:
        self._vfs = vfs
        self._directory = f"{root}/{check_name('job', job)}"
        self._config_of = config_of
        self._check_of = check_of
        self._parts: dict[TopicPartition, _Part] = {}
        self._shared: _File | None = None
        self._files: list[_File] = []
        self._finished: list[StagedPart] = []
        self._buffered = 0
        self._ended = ""

    def write(self, topic: str, partition: int, columns: Columns) -> None:
        """Stage records; their order within the topic-partition is kept.

        Raises:
            RecordTooLargeError: one is larger than the topic allows.
            InvalidRecordError: the layout cannot store one. Found at the commit, behind its point
                of no return, it would block the partition for good.
        """
        with self._typed_errors():
            self._write(topic, partition, columns)

    def _write(self, topic: str, partition: int, columns: Columns) -> None:
        if not columns.count:
            return
        part = self._parts.get((topic, partition))
        if part is None:
            check, config = self._check_of(topic, partition), self._config_of(topic)
            queue = FrameBuilder(config.frame_records, config.frame_bytes)
            part = self._parts[topic, partition] = _Part(config, check, queue)
        check_sizes(columns.bounds, part.config.max_record_bytes)
        part.check(columns)
        part.queue.add(columns)
        self._buffered += columns.size
        if part.queue.is_full:
            self._encode(topic, partition, part, keep_rest=True)
        elif self._buffered >= _BUFFERED_BYTES:
            self._flush_all()

    def finish(self) -> list[StagedPart]:
        """Sync everything and return the parts, in an order that keeps each partition's.

        Nothing can be staged here afterwards.
        """
        with self._typed_errors():
            return self._finish()

    def discard(self) -> None:
        """Give the task up: close and delete its files. What cannot be deleted is swept by age."""
        files, self._files, self._shared = self._files, [], None
        self._parts.clear()
        self._ended = "was given up"
        for file in files:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                self._vfs.unlink(file.path)

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        if self._ended:
            raise WriteFailedError(f"the staging in {self._directory} {self._ended}. Start anew.")
        try:
            yield
        except OSError as error:
            self.discard()
            raise write_failure(f"staging in {self._directory}", error) from error

    def _finish(self) -> list[StagedPart]:
        self._flush_all()
        for (topic, partition), part in self._parts.items():
            self._close_part(topic, partition, part)
        if self._files:
            spread_waits(_File.finish, self._files, _SYNC_THREADS)
            self._vfs.fsync_dir(self._directory)
        self._files, self._shared = [], None
        self._parts.clear()
        self._ended = "is finished"
        return self._finished

    def _flush_all(self) -> None:
        for (topic, partition), part in self._parts.items():
            self._encode(topic, partition, part, keep_rest=False)

    def _encode(self, topic: str, partition: int, part: _Part, *, keep_rest: bool) -> None:
        """Encode what waits as frames; a last incomplete one may wait for more records."""
        while part.queue.is_full or (part.queue.rows and not keep_rest):
            columns = part.queue.take()
            self._buffered -= columns.size
            frame = finish_frame(
                draft_frame(
                    columns,
                    relative_offset=part.records,
                    recovery_point=0,
                    compression=part.config.compression,
                    level=part.config.compression_level,
                )
            )
            self._place(topic, partition, part, frame)

    def _place(self, topic: str, partition: int, part: _Part, frame: EncodedFrame) -> None:
        size = part.size + frame.header.length
        part.becomes_segments |= size > part.own_file_bytes
        if part.own is not None and size > part.config.segment_bytes:
            self._close_part(topic, partition, part)
            part.own = self._create()
            frame = _first_of_file(frame)
        elif part.own is None and (part.becomes_segments or self._is_early(size)):
            self._move_to_own_file(part)
        if part.own is None and self._shared is None:
            self._shared = self._create()
        target = part.own or self._shared
        assert target is not None
        part.runs.append(target.write(frame.buffers))
        part.records += frame.header.records
        part.checksum = frame_checksum(frame.buffers, part.checksum)

    def _is_early(self, size: int) -> bool:
        return size > _EARLY_BYTES and len(self._files) < _EARLY_FILES

    def _move_to_own_file(self, part: _Part) -> None:
        """Give the part a file that can become a segment by its name, because it is alone in it."""
        if self._shared is not None and self._shared.size == part.size:
            part.own, self._shared = self._shared, None
            return
        part.own = self._create()
        runs = []
        for position, size in part.runs:
            assert self._shared is not None
            data = self._vfs.pread(self._shared.fd, size, position)
            runs.append(part.own.write([data]))
        part.runs = runs

    def _close_part(self, topic: str, partition: int, part: _Part) -> None:
        if part.runs:
            target = part.own or self._shared
            assert target is not None
            self._finished.append(
                StagedPart(
                    topic,
                    partition,
                    target.path,
                    tuple(part.runs),
                    part.records,
                    part.checksum,
                    part.becomes_segments,
                )
            )
        part.runs, part.records, part.checksum = [], 0, 0

    def _create(self) -> _File:
        if not self._files and not self._finished:
            # A commit that is decided needs them after a power cut too.
            sync_directories(self._vfs, self._directory)
        created = _File(self._vfs, self._directory)
        self._files.append(created)
        return created


def _first_of_file(frame: EncodedFrame) -> EncodedFrame:
    """The same frame at relative offset 0."""
    return frame.moved(relative_offset=0, recovery_point=0)


def frame_checksum(buffers: list[bytes | memoryview], before: int) -> int:
    """CRC32C over headers and trailers of frames, continued from ``before``."""
    headers = crc32c.crc32c(buffers[0][:HEADER_BYTES], before)
    checksum: int = crc32c.crc32c(buffers[-1][-TRAILER_BYTES:], headers)
    return checksum
