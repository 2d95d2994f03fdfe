"""Directories as the brokers write them, made byte by byte, and a plain reader of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from storage_core import Store
from storage_core.errors import DamagedLogError
from tests.storage_core.broker_oracle import CUTS, LAYOUT, build, plain_headers, plain_parse
from tests.stores import rows

TOPIC = "orders"
FORMS = {"B": 7, "C": 11, "D": 12, "E": 20}


def row(payload: bytes) -> bytes:
    """A record of the form without offsets."""
    return struct.pack(">I", len(payload)) + payload


def rust_row(offset: int, payload: bytes) -> bytes:
    """A record of RustLog."""
    return struct.pack(">IQ", len(payload), offset) + payload


def message(offset: int, payload: bytes, form: str = "E", **fields: Any) -> bytes:
    """A framed message of the cursus broker."""
    named = {"topic": TOPIC.encode(), "partition": 0, "offset": offset, "payload": payload}
    return row(build({**named, **fields}, LAYOUT[: FORMS[form]]))


@dataclass(frozen=True)
class Kind:
    """One layout's way to lay out a partition."""

    name: str
    layout: str
    pattern: str
    header: int
    has_index: bool

    @property
    def ordinal(self) -> bool:
        return self.layout == "cursus"

    def file(self, root: Path, number: int = 0, partition: int = 0, suffix: str = ".log") -> Path:
        """Path of a log file by its ordinal or base."""
        name = self.pattern.format(t=TOPIC, p=partition, n=number)
        return (root / name).with_suffix(suffix)

    def encode(self, payloads: Sequence[bytes], first: int) -> bytes:
        """The bytes of records from offset ``first``."""
        if self.layout == "cursus":
            return b"".join(map(row, payloads))
        make = rust_row if self.layout == "rustlog" else message
        return b"".join(make(first + at, payload) for at, payload in enumerate(payloads))

    def write(self, root: Path, segments: Sequence[Sequence[bytes]], first: int = 0) -> list[Path]:
        """Write a partition, one file per list of payloads."""
        files, offset = [], first
        for number, payloads in enumerate(segments):
            file = self.file(root, number if self.ordinal else offset)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.encode(payloads, offset))
            files.append(file)
            offset += len(payloads)
        return files

    def index_of(self, payloads: Sequence[bytes], first: int, every: int) -> bytes:
        """A right index with an entry for every so many-th record."""
        entries, position = [], 0
        for at, payload in enumerate(payloads):
            if at % every == 0 and (position or self.layout == "rustlog"):
                entries.append(struct.pack(">QQ", first + at, position))
            position += len(self.encode([payload], first + at))
        return b"".join(entries)

    def open(self, root: Path, **arguments: Any) -> Store:
        return Store.open(root, **arguments)


_FLAT = "{t}/partition_{p}_segment_{n}.log"
KINDS = [
    Kind("cursus", "cursus", _FLAT, 4, False),
    Kind("nested", "cursus", "{t}/partition_{p}/{t}_partition_{p}_segment_{n}.log", 4, False),
    Kind("broker", "cursus-broker", "{t}/partition_{p}_segment_{n:020d}.log", 4, True),
    Kind("rustlog", "rustlog", "topics/{t}/partition-{p}/{n:020d}.log", 12, True),
    Kind("rustlog12", "rustlog", "topics/{t}/partition-{p}/{n:012d}.log", 12, True),
]
CURSUS, NESTED, BROKER, RUSTLOG, RUSTLOG12 = KINDS


class Outcome(NamedTuple):
    """What a read gave: records, and the error behind them if there was one."""

    records: list[tuple[int, bytes]]
    error: DamagedLogError | None

    @property
    def values(self) -> list[bytes]:
        return [value for _, value in self.records]

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.records]


def read(store: Store, partition: int = 0, topic: str = TOPIC, **bounds: Any) -> Outcome:
    """Everything that comes before the damage, and the damage."""
    records: list[tuple[int, bytes]] = []
    try:
        for batch in store.read(topic, partition, **bounds):
            batch.validate(full=True)
            records += [(found["offset"], found["value"]) for found in batch.to_pylist()]
    except DamagedLogError as error:
        return Outcome(records, error)
    return Outcome(records, None)


def details(store: Store, **bounds: Any) -> list[tuple[Any, ...]]:
    """Offset, key, value and headers of all records."""
    return [
        (
            found["offset"],
            found["key"],
            found["value"],
            found["headers"] and [(item["key"], item["value"]) for item in found["headers"]],
        )
        for found in rows(store.read(TOPIC, 0, **bounds))
    ]


def snapshot(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """The broker's own files: contents, times, modes."""
    return {
        str(file.relative_to(root)): (
            file.read_bytes(),
            file.stat().st_mtime_ns,
            file.stat().st_mode,
        )
        for file in sorted(root.rglob("*"))
        if file.is_file() and ".cursus-spark" not in file.parts
    }


def frames(data: bytes, *, header: int, least: int, most: int) -> Iterator[tuple[bytes, bytes]]:
    """Header and payload of the whole rows, one by one; ends silently at the first bad one."""
    at = 0
    while at + header <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if not least <= length <= most or at + header + length > len(data):
            return
        yield data[at : at + header], data[at + header : at + header + length]
        at += header + length


def plain_read(kind: Kind, files: Iterable[tuple[int, bytes]]) -> list[tuple[Any, ...]]:
    """What a plain reader finds before the first damage: offset, key, value, headers.

    Files are (base, bytes) in order; a file must begin where the one before it ended.
    """
    found: list[tuple[Any, ...]] = []
    offset: int | None = None
    listed = list(files)
    for number, (base, data) in enumerate(listed):
        if kind.ordinal:
            base = offset or 0
        if offset is not None and base != offset:
            return found
        offset, used = base, 0
        limits = {"cursus": (0, 64 << 20), "rustlog": (0, 10 << 20), "cursus-broker": (1, 16 << 20)}
        least, most = limits[kind.layout]
        for head, payload in frames(data, header=kind.header, least=least, most=most):
            record = _plain_record(kind, head, payload, offset)
            if record is None:
                return found
            found.append(record)
            offset += 1
            used += len(head) + len(payload)
            if number + 1 < len(listed) and not kind.ordinal and offset == listed[number + 1][0]:
                break
        if used < len(data):
            return found
    return found


def _plain_record(kind: Kind, head: bytes, payload: bytes, due: int) -> tuple[Any, ...] | None:
    if kind.layout == "cursus":
        return due, None, payload, None
    if kind.layout == "rustlog":
        (offset,) = struct.unpack_from(">Q", head, 4)
        return (due, None, payload, None) if offset == due else None
    plain = plain_parse(payload, LAYOUT, CUTS)
    if plain is None or plain.fields["offset"] != due:
        return None
    fields = plain.fields
    return due, fields.get("key") or None, fields["payload"], plain_headers(fields)
