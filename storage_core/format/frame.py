"""The native frame: many records under one checksum. Pure bytes and values, no files.

All integers are big-endian; a frame starts and ends on a multiple of 8 bytes.

====== ==== =================================================================
offset size field
====== ==== =================================================================
0      4    magic ``CRSF``
4      1    format version: 1 records, 2 rows of a typed topic
5      1    columns: 1 key, 2 value, 4 headers, 8 timestamp, 16 sparse offsets
6      1    compression of the body: 0 none, 1 lz4, 2 zstd
7      1    timestamp type: 0 supplied by the writer, 1 stamped on append
8      4    frame length, header and trailer included
12     4    number of records
16     8    first offset, relative to the segment's base
24     8    recovery point when the frame was written, relative too
32     8    smallest timestamp, microseconds since 1970
40     8    largest timestamp
48     4    body length as stored
52     4    body length uncompressed
56     4    span: offsets covered (more than the number of records where there are holes)
60     4    CRC32C of bytes 0 to 59
64     n    body: one Arrow IPC record batch message (version 1) or columns (version 2, see
            ``typed_body``), padded with zeros to 8 bytes
64+n   4    CRC32C of the padded body
68+n   4    frame length again
====== ==== =================================================================

The body of version 1 is compressed as a whole and holds only columns that have values; the schema
follows from the column bits. Version 2 has bits 8 and 16 only, and the codec is that of its
buffers. The timestamp column is left out when all records share one. ``docs/format.md`` has
examples in hex.

A checksum finds damage; it does not make a body safe to read. So every size in a header is checked
before anything is allocated, and every decoded batch is validated in full.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ..config import CODECS, MAX_FRAME_BYTES, MAX_FRAME_RECORDS
from ..errors import BrokenFrameError
from ..io.checksum import crc32c
from ..lazy import LazyModule
from ..types import Int64s
from .arrow_message import Piece, has_compressed_buffers, message_pieces
from .columns import HEADERS, TIMESTAMP, Columns
from .compression import codec_of, decompress
from .numbers import number_column

if TYPE_CHECKING:
    from ..schema import statistics
    from ..schema.rows import TypedRows
    from . import typed_body
    from .typed_body import EncodedBody
else:
    statistics = LazyModule("storage_core.schema.statistics")
    typed_body = LazyModule("storage_core.format.typed_body")

MAGIC, RECORDS, TYPED = b"CRSF", 1, 2
HEADER_BYTES, TRAILER_BYTES = 64, 8
MAX_SPAN = 2**32 - 1
KEY, VALUE, HEADERS_BIT, TIMESTAMPS, SPARSE = 1, 2, 4, 8, 16

_COLUMN_BITS = {
    RECORDS: KEY | VALUE | HEADERS_BIT | TIMESTAMPS | SPARSE,
    TYPED: TIMESTAMPS | SPARSE,
}
_HEADER = struct.Struct(">4sBBBBIIQQqqIIII")
TRAILER = struct.Struct(">II")
_CRC = struct.Struct(">I")


class FrameHeader(NamedTuple):
    """The fields of a header that passed its checksum and its bounds."""

    columns: int
    codec: int
    timestamp_type: int
    length: int
    records: int
    relative_offset: int
    recovery_point: int
    min_timestamp: int
    max_timestamp: int
    body_length: int
    raw_length: int
    span: int
    version: int = RECORDS

    @property
    def is_typed(self) -> bool:
        """Whether the body has rows of a typed topic."""
        return self.version == TYPED


def frame_length(body_length: int) -> int:
    """Bytes of a whole frame whose stored body has ``body_length`` bytes."""
    return HEADER_BYTES + body_length + -body_length % 8 + TRAILER_BYTES


def pack_header(header: FrameHeader) -> bytes:
    """The 64 bytes of a header, checksum included."""
    packed = _HEADER.pack(MAGIC, header.version, *header[:-1], 0)[:-4]
    return packed + _CRC.pack(crc32c(packed))


def unpack_header(data: bytes | memoryview) -> FrameHeader:
    """Check and read a header from the first 64 bytes of ``data``.

    Raises:
        BrokenFrameError: too short, wrong magic or checksum, or a field is out of range.
    """
    if len(data) < HEADER_BYTES:
        raise BrokenFrameError(
            f"the file ends inside a frame header: {len(data)} of {HEADER_BYTES} bytes"
        )
    head = bytes(data[:HEADER_BYTES])
    magic, version, *fields, checksum = _HEADER.unpack(head)
    if magic != MAGIC:
        raise BrokenFrameError(f"expected frame magic {MAGIC!r}, found {magic!r}")
    if crc32c(head[:-4]) != checksum:
        raise BrokenFrameError("the frame header fails its checksum")
    if version not in _COLUMN_BITS:
        raise BrokenFrameError(f"expected frame version {RECORDS} or {TYPED}, found {version}")
    header = FrameHeader._make((*fields, version))
    if (
        header.length != frame_length(header.body_length)
        or header.length > MAX_FRAME_BYTES
        or header.raw_length > MAX_FRAME_BYTES
        or header.records > MAX_FRAME_RECORDS
        or header.codec >= len(CODECS)
        or header.columns & ~_COLUMN_BITS[version]
        or header.span < max(header.records, 1)
        or (header.codec == 0 and header.raw_length != header.body_length)
    ):
        raise BrokenFrameError("a field of the frame header is out of range")
    return header


def check_frame(header: FrameHeader, rest: bytes | memoryview) -> None:
    """Check body checksum and trailer; ``rest`` is the frame without its header.

    Raises:
        BrokenFrameError: the frame is cut short or its contents changed.
    """
    if len(rest) != header.length - HEADER_BYTES:
        raise BrokenFrameError(f"the file ends inside the frame, which has {header.length} bytes")
    checksum, length = TRAILER.unpack_from(rest, len(rest) - TRAILER_BYTES)
    if length != header.length:
        raise BrokenFrameError(
            f"the frame has length {header.length} in its header and {length} in its trailer"
        )
    if crc32c(memoryview(rest)[:-TRAILER_BYTES]) != checksum:
        raise BrokenFrameError("the frame body fails its checksum")


def decode_body(header: FrameHeader, rest: bytes | memoryview) -> pa.RecordBatch | None:
    """The record batch of a frame that passed ``check_frame``; None when it has no columns.

    Raises:
        BrokenFrameError: the body is not the record batch its header describes.
    """
    if header.is_typed:
        raise BrokenFrameError("the frame has rows of a typed topic, expected records")
    return decode_message(header, unpack_body(header, rest))


def unpack_body(header: FrameHeader, rest: bytes | memoryview) -> pa.Buffer:
    """The body of a frame that passed ``check_frame``, decompressed.

    Raises:
        BrokenFrameError: the stored body is not valid for its codec.
    """
    body = pa.py_buffer(rest[: header.body_length])
    if not header.codec:
        return body
    return decompress(body, header.codec, header.raw_length)


def decode_message(header: FrameHeader, body: pa.Buffer) -> pa.RecordBatch | None:
    """The record batch in a body that was unpacked; None when the frame has no columns.

    Raises:
        BrokenFrameError: the body is not the record batch its header describes.
    """
    schema = body_schema(header.columns)
    if not len(schema):
        return None
    try:
        if has_compressed_buffers(body):
            raise BrokenFrameError("the frame body compresses its buffers, which no writer does")
        batch = pa.ipc.read_record_batch(body, schema)
        batch.validate(full=True)
    except (pa.ArrowException, EOFError, OSError, struct.error) as error:
        raise BrokenFrameError(f"the frame body is not a sound record batch: {error}") from error
    if batch.num_rows != header.records:
        raise BrokenFrameError(
            f"expected {header.records} records in the frame, found {batch.num_rows}"
        )
    return batch


@cache
def body_schema(bits: int) -> pa.Schema:
    """Schema of a body by the column bits of its header."""
    fields = [
        (SPARSE, pa.field("offset_delta", pa.uint32())),
        (TIMESTAMPS, pa.field("timestamp", TIMESTAMP)),
        (KEY, pa.field("key", pa.binary())),
        (VALUE, pa.field("value", pa.binary())),
        (HEADERS_BIT, pa.field("headers", HEADERS)),
    ]
    return pa.schema([field for bit, field in fields if bits & bit])


@cache
def body_names(bits: int) -> tuple[str, ...]:
    """Names of a body's columns by the column bits of its header."""
    return tuple(body_schema(bits).names)


