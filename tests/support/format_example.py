"""The store that ``docs/format.md`` shows: made by the engine, with clock and identities fixed."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.metadata.identity import first_boot
from storage_core.segments.deletion_markers import pack_marker
from storage_core.vfs import PosixVfs

NINE_O_CLOCK = 1_740_819_600_000_000
"""2025-03-01 09:00 UTC in microseconds, the only moment in the example."""

STORE_UUID = uuid.UUID("0b5f6a0e-6d1c-4a55-9b7e-2f1f8e3c9d10")
TOPIC_UUID = uuid.UUID("7c1d2e3f-4a5b-4c6d-8e7f-90a1b2c3d4e5")
BOOT_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")
SEGMENTS = "topics/orders/0/segments"


class FixedVfs(PosixVfs):
    """Real files, but the same clock and the same boot every time."""

    def now_us(self) -> int:
        return NINE_O_CLOCK

    def monotonic(self) -> float:
        return 0.0

    def boot_id(self) -> bytes:
        return BOOT_ID.bytes


def make(path: Path, patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Make the example under ``path``; return every file's bytes by its path in the store.

    Deletions leave no deletion marker and torn bytes need a crash, so these two files are added.
    """
    uuids = iter([STORE_UUID, TOPIC_UUID])
    patch.setattr(uuid, "uuid4", lambda: next(uuids))
    patch.setattr(os, "getpid", lambda: 4242)
    path.mkdir()
    vfs, config = FixedVfs(path), StoreConfig(node_name="example")
    first_boot(vfs, config)
    with Store(vfs, config) as store:
        store.create_topic("orders", 2, index_interval_bytes=256)
        store.append("orders", 0, [b"apple", b"fig"])
        store.append("orders", 0, [b"pear"], keys=[b"k"])
        store.roll("orders", 0)
        store.append("orders", 0, [b"plum"])
        store.commit_offsets("billing", {"orders": {0: 2, 1: 0}})
    files = _files(path)
    with (path / SEGMENTS / "00000000000000000003.log").open("ab") as log:
        log.write(b"CRSF\x01torn")
    with Store(vfs, config) as store:
        store.repair()
    (broken,) = (path / SEGMENTS).glob("*.broken")
    files[f"{SEGMENTS}/{broken.name}"] = broken.read_bytes()
    files[f"{SEGMENTS}/00000000000000000000.tomb"] = pack_marker(3)
    return files


def _files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
