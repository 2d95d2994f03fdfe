"""The segment that takes a partition's appends, from its creation until it is sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from ..config import StoreConfig
from ..errors import SegmentStateError
from ..format.frame import EncodedFrame
from ..format.sparse_index import (
    ENTRY_BYTES,
    IndexBuilder,
    bounds_of,
    encode_entries,
    parse_open,
)
from ..io.byte_source import WindowSource
from ..io.durable import write_all
from ..types import TimeBounds
from ..vfs import OpenMode, Vfs
from .index_files import build_indexes, index_path, write_indexes
from .listing import log_path

SegmentState = Literal["active", "sealed", "closed"]


class ActiveSegment:
    """An open log file and its indexes. Not thread-safe: the partition's lock guards it."""

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        config: StoreConfig,
        *,
        base: int,
        size: int,
        end_offset: int,
        created_us: int,
        fd: int,
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._config = config
        self._fd = fd
        self._index_fd: int | None = None
        self._index_size = 0
        self._unwritten: list[tuple[int, int]] = []
        # Only the writer of every frame has all entries; else sealing walks the headers.
        self._builder = IndexBuilder(config.index_interval_bytes) if size == 0 else None
        self._last_entry = 0
        self._writeback_from = size
        self.sync_failed = False
        self.state: SegmentState = "active"
        self.base = base
        self.size = size
        self.end_offset = end_offset
        self.created_us = created_us

    @classmethod
    def create(cls, vfs: Vfs, directory: str, config: StoreConfig, base: int) -> ActiveSegment:
        """Make an empty segment."""
        fd = vfs.open(log_path(directory, base), _open_mode("create", config))
        return cls(
            vfs,
            directory,
            config,
            base=base,
            size=0,
            end_offset=base,
            created_us=vfs.now_us(),
            fd=fd,
        )

    @classmethod
    def resume(
        cls,
        vfs: Vfs,
        directory: str,
        config: StoreConfig,
        *,
        base: int,
        size: int,
        end_offset: int,
        created_us: int,
    ) -> ActiveSegment:
        """Continue a segment that an earlier writer left sound up to ``size``."""
        return cls(
            vfs,
            directory,
            config,
            base=base,
            size=size,
            end_offset=end_offset,
            created_us=created_us,
            fd=vfs.open(log_path(directory, base), _open_mode("write", config)),
        )

    @property
    def path(self) -> str:
        return log_path(self._directory, self.base)

    def room(self, ahead: int = 0) -> int:
        """Bytes left before the limit, after ``ahead`` more bytes.

        An empty segment takes any record, even one larger than the limit.
        """
        size = self.size + ahead
        return 1 << 62 if size == 0 else self._config.segment_bytes - size

    def write(self, frames: Sequence[EncodedFrame]) -> None:
        """Append frames. They are durable after ``sync``, and visible once published."""
        self._require_active("append to")
        buffers = [buffer for frame in frames for buffer in frame.buffers]
        write_all(self._vfs, self._fd, buffers, self.size)
        for _, header in frames:
            offset, position = self.end_offset, self.size
            self.end_offset += header.span
            self.size += header.length
            if self._builder is not None:
                due = self._builder.add(offset, position, header)
            else:
                due = position - self._last_indexed() >= self._config.index_interval_bytes
            if due:
                self._unwritten.append((offset, position))
                self._last_entry = position

    def write_index(self) -> None:
        """Write the index entries since the last call; without them, readers walk the frames."""
        if self._unwritten:
            fd, entries = self._open_index(), encode_entries(*zip(*self._unwritten, strict=True))
            self._index_size = write_all(self._vfs, fd, [entries], self._index_size)
            self._unwritten = []

    def sync_name(self) -> None:
        """Make the new file's name durable, before any record in it is acknowledged."""
        try:
            self._vfs.fsync_dir(self._directory)
        except OSError:
            self.sync_failed = True
            raise

    def begin_writeback(self, at_least: int) -> None:
        """Let the device write these bytes while more are encoded."""
        if self.size - self._writeback_from >= at_least:
            self._vfs.begin_writeback(
                self._fd, self._writeback_from, self.size - self._writeback_from
            )
            self._writeback_from = self.size

    def sync(self) -> None:
        """Make every byte written so far durable. A failure must never be retried."""
        self._require_active("sync")
        self._fsync()

    def seal(self, *, sync: bool = True) -> TimeBounds:
        """Seal the segment: contents durable, indexes complete, file read-only.

        Returns the bounds of its timestamps.
        """
        self._require_active("seal")
        if sync:
            self._fsync()
        builder = self._builder or self._walk_headers()
        write_indexes(self._vfs, self._directory, self.base, builder, self.size)
        self._vfs.make_read_only(self._fd)
        self.close()
        self.state = "sealed"
        return bounds_of(builder.time_index(), self.base)

    def close(self) -> None:
        """Close the files without sealing. Safe to call twice."""
        if self.state == "active":
            self.state = "closed"
            try:
                self._vfs.close(self._fd)
            finally:
                if self._index_fd is not None:
                    self._vfs.close(self._index_fd)

    def _fsync(self) -> None:
        try:
            self._vfs.fsync(self._fd)
        except OSError:
            self.sync_failed = True
            raise

    def _require_active(self, action: str) -> None:
        if self.state != "active":
            raise SegmentStateError(
                f"cannot {action} {self.path}: the segment is {self.state}. "
                "Only the active segment can be written.",
                path=self.path,
            )

    def _walk_headers(self) -> IndexBuilder:
        source = WindowSource(self._vfs, self._fd, self.size)
        return build_indexes(source, self.base, self._config.index_interval_bytes)

    def _open_index(self) -> int:
        if self._index_fd is None:
            path = index_path(self._directory, self.base, "offset")
            try:
                self._index_fd = self._vfs.open(path, "create")
            except FileExistsError:
                self._index_fd = self._vfs.open(path, "write")
            data = self._vfs.pread(self._index_fd, self._vfs.fstat(self._index_fd).size, 0)
            positions = parse_open(data, self.size).positions
            self._index_size = ENTRY_BYTES * len(positions)
            if not self._unwritten:
                self._last_entry = int(positions[-1]) if len(positions) else 0
        return self._index_fd

    def _last_indexed(self) -> int:
        self._open_index()
        return self._last_entry


def _open_mode(kind: Literal["write", "create"], config: StoreConfig) -> OpenMode:
    if config.write_through == "none":
        return kind
    return cast(OpenMode, f"{kind}+{config.write_through}")
