"""What operations on a store of objects cost in requests: that is what a cloud asks money for."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_read_options
from cursus_spark.read import planning
from cursus_spark.read.task import read_slice
from storage_core import Store, StoreConfig
from storage_core.errors import DataLossError
from storage_core.objects.commit_log import CHECKPOINT_INTERVAL
from storage_core.objects.reads.read_ahead import Range, ReadAhead, joined
from storage_core.objects.vfs_backend import VfsBackend
from tests.support.counting import count_calls
from tests.support.objects.memory_objects import MemoryBackend
from tests.support.stores import T0, TOPIC, columns_of

_CALLS = ("create", "put", "get_ranges", "list_after", "delete", "replace_if")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts every call of the seam, as an object store gets them.

    In a directory a poll and a commit also look for the number after the next one.
    """
    monkeypatch.setattr(VfsBackend, "lists_whole", False)
    return count_calls(monkeypatch, VfsBackend, _CALLS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "log", layout="objects", create=True) as made:
        yield made


def commit(store: Store, job: str, by_partition: dict[int, list[bytes]], tasks: int = 1) -> None:
    parts = []
    for _ in range(tasks):
        stage = store.stage(job)
        for partition, found in by_partition.items():
            stage.write(TOPIC, partition, columns_of(found))
        parts += stage.finish()
    store.commit(job, parts)


def reader_of(store: Store, **options: str) -> Any:
    path = {"path": store.path, "subscribe": TOPIC, **options}
    return CursusDataSource(path).streamReader(CursusDataSource(path).schema())


def records_schema(store: Store) -> Any:
    return CursusDataSource({"path": store.path, "subscribe": TOPIC}).schema()


def test_a_job_costs_an_object_a_task_a_commit_and_two_reads(
    store: Store, requests: Counter[str]
) -> None:
    store.create_topic(TOPIC, 8)
    pin = store.pinned(TOPIC)
    assert pin is not None
    requests.clear()
    parts = []
    for _ in range(5):  # in five processes, which have the driver's pin
        with Store.open(store.path, layout="objects", pins={TOPIC: pin}) as task:
            stage = task.stage("job")
            for partition in range(8):
                stage.write(TOPIC, partition, columns_of([b"x"]))
            parts += stage.finish()
    assert requests == {"put": 5}
    requests.clear()
    store.commit("job", parts)
    # The commit; a poll before it, and the boundary after it.
    assert requests == {"create": 1, "get_ranges": 2}
    assert store.visible_ends(TOPIC) == (5,) * 8


