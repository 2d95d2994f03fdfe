"""Reading changes nothing of a broker's, works where nothing can be written, and sees growth."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError, NotWritableError
from tests.support.brokers.broker_directories import (
    BROKER,
    CURSUS,
    KINDS,
    RUSTLOG,
    TOPIC,
    Kind,
    message,
    read,
    snapshot,
)
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.paths import ROOT

SEGMENTS = [[b"%d" % (number * 200 + at) for at in range(200)] for number in range(6)]
VALUES = [value for segment in SEGMENTS for value in segment]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def read_only(path: Path) -> FaultyVfs:
    """Files that cannot be changed, as on a read-only mount."""
    vfs = faulty(path)
    vfs.may_write = False
    for call in ("open:create", "pwritev", "mkdir", "rename", "unlink", "link", "truncate"):
        vfs.fail(call, errno.EROFS, times=1 << 30)
    return vfs


def everything(store: Store) -> None:
    assert read(store) == (list(enumerate(VALUES)), None)
    assert read(store, start=777, end=790).values == VALUES[777:790]
    store.check()
    store.segments(TOPIC, 0)


def test_reading_leaves_the_brokers_files_alone(tmp_path: Path, kind: Kind) -> None:
    *_, last = kind.write(tmp_path, SEGMENTS)
    last.write_bytes(last.read_bytes() + b"\0")
    if kind is BROKER:
        (tmp_path / TOPIC / "partition_0.hwm").write_bytes(b"1200\n")
        last.with_suffix(".index").write_bytes(bytes(160))
    if kind is RUSTLOG:
        last.with_suffix(".index").write_bytes(b"\1" * 17)
    before = snapshot(tmp_path)
    for _ in range(2):
        everything(kind.open(tmp_path))
    assert snapshot(tmp_path) == before
    ours = [file for file in (tmp_path / ".cursus-spark").rglob("*") if file.is_file()]
    assert {str(file.parent.relative_to(tmp_path)) for file in ours} == {".cursus-spark/index"}
    assert {file.name for file in ours} <= {"lock", f"{TOPIC}-0.rows", f"{TOPIC}-0.txns"}
    assert "it creates `.cursus-spark/index/`" in (ROOT / "docs/guarantees.md").read_text()


def test_reading_works_where_nothing_can_be_written(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, SEGMENTS)
    names = sorted(os.listdir(tmp_path))
    store = Store(read_only(tmp_path), StoreConfig(), kind.layout)
    everything(store)
    assert sorted(os.listdir(tmp_path)) == names
    with pytest.raises(NotWritableError):
        store.append(TOPIC, 0, [b"x"])


@pytest.mark.slow
def test_built_indexes_are_only_hints(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, SEGMENTS)
    everything(kind.open(tmp_path))
    index = tmp_path / ".cursus-spark" / "index"
    built = {file: file.read_bytes() for file in index.iterdir() if file.suffix == ".rows"}
    assert built or kind is BROKER
    for file, right in built.items():
        for wrong in (b"", b"CRSN", right[:-1], right[:40], b"\xff" * 400, bytes(400)):
            file.write_bytes(wrong)
            everything(kind.open(tmp_path))
        for at in range(0, len(right), 7):
            file.write_bytes(right[:at] + bytes([right[at] ^ 0x41]) + right[at + 1 :])
            everything(kind.open(tmp_path))
    shutil.rmtree(index)
    everything(kind.open(tmp_path))


def test_a_built_index_of_another_file_is_not_believed(tmp_path: Path) -> None:
    first, *_ = CURSUS.write(tmp_path, SEGMENTS)
    everything(CURSUS.open(tmp_path))
    first.write_bytes(CURSUS.encode([b"other", b"records"], 0))
    assert read(CURSUS.open(tmp_path)).values == [b"other", b"records", *VALUES[200:]]


def test_an_open_store_sees_files_grow(tmp_path: Path, kind: Kind) -> None:
    *_, last = kind.write(tmp_path, [[b"a"], [b"b"]])
    store = kind.open(tmp_path)
    assert read(store).values == [b"a", b"b"]
    more = kind.encode([b"c", b"d"], 2)
    for cut in range(1, len(more) + 1):
        with last.open("ab") as file:
            file.write(more[cut - 1 : cut])
        known = [b"a", b"b", b"c", b"d"][: 2 + (cut >= len(more) // 2) + (cut == len(more))]
        assert read(store) == (list(enumerate(known)), None)
    new = kind.file(tmp_path, 2 if kind.ordinal else 4)
    new.write_bytes(b"")
    assert len(read(store).values) == 4
    new.write_bytes(kind.encode([b"e"], 4))
    assert read(store, start=4).values == [b"e"]


def test_an_open_store_sees_topics_and_partitions_come_and_go(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a"]])
    store = kind.open(tmp_path)
    assert read(store).values == [b"a"]
    other = kind.file(tmp_path, 0, 1)
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(kind.encode([b"p1"], 0))
    assert read(store, 1).values == [b"p1"]
    for file in tmp_path.rglob("*.log"):
        file.unlink()
    kind.write(tmp_path, [[b"new", b"one"]])
    assert read(store).values == [b"new", b"one"]


def test_a_segment_that_compaction_replaced_is_read_again(tmp_path: Path) -> None:
    first, _ = BROKER.write(tmp_path, [[b"a", b"b", b"c"], [b"d"]])
    store = BROKER.open(tmp_path)
    assert read(store).values == [b"a", b"b", b"c", b"d"]
    kept = message(1, b"b")
    replacement = first.with_suffix(".log.compacting")
    replacement.write_bytes(kept)
    first.with_name(f"{first.name}.compacted-{len(kept)}").write_bytes(b"cursus-compaction-v1\n")
    replacement.rename(first)
    assert read(store).records == [(1, b"b"), (3, b"d")]


def aged(kind: Kind, root: Path) -> Store:
    files = kind.write(root, [[b"a" * 100], [b"b" * 100], [b"c" * 100]])
    for at, file in enumerate(files):
        os.utime(file, (1000 + at, 1000 + at))
        file.with_suffix(".index").write_bytes(b"")
    limit = 2 * files[0].stat().st_size - 1
    return kind.open(root, config=StoreConfig(retention_bytes=limit))


@pytest.mark.parametrize("kind", [BROKER, RUSTLOG], ids=lambda kind: str(kind.name))
def test_retention_drops_the_oldest_files(tmp_path: Path, kind: Kind) -> None:
    store = aged(kind, tmp_path)
    sidecar = kind.file(tmp_path).with_name(f"{kind.file(tmp_path).name}.compacted-9")
    sidecar.write_bytes(b"x")
    assert store.retain() == {(TOPIC, 0): [0]}
    assert not sidecar.exists()
    assert sorted(file.name for file in kind.file(tmp_path).parent.iterdir()) == sorted(
        kind.file(tmp_path, base, suffix=suffix).name
        for base in (1, 2)
        for suffix in (".log", ".index")
    )
    assert store.offsets(TOPIC, 0).start == 1
    by_age = kind.open(tmp_path, config=StoreConfig(retention_ms=1000))
    assert by_age.retain() == {(TOPIC, 0): [1]}
    assert read(store).values == [b"c" * 100]


def test_ordinal_files_cannot_be_dropped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file can be dropped"):
        aged(CURSUS, tmp_path).retain()
    assert CURSUS.open(tmp_path).retain() == {}


def test_small_files_are_opened_together_and_distinguished_in_errors(tmp_path: Path) -> None:
    files = CURSUS.write(tmp_path, SEGMENTS)
    store = CURSUS.open(tmp_path)
    everything(store)
    opened = [call for call in _opens(tmp_path) if call.endswith(".log")]
    assert len(opened) == len(set(opened)) == len(files) - 1
    # Changed by another program, in a way that the directory does not show.
    data = bytearray(files[2].read_bytes())
    data[len(CURSUS.encode(SEGMENTS[2][:50], 0))] = 0xFF
    files[2].write_bytes(data)
    found = read(store)
    assert found.values == VALUES[:450]
    assert found.error is not None
    assert found.error.path == str(files[2].relative_to(tmp_path))
    assert found.error.position == len(CURSUS.encode(SEGMENTS[2][:50], 0))
    files[2].write_bytes(data[:-1])
    assert read(store).error is not None


def _opens(root: Path) -> list[str]:
    """Files opened by one read of everything, after the files are known."""
    vfs = faulty(root)
    store = Store(vfs, StoreConfig(), "cursus")
    store.offsets(TOPIC, 0)
    vfs.calls.clear()
    assert read(store, end=1000).values == VALUES[:1000]
    return [call.path for call in vfs.calls if call.kind == "open:read"]
