"""Writing rows to a partition's files: torn tails, rolling, indexes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import NamedTuple

import numpy as np

from ..errors import DamagedLogError, UnsupportedColumnError
from ..format.columns import Columns
from ..format.sparse_index import SparseIndex
from ..io.byte_source import WindowSource
from ..io.durable import (
    create_file,
    keep_head,
    make_directories,
    parent,
    replace_file,
    save_copy,
    sync_directories,
    sync_file,
    write_all,
)
from ..layouts.broker_names import STATE_DIRECTORY
from ..types import TIMESTAMP_SUPPLIED, Int64s, Integers
from .codecs.index import ENTRY_BYTES, encode_index, parse_rustlog_index
from .codecs.rows import Framed, walk_scalar
from .files_after import FilesAfter, different, same_bytes
from .layout import RowPartition
from .segment_reader import is_zero_tail
from .segments import Added, RowSegments

_log = logging.getLogger("storage_core")
_MOST_BYTES = 8 << 20


class Target(NamedTuple):
    """The file that takes the next record, and that record's offset."""

    path: str
    number: int
    base: int
    size: int
    offset: int


class _Piece(NamedTuple):
    """Encoded records for one write; ``starts`` are the positions of their frames in it."""

    data: memoryview
    rows: int
    starts: Int64s
    new_file: bool
    is_control: bool = False


class Written(NamedTuple):
    """What stands in the files of the rows that a commit adds after its position."""

    records: int
    """Whole records of the commit, from its first one on."""
    path: str | None = None
    position: int = 0
    """Where bytes begin that the commit does not write, if there are any."""


