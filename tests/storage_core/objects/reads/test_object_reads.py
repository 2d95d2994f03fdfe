"""Reads of a store of objects: by index, by plan, from a checkpoint, with few requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from storage_core.objects.commit_log import CHECKPOINT_INTERVAL
from storage_core.objects.engine import ObjectEngine
from storage_core.objects.vfs_backend import VfsBackend
from tests.support.faulty_vfs import faulty
from tests.support.objects.object_stores import make, on
from tests.support.stores import T0, TOPIC, columns_of, errors, offsets, rows, values


def test_large_appends_and_tasks_are_read_through_their_index(tmp_path: Path) -> None:
    store = make(tmp_path, 1, frame_records=100, segment_bytes=4 << 20)
    found = [b"%06d" % each + b"x" * 1000 for each in range(6000)]
    stamps = [T0 + 1000 * each for each in range(6000)]
    store.append(TOPIC, 0, found, timestamps=stamps)
    stage = store.stage("job")
    for first in range(0, 6000, 500):
        stage.write(TOPIC, 0, columns_of(found[first : first + 500]))
    parts = stage.finish()
    assert len(parts) == 2  # 6 MB in objects of 4 MiB
    store.commit("job", parts)
    store = Store.open(tmp_path)
    assert values(store) == found + found
    assert offsets(store, start=5990, max_records=20) == list(range(5990, 6010))
    segment = store.segments(TOPIC, 0)[0]
    entries, positions = store.index_entries(TOPIC, 0, segment)
    assert len(entries) > 20
    assert positions[-1] < segment.size
    assert store.offset_for_timestamp(TOPIC, 0, T0 + 1000 * 4321) == 4321
    assert store.end_of_older(TOPIC, 0, T0 + 1000 * 10) == 12000
    bounds = store.time_bounds(TOPIC, 0, store.segments(TOPIC, 0))
    assert bounds[0] == (T0, T0 + 1000 * 5999)
    assert errors(store) == []
    read = store.read_slices(TOPIC, 0, [(segment, 4000, 4010)])
    assert [row["offset"] for row in rows(read)] == list(range(4000, 4010))


def test_planned_slices_are_read_without_the_log(tmp_path: Path) -> None:
    """A task opens what the driver planned by its path: it needs no state of the log."""
    store = make(tmp_path)
    store.append(TOPIC, 0, [b"a", b"b"])
    store.append(TOPIC, 0, [b"c"])
    segments = store.segments(TOPIC, 0)
    vfs = faulty(tmp_path)
    task = on(vfs)
    task.topic(TOPIC)
    vfs.calls.clear()
    wanted = [(segment, segment.base, segment.end) for segment in segments]
    reader = task._engine.reader(TOPIC, 0)
    found = [
        row["value"]
        for segment, start, end in wanted
        for row in rows(reader.read_slice(segment, start, end, task.selection(TOPIC, 0)))
    ]
    assert found == [b"a", b"b", b"c"]


def test_many_commits_are_read_from_a_checkpoint(tmp_path: Path) -> None:
    make(tmp_path, 1).close()
    vfs = faulty(tmp_path)
    vfs.real_syncs = False
    store = on(vfs)
    for number in range(230):
        store.append(TOPIC, 0, [b"%d" % number])
    assert values(Store.open(tmp_path)) == [b"%d" % each for each in range(230)]
    vfs.calls.clear()
    cold = on(vfs)
    assert cold.visible_ends(TOPIC) == (230,)
    # The commits after the checkpoint are read, and the numbers up to the next one asked for.
    kinds = Counter(call.kind for call in vfs.calls)
    assert kinds["pread"] < 60
    assert kinds["open:read"] <= 2 * CHECKPOINT_INTERVAL + 6


class Counting:
    """Counts the calls of a backend."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if callable(found):
            self.calls.append(name)
        return found

    def taken(self) -> dict[str, int]:
        found = {name: self.calls.count(name) for name in sorted(set(self.calls))}
        self.calls.clear()
        return found


def test_few_requests_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests cost money and time: these are the numbers that the cost model counts with."""
    monkeypatch.setattr(VfsBackend, "lists_whole", False)  # as an object store
    make(tmp_path, 4).close()
    store = Store.open(tmp_path)
    engine = store._engine
    assert isinstance(engine, ObjectEngine)
    counting = engine._backend.inner = Counting(engine._backend.inner)
    engine.high_watermarks(TOPIC)
    counting.calls.clear()
    engine.high_watermarks(TOPIC)
    assert counting.taken() == {"get_ranges": 1}  # a warm poll
    parts = []
    for task in range(3):
        stage = store.stage("job")
        handlers = [stage.get_handler(TOPIC, partition) for partition in range(4)]
        counting.calls.clear()
        for handler in handlers:
            handler.append(columns_of([b"%d" % task]))
        parts += stage.finish()
        assert counting.taken() == {"put": 1}  # a task
    store.commit("job", parts)
    assert counting.taken() == {"create": 1, "get_ranges": 2}  # a job of any number of tasks
    engine.append(TOPIC, 0, columns_of([b"a"]))
    assert counting.taken() == {"create": 1, "get_ranges": 1}  # a small append
    assert len(values(store)) == 4


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_slices_of_several_partitions_stand_where_the_commit_says(
    tmp_path: Path, codec: str
) -> None:
    """A codec's buffer has a length that is not its size: the second slice stood elsewhere."""
    found = [b"%06d" % each * 5 for each in range(300)]
    with Store.open(tmp_path / codec, layout="objects", create=True) as store:
        store.create_topic(TOPIC, 3)
        stage = store.stage("job", compression=codec)
        for partition in range(3):
            stage.write(TOPIC, partition, columns_of(found))
        store.commit("job", stage.finish())
        for partition in range(3):
            assert values(store, partition) == found
        for number in range(4):
            store.append(TOPIC, 0, [b"%d" % number * 100] * 50)
        expected = values(store, 0)
        store.recompress(TOPIC, compression="lz4" if codec == "zstd" else "zstd")
        assert values(store, 0) == expected
        assert errors(store) == []
