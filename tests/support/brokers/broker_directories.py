"""Directories as the brokers write them, made byte by byte, and a plain reader of them."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from storage_core import Store, StoreConfig
from storage_core.errors import DamagedLogError
from tests.support.brokers.broker_oracle import CUTS, LAYOUT, build, plain_headers, plain_parse
from tests.support.stores import rows

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


def foreign_append(
    root: Path, layout: str, partition: int, theirs: Sequence[bytes], topic: str = "t"
) -> None:
    """What a broker does: it knows nothing of our intents, cuts a torn record and appends."""
    kept = root / ".cursus-spark"
    aside = root.parent / f"{root.name}.aside"
    kept.rename(aside)
    try:
        config = StoreConfig(segment_bytes=4096)
        with Store.open(root, layout=layout, config=config) as broker:
            broker.append(topic, partition, theirs)
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        aside.rename(kept)


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
        """A right index with an entry for every Nth record."""
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
    """What a read gave: records, and the error after them if there was one."""

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


_LIMITS = {"cursus": (0, 64 << 20), "rustlog": (0, 10 << 20), "cursus-broker": (1, 16 << 20)}


class PlainLog(NamedTuple):
    """Records before the first damage (offset, key, value, headers); ``sound`` if there is none."""

    records: list[tuple[Any, ...]]
    sound: bool


def plain_read(kind: Kind, files: Sequence[tuple[int, bytes]]) -> PlainLog:
    """What a plain reader finds in files of a partition, given as (base, bytes) in order."""
    found: list[tuple[Any, ...]] = []
    offset = 0 if kind.ordinal else files[0][0]
    for number, (base, data) in enumerate(files):
        if not kind.ordinal and base != offset:
            return PlainLog(found, False)
        last = number + 1 == len(files)
        end = None if last or kind.ordinal else files[number + 1][0]
        at = 0
        while at < len(data):
            if offset == end:
                return PlainLog(found, False)
            record, used = _plain_record(kind, data[at:], offset)
            if record is None:
                zeros = not kind.ordinal and not any(data[at:])
                return PlainLog(found, last and (used < 0 or zeros))
            found.append(record)
            offset += 1
            at += used
    return PlainLog(found, True)


def _plain_record(kind: Kind, data: bytes, due: int) -> tuple[tuple[Any, ...] | None, int]:
    """The record that ``data`` begins with and its size; -1 if the data end inside it."""
    if len(data) < kind.header:
        return None, -1
    (length,) = struct.unpack_from(">I", data)
    least, most = _LIMITS[kind.layout]
    if not least <= length <= most:
        return None, 0
    size = kind.header + length
    if size > len(data):
        return None, -1
    return _plain_fields(kind, data[: kind.header], data[kind.header : size], due), size


def _plain_fields(kind: Kind, head: bytes, payload: bytes, due: int) -> tuple[Any, ...] | None:
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