class RowFiles:
    """The files of one partition. The caller holds its lock. Not thread-safe."""

    def __init__(self, of: RowPartition, limit: int, segments: RowSegments) -> None:
        self._of = of
        self._vfs = of.vfs
        self._layout = of.layout
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
            if has_values and name not in self._layout.kind.columns:
                raise UnsupportedColumnError(
                    f"layout {self._layout.name} cannot store the column {name!r}. "
                    "Leave it out, or use a native store.",
                    topic=self._of.topic,
                    partition=self._of.partition,
                )

    def check_storable(self, columns: Columns) -> None:
        """Raise for records that an append would refuse; encodes them and throws the bytes away."""
        self.check(columns)
        self.encoded_bytes(columns)

    def encoded_bytes(self, columns: Columns) -> int:
        """How many bytes these records take in the files."""
        return sum(len(piece.data) for piece in self._pieces(columns, Target("", 0, 0, 0, 0)))

    def target(self) -> Target:
        """The last file, cut to whole records; created if there is none.

        Raises:
            DamagedLogError: the bytes after the last whole record are damage, not a torn record.
        """
        directory = self._of.directory()
        end = self._segments.end()
        if end is None:
            return self._create(directory, 0, 0)
        if end.damage is not None:
            raise DamagedLogError(
                f"{self._of.name}: {end.damage}. Records cannot be "
                "appended after damage. Restore the file from a copy.",
                topic=self._of.topic,
                partition=self._of.partition,
                path=end.path,
                position=end.position,
                offset=end.offset,
            )
        if end.torn:
            self._cut(end.path, end.position, end.size)
        number = self._of.number(end.path, end.base)
        found = Target(end.path, number, end.base, end.position, end.offset)
        # The broker expects no new record in a compacted file.
        return self.next_file(found) if end.compacted and end.offset > end.base else found

    def append(self, target: Target, columns: Columns, *, sync: bool) -> Target:
        """Write records, rolling before a file would pass its limit; durably if ``sync`` is set.

        All is encoded before anything is written: a record that cannot be stored leaves nothing.
        """
        if columns.offsets is not None and len(columns.offsets):
            target = self._begin_at(target, columns.offsets)
        for piece in self._pieces(columns, target):
            if piece.new_file:
                target = self.next_file(target, sync=False)
            target = self._write(target, piece, sync=sync)
            if piece.new_file and sync:
                # After the file, which needs a commit of the file system anyway. Before the next
                # file: of two new names a power cut must not keep the second one only.
                self._vfs.fsync_dir(parent(target.path))
        self._raise_watermark(target.offset, sync=sync)
        return target

    def _begin_at(self, target: Target, offsets: Int64s) -> Target:
        """The file for records that keep their offsets: an empty log may begin at any base."""
        first = int(offsets[0])
        empty = not self._layout.ordinal and target.offset == 0
        if len(offsets) != int(offsets[-1]) - first + 1 or (first != target.offset and not empty):
            raise UnsupportedColumnError(
                f"layout {self._layout.name} cannot store the column 'offset': these offsets go "
                f"from {first} to {int(offsets[-1])} for {len(offsets)} records, and "
                f"{target.offset} is due. Renumber them, or use a native store.",
                topic=self._of.topic,
                partition=self._of.partition,
            )
        if first == target.offset:
            return target
        directory = target.path.rpartition("/")[0]
        name = self._of.file_name(first)
        path = f"{directory}/{name}"
        with suppress(FileNotFoundError):
            self._vfs.unlink(target.path.removesuffix(".log") + ".index")
        self._vfs.rename(target.path, path)
        self._vfs.fsync_dir(directory)
        return Target(path, first, first, 0, first)

    def _pieces(self, columns: Columns, target: Target) -> list[_Piece]:
        pieces, sizes = list[_Piece](), np.diff(columns.bounds)
        row, size = 0, target.size
        while row < columns.count:
            rows = self._rows_that_fit(sizes[row:], size)
            new_file = rows == 0
            if new_file:
                size = 0
                rows = self._rows_that_fit(sizes[row:], size)
            framed = self._encode(columns.slice(row, row + rows), target.offset + row)
            data = memoryview(framed.data)
            pieces.append(_Piece(data, rows, framed.starts, new_file))
            size += len(data)
            row += rows
        return pieces + self._closing(columns, target.offset + row)

    def has_transactions(self, columns: Columns) -> bool:
        """Whether some records are written under a transaction of the broker's."""
        return bool(self._closing(columns, 0))

    def _closing(self, columns: Columns, offset: int) -> list[_Piece]:
        """Control records that commit the transactions some records were written under."""
        if self._layout.closing is None:
            return []
        records = self._layout.closing(columns, self._of.topic, self._of.partition, offset)
        starts = np.cumsum([0, *map(len, records)], dtype=np.int64)[:-1]
        data = memoryview(b"".join(records))
        return [_Piece(data, len(records), starts, False, is_control=True)] if records else []

    def next_file(self, target: Target, *, sync: bool = True) -> Target:
        """Start another file after ``target``."""
        number = target.number + 1 if self._layout.ordinal else target.offset
        return self._create(target.path.rpartition("/")[0], number, target.offset, sync=sync)

    def sync(self, target: Target) -> None:
        """Make a file and its directories durable: its writer may have crashed before the sync."""
        sync_file(self._vfs, target.path)
        directory = parent(target.path)
        self._vfs.fsync_dir(directory)
        sync_directories(self._vfs, directory)

    def sync_all(self, target: Target) -> None:
        """Make all files durable: those that ``fsync=none`` left to the kernel."""
        directory = parent(target.path)
        for path in (f"{directory}/{file.name}" for file in self._of.files()):
            if path != target.path:
                sync_file(self._vfs, path)
        self.sync(target)

    def written(
        self, number: int, position: int, commit: Iterable[Columns], offset: int
    ) -> Written:
        """Compare what stands after a position with the rows that a commit writes there.

        Bytes of the commit that a power cut took read as zeros, a whole sector at a time.
        """
        found = self._after(number, position)
        records, whole = 0, True
        for piece in self._expected(commit, offset) if found.left else ():
            data = found.take(len(piece.data))
            same = same_bytes(data, piece.data)
            if whole and not piece.is_control:
                end = same if same < len(piece.data) else len(piece.data)
                records += walk_scalar(piece.data[:end], 0, end, self._layout.format).count
            whole = whole and same == len(piece.data)
            foreign = found.first_kept(different(data, piece.data))
            if foreign is not None:
                return Written(records, *foreign)
            if not found.left:
                break
        return Written(records, *found.place()) if found.left else Written(records)

    def _expected(self, commit: Iterable[Columns], offset: int) -> Iterator[_Piece]:
        for columns in commit:
            for piece in self._pieces(columns, Target("", 0, 0, 0, offset)):
                yield piece
                offset += piece.rows

    def _after(self, number: int, position: int) -> FilesAfter:
        directory, files = self._of.directory(), []
        for segment in self._of.files():
            path = f"{directory}/{segment.name}"
            stat = self._vfs.stat(path) if segment.number >= number else None
            start = position if segment.number == number else 0
            if stat is not None and stat.size > start:
                files.append((path, start, stat.size))
        return FilesAfter(self._vfs, files)

    def rewind(self, number: int, size: int) -> None:
        """Cut the partition back to where a commit found it: ``written`` says it is the commit's.

        Rows have no checksum, so rows that a crash left are written again and not trusted. The last
        file goes first, each durably: a crash leaves the first rows of the commit, without a hole
        that looks like another program's work.
        """
        directory = self._of.directory()
        for segment in reversed(self._of.files()):
            path = f"{directory}/{segment.name}"
            if segment.number > number:
                for name in (path, path.removesuffix(".log") + ".index"):
                    with suppress(FileNotFoundError):
                        self._vfs.unlink(name)
                self._vfs.fsync_dir(directory)
            elif segment.number == number:
                stat = self._vfs.stat(path)
                if stat is not None and stat.size > size:
                    keep_head(self._vfs, path, size)
        self._vfs.fsync_dir(directory)

    def _cut(self, path: str, position: int, size: int) -> None:
        """Cut a torn record: new rows must follow a whole one. It is saved unless it is zeros."""
        saved = f"{STATE_DIRECTORY}/broken/{path.replace('/', '~')}-{position}"
        make_directories(self._vfs, f"{STATE_DIRECTORY}/broken")
        fd = self._vfs.open(path, "write")
        try:
            if not is_zero_tail(WindowSource(self._vfs, fd, size), position):
                # The bytes may be another program's: none that were saved earlier are replaced.
                paths = (f"{saved}.{number}" if number else saved for number in count())
                save_copy(self._vfs, paths, self._vfs.pread(fd, size - position, position))
            self._vfs.truncate(fd, position)
            self._vfs.fsync(fd)
        finally:
            self._vfs.close(fd)
        self.cut_bytes += size - position
        _log.warning("%s: cut %d bytes of a torn record.", path, size - position)

    def _create(self, directory: str, number: int, offset: int, *, sync: bool = True) -> Target:
        name = self._of.file_name(number)
        path = f"{directory}/{name}"
        make_directories(self._vfs, directory)
        if sync:
            create_file(self._vfs, path, b"")
            self._vfs.fsync_dir(directory)
        else:
            self._vfs.close(self._vfs.open(path, "create"))
        return Target(path, number, offset, 0, offset)

    def _rows_that_fit(self, sizes: Integers, size: int) -> int:
        """Rows for one write after ``size`` bytes; 0 when the next one needs a new file."""
        overhead = self._layout.overhead(self._of.topic)
        most = min(self._limit, _MOST_BYTES) // overhead + 1
        ends = np.cumsum(sizes[:most] + overhead)
        fitting = int(np.searchsorted(ends, self._limit - size, side="right"))
        if not fitting:
            return 0 if size else 1
        return min(fitting, max(1, int(np.searchsorted(ends, _MOST_BYTES, side="right"))))

    def _encode(self, columns: Columns, offset: int) -> Framed:
        assert self._layout.encode is not None
        return self._layout.encode(columns, self._of.topic, self._of.partition, offset)

    def _write(self, target: Target, piece: _Piece, *, sync: bool) -> Target:
        fd = self._vfs.open(target.path, "write")
        try:
            write_all(self._vfs, fd, [piece.data], target.size)
            if sync:
                self._vfs.fsync(fd)
            stat = self._vfs.fstat(fd)
        finally:
            self._vfs.close(fd)
        added = Added(target.size, target.offset, piece.starts, piece.data)
        self._segments.note_append(target.path, target.base, stat, added)
        if self._layout.index_every is not None:
            self._add_index_entries(target, piece, self._layout.index_every)
        return target._replace(
            size=target.size + len(piece.data), offset=target.offset + piece.rows
        )

    def _add_index_entries(self, target: Target, piece: _Piece, every: int) -> None:
        """Add an entry for each ``every``-th record. A broker trusts them: only to a whole index.

        Whole means one entry for every ``every`` records before, the last of them plausible. The
        broker does not sync them either.
        """
        before = target.offset - target.base
        due = np.flatnonzero((np.arange(piece.rows) + before) % every == 0)
        if not len(due):
            return
        path = target.path.removesuffix(".log") + ".index"
        size = -(-before // every) * ENTRY_BYTES
        stat = self._vfs.stat(path)
        if (0 if stat is None else stat.size) != size:
            return
        entries = SparseIndex(target.offset + due, target.size + piece.starts[due])
        fd = self._vfs.open(path, "create" if stat is None else "write")
        try:
            last = self._vfs.pread(fd, ENTRY_BYTES, max(0, size - ENTRY_BYTES))
            if size and not len(parse_rustlog_index(last, target.size).offsets):
                return
            write_all(self._vfs, fd, [encode_index(entries)], size)
        finally:
            self._vfs.close(fd)

    def _raise_watermark(self, end: int, *, sync: bool) -> None:
        path = f"{self._of.topic}/partition_{self._of.partition}.hwm"
        if self._layout.isolated and self._vfs.stat(path) is not None:
            replace_file(self._vfs, path, f"{end}\n".encode(), sync=sync)
