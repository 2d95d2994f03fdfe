"""The data of the benchmarks: its size, its place and how it is generated."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage_core import Store, StoreConfig
from storage_core.format.columns import Columns, make_columns
from storage_core.vfs import PosixVfs

RECORD_BYTES = 100
MIB = 1 << 20
_BUILD_RECORDS = 655_360
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to measure. The bars are for the full size; smaller sizes only test the code."""

    read_bytes: int
    small_store_bytes: int
    append_bytes: int
    many_segments: int
    few_segments: int
    lookups: int
    loop_records: int
    rounds: int


FULL = Sizes(10**9, 10**7, 256 * MIB, 10_000, 100, 500, 500_000, 5)
QUICK = Sizes(128 * 10**6, 10**7, 64 * MIB, 1000, 100, 200, 200_000, 3)
TINY = Sizes(10**6, 10**5, 1 * MIB, 20, 4, 5, 2000, 1)


class UnsyncedVfs(PosixVfs):
    """Writes test data without waiting for the disk; never used in a measurement."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


@contextmanager
def workspace() -> Iterator[Path]:
    """An empty directory on disk (``$TMPDIR``, else ``build/bench``), removed afterwards."""
    parent = Path(os.environ.get("TMPDIR") or _ROOT / "build" / "bench")
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="cursus-bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def values(count: int, seed: int = 1) -> pa.Array:
    """Random records of 100 bytes."""
    data = np.random.default_rng(seed).bytes(count * RECORD_BYTES)
    offsets = np.arange(count + 1, dtype=np.int32) * RECORD_BYTES
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def columns(count: int) -> Columns:
    """The same as columns, for a task that stages them."""
    return make_columns(values(count), None, None, None, now_us=10**15, max_record_bytes=MIB)


def repeated(count: int) -> pa.Array:
    """Row numbers that repeat a few rows, so that a codec can compress them."""
    return pa.array(np.arange(count) % 16)


def build(path: Path, config: StoreConfig, topic: str, size: int, *, sealed: bool = True) -> int:
    """Fill a topic with ``size`` bytes of records and return their number.

    A sealed topic gets one more record in a new active segment, because the last segment of a
    partition is never sealed.
    """
    Store.open(path, create=True).close()
    count = max(1, size // RECORD_BYTES)
    piece = values(min(count, _BUILD_RECORDS))
    with Store(UnsyncedVfs(path), config) as store:
        store.create_topic(topic)
        for first in range(0, count, len(piece)):
            store.append(topic, 0, piece.slice(0, min(len(piece), count - first)))
        if sealed:
            store.roll(topic, 0)
            store.append(topic, 0, [b"the active segment"])
    return count


def build_segments(path: Path, segments: int) -> int:
    """A topic ``events`` of small sealed segments, one millisecond per record; returns the count.

    Each has five frames of 25 records, so that a lookup uses an index.
    """
    config = StoreConfig(frame_records=25, segment_bytes=16 << 10, index_interval_bytes=2048)
    Store.open(path, create=True).close()
    count = segments * 125
    stamps = pa.array(np.arange(count, dtype=np.int64) * 1000)
    with Store(UnsyncedVfs(path), config) as store:
        store.create_topic("events")
        store.append("events", 0, values(count), timestamps=stamps)
    return count


def log_files(path: Path, topic: str) -> list[Path]:
    """The segment files of a topic's first partition, oldest first."""
    return sorted((path / "topics" / topic / "0" / "segments").glob("*.log"))
