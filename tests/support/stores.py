"""Short ways to make, break and look into stores; the tests' own words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage_core import Problem, Store, StoreConfig
from storage_core.format.columns import Columns, make_columns
from storage_core.format.file_names import segment_file
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.sizes import FLIP_STEP

TOPIC = "t"
T0 = 1_700_000_000_000_000
"""A fixed moment, microseconds since 1970."""


def make_store(path: Path, partitions: int = 1, **settings: Any) -> Store:
    """A new store with the topic ``t``; settings are the topic's."""
    store = Store.open(path, create=True)
    store.create_topic(TOPIC, partitions, **settings)
    return store


def reopen(path: Path, **settings: Any) -> Store:
    """The store as a second process would open it."""
    return Store.open(path, config=StoreConfig(**settings))


def after_reboot(path: Path, **settings: Any) -> Store:
    """The store as the first process after a power cut opens it: nobody left cleanly."""
    vfs = faulty(path)
    vfs.boot, vfs.real_syncs = os.urandom(16), False
    return Store(vfs, StoreConfig(**settings))


def on(vfs: FaultyVfs, **settings: Any) -> Store:
    """A store on a faulty backend."""
    return Store(vfs, StoreConfig(**settings))


def hours_later(path: Path, hours: float) -> Store:
    """The store as a process opens it some hours from now."""
    vfs = faulty(path)
    vfs.clock_us = vfs.now_us() + int(hours * 3_600_000_000)
    return on(vfs)


def columns_of(
    values: Any, keys: Any = None, timestamps: Any = None, headers: Any = None, now_us: int = T0
) -> Columns:
    """Records ready to be encoded."""
    return make_columns(values, keys, timestamps, headers, now_us=now_us, max_record_bytes=1 << 24)


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Records as plain dicts."""
    return [row for batch in batches for row in batch.to_pylist()]


def values(store: Store, partition: int = 0, topic: str = TOPIC, **bounds: Any) -> list[Any]:
    """The values of a read."""
    return [row["value"] for row in rows(store.read(topic, partition, **bounds))]


def offsets(store: Store, partition: int = 0, topic: str = TOPIC, **bounds: Any) -> list[int]:
    """The offsets of a read."""
    return [row["offset"] for row in rows(store.read(topic, partition, **bounds))]


def errors(store: Store) -> list[Problem]:
    """What ``check`` finds that is more than a warning."""
    return [problem for problem in store.check() if problem.severity == "error"]


def segments(path: Path, partition: int = 0, topic: str = TOPIC) -> Path:
    """Directory of a partition's segments."""
    return path / "topics" / topic / str(partition) / "segments"


def segment(path: Path, base: int = 0, suffix: str = ".log", partition: int = 0) -> Path:
    """One file of a segment."""
    return segments(path, partition) / segment_file(base, suffix)


def lock_file(path: Path, partition: int = 0, topic: str = TOPIC) -> Path:
    """A partition's lock, with its state word."""
    return path / "topics" / topic / str(partition) / "lock"


def names(path: Path, suffix: str, partition: int = 0) -> list[str]:
    """Files of one kind in a partition, sorted."""
    return sorted(
        file.name for file in segments(path, partition).iterdir() if file.suffix == suffix
    )


def overwrite(file: Path, change: Callable[[bytearray], None]) -> None:
    """Change the bytes of a file in place, also of a read-only one."""
    data = bytearray(file.read_bytes())
    change(data)
    mode = file.stat().st_mode
    file.chmod(0o644)
    file.write_bytes(data)
    file.chmod(mode)


def flip(data: bytes, bit: int) -> bytes:
    """The bytes with one bit turned over."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flips(data: bytes) -> Iterable[tuple[int, bytes]]:
    """Single-bit flips of some bytes, with the bit's number: every one but in ``make quick``."""
    return ((bit, flip(data, bit)) for bit in range(0, len(data) * 8, FLIP_STEP))


def refused(kind: type[Exception], call: Callable[..., object], *arguments: object) -> bool:
    """Whether a call raises an error of this kind, where a loop wants to say which one did not."""
    try:
        call(*arguments)
    except kind:
        return True
    return False


def tree(path: Path) -> dict[str, bytes]:
    """All files below a directory with their contents."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
