"""Maintenance of a log compared with the machine: copies of files, decompression alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage_core import Store, StoreConfig
from storage_core.config import CODECS, Compression
from storage_core.format.frame import HEADER_BYTES
from storage_core.format.frame_scan import segment_frames

from . import data
from .data import MIB, Sizes, UnsyncedVfs
from .measure import Bar, Row, clock, interleaved, speed_row, time_row

_SMALL_SEGMENT = 4 * MIB
_COPY_BYTES = 8 * MIB
_RECORDS_PER_KEY = 10
_MOST_MEMORY_MB = 256


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the table. ``directory`` is empty at the start."""
    yield from merging(sizes, directory / "merge")
    yield from recompressing(sizes, directory / "recompress")
    yield from compressed_reads(sizes, directory / "compressed")
    yield from compaction(sizes, directory / "compact")


def merging(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Durable merges of small segments, compared with durable copies of the same files."""
    config = StoreConfig(segment_bytes=_SMALL_SEGMENT)
    template = directory / "template"
    data.build(template, config, "t", sizes.append_bytes)
    yield _against_copy("merge", directory, lambda store: store.merge("t"), sizes.rounds)
    yield read_of_small_commits(sizes, directory / "small")


def read_of_small_commits(sizes: Sizes, directory: Path) -> Row:
    """All records of a topic with a hundred records per segment, before and after a merge."""
    count = 100 * sizes.few_segments
    scattered, merged = directory / "scattered", directory / "merged"
    for path in (scattered, merged):
        Store.open(path, create=True).close()
        values = data.values(100)
        with Store(UnsyncedVfs(path), StoreConfig()) as store:
            store.create_topic("t")
            for _ in range(count // 100):
                store.append("t", 0, values)
                store.roll("t", 0)
            store.append("t", 0, [b"the active segment"])
    with Store.open(merged) as store:
        store.merge("t")

    def read(path: Path) -> float:
        with Store.open(path) as store:
            return clock(lambda: _consume(store, count))

    found = interleaved(
        {"merged": lambda: read(merged), "scattered": lambda: read(scattered)}, sizes.rounds
    )
    shutil.rmtree(directory)
    size = count * data.RECORD_BYTES
    what = f"read of {count // 100} small segments, merged"
    return speed_row(what, found["merged"], found["scattered"], size, None, "as they were")


def recompressing(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Compressed segments to uncompressed ones, compared with copies of the same size.

    The records cannot be compressed, so both have the same size.
    """
    template = directory / "template"
    data.build(template, StoreConfig(compression="lz4"), "t", sizes.append_bytes)
    yield _against_copy(
        "recompress to none",
        directory,
        lambda store: store.recompress("t", compression="none"),
        sizes.rounds,
    )


def _against_copy(what: str, directory: Path, work: Callable[[Store], object], rounds: int) -> Row:
    template = directory / "template"
    logs = data.log_files(template, "t")[:-1]
    size = sum(file.stat().st_size for file in logs)

    def ours() -> float:
        _clone(template, directory / "store")
        with Store.open(directory / "store") as store:
            seconds = clock(lambda: work(store))
        shutil.rmtree(directory / "store")
        return seconds

    def copy() -> float:
        (directory / "copies").mkdir()
        seconds = clock(lambda: _copy_all(logs, directory / "copies"))
        shutil.rmtree(directory / "copies")
        return seconds

    found = interleaved({"ours": ours, "copy": copy}, rounds)
    shutil.rmtree(directory)
    return speed_row(what, found["ours"], found["copy"], size, Bar("at least", 0.5), "copy+fsync")


def _clone(template: Path, target: Path) -> None:
    """Clone a store by hard links: segments are never changed in place."""
    for file in template.rglob("*"):
        new = target / file.relative_to(template)
        if file.is_dir():
            new.mkdir(parents=True, exist_ok=True)
        elif file.parent.name == "segments" and file != data.log_files(template, "t")[-1]:
            new.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, new)
        else:
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, new)


def _copy_all(files: Sequence[Path], directory: Path) -> None:
    for source in files:
        with source.open("rb") as read, (directory / source.name).open("wb") as write:
            shutil.copyfileobj(read, write, _COPY_BYTES)
            write.flush()
            os.fsync(write.fileno())


