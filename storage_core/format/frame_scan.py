"""Whole frames of a closed segment, one after the other, and their records as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..io.byte_source import WindowSource
from ..vfs import Vfs
from .columns import Columns
from .frame import HEADER_BYTES, FrameHeader, check_frame, decode_body, unpack_header
from .record_sizes import record_bounds

_WINDOW_BYTES = 8 << 20
_HEADERS_WINDOW = 64 << 10


class StoredFrame(NamedTuple):
    """A frame that passed its checksums; ``rest`` is all of it but the header."""

    position: int
    offset: int
    header: FrameHeader
    rest: memoryview

    @property
    def end(self) -> int:
        return self.offset + self.header.span


def stored_frames(vfs: Vfs, path: str, base: int, *, bodies: bool = True) -> Iterator[StoredFrame]:
    """Follow a segment to the end of its file, every byte checked, a few megabytes in memory.

    Args:
        vfs: The store's files.
        path: The segment's log.
        base: Its base offset.
        bodies: Without them only the headers are read and ``rest`` is empty.

    Raises:
        BrokenFrameError: with the position and offset of the first bytes that do not check.
    """
    fd = vfs.open(path, "read")
    window = _WINDOW_BYTES if bodies else _HEADERS_WINDOW
    source = WindowSource(vfs, fd, vfs.fstat(fd).size, window)
    try:
        position, offset = 0, base
        while position < source.size:
            try:
                header = unpack_header(source.read(position, HEADER_BYTES))
                if base + header.relative_offset != offset:
                    found = base + header.relative_offset
                    raise BrokenFrameError(f"expected offset {offset}, the frame holds {found}")
                wanted = header.length - HEADER_BYTES if bodies else 0
                rest = source.read(position + HEADER_BYTES, wanted)
                if bodies:
                    check_frame(header, rest)
            except BrokenFrameError as error:
                raise BrokenFrameError(
                    str(error), path=path, position=position, offset=offset
                ) from error
            yield StoredFrame(position, offset, header, rest)
            position += header.length
            offset += header.span
    finally:
        source.close()


def frame_columns(header: FrameHeader, rest: bytes | memoryview) -> Columns:
    """A frame's records as columns; their offsets only where there are holes, from its start on.

    Raises:
        BrokenFrameError: the body is not what the header says.
    """
    batch = decode_body(header, rest)
    found = {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
    stamps = found.get("timestamp")
    key, value, headers = found.get("key"), found.get("value"), found.get("headers")
    deltas = found.get("offset_delta")
    return Columns(
        count=header.records,
        timestamps=header.min_timestamp
        if stamps is None
        else stamps.cast(pa.int64()).to_numpy(zero_copy_only=False),
        timestamp_type=header.timestamp_type,
        key=key,
        value=value,
        headers=headers,
        bounds=record_bounds(key, value, headers, header.records),
        offsets=None if deltas is None else deltas.to_numpy().astype(np.int64),
    )
