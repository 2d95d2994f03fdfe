"""The bytes of commits, checkpoints and manifests: a JSON document with checksums, then more.

====== ==== ==============================================================
offset size field (big-endian)
====== ==== ==============================================================
0      4    magic ``CRSO``
4      1    format version 1
5      1    kind: 1 commit, 2 checkpoint, 3 manifest
6      1    compression of the document: 0 none, 2 zstd
7      1    zero
8      4    length of the document as stored
12     4    length of the document uncompressed
16     4    CRC32C of the document as stored
20     4    CRC32C of bytes 0 to 19
24     n    the document, padded with zeros to a multiple of 8
24+n        in commits: frames of small appends; in manifests: blocks. Both have checksums
====== ==== ==============================================================
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ..errors import BrokenFrameError, DamagedMetadataError
from ..format.compression import codec_of, decompress
from ..io.checksum import crc32c

Kind = Literal["commit", "checkpoint", "manifest"]
_KINDS: dict[Kind, int] = {"commit": 1, "checkpoint": 2, "manifest": 3}
_MAGIC, _VERSION = b"CRSO", 1
_HEADER = struct.Struct(">4sBBBBIIII")
HEADER_BYTES = _HEADER.size
_ZSTD, _WORTH_BYTES = 2, 512
_MAX_BYTES = 1 << 30


class Document(NamedTuple):
    """The fields of a document, and where the frames after it begin."""

    fields: dict[str, Any]
    frames_at: int


def encode(kind: Kind, fields: Mapping[str, Any]) -> list[bytes]:
    """The document as buffers; frames may follow."""
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    stored, codec = text, 0
    if len(text) >= _WORTH_BYTES:
        compressed = codec_of("zstd", 3).compress(text, asbytes=True)
        if len(compressed) < len(text):
            stored, codec = compressed, _ZSTD
    head = _HEADER.pack(
        _MAGIC, _VERSION, _KINDS[kind], codec, 0, len(stored), len(text), crc32c(stored), 0
    )[:-4]
    head += crc32c(head).to_bytes(4, "big")
    return [head, stored, bytes(-len(stored) % 8)]


def decode(kind: Kind, data: memoryview, key: str) -> Document:
    """The document of an object.

    Raises:
        DamagedMetadataError: the object is not a sound one of this kind.
    """
    try:
        head = bytes(data[:HEADER_BYTES])
        magic, version, found, codec, _, stored, length, checksum, of_head = _HEADER.unpack(head)
        if magic != _MAGIC or crc32c(head[:-4]) != of_head:
            raise ValueError("its header fails its checksum")
        if version != _VERSION or found != _KINDS[kind]:
            raise ValueError(f"it is no {kind} of a format that this release knows")
        text = data[HEADER_BYTES : HEADER_BYTES + stored]
        if len(text) != stored or crc32c(text) != checksum or length > _MAX_BYTES:
            raise ValueError("its document fails its checksum")
        if codec:
            text = memoryview(decompress(pa.py_buffer(text), codec, length))
        fields = json.loads(bytes(text))
        if not isinstance(fields, dict):
            raise ValueError("it holds no JSON object")
    except (struct.error, ValueError, IndexError, BrokenFrameError, RecursionError) as error:
        raise damaged(key, str(error)) from error
    return Document(fields, HEADER_BYTES + stored + -stored % 8)


def damaged(key: str, reason: str) -> DamagedMetadataError:
    """The error of an object that cannot be trusted."""
    return DamagedMetadataError(
        f"{key} is damaged: {reason}. Restore the object from a copy.", path=key
    )
