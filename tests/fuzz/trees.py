"""Small log directories of every layout, kept in ``tests/corpus`` as they stand on a disk.

``python -m tests.fuzz.trees`` makes them again, with the engine as it is. They stay as they are
otherwise: what an older release wrote must stay readable.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from storage_core import Store, StoreConfig
from tests.crash.explorer.disk import File, Folder
from tests.crash.explorer.recording import MemoryVfs
from tests.support.brokers.broker_directories import BROKER, CURSUS, RUSTLOG, Kind, message
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import T0, columns_of

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
KINDS: dict[str, Kind] = {"cursus": CURSUS, "cursus-broker": BROKER, "rustlog": RUSTLOG}
TREES = ("native", *KINDS)


def native(path: Path) -> None:
    """Closed and open segments, all columns, a group, a commit, and one that is pending."""
    vfs = faulty(path)
    with Store.open(path, create=True, config=StoreConfig(node_name="corpus")) as store:
        store.create_topic("t", 2, index_interval_bytes=0, frame_records=2, compression="zstd")
        for number in range(3):
            values = [b"%d-%d" % (number, at) * 20 for at in range(3)]
            keys, headers = [b"k", None, b""], [{"h": b"v"}, None, [("n", None)]]
            stamps = [T0 + number * 10 + at for at in range(3)]
            store.append("t", 0, values, keys, stamps, headers)
            if number < 2:
                store.roll("t", 0)
        store.append("t", 1, [b"one", None, b""])
        store.commit_offsets("readers", {"t": {0: 3}})
        commit(store, 1)
    vfs.hook = die
    with suppress(CrashError):
        commit(Store(vfs, StoreConfig()), 2)

    bury(path)


def bury(path: Path) -> None:
    """A deletion and a merge, killed when they were decided, before any record was removed."""
    vfs = faulty(path)
    store = Store(vfs, StoreConfig())
    store.create_topic("buried", 2, retention_bytes=0, frame_records=2)
    for partition in (0, 1):
        for number in range(3):
            store.append("buried", partition, [b"%d" % number, b"again"], timestamps=[T0, T0])
            store.roll("buried", partition)
        store.append("buried", partition, [b"left"], timestamps=[T0])
    vfs.hook = die_removing
    with suppress(CrashError):
        store.merge("buried")
    with suppress(CrashError):
        Store(vfs, StoreConfig()).delete_records("buried", {1: 4})


def commit(store: Store, version: int) -> None:
    staging = store.stage(f"job-{version}")
    for partition in (0, 1):
        staging.write("t", partition, columns_of([b"commit %d" % version]))
    store.commit(f"job-{version}", staging.finish(), app="app", version=version)


def die(kind: str, path: str) -> None:
    """After the commit point, before the first record is in a log."""
    if kind == "pwritev" and path.endswith(".log"):
        raise CrashError(path)


def die_removing(kind: str, path: str) -> None:
    if kind == "unlink" and path.endswith(".log"):
        raise CrashError(path)


def foreign(path: Path, kind: Kind) -> None:
    """Three files, the first two with an index where the layout has one."""
    payloads = [[b"a", b"", b"ccc" * 9], [b"dd", bytes(20), b"\xff" * 9], [b"last"]]
    files = kind.write(path, payloads)
    first = 0
    for file, values in zip(files, payloads, strict=True):
        if kind.has_index:
            suffix = ".index"
            file.with_suffix(suffix).write_bytes(kind.index_of(values, first, 2))
        first += len(values)
    if kind is BROKER:
        data = files[-1].read_bytes()
        fields: dict[str, Any] = {
            "producer": b"p",
            "seq": 4,
            "key": b"k",
            "event_type": b"made",
            "txn_id": b"x",
        }
        files[-1].write_bytes(data + message(first, b"more", "E", **fields))
        journal = b'{"version":1,"transaction":{"id":"x","epoch":0,"state":"committed"}}'
        framed = struct.pack(">I", len(journal)) + journal + struct.pack(">I", zlib.crc32(journal))
        (path / "__transaction_state.journal").write_bytes(framed)
    with Store.open(path) as store:
        store.append("orders", 0, [b"ours"])
    if kind is BROKER:
        describe(path)


def describe(path: Path) -> None:
    """What the broker says of its topics, and where readers of a partition stop."""
    topic = {"name": "orders", "partitions": 1, "policy": {"retention_hours": 24}}
    (path / "__topic_metadata.json").write_text(json.dumps({"version": 1, "topics": [topic]}))
    (path / "orders" / "partition_0.hwm").write_bytes(b"9\n")


@cache
def files_of(tree: str) -> dict[str, bytes]:
    """All files of a tree by path."""
    root = CORPUS / tree
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def loaded(files: dict[str, bytes]) -> MemoryVfs:
    """Files as a durable directory in memory."""
    top, numbers = Folder(0), iter(range(1, 1_000_000))
    for path, data in files.items():
        at = top
        *folders, name = path.split("/")
        for folder in folders:
            below = at.names.setdefault(folder, Folder(next(numbers)))
            assert isinstance(below, Folder)
            at = below
        at.names[name] = File(next(numbers), data=data, synced=data)
    vfs = MemoryVfs(top=top)
    vfs._numbers = iter(range(1_000_000, 2_000_000))  # type: ignore[assignment]
    return vfs


def make() -> None:
    """Write the corpus again."""
    for tree in TREES:
        path = CORPUS / tree
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        if tree == "native":
            native(path)
        else:
            foreign(path, KINDS[tree])
        for file in path.rglob("*"):
            if file.is_file():
                file.chmod(0o644)  # as git keeps them


if __name__ == "__main__":
    make()
