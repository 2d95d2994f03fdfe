"""The bytes of manifests: slices as columns of numbers, in blocks that are read one by one.

====== ==== =================================================================
offset size field of a block (big-endian)
====== ==== =================================================================
0      4    length of the columns as stored
4      4    length uncompressed
8      4    CRC32C of the columns as stored
12     4    CRC32C of bytes 0 to 11
16     n    the columns, compressed with zstd
====== ==== =================================================================

Uncompressed, the columns begin with two numbers of 4 bytes: rows, and bytes of the keys. Then comes
each field of a row: the differences to the row before, as 8 bytes little-endian, first the lowest
bytes of all rows, then the next ones. The keys of the objects follow, one a line.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...errors import BrokenFrameError
from ...format.compression import codec_of, decompress
from ...io.checksum import crc32c
from ...types import Int64s
from ...vfs import Buffer
from .. import document
from ..slices import Slice

BLOCK_SLICES = 4096
PARTITION, BASE, END, OBJECT = range(4)
_SMALLEST, _LARGEST = 9, 10
_COLUMNS = 1 + len(Slice._fields)
_HEAD = struct.Struct(">IIII")
_COUNTS = struct.Struct(">II")
_ZSTD, _LEVEL = 2, 3
_MAX_BYTES = 1 << 30


class SliceColumns(NamedTuple):
    """Slices of several partitions as columns, sorted by partition and base.

    ``numbers`` has a row for each of: partition, base, end, object (its place in ``keys``),
    position, size, bytes of both indexes, records, smallest and largest timestamp, checksum.
    """

    numbers: Int64s
    keys: list[str]

    @property
    def rows(self) -> int:
        return int(self.numbers.shape[1])

    def column(self, number: int) -> Int64s:
        """One column."""
        found: Int64s = self.numbers[number]
        return found

    def slices(self, partition: int) -> list[Slice]:
        """The slices of one partition."""
        low, high = np.searchsorted(self.column(PARTITION), (partition, partition + 1))
        base, end, at, *rest = self.numbers[1:, low:high].tolist()
        names = map(self.keys.__getitem__, at)
        return list(starmap(Slice, zip(base, end, names, *rest, strict=True)))

    def chosen(self, rows: Int64s) -> SliceColumns:
        """Some of the rows, with the objects that they need."""
        numbers = self.numbers[:, rows]
        used, numbers[OBJECT] = np.unique(numbers[OBJECT], return_inverse=True)
        return SliceColumns(numbers, [self.keys[at] for at in used.tolist()])

    def overlap(self, times: tuple[int, int]) -> Int64s:
        """The rows that can have records from the first to the second timestamp."""
        first, last = times
        found = (self.column(_LARGEST) >= first) & (self.column(_SMALLEST) <= last)
        return np.flatnonzero(found)


def columns_of(slices: Iterable[tuple[int, Slice]]) -> SliceColumns:
    """Slices with their partitions as columns, in their order."""
    places: dict[str, int] = {}
    rows = [
        (partition, *found[:2], places.setdefault(found.key, len(places)), *found[3:])
        for partition, found in slices
    ]
    numbers = np.array(rows, np.int64).reshape(-1, _COLUMNS).T
    return SliceColumns(np.ascontiguousarray(numbers), list(places))


def joined(parts: Sequence[SliceColumns]) -> SliceColumns:
    """The slices of several, sorted by partition and base."""
    places: dict[str, int] = {}
    pieces = []
    for part in parts:
        numbers = part.numbers.copy()
        at = [places.setdefault(key, len(places)) for key in part.keys]
        numbers[OBJECT] = np.array(at, np.int64)[numbers[OBJECT]]
        pieces.append(numbers)
    numbers = np.concatenate(pieces, axis=1)
    order = np.lexsort((numbers[BASE], numbers[PARTITION]))
    return SliceColumns(numbers[:, order], list(places))


def encode_manifest(log: str, found: SliceColumns) -> tuple[list[Buffer], Int64s]:
    """A manifest as buffers, and its blocks.

    Each block is a row of numbers: position, size, first and last partition, slices, smallest and
    largest timestamp.
    """
    fields = {"format": 1, "log": log, "slices": found.rows}
    buffers: list[Buffer] = list(document.encode("manifest", fields))
    position, blocks = sum(map(len, buffers)), []
    for at in range(0, found.rows, BLOCK_SLICES):
        part = found.chosen(np.arange(at, min(at + BLOCK_SLICES, found.rows)))
        data = encode_block(part)
        partitions = part.column(PARTITION)
        blocks.append(
            (
                position,
                len(data),
                int(partitions[0]),
                int(partitions[-1]),
                part.rows,
                int(part.column(_SMALLEST).min()),
                int(part.column(_LARGEST).max()),
            )
        )
        buffers.append(data)
        position += len(data)
    return buffers, np.array(blocks, np.int64)


def encode_block(found: SliceColumns) -> bytes:
    """One block."""
    keys = "\n".join(found.keys).encode()
    differences = np.ascontiguousarray(np.diff(found.numbers, axis=1, prepend=0), "<i8")
    planes = differences.view(np.uint8).reshape(_COLUMNS, found.rows, 8).transpose(0, 2, 1)
    plain = _COUNTS.pack(found.rows, len(keys)) + planes.tobytes() + keys
    stored = codec_of("zstd", _LEVEL).compress(plain, asbytes=True)
    head = _HEAD.pack(len(stored), len(plain), crc32c(stored), 0)[:-4]
    return bytes(head + crc32c(head).to_bytes(4, "big") + stored)


def decode_block(data: memoryview, key: str) -> SliceColumns:
    """The slices of a block; ``key`` is the manifest, for the message.

    Raises:
        DamagedMetadataError: it is not a sound block.
    """
    try:
        head = bytes(data[: _HEAD.size])
        stored, length, checksum, of_head = _HEAD.unpack(head)
        body = data[_HEAD.size : _HEAD.size + stored]
        if crc32c(head[:-4]) != of_head or len(body) != stored or crc32c(body) != checksum:
            raise ValueError("a block fails its checksum")
        if length > _MAX_BYTES:
            raise ValueError(f"a block of {length} bytes is too large")
        plain = memoryview(decompress(pa.py_buffer(body), _ZSTD, length))
        rows, key_bytes = _COUNTS.unpack(plain[: _COUNTS.size])
        end = _COUNTS.size + _COLUMNS * rows * 8
        if end + key_bytes != length or not rows:
            raise ValueError(f"a block of {rows} slices has {length} bytes")
        planes = np.frombuffer(plain[_COUNTS.size : end], np.uint8).reshape(_COLUMNS, 8, rows)
        differences = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<i8")[..., 0]
        numbers = np.cumsum(differences, axis=1, dtype=np.int64)
        keys = bytes(plain[end:]).decode().split("\n")
        if int(numbers[OBJECT].min()) < 0 or int(numbers[OBJECT].max()) >= len(keys):
            raise ValueError("a slice names an object that is not there")
    except (struct.error, ValueError, BrokenFrameError) as error:
        raise document.damaged(key, str(error)) from error
    return SliceColumns(numbers, keys)


def split_blocks(data: memoryview, blocks: Int64s) -> Iterator[memoryview]:
    """The blocks in bytes that begin with the first of them."""
    first = int(blocks[0, 0])
    for position, size in blocks[:, :2].tolist():
        yield data[position - first : position - first + size]
