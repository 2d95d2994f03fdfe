"""A plain reader of Kafka's record batches: one record at a time, from the tables of the protocol.

It is slow and has nothing in common with the reader it judges but the libraries of the codecs.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import crc32c
import numpy as np
import pyarrow as pa

from storage_core.errors import StorageError
from storage_core.kafka.codecs.batches import Bounds, walk_batches
from storage_core.kafka.codecs.records import decode_groups
from tests.support.brokers.kafka_encoder import CODECS

MOST = 64 << 20
Headers = tuple[tuple[bytes, bytes | None], ...]


class PlainRecord(NamedTuple):
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class UnsoundError(Exception):
    """Bytes that no broker writes."""


class Reader:
    """Takes fields off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise UnsoundError("a field goes on after the end")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        raw = 0
        for turn in range(10):
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << (7 * turn)
            if byte < 0x80:
                raw &= (1 << 64) - 1
                return (raw >> 1) ^ -(raw & 1)
        raise UnsoundError("a number without an end")

    def sized(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self.take(size)


def plain_batches(data: bytes) -> list[list[PlainRecord]]:
    """The records of each sound batch up to the first that is not; none of control batches."""
    found: list[list[PlainRecord]] = []
    lasts: list[tuple[int, int]] = []
    at = 0
    while at + 61 <= len(data):
        base, length, _, magic, checksum = struct.unpack_from(">qiibI", data, at)
        end = at + 12 + length
        if magic != 2 or length < 49 or end > len(data):
            break
        intact = crc32c.crc32c(data[at + 21 : end]) == checksum
        attributes, delta = struct.unpack_from(">hi", data, at + 21)
        (count,) = struct.unpack_from(">i", data, at + 57)
        due = lasts[-1][1] + 1 if lasts else 0
        fits = delta >= 0 and 0 <= count <= delta + 1 and base >= 0
        if not intact or not fits or base < due or base + delta >= (1 << 63) - 1:
            if intact and found and 0 <= base < due and not follows(lasts):
                found.pop()
            break
        records = [] if attributes & 0x20 else records_of(data[at:end])
        lasts.append((base, base + delta))
        found.append(records)
        at = end
    return found


def follows(lasts: list[tuple[int, int]]) -> bool:
    """Whether the last batch begins where the one before it ends."""
    before = lasts[-2][1] + 1 if len(lasts) > 1 else 0
    return lasts[-1][0] == before


def records_of(batch: bytes) -> list[PlainRecord]:
    """The records of a batch, which must fill it.

    Raises:
        UnsoundError: they do not.
    """
    base, *_ = struct.unpack_from(">q", batch)
    attributes, last, base_time, max_time = struct.unpack_from(">hiqq", batch, 21)
    (count,) = struct.unpack_from(">i", batch, 57)
    reader = Reader(unpacked(batch[61:], attributes & 7))
    found: list[PlainRecord] = []
    for _ in range(count):
        body = Reader(reader.take(reader.number()))
        body.take(1)
        time, delta = base_time + body.number(), body.number()
        key, value = body.sized(), body.sized()
        headers = tuple(header(body) for _ in range(counted(body)))
        if body.at != len(body.data) or not 0 <= delta <= last:
            raise UnsoundError("fields do not fill a record")
        if found and base + delta <= found[-1].offset:
            raise UnsoundError("offsets do not rise")
        time = max_time if attributes & 8 else time
        found.append(PlainRecord(base + delta, time, key, value, headers))
    if reader.at != len(reader.data):
        raise UnsoundError("records do not fill a batch")
    return found


def counted(body: Reader) -> int:
    count = body.number()
    if not 0 <= count <= len(body.data) - body.at:
        raise UnsoundError("an impossible number of headers")
    return count


def header(body: Reader) -> tuple[bytes, bytes | None]:
    name = body.sized()
    if name is None:
        raise UnsoundError("a header without a name")
    return name, body.sized()


def first_of(stream: pa.NativeFile) -> bytes:
    """At most ``MOST`` bytes, in pieces: a read takes room for all that it is asked for."""
    pieces, left = [], MOST
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def unpacked(payload: bytes, codec: int) -> bytes:
    if codec == 0 or not payload:
        return payload
    if codec >= len(CODECS):
        raise UnsoundError("no such codec")
    try:
        if CODECS[codec] != "snappy":
            with pa.CompressedInputStream(pa.BufferReader(payload), CODECS[codec]) as stream:
                return first_of(stream)
        if payload[:8] != b"\x82SNAPPY\0":
            return block(payload)
        out, at = b"", 16
        while at < len(payload):
            (size,) = struct.unpack_from(">i", payload, at)
            if not 0 < size <= len(payload) - at - 4:
                raise UnsoundError("no block")
            out += block(payload[at + 4 : at + 4 + size])
            at += 4 + size
        return out
    except (pa.ArrowException, OSError, struct.error) as error:
        raise UnsoundError(str(error)) from error


def block(data: bytes) -> bytes:
    reader, size = data[:5], 0
    for turn, byte in enumerate(reader):
        size |= (byte & 0x7F) << (7 * turn)
        if byte < 0x80:
            break
    else:
        raise UnsoundError("no size")
    if size > MOST:
        raise UnsoundError("too large")
    found: bytes = pa.decompress(data, size, "snappy", asbytes=True)
    return found


def compare_with_plain(data: bytes) -> None:
    """The records of both readers are the same, up to the first batch that is not sound."""
    walked = walk_batches(memoryview(data), np.empty(0, dtype=np.int64), Bounds(0))
    found: list[tuple[object, ...]] = []
    sound = True
    try:
        batches = walked.batches[~walked.batches.is_control]
        for got in decode_groups(memoryview(data), batches):
            columns = got.columns(("key", "value", "headers"))
            lists = [
                columns[name].to_pylist() if name in columns else [None] * got.count
                for name in ("key", "value", "headers")
            ]
            for row in zip(got.offsets.tolist(), got.milliseconds.tolist(), *lists, strict=True):
                headers = [(each["key"], each["value"]) for each in row[4] or ()]
                found.append((*row[:4], headers))
    except StorageError:
        sound = False
    try:
        plain = [each for batch in plain_batches(data) for each in batch]
    except UnsoundError:
        assert not sound
        return
    assert sound
    shown = [
        [(name.decode("utf-8", "replace"), value) for name, value in each.headers] for each in plain
    ]
    assert found == [(*each[:4], more) for each, more in zip(plain, shown, strict=True)]


def with_right_checksum(data: bytes) -> bytes:
    """The first batch with the checksum and the length of what it is now."""
    checked = data[21:]
    head = struct.pack(">qi", 0, len(data) - 12) + data[12:17]
    return head + struct.pack(">I", crc32c.crc32c(checked)) + checked
