"""Appending to a broker's directory, while the broker is stopped, what the broker itself accepts.

These layouts have no checksum, no watermark and (most) no transactions, so the promise is smaller
than the native one: whole records are durable and visible on return, and a torn record left by a
crash is cut before the next append. Beside the records nothing of the broker's is touched, except
that a cursus ``.hwm`` is raised: it would hide what was appended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..broker_index import IndexEntries, encode_index, parse_rustlog_index
from ..columns import Columns, Int64s
from ..config import StoreConfig
from ..durable import (
    create_file,
    ensure_lock_file,
    locked,
    make_directories,
    read_file,
    replace_file,
    write_all,
)
from ..errors import DamagedLogError, UnsupportedColumnError, WriteFailedError
from ..faults import closed_for_writing, is_harmless, write_failure
from ..records import TIMESTAMP_SUPPLIED, ActiveFile, OffsetRange
from ..vfs import Vfs
from .layout import RowLayout
from .names import STATE_DIRECTORY
from .segments import RowSegments

_MOST_BYTES = 8 << 20


class _Target(NamedTuple):
    """The file that takes the next record."""

    path: str
    number: int
    base: int
    size: int
    offset: int


class RowLog:
    """The writing side of one partition. Safe for several threads and processes of ours."""

    def __init__(
        self,
        vfs: Vfs,
        layout: RowLayout,
        topic: str,
        partition: int,
        config: StoreConfig,
        segments: RowSegments,
    ) -> None:
        self._vfs = vfs
        self._layout = layout
        self._topic = topic
        self._partition = partition
        self._segments = segments
        self._lock_path = f"{STATE_DIRECTORY}/locks/{topic}-{partition}"
        self._lock = threading.Lock()
        self._poison: OSError | None = None
        self._active = ActiveFile(0, 0, "")
        self._durable_end = 0
        self.config = config
        self.cut_bytes = 0

    @property
    def base_name(self) -> str:
        """What the names of the partition's log files begin with."""
        names = self._layout.names
        directory = names.directory(self._vfs, self._topic, self._partition)
        name = names.format(self._vfs, self._topic, self._partition, 0)
        return f"{directory}/{name.removesuffix('.log').rstrip('0').removesuffix('_segment_')}"

    @property
    def active(self) -> ActiveFile:
        """The file appends go to."""
        return self._active

    @property
    def durable_end(self) -> int:
        """Offset up to which all records are durable, as far as this process knows."""
        return self._durable_end

    def append(self, columns: Columns) -> OffsetRange:
        """Append records; durable and visible on return.

        Raises:
            UnsupportedColumnError: a column has values that the layout cannot store.
            WriteFailedError: what is visible of this call, if anything, is whole records.
        """
        self.check(columns)
        with self.exclusive() as target:
            first = target.offset
            row = 0
            while row < columns.count:
                rows = self._rows_that_fit(columns.sizes[row:], target)
                data = None
                if rows:
                    part = columns.slice(row, row + rows)
                    data = memoryview(self._encode(part, target.offset))
                if data is None or (target.size and target.size + len(data) > self._limit):
                    target = self._next_file(target)
                    continue
                target = self._write(target, data, part)
                row += rows
            self._raise_watermark(target.offset)
            self._note(target)
            return OffsetRange(first, target.offset)

    def flush(self) -> None:
        """Nothing waits: every append syncs."""

    def roll(self) -> bool:
        """Start a new segment file; False if the last one is empty."""
        with self.exclusive() as target:
            if not target.size:
                return False
            self._note(self._next_file(target))
            return True

    def close(self) -> None:
        """Nothing is held open."""

    @contextmanager
    def exclusive(self) -> Iterator[_Target]:
        """Hold the partition against our other writers, its last file cut to whole records."""
        if self._layout.encode is None:
            raise WriteFailedError(
                "ordinal files of this era are only read. Open them with layout='cursus' to append "
                "raw payloads, or convert them."
            )
        with self._lock:
            if self._poison is not None:
                raise closed_for_writing(self._topic, self._partition, self._poison)
            try:
                ensure_lock_file(self._vfs, self._lock_path)
                with locked(self._vfs, self._lock_path, self.config.lock_timeout_ms):
                    target = self._target()
                    self._note(target)
                    yield target
            except OSError as error:
                if not is_harmless(error):
                    self._poison = error
                raise write_failure(
                    f"{self._topic}-{self._partition}: writing",
                    error,
                    topic=self._topic,
                    partition=self._partition,
                ) from error

    @property
    def _limit(self) -> int:
        return self.config.segment_bytes

    def check(self, columns: Columns) -> None:
        """Raise UnsupportedColumnError for what the layout has no place for."""
        given = {
            "key": columns.key is not None,
            "headers": columns.headers is not None,
            "timestamp": columns.timestamp_type == TIMESTAMP_SUPPLIED,
        }
        for name, has_values in given.items():
            if has_values and name not in self._layout.columns:
                raise UnsupportedColumnError(
                    f"layout {self._layout.name} cannot store the column {name!r}. "
                    "Leave it out, or use a native store.",
                    topic=self._topic,
                    partition=self._partition,
                )

    def _target(self) -> _Target:
        directory = self._layout.names.directory(self._vfs, self._topic, self._partition)
        files = self._layout.names.segments(self._vfs, self._topic, self._partition)
        end = self._segments.end()
        if end is None:
            return self._create(directory, 0, 0)
        if end.damage is not None:
            raise DamagedLogError(
                f"{self._topic}-{self._partition}: {end.damage}. Nothing is appended behind "
                "damage: restore the file from a copy.",
                topic=self._topic,
                partition=self._partition,
                path=end.path,
                position=end.position,
                offset=end.offset,
            )
        if end.torn:
            self._cut(end.path, end.position, end.size)
        return _Target(end.path, files[-1].number, end.base, end.position, end.offset)

    def _cut(self, path: str, position: int, size: int) -> None:
        """Save a torn record aside, then cut it: appended bytes must follow a whole record."""
        saved = f"{STATE_DIRECTORY}/broken/{path.replace('/', '~')}-{position}"
        make_directories(self._vfs, f"{STATE_DIRECTORY}/broken")
        fd = self._vfs.open(path, "write")
        try:
            replace_file(self._vfs, saved, self._vfs.pread(fd, size - position, position))
            self._vfs.truncate(fd, position)
            self._vfs.fsync(fd)
        finally:
            self._vfs.close(fd)
        self.cut_bytes += size - position

    def _note(self, target: _Target) -> None:
        self._active = ActiveFile(target.number, target.size, target.path)
        self._durable_end = target.offset

    def _create(self, directory: str, number: int, offset: int) -> _Target:
        name = self._layout.names.format(self._vfs, self._topic, self._partition, number)
        path = f"{directory}/{name}"
        make_directories(self._vfs, directory)
        create_file(self._vfs, path, b"")
        self._vfs.fsync_dir(directory)
        return _Target(path, number, offset, 0, offset)

    def _next_file(self, target: _Target) -> _Target:
        number = target.number + 1 if self._layout.ordinal else target.offset
        return self._create(target.path.rpartition("/")[0], number, target.offset)

    def _rows_that_fit(self, sizes: Int64s, target: _Target) -> int:
        """Rows for one write: inside the segment's limit, and not more than a few megabytes."""
        ends = np.cumsum(sizes[: _MOST_BYTES // self._layout.format.header_bytes])
        ends = ends + self._layout.format.header_bytes * np.arange(1, len(ends) + 1)
        room = min(self._limit - target.size, _MOST_BYTES)
        rows = int(np.searchsorted(ends, room, side="right"))
        return rows if rows or target.size else 1

    def _encode(self, columns: Columns, offset: int) -> memoryview:
        assert self._layout.encode is not None
        return memoryview(self._layout.encode(columns, self._topic, self._partition, offset))

    def _write(self, target: _Target, data: memoryview, columns: Columns) -> _Target:
        fd = self._vfs.open(target.path, "write")
        try:
            write_all(self._vfs, fd, [data], target.size)
            self._vfs.fsync(fd)
        finally:
            self._vfs.close(fd)
        if self._layout.index_every is not None:
            self._add_index_entries(target, columns, self._layout.index_every)
        return target._replace(size=target.size + len(data), offset=target.offset + columns.count)

    def _add_index_entries(self, target: _Target, columns: Columns, every: int) -> None:
        """Entries for every so many-th record. A broker trusts them, so only behind sound ones."""
        ordinals = np.arange(columns.count) + (target.offset - target.base)
        due = np.flatnonzero(ordinals % every == 0)
        path = target.path.removesuffix(".log") + ".index"
        existing = read_file(self._vfs, path, 1 << 30)
        sound = 16 * len(parse_rustlog_index(existing or b"", max(target.size, 1)).offsets)
        if not len(due) or (existing is not None and sound != len(existing)):
            return
        starts = np.concatenate(([0], np.cumsum(columns.sizes + self._layout.format.header_bytes)))
        entries = IndexEntries(target.offset + due, target.size + starts[due])
        fd = self._vfs.open(path, "create" if existing is None else "write")
        try:
            write_all(self._vfs, fd, [encode_index(entries)], sound)
            self._vfs.fsync(fd)
        finally:
            self._vfs.close(fd)

    def _raise_watermark(self, end: int) -> None:
        path = f"{self._topic}/partition_{self._partition}.hwm"
        if self._layout.isolated and self._vfs.stat(path) is not None:
            replace_file(self._vfs, path, f"{end}\n".encode())
