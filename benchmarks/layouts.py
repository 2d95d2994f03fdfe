"""The brokers' layouts: reads and encoding compared with memcpy and plain Python parsers."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_core import Store, StoreConfig
from storage_core.brokers.codecs.rows import CURSUS, RUSTLOG, encode_rows

from . import data
from .data import MIB, RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, clock, interleaved, speed_row, time_row

_COPY_BYTES = 64 * MIB
_BUILD_RECORDS = 655_360
_INDEX_INTERVAL = 4096
_LENGTH = struct.Struct(">I")
_RUST = struct.Struct(">IQ")
_ROUTE = struct.Struct(">IQ")
_NUMBERS = struct.Struct(">QqI")
_VERSIONS = struct.Struct(">IQ")
_TEXT = struct.Struct(">H")
Parser = Callable[[bytes], list[Any]]


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the layouts' table. ``directory`` is empty at the start."""
    yield from row_encode(sizes)
    for layout, parser in (("rustlog", _parse_rustlog), ("cursus", _parse_cursus)):
        path = directory / layout
        records = build(path, layout, sizes.read_bytes)
        yield from sealed_read(path, layout, records, sizes, parser)
        if layout == "cursus":
            yield first_read(path, records, sizes)
        shutil.rmtree(path)
    path = directory / "broker"
    records = build(path, "cursus-broker", sizes.read_bytes)
    _index_broker(path)
    yield broker_read(path, records, sizes)
    shutil.rmtree(path)


def sealed_read(
    path: Path, layout: str, records: int, sizes: Sizes, parse: Parser
) -> Iterator[Row]:
    """All records of sealed files to Arrow, compared with a copy of the bytes and a Python loop."""
    files = sorted(path.rglob("*.log"))
    log_bytes = sum(file.stat().st_size for file in files)
    sample = _sample(files[0], records, sizes.loop_records, log_bytes)
    with Store.open(path) as store:
        _consume(store, records)
        found = interleaved(
            {
                "read": lambda: clock(lambda: _consume(store, records)),
                "copy": lambda: clock(lambda: _copy(files)),
                "loop": lambda: clock(lambda: parse(sample)),
            },
            sizes.rounds,
        )
    read = found["read"]
    what = f"{layout} sealed read"
    yield speed_row(what, read, found["copy"], log_bytes, Bar("at least", 0.35), "memcpy")
    loop = _scaled(found["loop"], log_bytes / len(sample))
    yield speed_row(what, read, loop, log_bytes, Bar("at least", 12), "Python walker")


def first_read(path: Path, records: int, sizes: Sizes) -> Row:
    """The first read of files without an index in memory, compared with the next one."""

    def first() -> float:
        shutil.rmtree(path / ".cursus-spark")
        with Store.open(path) as store:
            return clock(lambda: _consume(store, records))

    def second() -> float:
        with Store.open(path) as store:
            return clock(lambda: _consume(store, records))

    found = interleaved({"first": first, "second": second}, sizes.rounds)
    what = f"cursus first read, {sizes.read_bytes / 1e6:g} MB unindexed"
    return time_row(what, found["first"], found["second"], Bar("at most", 3), name="indexed read")


def broker_read(path: Path, records: int, sizes: Sizes) -> Row:
    """Messages with key, producer and sequence number, compared with a plain parser."""
    files = sorted(path.rglob("*.log"))
    log_bytes = sum(file.stat().st_size for file in files)
    sample = _sample(files[0], records, sizes.loop_records, log_bytes)
    with Store.open(path) as store:
        _consume(store, records)
        found = interleaved(
            {
                "read": lambda: clock(lambda: _consume(store, records)),
                "loop": lambda: clock(lambda: _parse_broker(sample)),
            },
            sizes.rounds,
        )
    loop = _scaled(found["loop"], log_bytes / len(sample))
    bar = Bar("at least", 8)
    return speed_row("cursus-broker sealed read", found["read"], loop, log_bytes, bar, "parser")


