"""The log engine compared with the machine: reads, appends, lookups, opening, memory."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import crc32c
import pyarrow as pa

from storage_core import Store, StoreConfig
from storage_core.config import FsyncPolicy

from . import data
from .data import MIB, RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, clock, interleaved, speed_row, time_row

_GROUP_BYTES = 8 * MIB
_ROW = struct.Struct(">IQ")


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the engine's table. ``directory`` is empty at the start."""
    yield from sealed_read(sizes, directory / "sealed")
    yield from opening(sizes, directory)
    shutil.rmtree(directory / "sealed")
    yield from one_segment(sizes, directory / "single")
    shutil.rmtree(directory / "single")
    yield from unsynced_append(sizes, directory)
    yield from synced_append(sizes, directory)
    yield from small_appends(sizes, directory)
    yield from lookups(sizes, directory)


def sealed_read(sizes: Sizes, path: Path) -> Iterator[Row]:
    """All records to Arrow, compared with a checksum of the same bytes and with a Python loop."""
    records = data.build(path, StoreConfig(), "t", sizes.read_bytes)
    files = data.log_files(path, "t")[:-1]
    maps = [_mapped(file) for file in files]
    log_bytes = sum(len(view) for view in maps)
    sample = min(records, sizes.loop_records)
    rows = _length_prefixed(data.values(sample))
    with Store.open(path) as store:
        found = interleaved(
            {
                "read": lambda: clock(lambda: _consume(store, "t", records)),
                "crc": lambda: clock(lambda: [crc32c.crc32c(view) for view in maps]),
                "bytes": lambda: clock(lambda: _read_plainly(files)),
                "loop": lambda: clock(lambda: _walk(rows)),
            },
            sizes.rounds,
        )
    read, crc = found["read"], found["crc"]
    whole = Samples(tuple(s * records / sample for s in found["loop"].seconds))
    yield speed_row("sealed read", read, crc, log_bytes, Bar("at least", 0.6), "CRC32C alone")
    yield speed_row("sealed read", read, found["bytes"], log_bytes, None, "plain read")
    yield speed_row(
        "sealed read", read, whole, records * RECORD_BYTES, Bar("at least", 40), "Python loop"
    )


