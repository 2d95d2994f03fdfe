"""A native segment in the open: every frame header and index entry, as it stands in the file.

For people who look into a log, not for reading it: nothing here stops at the visible end, and
nothing is cached or repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from ..errors import BrokenFrameError
from ..format.file_names import IDX, LOG, TIMEIDX
from ..format.frame import HEADER_BYTES, TRAILER_BYTES, FrameHeader, check_frame, unpack_header
from ..format.sparse_index import (
    FOOTER_BYTES,
    IndexKind,
    Int64s,
    is_sealed,
    parse_open,
    parse_sealed,
)
from ..io.byte_source import WINDOW_BYTES, WindowSource
from ..io.durable import read_file
from ..vfs import Vfs

IndexState = Literal["sealed", "open", "stale", "missing"]
_HEADERS_WINDOW = 64 << 10
_MAX_INDEX_BYTES = 1 << 30


class FrameInfo(NamedTuple):
    """One frame: its place in the file, its first offset, and its header."""

    position: int
    offset: int
    header: FrameHeader


class IndexInfo(NamedTuple):
    """One index file: its two columns, and whether a reader would use it as it is."""

    kind: IndexKind
    state: IndexState
    first: Int64s
    second: Int64s


class TimeSpan(NamedTuple):
    """About when the records of a segment were made, microseconds since 1970."""

    first: int
    last: int


def frames(vfs: Vfs, path: str, base: int, *, verify: bool = True) -> Iterator[FrameInfo]:
    """Follow the frames of a segment's log to the end of the file.

    Args:
        vfs: The store's files.
        path: The segment's log.
        base: Its base offset.
        verify: Check the bodies too; without it only headers are read.

    Raises:
        BrokenFrameError: with the position and offset of the first bytes that are not a frame.
    """
    with _opened(vfs, path, WINDOW_BYTES if verify else _HEADERS_WINDOW) as source:
        position, offset = 0, base
        while position < source.size:
            try:
                header = unpack_header(source.read(position, HEADER_BYTES))
                if base + header.relative_offset != offset:
                    found = base + header.relative_offset
                    raise BrokenFrameError(f"expected offset {offset}, the frame holds {found}")
                if position + header.length > source.size:
                    raise BrokenFrameError("the file ends inside the frame")
                if verify:
                    rest = source.read(position + HEADER_BYTES, header.length - HEADER_BYTES)
                    check_frame(header, rest)
            except BrokenFrameError as error:
                raise BrokenFrameError(str(error), position=position, offset=offset) from error
            yield FrameInfo(position, offset, header)
            position += header.length
            offset += header.span


def indexes(vfs: Vfs, path: str) -> list[IndexInfo]:
    """Both index files of a segment's log."""
    stat = vfs.stat(path)
    size = 0 if stat is None else stat.size
    return [
        _index(vfs, path.removesuffix(LOG) + IDX, "offset", size),
        _index(vfs, path.removesuffix(LOG) + TIMEIDX, "time", size),
    ]


def time_span(vfs: Vfs, path: str) -> TimeSpan | None:
    """When a segment's first and last frames were made, from two headers; None without records."""
    with _opened(vfs, path, HEADER_BYTES) as source:
        if not source.size:
            return None
        try:
            first = unpack_header(source.read(0, HEADER_BYTES))
            trailer = bytes(source.read(max(0, source.size - 4), 4))
            length = int.from_bytes(trailer, "big")
            sound = HEADER_BYTES + TRAILER_BYTES <= length <= source.size
            last = unpack_header(source.read(source.size - length if sound else 0, HEADER_BYTES))
        except BrokenFrameError:
            return None
        # A frame that only covers a hole of compaction has no time.
        headers = [header for header in (first, last) if header.records]
        if not headers:
            return None
        return TimeSpan(headers[0].min_timestamp, max(each.max_timestamp for each in headers))


@contextmanager
def _opened(vfs: Vfs, path: str, window: int) -> Iterator[WindowSource]:
    fd = vfs.open(path, "read")
    source = WindowSource(vfs, fd, vfs.fstat(fd).size, window)
    try:
        yield source
    finally:
        source.close()


def _index(vfs: Vfs, path: str, kind: IndexKind, log_size: int) -> IndexInfo:
    data = read_file(vfs, path, _MAX_INDEX_BYTES)
    if data is None:
        nothing = parse_open(b"", 0)
        return IndexInfo(kind, "missing", nothing.offsets, nothing.positions)
    sealed = parse_sealed(kind, data, log_size)
    if sealed is not None:
        return IndexInfo(kind, "sealed", *sealed)
    state: IndexState = "open"
    if is_sealed(kind, data):
        state, data = "stale", data[:-FOOTER_BYTES]
    found = parse_open(data, log_size)
    return IndexInfo(kind, state, found.offsets, found.positions)
