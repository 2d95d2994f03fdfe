"""What operations cost in calls, frames and bytes: numbers that do not depend on the machine.

Seconds belong to the benchmarks. A change that doubles one of these counts loses speed everywhere,
and fails here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from benchmarks.data import RECORD_BYTES, values
from cursus_spark.datasource import CursusDataSource
from storage_core import DiskManager, Store, StoreConfig
from storage_core.commit.staging import OWN_FILE_BYTES
from storage_core.format.frame import decode_message
from storage_core.io import parallel
from storage_core.vfs import PosixVfs
from tests.support.counting import count_calls, counting
from tests.support.patching import replaced
from tests.support.stores import TOPIC, columns_of

FRAME_RECORDS = StoreConfig().frame_records
_POOLS: list[pa.MemoryPool] = []
_SEAM = [name for name in vars(PosixVfs) if not name.startswith("_") and name != "root"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts every call of the I/O seam, and frames decoded as ``frames``."""
    counted = count_calls(monkeypatch, PosixVfs, _SEAM)
    replaced(decode_message, counting(counted, "frames", decode_message))(monkeypatch)
    return counted


@contextmanager
def arrow_bytes() -> Iterator[Callable[[], int]]:
    """How many bytes Arrow's pool handed out since the start, also what was given back."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    _POOLS.append(pool)  # what it allocated may live longer, and is given back to it
    pa.set_memory_pool(pool)
    try:
        yield pool.total_bytes_allocated
    finally:
        pa.set_memory_pool(usual)


def sealed_store(path: Path, frames: int, **settings: Any) -> Store:
    """One sealed segment of full frames, and an active one of a record."""
    store = Store.open(path, create=True, config=StoreConfig(**settings))
    store.create_topic(TOPIC)
    store.append(TOPIC, 0, values(frames * FRAME_RECORDS))
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    return store


def test_a_second_read_of_a_sealed_segment_touches_no_file_and_decodes_each_frame_once(
    tmp_path: Path, calls: Counter[str]
) -> None:
    with sealed_store(tmp_path, 10) as store:
        end = 10 * FRAME_RECORDS
        list(store.read(TOPIC, 0, end=end))
        calls.clear()
        assert sum(batch.num_rows for batch in store.read(TOPIC, 0, end=end)) == end
        assert calls["frames"] == 10
        assert calls["pread"] <= 1, "the high watermark alone is read again"
        assert calls["map"] == 0
        assert sum(calls.values()) - calls["frames"] <= 14


def test_a_read_hands_out_mapped_bytes_and_copies_none(tmp_path: Path) -> None:
    with sealed_store(tmp_path, 8) as store, arrow_bytes() as allocated:
        kept = list(store.read(TOPIC, 0, end=8 * FRAME_RECORDS))
        assert sum(batch.num_rows for batch in kept) == 8 * FRAME_RECORDS
        assert allocated() < 0.05 * 8 * FRAME_RECORDS * RECORD_BYTES


def test_one_record_out_of_many_frames_decodes_one_frame(
    tmp_path: Path, calls: Counter[str]
) -> None:
    with sealed_store(tmp_path, 20) as store:
        list(store.read(TOPIC, 0, start=FRAME_RECORDS, max_records=1))  # reads the index too
        calls.clear()
        (batch,) = store.read(TOPIC, 0, start=17 * FRAME_RECORDS + 5, max_records=1)
        assert batch.num_rows == 1
        assert calls["frames"] == 1
        assert sum(calls.values()) <= 14


def test_a_durable_append_of_many_frames_syncs_once_and_copies_no_record(
    tmp_path: Path, calls: Counter[str]
) -> None:
    records = values(10 * FRAME_RECORDS)
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, records)
        calls.clear()
        with arrow_bytes() as allocated:
            store.append(TOPIC, 0, records)
        assert allocated() < 0.2 * records.nbytes, "lengths and offsets, no values"
        assert calls["fsync"] == 1
        assert calls["pwritev"] <= 10 + 4, (
            "frames, index, high watermark, and the lock's word twice"
        )
        assert calls["open"] <= 4


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_small_commit_costs_a_fixed_number_of_syncs(
    tmp_path: Path, calls: Counter[str], partitions: int
) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, partitions)
        for job in ("first", "second"):
            stage = store.stage(job)
            for partition in range(partitions):
                stage.write(TOPIC, partition, columns_of([b"a", b"b"]))
            parts = stage.finish()
            calls.clear()
            store.commit(job, parts, app="app", version=int(job == "second"))
            counted = calls.copy()
    assert counted["fsync"] <= 4 + partitions, (
        "intent, ledger, high watermark, each partition's log"
    )
    assert counted["fsync_dir"] <= 6


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_large_task_writes_little_twice_and_copies_no_record(
    tmp_path: Path, calls: Counter[str], partitions: int
) -> None:
    """Batches as Spark makes them, each a frame."""
    batch, batches = columns_of(values(10_000)), 20 * partitions
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, partitions)
        stage = store.stage("job")
        with arrow_bytes() as allocated:
            for number in range(batches):
                stage.write(TOPIC, number % partitions, batch)
            calls.clear()
            for partition in range(partitions):
                stage.write(TOPIC, partition, batch)
            parts = stage.finish()
        assert [part.own_file for part in parts] == [True] * partitions
        assert min(part.size for part in parts) > OWN_FILE_BYTES
        assert calls["pread"] == calls["open"] == 0, "all have their files by then"
        assert calls["fsync"] <= partitions + 1
        assert allocated() < 0.1 * batches * batch.size, "lengths and offsets, no values"


@pytest.mark.parametrize("partitions", [4, 64])
def test_a_keyed_task_copies_each_record_a_few_times_and_asks_for_its_topic_once(
    tmp_path: Path, calls: Counter[str], partitions: int
) -> None:
    """Joined with other batches where slices would be small, sorted by partition, framed."""
    schema = StructType().add("key", "string").add("value", "binary")
    keys = pa.array(map(str, range(10_000)))
    batch = pa.RecordBatch.from_arrays([keys, values(10_000)], names=schema.names)
    options = {"path": str(tmp_path), "topic": TOPIC, "numPartitions": str(partitions)}
    counted, copies = [], 2 if partitions == 4 else 3
    for batches in (8, 8, 16):  # the first one makes the topic
        writer = CursusDataSource(options).writer(schema, False)
        calls.clear()
        with arrow_bytes() as allocated:
            writer.write(iter([batch] * batches))
            assert allocated() < (copies + 0.5) * batches * batch.nbytes
        counted.append({name: number for name, number in calls.items() if name != "pwritev"})
        writer.abort([])
    _, few, many = counted
    grown = {name for name in many if many[name] > few.get(name, 0)}
    assert grown <= {"begin_writeback", "fstat", "pread"}, (few, many)


@pytest.mark.parametrize("partitions", [1, 4])
def test_of_a_task_that_grows_only_the_first_frames_are_moved(
    tmp_path: Path, calls: Counter[str], partitions: int
) -> None:
    batch = columns_of(values(FRAME_RECORDS))
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, partitions)
        stage = store.stage("job")
        calls.clear()
        for number in range(4 * partitions):
            stage.write(TOPIC, number % partitions, batch)
        parts = stage.finish()
        assert [part.own_file for part in parts] == [False] * partitions, "too small for segments"
        moved = calls["pread"] - 1  # the topic's settings are read too
        assert moved == (partitions if partitions > 1 else 0), "one that is alone keeps its file"
        assert calls["pwritev"] == 4 * partitions + moved
        store.commit("job", parts)
        assert [store.offsets(TOPIC, n).end for n in range(partitions)] == [
            4 * FRAME_RECORDS
        ] * partitions


def test_a_plan_opens_no_log_and_at_most_one_index_for_a_split(
    tmp_path: Path, calls: Counter[str]
) -> None:
    with Store.open(tmp_path, create=True, config=StoreConfig(segment_bytes=1 << 20)) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, values(50 * FRAME_RECORDS))
    opened: list[str] = []
    counted = PosixVfs.open

    def noting(vfs: PosixVfs, path: str, mode: Any) -> int:
        opened.append(path)
        return counted(vfs, path, mode)

    source = CursusDataSource({"path": str(tmp_path), "subscribe": TOPIC})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PosixVfs, "open", noting)
        tasks = list(source.reader(source.schema()).partitions())
    assert [path for path in opened if path.endswith(".log")] == []
    assert len([path for path in opened if path.endswith(("idx", "timeidx"))]) <= len(tasks)
    assert calls["frames"] == 0


def test_a_large_read_asks_for_help_and_a_spark_task_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, helper = [], parallel._helper

    def asking(process: int) -> Any:
        asked.append(process)
        return helper(process)

    monkeypatch.setattr(parallel, "_processors", 2)
    monkeypatch.setattr(parallel, "_helper", asking)
    with sealed_store(tmp_path, frames=8) as store:
        assert sum(batch.num_rows for batch in store.read(TOPIC, 0)) >= 8 * FRAME_RECORDS
    assert asked
    asked.clear()
    source = CursusDataSource({"path": str(tmp_path), "subscribe": TOPIC})
    reader = source.reader(source.schema())
    rows = [batch.num_rows for task in reader.partitions() for batch in reader.read(task)]
    assert sum(rows) >= 8 * FRAME_RECORDS
    assert asked == []


def test_an_idle_poll_reads_no_segment_and_costs_the_same_for_many(
    tmp_path: Path, calls: Counter[str]
) -> None:
    costs = []
    for segments in (2, 40):
        path = tmp_path / str(segments)
        with Store.open(path, create=True) as store:
            store.create_topic(TOPIC)
            for _ in range(segments):
                store.append(TOPIC, 0, [b"x"])
                store.roll(TOPIC, 0)
        options = {"path": str(path), "subscribe": TOPIC, "startingOffsets": "earliest"}
        source = CursusDataSource(options)
        reader = source.streamReader(source.schema())
        limit = reader.getDefaultReadLimit()
        start = reader.latestOffset(reader.initialOffset(), limit)
        calls.clear()
        assert reader.latestOffset(start, limit) == start
        costs.append(sum(calls.values()))
        assert calls["frames"] == calls["listdir"] == calls["map"] == 0
    assert costs[0] == costs[1] <= 12


def test_a_small_append_opens_the_root_once_and_asks_for_the_topic_once(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Counter[object] = Counter()
    asked: Counter[str] = Counter()
    plain_open, stat = os.open, PosixVfs.stat

    def noting(path: Any, *arguments: Any, **named: Any) -> int:
        opened[path] += 1
        return plain_open(path, *arguments, **named)

    def asking(vfs: PosixVfs, path: str) -> Any:
        asked[path] += 1
        return stat(vfs, path)

    config = StoreConfig(log_dir=str(tmp_path), checkpoint_interval_ms=86_400_000)
    with DiskManager(config) as manager:
        handler = manager.get_handler(TOPIC, 0)
        handler.write_direct(b"first")
        handler.append(b"second").result()
        monkeypatch.setattr(os, "open", noting)
        monkeypatch.setattr(PosixVfs, "stat", asking)
        calls.clear()
        handler.write_direct(b"third")
        counted, roots = calls.copy(), opened[str(tmp_path)]
        questions = asked[f"topics/{TOPIC}/topic.json"]
    assert roots == 1
    assert questions == 1
    assert (counted["open"], counted["stat"], counted["listdir"]) == (3, 3, 1)
    assert (counted["fsync"], counted["rename"]) == (1, 0)
    assert counted["pwritev"] == 4, "the lock's word twice, the frame, a slot of high watermarks"


def test_an_append_to_a_store_opens_the_root_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Counter[object] = Counter()
    plain_open = os.open

    def noting(path: Any, *arguments: Any, **named: Any) -> int:
        opened[path] += 1
        return plain_open(path, *arguments, **named)

    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"first"])
        monkeypatch.setattr(os, "open", noting)
        store.append(TOPIC, 0, [b"second"])
        assert opened[str(tmp_path)] == 1


@pytest.mark.slow
def test_a_task_opens_each_small_segment_once_whatever_the_number_of_partitions(
    tmp_path: Path, calls: Counter[str]
) -> None:
    """64 partitions of three small segments: one task reads them all."""
    partitions, segments = 64, 3
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, partitions)
        for partition in range(partitions):
            for _ in range(segments):
                store.append(TOPIC, partition, values(10))
                store.roll(TOPIC, partition)
            store.append(TOPIC, partition, values(10))
    source = CursusDataSource({"path": str(tmp_path), "subscribe": TOPIC})
    reader = source.reader(source.schema())
    calls.clear()
    (task,) = reader.partitions()
    planned = calls.copy()
    calls.clear()
    found = sum(batch.num_rows for batch in reader.read(task))
    assert found == 10 * partitions * (segments + 1)
    assert planned["open"] <= partitions + 4, "the high watermarks again for each partition"
    assert planned["map"] == planned["frames"] == 0
    assert calls["open"] <= partitions * (segments + 1) + 4, "each log once"
    assert calls["map"] == partitions * segments
    assert calls["pread"] <= partitions + 4, "the active segments"
    assert calls["stat"] <= partitions * (segments + 8) + 8, "the topic 8 times for a partition"