def opening(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """``Store.open`` and the first batch, of a large store (written before) and a small one."""
    large, small = directory / "sealed", directory / "small"
    data.build(small, StoreConfig(), "t", sizes.small_store_bytes)
    found = interleaved(
        {
            "large": lambda: clock(lambda: _open_and_read(large)),
            "small": lambda: clock(lambda: _open_and_read(small)),
        },
        sizes.rounds * 5,
    )
    name = f"{sizes.small_store_bytes / 1e6:g} MB"
    yield time_row(
        f"open and first read, {sizes.read_bytes / 1e6:g} MB",
        found["large"],
        found["small"],
        Bar("at most", 2),
        name=name,
    )


def one_segment(sizes: Sizes, path: Path) -> Iterator[Row]:
    """One large segment: private memory of a read, and a sealed one compared with an active one."""
    config = StoreConfig(segment_bytes=4 << 30)
    records = data.build(path, config, "sealed", sizes.read_bytes)
    data.build(path, config, "active", sizes.read_bytes, sealed=False)
    log_bytes = data.log_files(path, "sealed")[0].stat().st_size
    for topic, bar in (("sealed", Bar("at most", 64)), ("active", None)):
        used = _memory_growth(path, topic) / 1e6
        what = f"private memory, reading one {topic} segment"
        yield Row(what, f"{used:.1f} MB", f"of {log_bytes / 1e6:.0f} MB", used, bar, None)
    with Store.open(path, config=config) as store:
        found = interleaved(
            {
                "sealed": lambda: clock(lambda: _consume(store, "sealed", records)),
                "active": lambda: clock(lambda: _consume(store, "active", records)),
            },
            sizes.rounds,
        )
    yield speed_row(
        "sealed segment", found["sealed"], found["active"], log_bytes, None, "active segment"
    )


def unsynced_append(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Appends of 8 MiB without a sync, compared with plain writes of the same bytes."""
    config = StoreConfig(fsync="none")
    appender = Appender(directory / "unsynced", config, sizes.append_bytes)
    found = interleaved(
        {
            "append": lambda: appender.append(_GROUP_BYTES),
            "write": lambda: appender.write(sync_each=None),
        },
        sizes.rounds,
    )
    appender.remove()
    bar = Bar("at least", 0.55)
    yield speed_row(
        "append, no fsync", found["append"], found["write"], appender.log_bytes, bar, "plain write"
    )


def synced_append(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Durable appends of 8 MiB, and a large one, compared with plain writes and syncs."""
    appender = Appender(directory / "synced", StoreConfig(), sizes.append_bytes)
    found = interleaved(
        {
            "grouped": lambda: appender.append(_GROUP_BYTES),
            "large": lambda: appender.append(sizes.append_bytes),
            "write grouped": lambda: appender.write(sync_each=_GROUP_BYTES),
            "write once": lambda: appender.write(sync_each=sizes.append_bytes),
        },
        sizes.rounds,
    )
    appender.remove()
    size = appender.log_bytes
    large = f"one append of {sizes.append_bytes // MIB} MiB, fsync"
    grouped, once = found["write grouped"], found["write once"]
    name = "write+fsync per 8 MiB"
    yield speed_row(
        "append, fsync per 8 MiB", found["grouped"], grouped, size, Bar("at least", 0.8), name
    )
    yield speed_row(large, found["large"], grouped, size, Bar("at least", 0.95), name)
    yield speed_row(large, found["large"], once, size, None, "write+one fsync")


def small_appends(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Appends of ten records, synced one by one, and synced within 100 ms."""
    count = sizes.lookups
    values = data.values(10)

    def append(fsync: FsyncPolicy) -> float:
        path = directory / fsync
        config = StoreConfig(fsync=fsync, fsync_interval_ms=100)
        with Store.open(path, create=True, config=config) as store:
            store.create_topic("t")
            seconds = clock(lambda: [store.append("t", 0, values) for _ in range(count)])
        shutil.rmtree(path)
        return seconds

    found = interleaved(
        {"interval": lambda: append("interval"), "batch": lambda: append("batch")}, sizes.rounds
    )
    size = count * len(values) * RECORD_BYTES
    what = "appends of 10 records, fsync=interval"
    yield speed_row(what, found["interval"], found["batch"], size, None, "fsync=batch")


class Appender:
    """Writes the same records repeatedly, through a store or with plain writes."""

    def __init__(self, directory: Path, config: StoreConfig, size: int) -> None:
        self._directory = directory
        self._config = config
        self._values = data.values(max(1, size // RECORD_BYTES))
        self.append(size, keep=True)
        self._logs = data.log_files(directory / "store", "t")
        # The plain side writes the same bytes as the engine.
        self._bytes = memoryview(b"".join(file.read_bytes() for file in self._logs))
        self.log_bytes = len(self._bytes)
        self.remove()

    def append(self, group_bytes: int, *, keep: bool = False) -> float:
        """Seconds for all records in appends of ``group_bytes``."""
        step = max(1, group_bytes // RECORD_BYTES)
        path = self._directory / "store"
        with Store.open(path, create=True, config=self._config) as store:
            store.create_topic("t")
            store.append("t", 0, self._values.slice(0, 1))
            store.roll("t", 0)

            def run() -> None:
                for first in range(0, len(self._values), step):
                    store.append("t", 0, self._values.slice(first, step))

            seconds = clock(run)
        if not keep:
            shutil.rmtree(path)
        return seconds

    def write(self, *, sync_each: int | None) -> float:
        """Seconds for the same bytes in plain writes of 8 MiB, synced every ``sync_each`` bytes."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "plain"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        try:
            seconds = clock(lambda: _write_plainly(fd, self._bytes, sync_each))
        finally:
            os.close(fd)
        path.unlink()
        return seconds

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def lookups(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Random lookups by offset and by time in many segments and in few."""
    many, few = directory / "many", directory / "few"
    ends = {many: data.build_segments(many, sizes.many_segments)}
    ends[few] = data.build_segments(few, sizes.few_segments)
    for what, look in (("offset", _by_offset), ("time", _by_time)):
        label = f"{what} lookup, {sizes.many_segments} segments"
        name = f"{sizes.few_segments} segments"
        with Store.open(many) as large, Store.open(few) as small:
            warm = interleaved(
                {
                    "many": _lookup_round(large, ends[many], sizes.lookups, look),
                    "few": _lookup_round(small, ends[few], sizes.lookups, look),
                },
                sizes.rounds,
            )
        bar = Bar("at most", 2)
        yield time_row(f"{label}, warm", warm["many"], warm["few"], bar, sizes.lookups, name)
        cold = interleaved(
            {
                "many": _cold_lookup(many, ends[many], look),
                "few": _cold_lookup(few, ends[few], look),
            },
            sizes.rounds,
        )
        yield time_row(f"{label}, first of a store", cold["many"], cold["few"], None, name=name)


Look = Callable[[Store, int], object]


def _by_offset(store: Store, offset: int) -> object:
    return next(iter(store.read("events", 0, start=offset, max_records=1)))


def _by_time(store: Store, offset: int) -> object:
    return store.offset_for_timestamp("events", 0, offset * 1000)


def _lookup_round(store: Store, end: int, count: int, look: Look) -> Callable[[], float]:
    chosen = random.Random(1)
    offsets = [chosen.randrange(end) for _ in range(count)]

    def run() -> None:
        for offset in offsets:
            look(store, offset)

    return lambda: clock(run)


def _cold_lookup(path: Path, end: int, look: Look) -> Callable[[], float]:
    def run() -> float:
        with Store.open(path) as store:
            return clock(lambda: look(store, end // 2))

    return run


def _consume(store: Store, topic: str, records: int) -> None:
    rows = sum(batch.num_rows for batch in store.read(topic, 0, end=records))
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")


def _open_and_read(path: Path) -> None:
    with Store.open(path) as store:
        next(iter(store.read("t", 0)))


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def _read_plainly(files: list[Path]) -> None:
    """Read the bytes of all files into one buffer."""
    buffer = bytearray(_GROUP_BYTES)
    for file in files:
        with file.open("rb", buffering=0) as log:
            while log.readinto(buffer):
                pass


def _length_prefixed(column: pa.Array) -> bytes:
    """The records as rows of length, offset and payload, as simpler logs store them."""
    return b"".join(
        _ROW.pack(len(value), offset) + value for offset, value in enumerate(column.to_pylist())
    )


def _walk(rows: bytes) -> list[tuple[int, bytes]]:
    """Build the records one at a time, as a plain Python reader of such a log does."""
    found = []
    position, end, head, unpack = 0, len(rows), _ROW.size, _ROW.unpack_from
    while position < end:
        length, offset = unpack(rows, position)
        position += head
        found.append((offset, rows[position : position + length]))
        position += length
    return found


def _write_plainly(fd: int, content: memoryview, sync_each: int | None) -> None:
    unsynced = 0
    for first in range(0, len(content), _GROUP_BYTES):
        piece = content[first : first + _GROUP_BYTES]
        while piece:
            piece = piece[os.write(fd, piece) :]
        unsynced += _GROUP_BYTES
        if sync_each is not None and unsynced >= sync_each:
            os.fsync(fd)
            unsynced = 0
    if sync_each is not None and unsynced:
        os.fsync(fd)


def _memory_growth(path: Path, topic: str) -> int:
    command = [sys.executable, "-m", "benchmarks.workers.memory", str(path), topic]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return int(done.stdout)
