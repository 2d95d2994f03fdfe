"""Topics that are deleted beside a process that grows, writes or makes others: they go whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import DataLossError, TopicNotFoundError
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.handler_helpers import Gate
from tests.support.stores import TOPIC, make_store, on, reopen, values

LAYOUTS = ["native", "cursus", "cursus-broker", "rustlog"]


def make(path: Path, layout: str, partitions: int) -> Store:
    store = Store.open(path, layout=layout, create=True)
    store.create_topic(TOPIC, partitions)
    return store


def store_on(vfs: FaultyVfs, layout: str) -> Store:
    return Store(vfs, StoreConfig(), layout)


def writer_and_other(path: Path, layout: str) -> tuple[FaultyVfs, Store, Store]:
    """One who writes, with the files under it, and another process."""
    make(path, layout, 2).close()
    vfs = faulty(path)
    writer = store_on(vfs, layout)
    writer.append(TOPIC, 1, [b"old"])
    return vfs, writer, Store.open(path, layout=layout)


class AtTheLock:
    """A hook that acts once, when a writer is about to lock a partition."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.done = False

    def __call__(self, kind: str, path: str) -> None:
        is_lock = path.endswith("/lock") or "/locks/" in path
        if not self.done and kind == "open:write" and is_lock:
            self.done = True
            self._action()


def require_gone_and_free(path: Path, layout: str) -> None:
    """No trace of the topic is in the way of another of its name."""
    with Store.open(path, layout=layout, create=True) as store:
        assert store.topics() == []
        assert store.check() == []
        store.create_topic(TOPIC, 2)
        store.append(TOPIC, 1, [b"new"])
        assert values(store, 1) == [b"new"]


def test_a_topic_that_is_growing_is_not_deleted_under_it(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs, gate = faulty(tmp_path), Gate("fsync_dir", f"topics/{TOPIC}/2")
    vfs.hook = gate
    with ThreadPoolExecutor() as pool:
        growing = pool.submit(on(vfs).add_partitions, TOPIC, 4)
        gate.wait_until_reached()
        deleting = pool.submit(reopen(tmp_path).delete_topic, TOPIC)
        with pytest.raises(TimeoutError):
            deleting.result(0.3)
        gate.open()
        assert growing.result(30).partitions == 4
        deleting.result(30)
    require_gone_and_free(tmp_path, "native")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_that_came_while_the_others_were_locked_are_deleted_too(
    tmp_path: Path, layout: str
) -> None:
    make(tmp_path, layout, 1).close()
    vfs = faulty(tmp_path)
    other = Store.open(tmp_path, layout=layout)

    def grow() -> None:
        other.add_partitions(TOPIC, 3)
        other.append(TOPIC, 2, [b"a"])

    vfs.hook = hook = AtTheLock(grow)
    store_on(vfs, layout).delete_topic(TOPIC)
    assert hook.done
    require_gone_and_free(tmp_path, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_writer_that_waited_while_the_topic_was_deleted_does_not_bring_it_back(
    tmp_path: Path, layout: str
) -> None:
    vfs, writer, other = writer_and_other(tmp_path, layout)
    vfs.hook = hook = AtTheLock(lambda: other.delete_topic(TOPIC))
    with pytest.raises(TopicNotFoundError):
        writer.append(TOPIC, 1, [b"new"])
    assert hook.done
    require_gone_and_free(tmp_path, layout)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_a_writer_that_waited_writes_nothing_into_another_topic_of_the_name(
    tmp_path: Path, layout: str
) -> None:
    vfs, writer, other = writer_and_other(tmp_path, layout)

    def recreate() -> None:
        other.delete_topic(TOPIC)
        other.create_topic(TOPIC, 2)

    vfs.hook = AtTheLock(recreate)
    with pytest.raises(TopicNotFoundError, match="created again"):
        writer.append(TOPIC, 1, [b"meant for the old one"])
    assert values(other, 1) == []
    writer.append(TOPIC, 1, [b"new"])
    assert values(other, 1) == [b"new"]


def test_topics_are_made_while_others_are_deleted(tmp_path: Path) -> None:
    store, other = make_store(tmp_path), reopen(tmp_path)
    for number in range(6):
        store.create_topic(f"large{number}", 24)
        with ThreadPoolExecutor() as pool:
            deleting = pool.submit(store.delete_topic, f"large{number}")
            made = 0
            while not deleting.done() and made < 30:
                other.create_topic(f"small{number}-{made}")
                made += 1
            deleting.result(30)
    assert not [name for name in store.topics() if name.startswith("large")]
    assert not list((tmp_path / "topics").glob("~*"))


def test_two_who_delete_a_topic_at_once_leave_nothing(tmp_path: Path) -> None:
    make_store(tmp_path, partitions=16).close()
    barrier = threading.Barrier(2)

    def delete() -> str:
        store = reopen(tmp_path)
        barrier.wait(30)
        try:
            store.delete_topic(TOPIC)
        except TopicNotFoundError:
            return "gone"
        return "deleted"

    with ThreadPoolExecutor() as pool:
        outcomes = [pool.submit(delete) for _ in range(2)]
        assert sorted(outcome.result(30) for outcome in outcomes) == ["deleted", "gone"]
    require_gone_and_free(tmp_path, "native")


@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
@pytest.mark.parametrize("where", [None, "n > 100"], ids=["all", "where"])
def test_a_scan_never_gives_rows_of_another_topic_of_the_name(
    tmp_path: Path, sealed: bool, where: str | None
) -> None:
    """Its columns have the same ids and other types: bytes of doubles would look like integers."""
    store, other = make_typed(tmp_path, pa.int64(), sealed), Store.open(tmp_path)
    scan, reading = store.scan(TOPIC, where=where), store.read(TOPIC, 0, where=where)
    assert scan.to_table().num_rows == (6 if where is None else 0)
    other.delete_topic(TOPIC)
    make_typed(tmp_path, pa.float64(), sealed)
    for found in (scan.batches(), reading):
        with pytest.raises(DataLossError, match="offset 0 is missing"):
            list(found)
    assert store.scan(TOPIC).to_table()["n"].to_pylist() == [0.5] * 6


def make_typed(path: Path, kind: pa.DataType, sealed: bool) -> Store:
    store = Store.open(path, create=True, config=StoreConfig(frame_records=2))
    store.create_topic(TOPIC, schema=pa.schema([("n", kind)]))
    for _ in range(3):
        store.append_table(TOPIC, pa.table({"n": pa.array([0.5, 0.5]).cast(kind, safe=False)}))
        if sealed:
            store.roll(TOPIC, 0, begin=True)
    return store


def test_a_scan_never_gives_records_of_another_topic_of_the_name(tmp_path: Path) -> None:
    store, other = make_store(tmp_path), Store.open(tmp_path)
    store.append(TOPIC, 0, [b"old"])
    scan = store.scan(TOPIC)
    other.delete_topic(TOPIC)
    other.create_topic(TOPIC)
    other.append(TOPIC, 0, [b"new"])
    with pytest.raises(DataLossError, match="offset 0 is missing"):
        scan.to_table()
