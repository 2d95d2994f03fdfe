"""The native layout: checksummed frames, files named by base offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..config import StoreConfig
from ..errors import BrokenFrameError
from ..io.byte_source import Source
from ..io.parallel import spread
from ..types import Extent
from .columns import Columns
from .frame import (
    HEADER_BYTES,
    MAGIC,
    MAX_SPAN,
    SPARSE,
    TRAILER_BYTES,
    FrameHeader,
    body_names,
    check_frame,
    decode_message,
    unpack_body,
    unpack_header,
)
from .frame_encode import DraftFrame, draft_frame, finish_frame
from .layout_protocol import Chunk, DecodedFrame, Place
from .record_sizes import fitting_rows

_SEARCH_BYTES = 1 << 20
# Frames are checked some at a time, on two processors where there are two, then decoded: a
# checksum's pass over one empties the processor's caches of what decodes it. A read begins with
# few, in case few records are wanted.
_FIRST_FRAMES, _AHEAD_FRAMES = 4, 32


class NativeLayout:
    """``topics/<topic>/<partition>/segments/<base:020>.log`` with frames of many records."""

    name = "native"

    def log_directory(self, topic: str, partition: int) -> str:
        return f"topics/{topic}/{partition}/segments"

    def encode(
        self,
        columns: Columns,
        row: int,
        place: Place,
        *,
        room: Callable[[int], int],
        most: int,
        config: StoreConfig,
    ) -> list[Chunk]:
        drafts, size = list[DraftFrame](), 0
        while row < columns.count and size < most:
            draft = _draft(columns, row, place, config)
            header = draft.header
            if not header.codec and header.length > room(size):
                break
            drafts.append(draft)
            size += header.length
            row += header.records
            place = place._replace(offset=place.offset + header.span)
        chunks, stored = list[Chunk](), 0
        for buffers, header in spread(finish_frame, drafts, size):
            if header.length > room(stored):
                break
            stamp, span = header.max_timestamp, header.span
            chunks.append(Chunk(buffers, header.length, header.records, stamp, span))
            stored += header.length
        return chunks

    def walk(
        self, source: Source, *, base: int, position: int, offset: int, verify: bool
    ) -> Iterator[Extent]:
        while position < source.size:
            header = _header_at(source, position, base, offset)
            if verify:
                _check(source, header, position, offset)
            elif position + header.length > source.size:
                raise _broken("the file ends inside the frame", position, offset)
            yield Extent(position, header.length, offset, header.span, header.max_timestamp)
            position += header.length
            offset += header.span

    def last_end(self, source: Source, *, base: int) -> int:
        # The last length leads back to the last header: a hint, so a wrong one only costs a walk.
        trailer = bytes(source.read(max(0, source.size - 4), 4))
        length = int.from_bytes(trailer, "big")
        if HEADER_BYTES + TRAILER_BYTES <= length <= source.size:
            with suppress(BrokenFrameError):
                header = unpack_header(source.read(source.size - length, HEADER_BYTES))
                if header.length == length:
                    return base + header.relative_offset + header.span
        end = base
        for extent in self.walk(source, base=base, position=0, offset=base, verify=False):
            end = extent.end_offset
        return end

    def durable_claim(self, source: Source, *, base: int, position: int) -> int:
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

    def read(
        self,
        source: Source,
        *,
        base: int,
        position: int,
        offset: int,
        start: int,
        end: int,
        scan: bool = False,
    ) -> Iterator[DecodedFrame]:
        wanted, damage = _AHEAD_FRAMES if scan else _FIRST_FRAMES, None
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


def _draft(columns: Columns, row: int, place: Place, config: StoreConfig) -> DraftFrame:
    rows = rows_for_one_frame(columns, row, config)
    deltas = None
    if columns.offsets is not None:
        deltas = columns.offsets[row : row + rows] - place.offset
        rows = max(1, int(np.searchsorted(deltas, MAX_SPAN)))
        deltas = None if deltas[rows - 1] + 1 == rows else deltas[:rows]
    return draft_frame(
        columns.slice(row, row + rows),
        relative_offset=place.offset - place.segment_base,
        recovery_point=max(0, place.recovery_point - place.segment_base),
        compression=config.compression,
        level=config.compression_level,
        deltas=deltas,
    )


def _claim_at(source: Source, position: int) -> int:
    try:
        header = unpack_header(source.read(position, HEADER_BYTES))
        check_frame(header, source.read(position + HEADER_BYTES, header.length - HEADER_BYTES))
    except BrokenFrameError:
        return 0
    return header.recovery_point


def rows_for_one_frame(columns: Columns, row: int, config: StoreConfig) -> int:
    """As many rows from ``row`` on as ``frame_records`` and ``frame_bytes`` allow, at least one."""
    return max(1, fitting_rows(columns.bounds[row:], config.frame_records, config.frame_bytes))


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
