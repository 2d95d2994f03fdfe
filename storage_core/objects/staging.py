"""Staging: a write task uploads frames in objects that no commit names yet.

A task keeps its frames in memory until they have ``segment_bytes``, or 128 MiB, or until it ends.
Then it uploads them as one object: sorted by topic and partition, the frames of each partition as
one slice with its indexes after it. Most tasks upload one object. While a thread uploads an object,
the task encodes the next one: at most two are in memory. Garbage collection deletes what a crashed
task has uploaded, by the hour in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..commit.staging import (
    CheckOf,
    ConfigOf,
    Stage,
    StageCheck,
    StagedPart,
    StagingHandler,
    TaskFiles,
    TopicOf,
    checksum_of,
    frame_checksum,
)
from ..config import StoreConfig
from ..errors import InvalidCommitError, StorageError
from ..format.columns import Columns
from ..format.file_names import is_name
from ..format.frame import EncodedFrame
from ..format.frame_builder import FramePlace, encode_frames, hole_frame
from ..format.sparse_index import IndexBuilder, encode_entries, seal
from ..metadata.topic_file import TopicFile
from ..vfs import Buffer, Vfs
from .backend import ObjectBackend
from .names import DATA, new_key
from .slices import Slice

if TYPE_CHECKING:
    from ..schema.fields import SchemaVersion

# A smaller slice has no index: its frames are read from the first one on.
_INDEXED_BYTES = 256 << 10
# Larger segments are made by merging: a task has to fit into the memory of an executor.
MOST_BUFFERED_BYTES = 128 << 20
_MAX_UINT32 = 0xFFFFFFFF
_ANY = 1 << 62


@dataclass(frozen=True, slots=True)
class StagedSlice(StagedPart):
    """A part in an object: one run of frames, with its indexes after it."""

    index_bytes: int = 0
    time_index_bytes: int = 0
    smallest: int = 0
    largest: int = 0

    def as_slice(self) -> Slice:
        """The part as a slice that counts from 0."""
        position, size = self.runs[0]
        return Slice(
            0,
            self.records,
            self.path,
            position,
            size,
            self.index_bytes,
            self.time_index_bytes,
            self.records,
            self.smallest,
            self.largest,
            self.checksum,
        )


class FrameRun:
    """Frames of one slice, in order, and what a commit says about them."""

    def __init__(self, index_interval: int) -> None:
        self.frames: list[EncodedFrame] = []
        self.size = self.records = self.span = self.checksum = 0
        self._index = IndexBuilder(index_interval)

    def add(self, frame: EncodedFrame) -> None:
        """Add a frame; it has to begin where the others end."""
        self._index.add(self.span, self.size, frame.header)
        self.frames.append(frame)
        self.size += frame.header.length
        self.records += frame.header.records
        self.span += frame.header.span
        self.checksum = frame_checksum(frame.buffers, self.checksum)

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest timestamp."""
        headers = [frame.header for frame in self.frames if frame.header.records]
        headers = headers or [frame.header for frame in self.frames]
        return min(h.min_timestamp for h in headers), max(h.max_timestamp for h in headers)

    def buffers(self) -> list[Buffer]:
        """The bytes of the frames."""
        return [buffer for frame in self.frames for buffer in frame.buffers]

    def indexes(self) -> tuple[bytes, bytes]:
        """Both sealed indexes, empty for a small slice."""
        if self.size < _INDEXED_BYTES or len(self.frames) < 2:
            return b"", b""
        offsets, times = self._index.offset_index(), self._index.time_index()
        return (
            seal("offset", encode_entries(offsets.offsets, offsets.positions), self.size),
            seal("time", encode_entries(times.timestamps, times.offsets), self.size),
        )

    def placed(self, key: str, position: int) -> tuple[Slice, list[Buffer]]:
        """The slice, counting from 0, and the bytes of frames and indexes."""
        offsets, times = self.indexes()
        found = Slice(
            0, self.span, key, position, self.size, len(offsets), len(times),
            self.records, *self.bounds, self.checksum,
        )  # fmt: skip
        return found, [*self.buffers(), offsets, times]


