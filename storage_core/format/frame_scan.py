"""Walking the frames of a segment: their places, their checked bytes, their records.

There is one walk, ``walk_frames``. Recovery, indexes, rewrites, checks and reads all follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..io.byte_source import Source, open_source
from ..io.parallel import map_on_processors
from ..lazy import LazyModule
from ..types import Int64s, OffsetPosition
from ..vfs import Vfs
from .columns import Columns, DecodedFrame
from .frame import (
    HEADER_BYTES,
    MAGIC,
    SPARSE,
    TRAILER_BYTES,
    EncodedFrame,
    FrameHeader,
    body_names,
    check_frame,
    decode_body,
    decode_message,
    pack_header,
    unpack_body,
    unpack_header,
)
from .numbers import number_column, numbers_of
from .record_sizes import record_bounds
from .selection import Schemas, Selection

if TYPE_CHECKING:
    from . import typed_frames
else:
    typed_frames = LazyModule("storage_core.format.typed_frames")

_WITHOUT_SCHEMA = {"offset", "timestamp", "timestamp_type"}
"""What can be read of a typed frame without its schema."""
_WINDOW_BYTES = 8 << 20
_HEADERS_WINDOW = 64 << 10
_SEARCH_BYTES = 1 << 20
# A read checks several frames a step, on two processors where there are two, and then decodes them:
# the checksum of one frame right before its decoding would empty the caches that decoding needs.
# The first step is small, because the caller may want few records.
_FIRST_FRAMES, _AHEAD_FRAMES = 4, 32


class StoredFrame(NamedTuple):
    """A frame in a file; ``rest`` is all of it but the header, or empty if that was not read."""

    position: int
    offset: int
    header: FrameHeader
    rest: memoryview = memoryview(b"")

    @property
    def end_position(self) -> int:
        return self.position + self.header.length

    @property
    def end_offset(self) -> int:
        return self.offset + self.header.span

    def encoded(self) -> EncodedFrame:
        """The frame as buffers, to be written elsewhere."""
        return EncodedFrame([pack_header(self.header), self.rest], self.header)

    def columns(self, schemas: Schemas | None = None) -> Columns:
        """The records of a checked frame; offsets, from the frame's start, only if it has holes.

        ``schemas`` are those of a typed topic.

        Raises:
            BrokenFrameError: the body is not what the header says.
        """
        header, found = self.header, {}
        if header.is_typed and schemas is not None:
            rows, deltas, stamps = typed_frames.decode_rows(header, self.rest, schemas)
            bounds = rows.bounds
        else:
            rows, batch = None, decode_body(header, self.rest)
            if batch is not None:
                found = dict(zip(batch.schema.names, batch.columns, strict=True))
            deltas, stamps = found.get("offset_delta"), found.get("timestamp")
            bounds = record_bounds(
                found.get("key"), found.get("value"), found.get("headers"), header.records
            )
        return Columns(
            count=header.records,
            timestamps=header.min_timestamp if stamps is None else numbers_of(stamps),
            timestamp_type=header.timestamp_type,
            key=found.get("key"),
            value=found.get("value"),
            headers=found.get("headers"),
            bounds=bounds,
            offsets=None if deltas is None else numbers_of(deltas).astype(np.int64),
            rows=rows,
        )


def walk_frames(
    source: Source, base: int, *, at: OffsetPosition | None = None, bodies: bool
) -> Iterator[StoredFrame]:
    """Follow the frames of a segment to the end of its bytes.

    Args:
        source: The segment's bytes.
        base: The segment's base offset.
        at: Where to begin: a frame starts at this position, with this offset.
        bodies: Read and check the bodies too. Without it only headers are read and checked.

    Raises:
        BrokenFrameError: with position and offset of the first bytes that are not a whole frame.
    """
    offset, position = at or (base, 0)
    while position < source.size:
        try:
            header = unpack_header(source.read(position, HEADER_BYTES))
            found = base + header.relative_offset
            if found != offset:
                raise BrokenFrameError(f"expected a frame at offset {offset}, found {found}")
            if position + header.length > source.size:
                raise BrokenFrameError(
                    f"the file ends inside the frame, which has {header.length} bytes"
                )
            frame = StoredFrame(position, offset, header)
            if bodies:
                frame = _with_body(source, frame)
                check_frame(header, frame.rest)
        except BrokenFrameError as error:
            raise _placed(error, position, offset) from error
        yield frame
        position += header.length
        offset += header.span


def segment_frames(vfs: Vfs, path: str, base: int, *, bodies: bool = True) -> Iterator[StoredFrame]:
    """Like ``walk_frames``, from the first byte of a file, with a few megabytes in memory.

    Raises:
        BrokenFrameError: with path, position and offset of the first bytes that are not a frame.
    """
    with open_source(vfs, path, _WINDOW_BYTES if bodies else _HEADERS_WINDOW) as source:
        try:
            yield from walk_frames(source, base, bodies=bodies)
        except BrokenFrameError as error:
            raise _placed(error, error.position, error.offset, path) from error


def frames_at(vfs: Vfs, path: str, places: Iterable[tuple[int, int]]) -> Iterator[StoredFrame]:
    """The frames at the given positions and of the given sizes, every byte checked.

    Raises:
        BrokenFrameError: the bytes at one of them are not a whole frame.
    """
    with open_source(vfs, path, window=0) as source:
        for position, size in places:
            source.read(position, size)  # header and body together: they stay in the window
            frame = _checked_at(source, position)
            if frame.header.length != size:
                raise BrokenFrameError(
                    f"expected a frame of {size} bytes, found one of {frame.header.length}",
                    position=position,
                )
            yield frame


def last_header(source: Source) -> FrameHeader | None:
    """The header of the last frame, found through the length at its end; None if unsound."""
    length = int.from_bytes(source.read(max(0, source.size - 4), 4), "big")
    if not HEADER_BYTES + TRAILER_BYTES <= length <= source.size:
        return None
    with suppress(BrokenFrameError):
        header = unpack_header(source.read(source.size - length, HEADER_BYTES))
        return header if header.length == length else None
    return None


def last_end_offset(source: Source, base: int) -> int:
    """End offset of a sealed segment, from its last frame where possible.

    Raises:
        BrokenFrameError: the end cannot be found.
    """
    last = last_header(source)
    if last is not None:
        return base + last.relative_offset + last.span
    end = base
    for frame in walk_frames(source, base, bodies=False):
        end = frame.end_offset
    return end


def recovery_point_after(source: Source, base: int, position: int) -> int:
    """Highest recovery point that a sound frame after ``position`` records; 0 if there is none."""
    found = (base + frame.header.recovery_point for frame in sound_frames_after(source, position))
    return max(found, default=0)


def sound_frames_after(source: Source, position: int) -> Iterator[StoredFrame]:
    """Every sound frame after ``position``, also inside another one; offsets are relative.

    It looks for them byte by byte, because nothing says where they begin.
    """
    position += 8
    while position < source.size:
        window = bytes(source.read(position, _SEARCH_BYTES))
        at = window.find(MAGIC)
        while at >= 0:
            if at % 8 == 0:
                with suppress(BrokenFrameError):
                    yield _checked_at(source, position + at)
            at = window.find(MAGIC, at + 1)
        position += max(8, len(window) - len(window) % 8)


def read_frames(
    source: Source,
    base: int,
    at: OffsetPosition,
    *,
    start: int,
    end: int,
    selection: Selection,
    scan: bool = False,
) -> Iterator[DecodedFrame]:
    """Decode the frames that overlap ``start`` to ``end``, every byte checked.

    Args:
        source: The segment's bytes.
        base: The segment's base offset.
        at: Where to begin: a frame starts at this position, with this offset.
        start: First offset wanted. The frames are whole: the first may begin before it.
        end: Offset after the last one wanted. The last frame may end after it.
        selection: What the caller wants of them. Frames without it are left out by their headers.
        scan: The caller wants all of them: the first step is as large as the others.

    Raises:
        BrokenFrameError: with position and offset of the first frame that is not sound.
    """
    walk = walk_frames(source, base, at=at, bodies=False)
    wanted, offset, damage = _AHEAD_FRAMES if scan else _FIRST_FRAMES, at.offset, None
    while offset < end and damage is None:
        ahead, size = list[StoredFrame](), 0
        try:
            while offset < end and len(ahead) < wanted and size < source.ahead:
                frame = next(walk, None)
                if frame is None:
                    raise BrokenFrameError(
                        f"the file ends at offset {offset}", position=source.size, offset=offset
                    )
                offset = frame.end_offset
                if offset <= start:
                    continue
                if _may_match(source, frame, selection):
                    ahead.append(_with_body(source, frame))
                    size += frame.header.raw_length
                else:
                    selection.counts.skipped += 1
        except BrokenFrameError as error:
            damage = error
        selection.counts.read += len(ahead)
        check = partial(_checked_body, selection)
        for frame, body in zip(ahead, map_on_processors(check, ahead, size), strict=True):
            decoded = _decoded(frame, body, selection)
            if decoded is not None:
                yield decoded
        wanted = min(2 * wanted, _AHEAD_FRAMES)
    if damage is not None:
        raise damage


def _may_match(source: Source, frame: StoredFrame, selection: Selection) -> bool:
    header = frame.header
    if not selection.of_time(header.min_timestamp, header.max_timestamp):
        return False
    if selection.where is None or not header.records:
        return True
    read = partial(source.read, frame.position + HEADER_BYTES)
    return typed_frames.may_match(selection, header, frame.offset, read)


def _placed(
    error: BrokenFrameError, position: int | None, offset: int | None, path: str | None = None
) -> BrokenFrameError:
    return BrokenFrameError(str(error), path=path, position=position, offset=offset)


def _with_body(source: Source, frame: StoredFrame) -> StoredFrame:
    position, offset, header, _ = frame
    rest = source.read(position + HEADER_BYTES, header.length - HEADER_BYTES)
    return StoredFrame(position, offset, header, rest)


def _checked_at(source: Source, position: int) -> StoredFrame:
    """The frame at a position, whatever offset it has."""
    header = unpack_header(source.read(position, HEADER_BYTES))
    frame = _with_body(source, StoredFrame(position, header.relative_offset, header))
    check_frame(header, frame.rest)
    return frame


_Body: TypeAlias = pa.Buffer | dict[str, pa.Array] | BrokenFrameError
"""A body that was unpacked, the columns of a typed frame, or what is wrong with it."""


def _checked_body(selection: Selection, frame: StoredFrame) -> _Body:
    header = frame.header
    try:
        check_frame(header, frame.rest)
        if not header.is_typed:
            return unpack_body(header, frame.rest)
        body = pa.py_buffer(frame.rest[: header.body_length])
        # Decompressing runs without Python's global lock, so two processors share it.
        return _typed_columns_of(header, body, selection) if header.codec else body
    except BrokenFrameError as error:
        return error


def _decoded(frame: StoredFrame, body: _Body, selection: Selection) -> DecodedFrame | None:
    """The records of a frame whose bytes were checked; None if it only covers a hole."""
    position, offset, header, _ = frame
    offsets = None
    try:
        if isinstance(body, BrokenFrameError):
            raise body
        columns = body if isinstance(body, dict) else _columns_of(header, body, selection)
        if header.columns & SPARSE:
            typed = header.is_typed and selection.projection is not None
            deltas = columns.pop("_offset" if typed else "offset_delta")
            offsets = number_column(_rising(deltas, header.span) + offset)
    except BrokenFrameError as error:
        raise _placed(error, position, offset) from error
    if not header.records:
        return None
    return DecodedFrame(
        offset,
        header.span,
        header.records,
        header.timestamp_type,
        header.min_timestamp,
        offsets,
        columns,
    )


def _rising(column: pa.Array, span: int) -> Int64s:
    deltas = numbers_of(column).astype(np.int64)
    if np.any(np.diff(deltas) <= 0) or (len(deltas) and int(deltas[-1]) >= span):
        raise BrokenFrameError("the frame's offsets do not rise inside its span")
    return deltas


def _columns_of(header: FrameHeader, body: pa.Buffer, selection: Selection) -> dict[str, pa.Array]:
    """The columns of a body by name, as far as they are stored."""
    if header.is_typed:
        return _typed_columns_of(header, body, selection)
    if selection.projection is not None and header.records:
        raise BrokenFrameError("the frame has records, expected rows of a typed topic")
    batch = decode_message(header, body)
    if batch is None:
        return {}
    return dict(zip(body_names(header.columns), batch.columns, strict=True))


def _typed_columns_of(
    header: FrameHeader, body: pa.Buffer, selection: Selection
) -> dict[str, pa.Array]:
    if selection.projection is None and not _WITHOUT_SCHEMA.issuperset(selection.needed):
        raise BrokenFrameError("the frame has rows of a typed topic, expected records")
    return typed_frames.decode_projected(header, body, selection.projection)
