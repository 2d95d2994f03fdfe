"""Stores of objects in a directory, and what a task stages there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from storage_core import Store, StoreConfig
from tests.support.faulty_vfs import FaultyVfs
from tests.support.stores import TOPIC, columns_of

DAY_US = 24 * 3600 * 10**6
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def make(path: Path, partitions: int = 1, **settings: Any) -> Store:
    store = Store.open(path, layout="objects", create=True)
    store.create_topic(TOPIC, partitions, **settings)
    return store


def on(vfs: FaultyVfs, **settings: Any) -> Store:
    return Store(vfs, StoreConfig(**settings), "objects")


def later(vfs: FaultyVfs, days: float) -> None:
    """Move the clock of one machine on."""
    vfs.clock_us = vfs.now_us() + int(days * DAY_US)


def staged_one(store: Store, job: str, value: bytes) -> list[Any]:
    return staged(store, job, {0: [value]})


def staged(store: Store, job: str, by_partition: dict[int, list[bytes]]) -> list[Any]:
    stage = store.stage(job)
    for partition, found in by_partition.items():
        stage.write(TOPIC, partition, columns_of(found))
    return list(stage.finish())