def compressed_reads(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """All records of a compressed topic, compared with Arrow's codec on the same buffers."""
    yield _compressed_read("lz4", sizes, directory / "lz4")
    yield _compressed_read("zstd", sizes, directory / "zstd")


def _compressed_read(codec: Compression, sizes: Sizes, path: Path) -> Row:
    records = _build_text(path, codec, sizes.append_bytes)
    with Store.open(path) as store:
        bodies = _bodies(store)
        found = interleaved(
            {
                "read": lambda: clock(lambda: _consume(store, records)),
                "codec": lambda: clock(lambda: _decompress(codec, bodies)),
            },
            sizes.rounds,
        )
    raw = sum(length for _, length in bodies) / 1e6
    shutil.rmtree(path)
    return time_row(
        f"read of {raw:.0f} MB under {codec}",
        found["read"],
        found["codec"],
        Bar("at most", 1.2),
        name="decompression alone",
    )


def _build_text(path: Path, codec: Compression, size: int) -> int:
    """A topic of records like those of an application; a codec at least halves them."""
    count = max(100, size // 120)
    numbers = np.random.default_rng(3).integers(0, 10**6, count)
    rows = [
        b'{"order":%07d,"customer":"customer-%06d","state":"%s","amount":%d.%02d,"currency":"EUR"}'
        % (at, n, (b"new", b"paid", b"sent")[n % 3], n % 1000, n % 100)
        for at, n in enumerate(numbers.tolist())
    ]
    Store.open(path, create=True).close()
    with Store(UnsyncedVfs(path), StoreConfig(compression=codec)) as store:
        store.create_topic("t")
        store.append("t", 0, pa.array(rows, pa.binary()))
        store.roll("t", 0)
        store.append("t", 0, [b"the active segment"])
    return count


def _bodies(store: Store) -> list[tuple[pa.Buffer, int]]:
    """The compressed bodies of a topic's sealed segments, and their decompressed sizes."""
    found = []
    for info in store.segments("t", 0)[:-1]:
        mapped = pa.memory_map(str(Path(store.path) / info.path)).read_buffer()
        for frame in segment_frames(store.vfs, info.path, info.base, bodies=False):
            header = frame.header
            assert header.codec < len(CODECS)
            body = mapped.slice(frame.position + HEADER_BYTES, header.body_length)
            found.append((body, header.raw_length))
    return found


def _decompress(codec: str, bodies: list[tuple[pa.Buffer, int]]) -> None:
    arrow = pa.Codec(codec)
    for body, length in bodies:
        arrow.decompress(body, length)


def _consume(store: Store, records: int) -> None:
    rows = sum(batch.num_rows for batch in store.read("t", 0, end=records))
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")


def compaction(sizes: Sizes, path: Path) -> Iterator[Row]:
    """Ten records per key, compacted in a separate process: speed and memory."""
    records = sizes.read_bytes // data.RECORD_BYTES
    keys = max(1, records // _RECORDS_PER_KEY)
    _build_keyed(path, records, keys)
    worker = [sys.executable, "-m", "benchmarks.workers.compaction_worker", str(path), str(keys)]
    answer = subprocess.run(worker, check=True, capture_output=True, text=True).stdout.split()
    seconds, used = float(answer[0]), int(answer[1]) / 1e6
    rate = records / seconds
    what = f"compaction, {records:,} records of {keys:,} keys"
    size = records * data.RECORD_BYTES / seconds / 1e6
    yield Row(what, f"{rate:,.0f} records/s", f"{size:.0f} MB/s of records", rate / 1e6, None, None)
    bar = Bar("at most", _MOST_MEMORY_MB)
    yield Row(f"{what}: memory", f"{used:.0f} MB", "private, at most", used, bar, None)


def _build_keyed(path: Path, records: int, keys: int) -> None:
    piece = min(records, 500_000)
    chance = np.random.default_rng(5)
    values = data.values(piece).to_pylist()
    column = pa.array([value[:84] for value in values], pa.binary())
    Store.open(path, create=True).close()
    with Store(UnsyncedVfs(path), StoreConfig()) as store:
        store.create_topic("t", cleanup_policy="compact")
        for first in range(0, records, piece):
            count = min(piece, records - first)
            numbers = chance.integers(0, keys, count)
            named = np.char.zfill(numbers.astype("S16"), 16)
            store.append("t", 0, column.slice(0, count), keys=pa.array(named, pa.binary()))
        store.roll("t", 0)
        store.append("t", 0, [b"the active segment"])