class EncodedFrame(NamedTuple):
    """A frame as buffers for one vectored write; ``buffers[0]`` is the header."""

    buffers: list[bytes | memoryview]
    header: FrameHeader

    def moved(self, *, relative_offset: int, recovery_point: int) -> EncodedFrame:
        """The same records at another place: only the header is new."""
        header = self.header._replace(
            relative_offset=relative_offset, recovery_point=recovery_point
        )
        return EncodedFrame([pack_header(header), *self.buffers[1:]], header)


class DraftFrame(NamedTuple):
    """A frame without a checksum, its body not yet compressed.

    The lengths in the header are those of the uncompressed body. A typed body that is compressed
    is made by ``encode``: until then its lengths are estimates.
    """

    pieces: list[Piece]
    header: FrameHeader
    level: int
    encode: Callable[[], EncodedBody] | None = None


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
    """Lay out all of ``columns`` as one frame. It may have no record and only cover a hole.

    Args:
        columns: The records.
        relative_offset: Where the frame begins, counted from the segment's base.
        recovery_point: Of the log when the frame is written, counted likewise.
        compression: Codec of the body.
        level: Of zstd.
        deltas: Offsets counted from the frame's beginning, where there are holes between them.
        span: Offsets that the frame covers, where a hole follows its last record.
    """
    low, high = _timestamp_bounds(columns)
    bits, arrays = _present(columns, constant=low == high)
    if deltas is not None:
        bits, arrays = bits | SPARSE, [number_column(deltas.astype(np.uint32)), *arrays]
    pieces, encode, version = list[Piece](), None, RECORDS
    if columns.rows is not None and columns.count:
        version = TYPED
        encode = partial(_encode_rows, columns.rows, bits, arrays, compression, level)
    elif arrays:
        pieces = message_pieces(pa.RecordBatch.from_arrays(arrays, schema=body_schema(bits)))
    raw_length = sum(map(len, pieces))
    if encode is not None and compression == "none":
        pieces, raw_length, _ = encode()
        encode = None
    elif encode is not None:
        raw_length = columns.size
    header = FrameHeader(
        version=version,
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
    return DraftFrame(pieces, header, level, encode)


def _encode_rows(
    rows: TypedRows, bits: int, arrays: list[pa.Array], compression: str, level: int
) -> EncodedBody:
    """The body of a typed frame; ``arrays`` are the columns that the log adds."""
    known = (SPARSE, typed_body.OFFSET_DELTA), (TIMESTAMPS, typed_body.TIMESTAMP_ID)
    ids = [number for bit, number in known if bits & bit]
    return typed_body.encode_body(
        rows,
        dict(zip(ids, arrays, strict=True)),
        compression=compression,
        level=level,
        statistics=statistics.of_rows(rows),
    )


def finish_frame(draft: DraftFrame) -> EncodedFrame:
    """Compress the body and compute its checksum. Runs outside Python's global lock."""
    pieces, header, level, encode = draft
    if encode is not None:
        pieces, size, raw_length = encode()
        header = header._replace(body_length=size, length=frame_length(size), raw_length=raw_length)
    elif header.codec and not header.is_typed:
        codec = codec_of(CODECS[header.codec], level)
        pieces = [codec.compress(pa.py_buffer(b"".join(pieces)))]
        size = len(pieces[0])
        header = header._replace(body_length=size, length=frame_length(size))
    padding = bytes(-header.body_length % 8)
    checksum = 0
    for piece in (*pieces, padding):
        checksum = crc32c(piece, checksum)
    trailer = padding + TRAILER.pack(checksum, header.length)
    # The view of a buffer that a codec has shrunk has its old length until it is cast.
    views = [memoryview(piece).cast("B") for piece in pieces]
    return EncodedFrame([pack_header(header), *views, trailer], header)


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
