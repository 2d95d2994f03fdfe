"""A store of objects as its users see it: the same promises as a native one, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import DiskManager, Store, StoreConfig, convert
from storage_core.errors import (
    ConfigError,
    DataLossError,
    InvalidCommitError,
    InvalidRecordError,
    LayoutMismatchError,
    NotWritableError,
    StorageError,
)
from tests.support.faulty_vfs import faulty
from tests.support.objects.object_stores import SCHEMA, make, on, staged
from tests.support.stores import TOPIC, errors, rows, tree, values


def test_store_is_recognised_and_made_once(tmp_path: Path) -> None:
    make(tmp_path).append(TOPIC, 0, [b"a"])
    identity = (tmp_path / "store.json").read_bytes()
    again = Store.open(tmp_path, create=True)
    assert (again.layout, again.topics(), values(again)) == ("objects", [TOPIC], [b"a"])
    assert (tmp_path / "store.json").read_bytes() == identity
    with pytest.raises(LayoutMismatchError, match="holds layout objects"):
        Store.open(tmp_path, layout="native", create=True)
    assert not any(path.name.startswith("lock") for path in tmp_path.rglob("*"))


def test_no_call_takes_a_lock(tmp_path: Path) -> None:
    make(tmp_path, 2).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    store.commit("j", staged(store, "j", {0: [b"b"], 1: [b"c"]}))
    store.commit_offsets("g", {TOPIC: {0: 1}})
    store.delete_records(TOPIC, {0: 1})
    store.delete_topic(TOPIC)
    assert not [call for call in vfs.calls if "lock" in call.kind or "lock" in call.path]


def test_what_is_not_there_yet_is_refused(store: Store) -> None:
    store.append(TOPIC, 0, [b"a"])
    calls: list[Callable[[], object]] = [
        lambda: store.damage(TOPIC, 0),
        lambda: store.skip_damaged(TOPIC, 0, 0, 1),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="layout objects"):
            call()
    with pytest.raises(InvalidCommitError, match="one step"):
        store.finish_commit("x")


def test_groups_of_two_processes_merge(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path)
    store.append(TOPIC, 0, [b"a"] * 9)
    store.commit_offsets("g", {TOPIC: {0: 1}})
    other.commit_offsets("g", {TOPIC: {1: 0}})
    store.commit_offsets("g", {TOPIC: {0: 5}})
    assert other.committed_offsets("g") == {TOPIC: {0: 5, 1: 0}}
    assert other.groups() == ["g"]
    assert other.committed_offsets("unknown") == {}
    with pytest.raises(InvalidRecordError):
        store.commit_offsets("g", {TOPIC: {0: -1}})


def test_damage_is_found_and_named(store: Store, tmp_path: Path) -> None:
    store.commit("job", staged(store, "job", {0: [b"a" * 100]}))
    (data,) = list((tmp_path / "data").rglob("*.frames"))
    good = data.read_bytes()
    data.chmod(0o644)
    data.write_bytes(good[:150] + b"?" + good[151:])
    with pytest.raises(StorageError, match="checksum"):
        values(Store.open(tmp_path))
    assert [problem.code for problem in store.check()] == ["LOG_DAMAGED"]
    data.unlink()
    with pytest.raises(DataLossError, match="missing"):
        values(Store.open(tmp_path))
    assert [problem.code for problem in store.check()] == ["LOG_DAMAGED"]


def test_a_store_that_we_may_not_write_reads(tmp_path: Path) -> None:
    make(tmp_path).append(TOPIC, 0, [b"a"])
    before = tree(tmp_path)
    vfs = faulty(tmp_path)
    vfs.may_write = False
    store = on(vfs)
    assert values(store) == [b"a"]
    with pytest.raises(NotWritableError):
        store.append(TOPIC, 0, [b"b"])
    assert tree(tmp_path) == before


def test_handlers_write_through_the_log(tmp_path: Path) -> None:
    config = StoreConfig(log_dir=str(tmp_path / "log"), layout="objects", linger_ms=1)
    with DiskManager(config) as manager:
        handler = manager.get_handler("t", 0)
        futures = [handler.append(b"%d" % each) for each in range(20)]
        assert [future.result(10) for future in futures] == list(range(20))
        handler.rotate_segment()
        assert handler.read_messages(18, 5).next_offset == 20
        with pytest.raises(ConfigError, match="layout objects"):
            handler.send_current_segment(None)  # type: ignore[arg-type]


def test_conversions_keep_offsets_and_columns(tmp_path: Path) -> None:
    source = Store.open(tmp_path / "native", create=True)
    source.create_topic(TOPIC, 2, cleanup_policy="compact")
    for number in range(6):
        source.append(TOPIC, 0, [b"%d" % number] * 2, keys=[b"a", b"%d" % number])
        source.roll(TOPIC, 0)
    source.delete_records(TOPIC, {0: 3})
    source.compact(TOPIC, min_dirty_ratio=0)
    source.create_topic("rows", schema=SCHEMA)
    source.append_table("rows", pa.table({"id": [1], "name": ["a"]}))
    source.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    source.append_table("rows", pa.table({"id": [2], "late": ["x"]}))
    convert(tmp_path / "native", tmp_path / "objects", layout="objects")
    convert(tmp_path / "native", tmp_path / "objects")  # goes on, with nothing to do
    target = Store.open(tmp_path / "objects")
    assert target.layout == "objects"
    assert rows(target.read(TOPIC, 0)) == rows(source.read(TOPIC, 0))
    assert target.offsets(TOPIC, 0) == source.offsets(TOPIC, 0)
    assert target.offsets(TOPIC, 0).start == 3
    assert target.scan("rows").to_table() == source.scan("rows").to_table()
    source.append(TOPIC, 0, [b"more"], keys=[b"m"])
    convert(tmp_path / "native", tmp_path / "objects")
    assert values(target)[-1] == b"more"
    convert(tmp_path / "objects", tmp_path / "back")
    back = Store.open(tmp_path / "back")
    assert rows(back.read(TOPIC, 0)) == rows(source.read(TOPIC, 0))
    assert (errors(target), errors(back)) == ([], [])