def encode_run(columns: Columns, config: StoreConfig, start: int = 0) -> FrameRun:
    """All records of an append as one slice; those with offsets of their own count from ``start``.

    A hole before the first of them belongs to the slice. Without records, it is the slice.
    """
    run = FrameRun(config.index_interval_bytes)
    if not columns.count and columns.offsets is not None and columns.offsets[0] > start:
        run.add(hole_frame(int(columns.offsets[0]) - start, FramePlace(start, start, 0)))
    for frame in encode_frames(
        columns, 0, FramePlace(start, start, 0), room=_any_size, most=_ANY, config=config
    ):
        run.add(frame)
    return run


def _any_size(_: int) -> int:
    return _ANY


class _Waiting(NamedTuple):
    """A slice that waits for its upload."""

    topic: str
    partition: int
    run: FrameRun
    schema: SchemaVersion | None
    found: TopicFile


class TaskObjects(TaskFiles):
    """The objects of one task, and the parts that are complete in them."""

    def __init__(self, backend: ObjectBackend, clock: Vfs, job: str) -> None:
        super().__init__(clock, f"{DATA}/…/{job}")
        self._backend = backend
        self._clock = clock
        self._job = job
        self._waiting: list[_Waiting] = []
        self._uploaded: list[str] = []
        self._pool: ThreadPoolExecutor | None = None
        self._upload: Future[None] | None = None
        self.buffered = 0
        """Bytes of frames that are not uploaded yet, in all handlers."""

    def end_run(self, waiting: _Waiting) -> None:
        """Let a complete slice wait for the upload."""
        self._waiting.append(waiting)

    def begin_upload(self) -> None:
        """Let a thread upload all complete slices as one object; first the one before must end."""
        self._wait()
        found = self._next_object()
        if found is not None:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="storage-core-upload")
            self._upload = self._pool.submit(self._backend.put, *found)

    def _wait(self) -> None:
        """Raise what went wrong with the upload that a thread does, when it has ended."""
        running, self._upload = self._upload, None
        if running is not None:
            with self.whole():
                running.result()

    def _end_uploads(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _next_object(self) -> tuple[str, list[Buffer]] | None:
        """Key and bytes of an object with all complete slices, which become parts."""
        if not self._waiting:
            return None
        key, position = new_key(self._clock, self._job), 0
        buffers: list[Buffer] = []
        # Stable: two slices of one partition stay in their order.
        for topic, partition, run, schema, found in sorted(
            self._waiting, key=lambda each: each[:2]
        ):
            placed, data = run.placed(key, position)
            buffers += data
            position += placed.stored
            self.parts.append(
                StagedSlice(
                    topic,
                    partition,
                    key,
                    ((placed.position, placed.size),),
                    placed.records,
                    placed.checksum,
                    True,
                    None if schema is None else schema.version,
                    0 if schema is None else checksum_of(schema, found),
                    placed.index_bytes,
                    placed.time_index_bytes,
                    placed.smallest,
                    placed.largest,
                )
            )
        self._uploaded.append(key)
        self._waiting, self.buffered = [], 0
        return key, buffers

    def finish(self) -> list[StagedPart]:
        try:
            self._wait()
            found = self._next_object()
            if found is not None:
                with self.whole():
                    self._backend.put(*found)
        finally:
            self._end_uploads()
        self._ended = "is finished"
        return self.parts

    def discard(self) -> None:
        """Delete what was uploaded; garbage collection deletes what is left."""
        self._ended, self._waiting = "was given up", []
        self._end_uploads()
        with suppress(OSError, StorageError):
            self._backend.delete(self._uploaded)


class ObjectStagingHandler(StagingHandler):
    """The handler of one topic-partition in a task that writes to objects."""

    def __init__(
        self,
        files: TaskObjects,
        topic: str,
        partition: int,
        config: StoreConfig,
        check: StageCheck,
        make_room: Callable[[], None],
        found: TopicFile,
        end_runs: Callable[[], None],
    ) -> None:
        super().__init__(files, topic, partition, config, check, make_room, found)
        self._objects = files
        self._end_runs = end_runs
        self._run = FrameRun(config.index_interval_bytes)

    def _place(self, frame: EncodedFrame) -> None:
        self._run.add(frame)
        self._records = self._run.records
        self._objects.buffered += frame.header.length
        if self._objects.buffered >= min(self._config.segment_bytes, MOST_BUFFERED_BYTES):
            self._end_runs()
            self._objects.begin_upload()

    def end_part(self) -> None:
        """Complete the slice; later frames begin another one."""
        if self._run.frames:
            waiting = _Waiting(self.topic, self.partition, self._run, self._schema, self._found)
            self._objects.end_run(waiting)
            self._run = FrameRun(self._config.index_interval_bytes)
            self._records = 0

    def _end_part(self) -> None:
        self.end_part()


class ObjectStage(Stage):
    """Staging of one task. Used by one thread."""

    def __init__(
        self,
        backend: ObjectBackend,
        clock: Vfs,
        job: str,
        config_of: ConfigOf,
        check_of: CheckOf,
        topic_of: TopicOf,
    ) -> None:
        self._backend = backend
        self._job = job
        super().__init__(clock, DATA, job, config_of, check_of, topic_of)

    def _open(self, vfs: Vfs, directory: str) -> TaskFiles:  # noqa: ARG002
        self._objects = TaskObjects(self._backend, vfs, self._job)
        return self._objects

    def _make_handler(
        self,
        topic: str,
        partition: int,
        config: StoreConfig,
        check: StageCheck,
        found: TopicFile,
    ) -> StagingHandler:
        return ObjectStagingHandler(
            self._objects, topic, partition, config, check, self._flush_all, found, self._end_runs
        )

    def _end_runs(self) -> None:
        for handler in self._handlers.values():
            assert isinstance(handler, ObjectStagingHandler)
            handler.end_part()


def claimed_slices(job: str, parts: Sequence[StagedPart], oldest_hour: str) -> list[StagedSlice]:
    """The parts that a job's commit messages name. It trusts no field, and reads no object.

    Raises:
        InvalidCommitError: a part is invalid, of another job, given twice, or too old.
    """
    claimed, seen = [], set[tuple[str, int]]()
    for part in parts:
        try:
            checked = _checked(job, part, oldest_hour)
            place = (checked.path, checked.runs[0][0])
            if place in seen:
                raise ValueError(f"{checked.path!r} is given twice; give each part once")
            seen.add(place)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidCommitError(f"a commit message is invalid: {error}.") from error
        claimed.append(checked)
    return claimed


def _checked(job: str, part: StagedPart, oldest_hour: str) -> StagedSlice:
    if not isinstance(part, StagedSlice):
        raise TypeError(f"a part must be what Stage.finish returned, got {type(part).__name__}")
    if not isinstance(part.path, str):
        raise TypeError(f"the path must be str, got {part.path!r}")
    steps = part.path.split("/")
    if len(steps) != 4 or steps[0] != DATA or not all(map(is_name, steps)):
        raise ValueError(f"{part.path!r} is not a data object")
    if steps[2] != job:
        raise ValueError(f"{part.path!r} does not belong to job {job}")
    if steps[1] < oldest_hour:
        raise ValueError(
            f"{part.path!r} was uploaded before {oldest_hour}, and garbage collection may delete "
            "it. Run the job again, or raise staging_ttl_ms"
        )
    ((position, size),) = part.runs
    counts = (part.partition, position, size, part.records, part.checksum, part.schema_checksum)
    numbers = (*counts, part.index_bytes, part.time_index_bytes, part.smallest, part.largest)
    if not all(type(number) is int for number in numbers) or min(numbers[:8]) < 0:
        raise ValueError(f"the part of {part.topic!r}: a number is out of range: {numbers}")
    if not part.records or not size or max(part.checksum, part.schema_checksum) > _MAX_UINT32:
        raise ValueError(f"the part of {part.topic!r}: a number is out of range: {numbers}")
    if not is_name(part.topic) or part.smallest > part.largest:
        raise ValueError(f"the part of {part.topic!r}: its topic or its times are invalid")
    schema = part.schema
    if schema is not None and (type(schema) is not int or not 1 <= schema <= _MAX_UINT32):
        raise ValueError(f"the part of {part.topic!r}: schema {schema!r} is no schema version")
    return part