def row_encode(sizes: Sizes) -> Iterator[Row]:
    """Encoding of records, compared with a copy of the encoded bytes into a new buffer."""
    column = data.values(max(1, min(sizes.append_bytes, 64 * MIB) // RECORD_BYTES))
    for name, fmt in (("cursus", CURSUS), ("rustlog", RUSTLOG)):
        encoded = encode_rows(column, fmt)

        def encode(fmt: Any = fmt) -> object:
            return encode_rows(column, fmt)

        def copy(encoded: pa.Buffer = encoded) -> object:
            return np.frombuffer(encoded, dtype=np.uint8).copy()

        found = interleaved(
            {"encode": lambda run=encode: clock(run), "copy": lambda run=copy: clock(run)},  # type: ignore[misc]
            sizes.rounds * 3,
        )
        yield speed_row(
            f"row encode, {name}",
            found["encode"],
            found["copy"],
            len(encoded),
            Bar("at least", 0.4),
            "memcpy",
        )


def build(path: Path, layout: str, size: int) -> int:
    """A topic of sealed files with ``size`` bytes of records, and one record in an active file."""
    count = max(1, size // RECORD_BYTES)
    piece = data.values(min(count, _BUILD_RECORDS))
    Store.open(path, layout=layout, create=True).close()
    with Store(data.UnsyncedVfs(path), StoreConfig(), layout) as store:
        store.create_topic("t")
        for first in range(0, count, len(piece)):
            rows = min(len(piece), count - first)
            extras = _message_columns(first, rows) if layout == "cursus-broker" else {}
            store.append("t", 0, piece.slice(0, rows), **extras)
        store.roll("t", 0)
        store.append("t", 0, [b"the open file"])
    return count


def _message_columns(first: int, rows: int) -> dict[str, Any]:
    keys = pa.array(np.arange(first, first + rows)).cast(pa.string()).cast(pa.binary())
    names = pa.array(["producer", "seq"]).take(pa.array(np.tile([0, 1], rows)))
    numbers = pa.array(np.arange(first + 1, first + rows + 1)).cast(pa.string())
    both = pa.chunked_array([pa.array(["producer-1"]), numbers]).combine_chunks()
    places = np.zeros(2 * rows, dtype=np.int64)
    places[1::2] = np.arange(1, rows + 1)
    entries = pa.StructArray.from_arrays(
        [names, both.take(pa.array(places)).cast(pa.binary())], names=["key", "value"]
    )
    edges = pa.array(np.arange(0, 2 * rows + 1, 2, dtype=np.int32))
    return {"keys": keys, "headers": pa.ListArray.from_arrays(edges, entries)}


def _index_broker(path: Path) -> None:
    """Write the index of each log as the broker does: an entry per 4096 bytes, then zeros."""
    for file in path.rglob("*.log"):
        view = file.read_bytes()
        base = int(file.name[-24:-4])
        entries, position, last, offset = [], 0, 0, base
        while position < len(view):
            if position - last >= _INDEX_INTERVAL:
                entries.append((offset, position))
                last = position
            position += 4 + _LENGTH.unpack_from(view, position)[0]
            offset += 1
        index = np.array(entries, dtype=">u8").tobytes()
        file.with_suffix(".index").write_bytes(index + bytes(MIB))


def _consume(store: Store, records: int) -> None:
    rows = sum(batch.num_rows for batch in store.read("t", 0, end=records))
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")


def _copy(files: list[Path]) -> None:
    """Copy the same bytes into new buffers, as a read does."""
    maps = [np.memmap(file, np.uint8, "r") for file in files if file.stat().st_size]
    waiting: list[npt.NDArray[np.uint8]] = []
    size = 0
    for whole in maps:
        for first in range(0, len(whole), _COPY_BYTES):
            waiting.append(whole[first : first + _COPY_BYTES])
            size += len(waiting[-1])
            if size >= _COPY_BYTES or whole is maps[-1]:
                np.concatenate(waiting)
                waiting, size = [], 0


def _sample(file: Path, records: int, wanted: int, log_bytes: int) -> bytes:
    """The beginning of a log: whole records, and a rest that the parsers ignore."""
    size = int(log_bytes / records * min(records, wanted))
    with file.open("rb") as log:
        return log.read(size)


def _scaled(samples: Samples, factor: float) -> Samples:
    return Samples(tuple(seconds * factor for seconds in samples.seconds))


def _parse_cursus(log: bytes) -> list[tuple[int, bytes]]:
    """Parse one record at a time and count offsets, as a plain reader does."""
    found = []
    offset, position, end = 0, 0, len(log)
    while position + 4 <= end:
        (length,) = _LENGTH.unpack_from(log, position)
        start = position + 4
        position = start + length
        if position > end:
            break
        found.append((offset, log[start:position]))
        offset += 1
    return found


def _parse_rustlog(log: bytes) -> list[tuple[int, bytes]]:
    """Parse one record at a time, with offsets from the headers."""
    found = []
    position, end = 0, len(log)
    while position + 12 <= end:
        length, offset = _RUST.unpack_from(log, position)
        start = position + 12
        position = start + length
        if position > end:
            break
        found.append((offset, log[start:position]))
    return found


def _parse_broker(log: bytes) -> list[tuple[Any, ...]]:
    """Parse every field of form E in order, as a plain reader does."""
    found, position, end = [], 0, len(log)
    while position + 4 <= end:
        (length,) = _LENGTH.unpack_from(log, position)
        at, position = position + 4, position + 4 + length
        if position > end:
            break
        _, at = _text(log, at)
        _, offset = _ROUTE.unpack_from(log, at)
        producer, at = _text(log, at + 12)
        seq, epoch, size = _NUMBERS.unpack_from(log, at)
        value = log[at + 20 : at + 20 + size]
        event, at = _text(log, at + 20 + size)
        schema, aggregate = _VERSIONS.unpack_from(log, at)
        metadata, at = _text(log, at + 12)
        key, at = _text(log, at)
        txn, at = _text(log, at)
        state, at = _text(log, at)
        marker, at = _text(log, at)
        fields = (producer, seq, epoch, event, schema, aggregate, metadata, txn, state, marker)
        found.append((offset, key, value, fields))
    return found


def _text(log: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _TEXT.unpack_from(log, at)
    return log[at + 2 : at + 2 + length], at + 2 + length