def test_an_idle_poll_of_a_stream_is_one_request_however_many_partitions(
    store: Store, requests: Counter[str]
) -> None:
    store.create_topic(TOPIC, 30)
    commit(store, "a", {partition: [b"x"] for partition in range(30)})
    reader = reader_of(store, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.partitions(reader.initialOffset(), first)
    requests.clear()
    for _ in range(3):
        assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
    assert requests == {"get_ranges": 3}


def test_a_batch_of_a_stream_is_planned_by_object(store: Store, requests: Counter[str]) -> None:
    store.create_topic(TOPIC, 50)
    commit(store, "start", {0: [b"x"]})
    reader = reader_of(store, startingOffsets="latest")
    limit = reader.getDefaultReadLimit()
    begin = reader.latestOffset(reader.initialOffset(), limit)
    for number in range(3):
        rows = {partition: [b"%d-%d" % (partition, number)] for partition in range(50)}
        commit(store, f"job{number}", rows, tasks=2)
    requests.clear()
    end = reader.latestOffset(begin, limit)
    tasks = reader.partitions(begin, end)
    # Three new commits and the one that is not there; and one look for the plan.
    assert requests == {"get_ranges": 5}
    requests.clear()
    batches = [batch for task in tasks for batch in reader.read(pickle.loads(pickle.dumps(task)))]
    assert requests == {"get_ranges": 6}  # the objects, and nothing else
    table = pa.Table.from_batches(batches)
    seen: dict[int, list[int]] = {}
    for partition, offset in zip(
        table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
    ):
        seen.setdefault(partition, []).append(offset)
    wanted = {
        partition: list(range(partition == 0, 6 + (partition == 0))) for partition in range(50)
    }
    assert seen == wanted, "every record once, each partition in the order of its offsets"


def test_a_lookup_costs_a_poll_the_index_and_the_frames(
    tmp_path: Path, requests: Counter[str]
) -> None:
    with Store.open(tmp_path, layout="objects", create=True) as store:
        store.create_topic(TOPIC, frame_records=100)
        payload, rows = b"x" * 100, 40_000
        stamps = [T0 + number for number in range(rows)]
        stage = store.stage("job")
        stage.write(TOPIC, 0, columns_of([payload] * rows, timestamps=stamps))
        store.commit("job", stage.finish())
        requests.clear()
        assert store.offset_for_timestamp(TOPIC, 0, T0 + 20_050) == 20_050
        assert requests == {"get_ranges": 3}
        requests.clear()
        assert store.offset_for_timestamp(TOPIC, 0, T0 + 30_050) == 30_050
        assert store.end_of_older(TOPIC, 0, T0 + 7_777) == 7_777
        assert requests == {"get_ranges": 4}, "the index is known"
        requests.clear()
        found = next(iter(store.read(TOPIC, 0, 15_150, 15_151)))
        assert found.column("offset").to_pylist() == [15_150]
        assert requests == {"get_ranges": 2}


@pytest.mark.parametrize("whole", [False, True])
def test_a_cold_open_reads_at_most_one_checkpoint_interval(
    store: Store, requests: Counter[str], monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    """A directory is not listed: that takes as long as the log, here and on NFS.

    To find a lost commit, its numbers are asked for up to that of the next checkpoint.
    """
    monkeypatch.setattr(VfsBackend, "lists_whole", whole)
    store.create_topic(TOPIC)
    for number in range(2 * CHECKPOINT_INTERVAL + 7):
        store.append(TOPIC, 0, [b"%d" % number])
    requests.clear()
    with Store.open(store.path) as other:
        assert other.visible_ends(TOPIC) == (2 * CHECKPOINT_INTERVAL + 7,)
    # store.json aside: the entry of the topic, hint, checkpoint, boundary, the next number.
    assert requests["list_after"] == 2 - whole
    assert requests["get_ranges"] <= (1 + whole) * CHECKPOINT_INTERVAL + 6
    assert requests.keys() <= {"get_ranges", "list_after"}


def test_a_planned_task_reads_what_a_deleted_topic_had_or_names_the_loss(store: Store) -> None:
    store.create_topic(TOPIC)
    commit(store, "a", {0: [b"x"] * 10})
    options = parse_read_options({"path": store.path, "subscribe": TOPIC})
    (task,) = planning.plan_batch(store, options)
    schema = records_schema(store)
    store.delete_topic(TOPIC)
    assert sum(batch.num_rows for batch in read_slice(options, schema, task)) == 10
    data = Path(store.path) / "data"
    for path in data.rglob("*.frames"):
        path.unlink()
    with pytest.raises(Exception, match=r"DATA_LOSS.*was deleted since the query was planned"):
        list(read_slice(options, schema, task))


def test_a_reader_that_garbage_collection_overtakes_gets_data_loss(tmp_path: Path) -> None:
    with Store.open(tmp_path, layout="objects", create=True) as store:
        store.create_topic(TOPIC)
        commit(store, "a", {0: [b"x"] * 10})
        commit(store, "b", {0: [b"y"] * 5})
        options = parse_read_options({"path": store.path, "subscribe": TOPIC})
        (task,) = planning.plan_batch(store, options)
        store.delete_records(TOPIC, {0: 10})
        first = next(
            path
            for path in (tmp_path / "data").rglob("*.frames")
            if str(path.relative_to(tmp_path)) in task.splits[0].path
        )
        first.unlink()  # what the collector does when it is old enough
        schema = records_schema(store)
        with pytest.raises(Exception, match=r"DATA_LOSS.*records 0 to 9 are no longer in the log"):
            list(read_slice(options, schema, task))
        kept = parse_read_options(
            {"path": store.path, "subscribe": TOPIC, "failOnDataLoss": "false"}
        )
        assert sum(batch.num_rows for batch in read_slice(kept, schema, task)) == 5
        # An object that is missing although the log names it is a loss too, never less data.
        for path in (tmp_path / "data").rglob("*.frames"):
            path.unlink()
        with pytest.raises(DataLossError, match="is missing"):
            list(store.read(TOPIC, 0))


@pytest.mark.parametrize(
    ("ranges", "windows"),
    [
        ([("a", 0, 10), ("a", 20, 30), ("b", 0, 5)], [("a", 0, 30), ("b", 0, 5)]),
        ([("a", 0, 250)], [("a", 0, 100), ("a", 100, 200), ("a", 200, 250)]),
        ([("a", 0, 60), ("a", 60, 120)], [("a", 0, 60), ("a", 60, 120)]),
        ([("a", 0, 60), ("a", 0, 60), ("a", 50, 70)], [("a", 0, 70)]),
        ([("a", 50, 60), ("a", 0, 10)], [("a", 50, 60), ("a", 0, 10)]),
        ([("a", 0, 10), ("a", 9_000_000, 9_000_010)], [("a", 0, 10), ("a", 9_000_000, 9_000_010)]),
        ([("a", 5, 5)], []),
    ],
)
def test_near_ranges_share_a_request(
    ranges: list[tuple[str, int, int]], windows: list[tuple[str, int, int]]
) -> None:
    assert joined([Range(*each) for each in ranges], largest=100) == windows


def test_reading_ahead_serves_what_it_fetched_and_nothing_before() -> None:
    backend = MemoryBackend()
    backend.put("a", [bytes(range(256)) * 4])
    ahead = ReadAhead(backend, [Range("a", 0, 100), Range("a", 100, 200), Range("gone", 0, 1)])
    try:
        assert bytes(ahead.read("a", 90, 20) or b"") == bytes(range(90, 110))
        assert ahead.read("a", 500, 1) is None
        assert ahead.read("other", 0, 1) is None
        with pytest.raises(FileNotFoundError):
            ahead.read("gone", 0, 1)
        assert ahead.read("a", 90, 1) is None, "the window was passed"
    finally:
        ahead.close()
    assert ahead.read("a", 90, 20) is None


def test_a_large_task_uploads_while_it_encodes(tmp_path: Path, requests: Counter[str]) -> None:
    config = StoreConfig(segment_bytes=1 << 20)
    with Store.open(tmp_path, layout="objects", create=True, config=config) as store:
        store.create_topic(TOPIC, 2)
        requests.clear()
        stage = store.stage("job")
        for number in range(40):
            stage.write(TOPIC, number % 2, columns_of([b"%06d" % number * 1000] * 20))
        parts = stage.finish()
        assert requests["put"] == len({part.path for part in parts}) >= 3
        store.commit("job", parts)
        assert store.visible_ends(TOPIC) == (400, 400)
        assert sum(batch.num_rows for batch in store.read(TOPIC, 1)) == 400
        assert store.check() == []
