"""Brokers' files of records of 1 to 2,000 bytes: nothing about one record says where the next is.

Compared with a scalar walker in C, which copies each payload, and with plain writes of the same
files: cursus begins a new one after each MiB. The brokers themselves are not part of this
repository. docs/performance.md has what their own code was measured at beside this one (200 MB,
warm, best of 5 or more, two cores):

- RustLog read sealed files at 6.1 GB/s (ours 5.3) and appended unsynced at 742 MB/s (2.6 GB/s).
- Today's cursus appended with a sync for each batch of 1,000 records at 391 MB/s (763), of 10,000
  at 424 MB/s (1.2 GB/s), read sealed files at 1.7 GB/s (2.8), and the first time at 1.7 (1.6).
- cursus of 2025, with files of 1 MiB, read at 962 MB/s (1.7 GB/s) and appended with a sync of the
  last file alone at 456 MB/s in batches of 1,000 (326), at 759 MB/s in batches of 10,000 (636).
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage_core import Store, StoreConfig
from storage_core.config import FsyncPolicy

from . import data
from .baselines.scalar_walker import compiled
from .data import Sizes, UnsyncedVfs
from .measure import Bar, Row, clock, interleaved, speed_row

_LARGEST = 2000
_HEADERS = {"rustlog": 12, "cursus": 4}
_BYTES = {data.FULL: 200 * 10**6, data.QUICK: 50 * 10**6, data.TINY: 10**6}
_AS_FAST = Bar("at least", 1)


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Reads of sealed files, first reads without an index, appends with and without syncs."""
    walk = compiled(directory)
    if walk is None:
        print("  no comparison with a scalar walker: there is no C compiler (cc)")
    values = varied(_BYTES[sizes])
    for layout in _HEADERS:
        path = directory / layout
        build(path, layout, values)
        if walk is not None:
            yield from reads(path, layout, len(values), sizes, walk)
        shutil.rmtree(path)
    yield from appends(values, directory, sizes)


def varied(size: int) -> pa.Array:
    """Random records of 1 to 2,000 bytes, about ``size`` bytes together."""
    chance = np.random.default_rng(1)
    lengths = chance.integers(1, _LARGEST + 1, 2 * size // (_LARGEST + 1))
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    content = chance.bytes(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def build(path: Path, layout: str, values: pa.Array) -> None:
    """Sealed files with all records, and an open one."""
    Store.open(path, layout=layout, create=True).close()
    with Store(UnsyncedVfs(path), StoreConfig(), layout) as store:
        store.create_topic("t")
        store.append("t", 0, values)
        store.roll("t", 0)
        store.append("t", 0, [b"the open file"])


def reads(
    path: Path, layout: str, records: int, sizes: Sizes, walk: Callable[[memoryview, int], int]
) -> Iterator[Row]:
    """All records to Arrow, with an index and without one."""
    maps = [_mapped(file) for file in sorted(path.rglob("*.log")) if file.stat().st_size]
    log_bytes = sum(map(len, maps))

    def first() -> float:
        shutil.rmtree(path / ".cursus-spark" / "index", ignore_errors=True)
        with Store.open(path) as store:
            return clock(lambda: _consume(store, records))

    with Store.open(path) as store:
        _consume(store, records)
        found = interleaved(
            {
                "read": lambda: clock(lambda: _consume(store, records)),
                "walk": lambda: clock(lambda: [walk(each, _HEADERS[layout]) for each in maps]),
                "first": first,
            },
            sizes.rounds,
        )
    name = "scalar walker in C"
    walked = found["walk"]
    what = f"{layout} sealed read, varied sizes"
    yield speed_row(what, found["read"], walked, log_bytes, _AS_FAST, name)
    what = f"{layout} first read, varied sizes, no index"
    yield speed_row(what, found["first"], walked, log_bytes, _AS_FAST, name)


def appends(values: pa.Array, directory: Path, sizes: Sizes) -> Iterator[Row]:
    """RustLog without syncs; cursus synced in batches of 1,000 and of 10,000 records."""
    yield _append(values, directory, sizes, "rustlog", "none", 10_000)
    yield _append(values, directory, sizes, "cursus", "batch", 1_000)
    yield _append(values, directory, sizes, "cursus", "batch", 10_000)


def _append(
    values: pa.Array, directory: Path, sizes: Sizes, layout: str, fsync: FsyncPolicy, batch: int
) -> Row:
    written = directory / "sizes"
    build(written, layout, values)
    logs = [memoryview(file.read_bytes()) for file in _in_order(written)]
    log_bytes = sum(map(len, logs))
    shutil.rmtree(written)
    groups = -(-len(values) // batch)

    def ours() -> float:
        path, config = directory / "appended", StoreConfig(fsync=fsync)
        with Store.open(path, layout=layout, create=True, config=config) as store:
            store.create_topic("t")
            store.append("t", 0, values.slice(0, 1))
            seconds = clock(
                lambda: [
                    store.append("t", 0, values.slice(first, batch))
                    for first in range(0, len(values), batch)
                ]
            )
        shutil.rmtree(path)
        return seconds

    def plain() -> float:
        path, step = directory / "plain", -(-log_bytes // groups)
        path.mkdir()
        seconds = clock(lambda: _write(path, logs, step, sync=fsync != "none"))
        shutil.rmtree(path)
        return seconds

    found = interleaved({"ours": ours, "plain": plain}, sizes.rounds)
    synced = "fsync=none" if fsync == "none" else "fsync"
    what = f"{layout} append, varied sizes, {batch:,} records a batch, {synced}"
    name = "plain write" if fsync == "none" else "write+fsync of the same files"
    bar = Bar("at least", 0.55 if fsync == "none" else 0.8)
    return speed_row(what, found["ours"], found["plain"], log_bytes, bar, name)


def _in_order(path: Path) -> list[Path]:
    """The log files, oldest first: their numbers have no leading zeros in every layout."""
    files = [file for file in path.rglob("*.log") if file.stat().st_size]
    return sorted(files, key=lambda file: int(file.stem.rpartition("_")[2]))


def _write(path: Path, logs: list[memoryview], step: int, *, sync: bool) -> None:
    """Write the same files, each synced at its end and every ``step`` bytes."""
    left = step
    for number, content in enumerate(logs):
        fd = os.open(path / str(number), os.O_CREAT | os.O_EXCL | os.O_RDWR)
        at = 0
        while at < len(content):
            written = os.write(fd, content[at : at + left])
            at, left = at + written, left - written
            if sync and (not left or at == len(content)):
                os.fsync(fd)
            left = left or step
        os.close(fd)


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def _consume(store: Store, records: int) -> None:
    rows = sum(batch.num_rows for batch in store.read("t", 0, end=records))
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")
