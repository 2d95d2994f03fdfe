"""Frames of a segment, one after the other: their places, their bytes, their records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..io.byte_source import Source, WindowSource
from ..io.parallel import spread
from ..types import Extent, OffsetPosition
from ..vfs import Vfs
from .columns import Columns, DecodedFrame
from .frame import (
    HEADER_BYTES,
    MAGIC,
    SPARSE,
    TRAILER_BYTES,
    FrameHeader,
    body_names,
    check_frame,
    decode_body,
    decode_message,
    unpack_body,
    unpack_header,
)
from .record_sizes import record_bounds

_WINDOW_BYTES = 8 << 20
_HEADERS_WINDOW = 64 << 10
_SEARCH_BYTES = 1 << 20
# Frames are checked some at a time, on two processors where there are two, then decoded: a
# checksum's pass over one empties the processor's caches of what decodes it. A read begins with
# few, in case few records are wanted.
_FIRST_FRAMES, _AHEAD_FRAMES = 4, 32


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


def walk_frames(
    source: Source, base: int, *, at: OffsetPosition | None = None, verify: bool
) -> Iterator[Extent]:
    """Follow the frames of a segment to the end of its bytes.

    Args:
        source: The segment's bytes.
        base: The segment's base offset.
        at: Where to begin: a frame starts at this position, with this offset.
        verify: Check the bodies too, not only the headers.

    Raises:
        BrokenFrameError: with position and offset of the first bytes that are not a frame.
    """
    offset, position = at or (base, 0)
    while position < source.size:
        header = _header_at(source, position, base, offset)
        if verify:
            _check(source, header, position, offset)
        elif position + header.length > source.size:
            raise _broken("the file ends inside the frame", position, offset)
        yield Extent(position, header.length, offset, header.span, header.max_timestamp)
        position += header.length
        offset += header.span


def last_end_offset(source: Source, base: int) -> int:
    """End offset of a sealed segment, from its last frame where possible.

    Raises:
        BrokenFrameError: the end cannot be found.
    """
    # The last length leads back to the last header: a hint, so a wrong one only costs a walk.
    trailer = bytes(source.read(max(0, source.size - 4), 4))
    length = int.from_bytes(trailer, "big")
    if HEADER_BYTES + TRAILER_BYTES <= length <= source.size:
        with suppress(BrokenFrameError):
            header = unpack_header(source.read(source.size - length, HEADER_BYTES))
            if header.length == length:
                return base + header.relative_offset + header.span
    end = base
    for extent in walk_frames(source, base, verify=False):
        end = extent.end_offset
    return end


def recovery_point_after(source: Source, base: int, position: int) -> int:
    """Highest recovery point that a sound frame after ``position`` records; 0 if there is none."""
    claim = 0
    position += 8
    while position < source.size:
        window = bytes(source.read(position, _SEARCH_BYTES))
        at = window.find(MAGIC)
        while at >= 0:
            if at % 8 == 0:
                claim = max(claim, base + _claim_at(source, position + at))
            at = window.find(MAGIC, at + 1)
        position += max(8, len(window) - len(window) % 8)
    return claim


def read_frames(
    source: Source, base: int, at: OffsetPosition, *, start: int, end: int, scan: bool = False
) -> Iterator[DecodedFrame]:
    """Decode the frames that overlap ``start`` to ``end``, checked in full.

    Args:
        source: The segment's bytes.
        base: The segment's base offset.
        at: Where to begin: a frame starts at this position, with this offset.
        start: First offset wanted. The frames are whole: the first may begin before it.
        end: Offset after the last one wanted. The last frame may end after it.
        scan: The caller will want all of them.

    Raises:
        BrokenFrameError: with position and offset of the first frame that does not check.
    """
    (offset, position), wanted, damage = at, _AHEAD_FRAMES if scan else _FIRST_FRAMES, None
    while offset < end and damage is None:
        ahead, size = list[_Found](), 0
        try:
            while offset < end and len(ahead) < wanted and size < source.ahead:
                header = _header_at(source, position, base, offset)
                if offset + header.span > start:
                    rest = source.read(position + HEADER_BYTES, header.length - HEADER_BYTES)
                    ahead.append(_Found(header, rest, position, offset))
                    size += header.raw_length
                position += header.length
                offset += header.span
        except BrokenFrameError as error:
            damage = error
        for found, body in zip(ahead, spread(_checked_body, ahead, size), strict=True):
            frame = _decoded(found, body)
            if frame is not None:
                yield frame
        wanted = min(2 * wanted, _AHEAD_FRAMES)
    if damage is not None:
        raise damage


class _Found(NamedTuple):
    """A frame of which only the header was looked at; ``rest`` is all behind it."""

    header: FrameHeader
    rest: memoryview
    position: int
    offset: int


def _claim_at(source: Source, position: int) -> int:
    try:
        header = unpack_header(source.read(position, HEADER_BYTES))
        check_frame(header, source.read(position + HEADER_BYTES, header.length - HEADER_BYTES))
    except BrokenFrameError:
        return 0
    return header.recovery_point


def _broken(reason: str, position: int, offset: int) -> BrokenFrameError:
    return BrokenFrameError(reason, position=position, offset=offset)


def _header_at(source: Source, position: int, base: int, offset: int) -> FrameHeader:
    try:
        header = unpack_header(source.read(position, HEADER_BYTES))
    except BrokenFrameError as error:
        raise _broken(str(error), position, offset) from error
    if base + header.relative_offset != offset:
        raise _broken(
            f"expected offset {offset}, the frame holds {base + header.relative_offset}",
            position,
            offset,
        )
    return header


def _check(source: Source, header: FrameHeader, position: int, offset: int) -> None:
    rest = source.read(position + HEADER_BYTES, header.length - HEADER_BYTES)
    try:
        check_frame(header, rest)
    except BrokenFrameError as error:
        raise _broken(str(error), position, offset) from error


def _checked_body(found: _Found) -> pa.Buffer | BrokenFrameError:
    """The body, decompressed, or what is wrong with it."""
    try:
        check_frame(found.header, found.rest)
        return unpack_body(found.header, found.rest)
    except BrokenFrameError as error:
        return error


def _decoded(found: _Found, body: pa.Buffer | BrokenFrameError) -> DecodedFrame | None:
    """The records of a frame whose bytes were checked; None if it only covers a hole."""
    header, _, position, offset = found
    try:
        if isinstance(body, BrokenFrameError):
            raise body
        batch = decode_message(header, body)
    except BrokenFrameError as error:
        raise _broken(str(error), position, offset) from error
    if not header.records:
        return None
    columns = {}
    if batch is not None:
        names = body_names(header.columns)
        columns = dict(zip(names, batch.columns, strict=True))
    offsets = None
    if header.columns & SPARSE:
        deltas = columns["offset_delta"].to_numpy(zero_copy_only=False).astype(np.int64)
        if np.any(np.diff(deltas) <= 0) or int(deltas[-1]) >= header.span:
            raise BrokenFrameError("the frame's offsets do not rise inside its span", offset=offset)
        offsets = pa.array(deltas + offset)
    return DecodedFrame(
        offset,
        header.span,
        header.records,
        header.timestamp_type,
        header.min_timestamp,
        offsets,
        columns,
    )
