"""The codecs of record batches: none, gzip, snappy, lz4 and zstd.

Kafka stores no size of the uncompressed records. gzip and snappy state one, zstd and lz4 may not.
What is stated is compared with what the compressed bytes can possibly hold before memory is taken;
the others are read piece by piece. No batch may have more than ``MOST_BYTES``.

``snappy`` is a stream of blocks in the framing of the Java library xerial: the 8 bytes ``82``,
``SNAPPY``, ``00``, two versions of 4 bytes, then for each block its length (4 bytes, big-endian)
and the block. Clients in C write one block without framing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from ...errors import BrokenFrameError

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
MOST_BYTES = 256 << 20
_XERIAL, _XERIAL_HEADER = b"\x82SNAPPY\0", 16
_INT32 = struct.Struct(">i")
_SIZE = struct.Struct("<I")
# The most that one compressed byte can stand for; snappy copies up to 64 bytes with 3.
_GZIP_GROWTH, _SNAPPY_GROWTH, _ROOM = 1032, 22, 64
_FIRST_PIECE = 64 << 10
_PIECE_GROWTH = 4


def decompress(data: memoryview, codec: int, most: int = MOST_BYTES) -> list[pa.Buffer]:
    """The uncompressed records of a batch, in pieces.

    Raises:
        BrokenFrameError: the bytes are not of this codec, or stand for more than ``most``.
    """
    if codec >= len(NAMES):
        raise BrokenFrameError(f"codec {codec}, expected 0 to {len(NAMES) - 1}")
    name = NAMES[codec]
    try:
        if name == "none":
            return [pa.py_buffer(data)]
        if name == "snappy":
            return list(_read_snappy(data, most))
        if name == "gzip" and (whole := _read_gzip(data, most)) is not None:
            return [whole]
        return list(_read_stream(data, name, most))
    except (pa.ArrowException, EOFError, OSError) as error:
        raise BrokenFrameError(f"a {name} batch cannot be decompressed: {error}") from error


def _read_gzip(data: memoryview, most: int) -> pa.Buffer | None:
    """By the size at its end; None if that is the size of the last of several members."""
    if len(data) < _SIZE.size:
        raise BrokenFrameError(f"a gzip batch of {len(data)} bytes")
    (size,) = _SIZE.unpack_from(data, len(data) - _SIZE.size)
    if not 0 < size <= min(most, _GZIP_GROWTH * len(data)):
        return None
    try:
        return pa.Codec("gzip").decompress(pa.py_buffer(data), size)
    except (pa.ArrowException, OSError):
        return None  # the stream says whether that is damage


def _read_snappy(data: memoryview, most: int) -> Iterator[pa.Buffer]:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _read_block(data, most)
        return
    at = 0
    while at < len(data):
        if bytes(data[at : at + len(_XERIAL)]) == _XERIAL:  # streams may follow each other
            at += _XERIAL_HEADER
            continue
        if at + _INT32.size > len(data):
            raise BrokenFrameError("the framing of a snappy batch ends inside a length")
        (length,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        if not 0 < length <= len(data) - at:
            raise BrokenFrameError(f"a snappy block of {length} bytes, {len(data) - at} are left")
        block = _read_block(data[at : at + length], most)
        most -= block.size
        yield block
        at += length


def _read_block(block: memoryview, most: int) -> pa.Buffer:
    size = _stated_size(block)
    if size > _SNAPPY_GROWTH * len(block) + _ROOM:
        raise BrokenFrameError(f"{len(block)} bytes of snappy cannot decompress to {size}")
    if size > most:
        raise _too_large(most)
    return pa.Codec("snappy").decompress(pa.py_buffer(block), size)


def _stated_size(block: memoryview) -> int:
    """The number that a block begins with, seven bits a byte."""
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise BrokenFrameError("a snappy block states no size")


def _read_stream(data: memoryview, name: str, most: int) -> Iterator[pa.Buffer]:
    wanted = min(max(_FIRST_PIECE, _PIECE_GROWTH * len(data)), most + 1)
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        while piece := stream.read_buffer(wanted):
            most -= piece.size
            if most < 0:
                raise _too_large(MOST_BYTES)
            yield piece
            wanted = min(wanted, most + 1)


def _too_large(most: int) -> BrokenFrameError:
    return BrokenFrameError(f"a batch decompresses to more than {most} bytes")
