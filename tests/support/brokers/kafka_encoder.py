"""Record batches as Kafka's protocol describes them, written field by field, without numpy."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import crc32c
import pyarrow as pa

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Header = tuple[str | bytes, bytes | None]


def varint(number: int) -> bytes:
    """A signed number in zigzag form, seven bits a byte."""
    raw = (number << 1) ^ (number >> 63)
    raw &= (1 << 64) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass
class Record:
    """One record; ``delta`` is its offset less that of the batch."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    time: int = 0
    delta: int | None = None


def record(found: Record, delta: int, base_time: int) -> bytes:
    body = b"\0" + varint(found.time - base_time) + varint(delta)
    body += sized(found.key) + sized(found.value) + varint(len(found.headers))
    for name, value in found.headers:
        body += sized(name.encode() if isinstance(name, str) else name) + sized(value)
    return varint(len(body)) + body


def xerial(data: bytes, block: int = 32 << 10) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block):
        packed: bytes = pa.compress(data[at : at + block], "snappy", asbytes=True)
        out += struct.pack(">i", len(packed)) + packed
    return out


def streamed(data: bytes, codec: str) -> bytes:
    """As clients do that write a stream: no size at the front."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(data)
    return bytes(sink.getvalue())


def compress(data: bytes, codec: str) -> bytes:
    if codec == "none":
        return data
    if codec == "gzip":
        return gzip.compress(data)
    return xerial(data) if codec == "snappy" else streamed(data, codec)


@dataclass
class Batch:
    """A batch; what is None follows from the records."""

    base: int
    records: Sequence[Record]
    codec: str = "none"
    append_time: int | None = None
    producer: int = -1
    transactional: bool = False
    control: bool = False
    last_delta: int | None = None
    magic: int = 2
    epoch: int = 0
    payload: bytes | None = field(default=None, repr=False)

    def deltas(self) -> list[int]:
        return [at if each.delta is None else each.delta for at, each in enumerate(self.records)]

    @property
    def last(self) -> int:
        deltas = self.deltas()
        return self.base + (self.last_delta if self.last_delta is not None else deltas[-1])

    def encode(self) -> bytes:
        times = [each.time for each in self.records] or [-1]
        base_time, most = times[0], max(times)
        payload = b"".join(
            record(each, delta, base_time)
            for each, delta in zip(self.records, self.deltas(), strict=True)
        )
        if self.payload is not None:
            payload = self.payload
        if self.records or self.payload is not None:
            payload = compress(payload, self.codec)
        attributes = CODECS.index(self.codec) | self.transactional << 4 | self.control << 5
        if self.append_time is not None:
            attributes, most = attributes | 8, self.append_time
        checked = struct.pack(
            ">hiqqqhii",
            attributes,
            self.last - self.base,
            base_time,
            most,
            self.producer,
            0 if self.producer >= 0 else -1,
            0 if self.producer >= 0 else -1,
            len(self.records),
        )
        checked += payload
        head = struct.pack(">ibI", self.epoch, self.magic, crc32c.crc32c(checked))
        return struct.pack(">qi", self.base, len(head) + len(checked)) + head + checked


def marker(offset: int, producer: int, *, commit: bool, time: int = 0) -> Batch:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, 0)
    ends = [Record(value, key, time=time)]
    return Batch(offset, ends, producer=producer, transactional=True, control=True)


def offset_index(batches: Sequence[Batch], base: int, every: int = 4096) -> bytes:
    """What the broker writes while it appends the batches one by one."""
    out, position, since = b"", 0, 0
    for batch in batches:
        size = len(batch.encode())
        if since > every:
            out += struct.pack(">Ii", batch.last - base, position)
            since = 0
        since += size
        position += size
    return out


def time_index(batches: Sequence[Batch], base: int, every: int = 4096) -> bytes:
    """The same for times; the last entry is that of a segment that was sealed."""
    out, since, largest, last = b"", 0, -1, 0
    entries: list[tuple[int, int]] = []
    for batch in batches:
        most = max((each.time for each in batch.records), default=-1)
        most = most if batch.append_time is None else batch.append_time
        if most > largest:
            largest, last = most, batch.last
        if since > every:
            entries.append((largest, last - base))
            since = 0
        since += len(batch.encode())
    entries.append((largest, last - base))
    for at, (time, offset) in enumerate(entries):
        if at == 0 or time > entries[at - 1][0]:
            out += struct.pack(">qI", time, offset)
    return out


def write_partition(
    root: Path, topic: str, partition: int, segments: Sequence[Sequence[Batch]]
) -> list[Path]:
    """Write the segments of a partition with their indexes; each is named by its first offset."""
    directory = root / f"{topic}-{partition}"
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for batches in segments:
        base = batches[0].base
        file = directory / f"{base:020d}.log"
        file.write_bytes(b"".join(batch.encode() for batch in batches))
        file.with_suffix(".index").write_bytes(offset_index(batches, base))
        file.with_suffix(".timeindex").write_bytes(time_index(batches, base))
        files.append(file)
    return files


def write_checkpoint(
    root: Path,
    offsets: dict[tuple[str, int], int],
    name: str = "replication-offset-checkpoint",
) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    (root / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
