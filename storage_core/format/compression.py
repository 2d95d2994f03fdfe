"""The codecs of frames: compressing, and decompressing to a length that is known beforehand."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from ..config import CODECS
from ..errors import BrokenFrameError

_LZ4_GROWTH = 255


@cache
def codec_of(compression: str, level: int | None = None) -> pa.Codec:
    """What compresses and decompresses.

    Safe for several threads: it has no state.
    """
    if compression == "zstd" and level is not None:
        return pa.Codec("zstd", compression_level=level)
    return pa.Codec(compression)


def decompress(data: pa.Buffer, codec: int, length: int, *, exactly: bool = False) -> pa.Buffer:
    """The ``length`` bytes that were compressed with the codec of this number.

    Args:
        data: What was stored.
        codec: Number of the codec, one or more.
        length: Bytes of the result.
        exactly: Refuse lz4 that holds fewer bytes, which takes a fifth longer. The rest of the
            result is old memory otherwise.

    Raises:
        BrokenFrameError: the data are not valid for the codec, or have another length.
    """
    name = CODECS[codec]
    if name == "lz4" and length > _LZ4_GROWTH * data.size:
        raise BrokenFrameError(f"{data.size} bytes of lz4 cannot decompress to {length}")
    try:
        if name == "lz4" and exactly:
            return _read_lz4(data, length)
        return codec_of(name).decompress(data, length, asbytes=False)
    except (pa.ArrowException, EOFError, OSError) as error:
        raise BrokenFrameError(f"the frame body cannot be decompressed: {error}") from error


def _read_lz4(data: pa.Buffer, length: int) -> pa.Buffer:
    """Arrow's codec does not say how many bytes lz4 produced, its stream does."""
    result = pa.allocate_buffer(length)
    with pa.CompressedInputStream(pa.BufferReader(data), "lz4") as stream:
        found = stream.readinto(result)
        if found != length or stream.read(1):
            raise BrokenFrameError(
                f"expected {length} bytes in {data.size} bytes of lz4, found "
                f"{found if found < length else 'more'}"
            )
    return result
