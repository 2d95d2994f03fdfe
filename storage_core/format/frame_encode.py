"""Records to native frames, in two steps.

A draft is laid out in the interpreter and takes microseconds. Finishing it, which compresses the
body and takes its checksum, runs outside, so several may be finished at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import crc32c
import numpy as np
import pyarrow as pa

from ..config import CODECS, StoreConfig
from ..io.parallel import spread
from ..types import Int64s
from .arrow_message import Piece, message_pieces
from .columns import TIMESTAMP, Columns
from .frame import (
    HEADERS_BIT,
    KEY,
    MAX_SPAN,
    SPARSE,
    TIMESTAMPS,
    TRAILER,
    VALUE,
    FrameHeader,
    body_schema,
    codec_of,
    frame_length,
    pack_header,
)
from .record_sizes import fitting_rows


class EncodedFrame(NamedTuple):
    """A frame as buffers for one vectored write; ``buffers[0]`` is the header."""

    buffers: list[bytes | memoryview]
    header: FrameHeader

    def moved(self, *, relative_offset: int, recovery_point: int) -> EncodedFrame:
        """The same records at another place: only the header is made anew."""
        header = self.header._replace(
            relative_offset=relative_offset, recovery_point=recovery_point
        )
        return EncodedFrame([pack_header(header), *self.buffers[1:]], header)


class DraftFrame(NamedTuple):
    """A frame without a checksum, its body not yet compressed.

    The header has the lengths that hold if it stays so.
    """

    pieces: list[Piece]
    header: FrameHeader
    level: int


def draft_frame(
    columns: Columns,
    *,
    relative_offset: int,
    recovery_point: int,
    compression: str,
    level: int,
    deltas: Int64s | None = None,
    span: int | None = None,
) -> DraftFrame:
    """Lay out all of ``columns`` as one frame. It may hold no record, only cover a hole.

    Args:
        columns: The records.
        relative_offset: Where the frame begins, counted from the segment's base.
        recovery_point: What was durable when it was written, counted likewise.
        compression: Codec of the body.
        level: Of zstd.
        deltas: Offsets counted from the frame's beginning, where there are holes between them.
        span: Offsets that the frame covers, where a hole follows its last record.
    """
    low, high = _timestamp_bounds(columns)
    bits, arrays = _present(columns, constant=low == high)
    if deltas is not None:
        bits, arrays = bits | SPARSE, [pa.array(deltas, pa.uint32()), *arrays]
    pieces = []
    if arrays:
        pieces = message_pieces(pa.RecordBatch.from_arrays(arrays, schema=body_schema(bits)))
    raw_length = sum(map(len, pieces))
    header = FrameHeader(
        columns=bits,
        codec=CODECS.index(compression),
        timestamp_type=columns.timestamp_type,
        length=frame_length(raw_length),
        records=columns.count,
        relative_offset=relative_offset,
        recovery_point=recovery_point,
        min_timestamp=low,
        max_timestamp=high,
        body_length=raw_length,
        raw_length=raw_length,
        span=span or (columns.count if deltas is None else int(deltas[-1]) + 1),
    )
    return DraftFrame(pieces, header, level)


def finish_frame(draft: DraftFrame) -> EncodedFrame:
    """Compress and check-sum a body."""
    pieces, header, level = draft
    if header.codec:
        codec = codec_of(CODECS[header.codec], level)
        pieces = [codec.compress(pa.py_buffer(b"".join(pieces)))]
        size = len(pieces[0])
        header = header._replace(body_length=size, length=frame_length(size))
    padding = bytes(-header.body_length % 8)
    checksum = 0
    for piece in (*pieces, padding):
        checksum = crc32c.crc32c(piece, checksum)
    trailer = padding + TRAILER.pack(checksum, header.length)
    views = [memoryview(piece) for piece in pieces]
    return EncodedFrame([pack_header(header), *views, trailer], header)


class FramePlace(NamedTuple):
    """Where a frame goes: its first offset, its segment's base offset, and the recovery point."""

    offset: int
    segment_base: int
    recovery_point: int


def encode_frames(
    columns: Columns,
    row: int,
    place: FramePlace,
    *,
    room: Callable[[int], int],
    most: int,
    config: StoreConfig,
) -> list[EncodedFrame]:
    """Encode records from ``row`` on, about ``most`` bytes of them, as far as they fit.

    ``room(n)`` says how many bytes the segment can take after ``n`` more. Several frames are
    compressed at once.
    """
    drafts, size = list[DraftFrame](), 0
    while row < columns.count and size < most:
        draft = _draft_next(columns, row, place, config)
        header = draft.header
        if not header.codec and header.length > room(size):
            break
        drafts.append(draft)
        size += header.length
        row += header.records
        place = place._replace(offset=place.offset + header.span)
    frames, stored = list[EncodedFrame](), 0
    for frame in spread(finish_frame, drafts, size):
        if frame.header.length > room(stored):
            break
        frames.append(frame)
        stored += frame.header.length
    return frames


def rows_for_one_frame(columns: Columns, row: int, config: StoreConfig) -> int:
    """As many rows from ``row`` on as ``frame_records`` and ``frame_bytes`` allow, at least one."""
    return max(1, fitting_rows(columns.bounds[row:], config.frame_records, config.frame_bytes))


def _draft_next(columns: Columns, row: int, place: FramePlace, config: StoreConfig) -> DraftFrame:
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


def _timestamp_bounds(columns: Columns) -> tuple[int, int]:
    if isinstance(columns.timestamps, int):
        return columns.timestamps, columns.timestamps
    return int(columns.timestamps.min()), int(columns.timestamps.max())


def _present(columns: Columns, *, constant: bool) -> tuple[int, list[pa.Array]]:
    bits, arrays = 0, []
    if not constant and not isinstance(columns.timestamps, int):
        bits |= TIMESTAMPS
        stamps = np.ascontiguousarray(columns.timestamps)
        arrays.append(pa.Array.from_buffers(TIMESTAMP, len(stamps), [None, pa.py_buffer(stamps)]))
    for bit, column in ((KEY, columns.key), (VALUE, columns.value), (HEADERS_BIT, columns.headers)):
        if column is not None:
            bits |= bit
            arrays.append(column)
    return bits, arrays
