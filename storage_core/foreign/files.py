"""Writing rows into a partition's files: the next one, torn tails, rolling, indexes."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ..broker_index import IndexEntries, encode_index, parse_rustlog_index
from ..columns import Columns, Int64s
from ..durable import create_file, make_directories, read_file, replace_file, write_all
from ..errors import DamagedLogError, UnsupportedColumnError
from ..records import TIMESTAMP_SUPPLIED
from ..vfs import Vfs
from .layout import RowLayout
from .names import STATE_DIRECTORY
from .segments import RowSegments

_MOST_BYTES = 8 << 20


class Target(NamedTuple):
    """The file that takes the next record, and that record's offset."""

    path: str
    number: int
    base: int
    size: int
    offset: int


class RowFiles:
    """The files of one partition, for whoever holds its lock. Not thread-safe."""

    def __init__(
        self,
        vfs: Vfs,
        layout: RowLayout,
        topic: str,
        partition: int,
        limit: int,
        segments: RowSegments,
    ) -> None:
        self._vfs = vfs
        self._layout = layout
        self._topic = topic
        self._partition = partition
        self._limit = limit
        self._segments = segments
        self.cut_bytes = 0

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

    def target(self) -> Target:
        """The last file, cut to whole records; made if there is none.

        Raises:
            DamagedLogError: what follows the last whole record is damage, not a torn record.
        """
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
        return Target(end.path, files[-1].number, end.base, end.position, end.offset)

    def append(self, target: Target, columns: Columns) -> Target:
        """Write records durably, rolling before a file would pass its limit."""
        row = 0
        while row < columns.count:
            rows = self._rows_that_fit(columns.sizes[row:], target)
            part = columns.slice(row, row + rows)
            data = self._encode(part, target.offset) if rows else memoryview(b"")
            if not rows or (target.size and target.size + len(data) > self._limit):
                target = self.next_file(target)
                continue
            target = self._write(target, data, part)
            row += rows
        self._raise_watermark(target.offset)
        return target

    def next_file(self, target: Target) -> Target:
        """Start another file behind ``target``."""
        number = target.number + 1 if self._layout.ordinal else target.offset
        return self._create(target.path.rpartition("/")[0], number, target.offset)

    def rewind(self, number: int, size: int) -> None:
        """Take the partition back to where a commit found it: what follows is that commit's own.

        Rows have no checksum, so what a crash left of them is written again rather than believed.
        """
        directory = self._layout.names.directory(self._vfs, self._topic, self._partition)
        for segment in self._layout.names.segments(self._vfs, self._topic, self._partition):
            path = f"{directory}/{segment.name}"
            if segment.number > number:
                for name in (path, path.removesuffix(".log") + ".index"):
                    with suppress(FileNotFoundError):
                        self._vfs.unlink(name)
            elif segment.number == number:
                fd = self._vfs.open(path, "write")
                try:
                    if self._vfs.fstat(fd).size > size:
                        self._vfs.truncate(fd, size)
                        self._vfs.fsync(fd)
                finally:
                    self._vfs.close(fd)
        self._vfs.fsync_dir(directory)

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

    def _create(self, directory: str, number: int, offset: int) -> Target:
        name = self._layout.names.format(self._vfs, self._topic, self._partition, number)
        path = f"{directory}/{name}"
        make_directories(self._vfs, directory)
        create_file(self._vfs, path, b"")
        self._vfs.fsync_dir(directory)
        return Target(path, number, offset, 0, offset)

    def _rows_that_fit(self, sizes: Int64s, target: Target) -> int:
        """Rows for one write: inside the file's limit, and not more than a few megabytes."""
        header = self._layout.format.header_bytes
        ends = np.cumsum(sizes[: _MOST_BYTES // header] + header)
        room = min(self._limit - target.size, _MOST_BYTES)
        rows = int(np.searchsorted(ends, room, side="right"))
        return rows if rows or target.size else 1

    def _encode(self, columns: Columns, offset: int) -> memoryview:
        assert self._layout.encode is not None
        return memoryview(self._layout.encode(columns, self._topic, self._partition, offset))

    def _write(self, target: Target, data: memoryview, columns: Columns) -> Target:
        fd = self._vfs.open(target.path, "write")
        try:
            write_all(self._vfs, fd, [data], target.size)
            self._vfs.fsync(fd)
        finally:
            self._vfs.close(fd)
        if self._layout.index_every is not None:
            self._add_index_entries(target, columns, self._layout.index_every)
        return target._replace(size=target.size + len(data), offset=target.offset + columns.count)

    def _add_index_entries(self, target: Target, columns: Columns, every: int) -> None:
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
