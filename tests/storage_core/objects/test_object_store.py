"""A store of objects as its users see it: the same promises as a native one, without a lock."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import DiskManager, Store, StoreConfig, convert
from storage_core.errors import (
    ConfigError,
    DataLossError,
    InvalidCommitError,
    InvalidRecordError,
    InvalidSchemaError,
    LayoutMismatchError,
    NotWritableError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    SchemaMismatchError,
    StorageError,
    TopicExistsError,
    TopicNotFoundError,
)
from storage_core.format.typed_columns import make_typed_columns
from storage_core.objects import commits as object_commits
from storage_core.objects.engine import ObjectEngine
from storage_core.objects.staging import StagedSlice
from tests.support.faulty_vfs import CrashError, FaultyVfs, faulty
from tests.support.stores import T0, TOPIC, columns_of, errors, offsets, rows, tree, values

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def make(path: Path, partitions: int = 1, **settings: Any) -> Store:
    store = Store.open(path, layout="objects", create=True)
    store.create_topic(TOPIC, partitions, **settings)
    return store


def on(vfs: FaultyVfs, **settings: Any) -> Store:
    return Store(vfs, StoreConfig(**settings), "objects")


def staged(store: Store, job: str, by_partition: dict[int, list[bytes]]) -> list[Any]:
    stage = store.stage(job)
    for partition, found in by_partition.items():
        stage.write(TOPIC, partition, columns_of(found))
    return list(stage.finish())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path, 2) as found:
        yield found


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


def test_appends_and_commits_follow_one_another(store: Store, tmp_path: Path) -> None:
    assert store.append(TOPIC, 0, [b"a", b"b"]).start == 0
    parts = staged(store, "job", {0: [b"c"], 1: [b"x", b"y"]})
    other = Store.open(tmp_path)
    assert values(other) == [b"a", b"b"]
    result = store.commit("job", parts)
    assert {place: (r.start, r.end) for place, r in result.offsets.items()} == {
        (TOPIC, 0): (2, 3),
        (TOPIC, 1): (0, 2),
    }
    assert other.append(TOPIC, 0, [b"d"]).start == 3
    for each in (store, other, pickle.loads(pickle.dumps(store))):
        assert values(each) == [b"a", b"b", b"c", b"d"]
        assert values(each, 1) == [b"x", b"y"]
        assert each.visible_ends(TOPIC) == (4, 2)
    assert errors(store) == []


def test_one_object_for_a_task_and_none_for_a_small_append(tmp_path: Path, store: Store) -> None:
    store.append(TOPIC, 0, [b"a"])
    assert not (tmp_path / "data").exists()
    store.commit("job", staged(store, "job", {1: [b"x"], 0: [b"c"]}))
    (data,) = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    first, second = (store.segments(TOPIC, each)[-1] for each in (0, 1))
    assert data.relative_to(tmp_path).as_posix() == first.path.partition("@")[0]
    assert second.path.partition("@")[0] == first.path.partition("@")[0]


def test_a_version_is_committed_once(store: Store, tmp_path: Path) -> None:
    def run(version: int, job: str, **how: Any) -> Any:
        return store.commit(job, staged(store, job, {0: [b"%d" % version]}), app="app",
                            version=version, **how)  # fmt: skip

    assert not run(3, "j1").skipped
    assert run(3, "j2").skipped
    assert run(2, "j3").recorded == 3
    assert not run(2, "j4", exact=True).skipped
    assert run(2, "j5", exact=True).skipped
    store = Store.open(tmp_path)
    assert run(3, "j6").skipped
    assert values(store) == [b"3", b"2"]
    (entry,) = store.ledger()
    assert (entry.app, entry.topic, entry.version, entry.committed) == (
        "app", TOPIC, 3, ((2, 3),),
    )  # fmt: skip
    assert store.commit("empty", [], topics=[TOPIC], app="app", version=9).skipped is False
    assert store.ledger()[0].version == 9
    assert store.pending_commits() == []


def test_a_repeated_write_to_several_topics_adds_what_is_missing(store: Store) -> None:
    store.create_topic("u")
    stage = store.stage("j")
    stage.write(TOPIC, 0, columns_of([b"t"]))
    stage.write("u", 0, columns_of([b"u"]))
    parts = stage.finish()
    log = store._engine._catalog.log("u")  # type: ignore[attr-defined]
    log.commit, commit = None, log.commit
    with pytest.raises(TypeError):
        store.commit("j", parts, app="app")
    log.commit = commit
    result = store.commit("j", parts, app="app")
    assert list(result.offsets) == [("u", 0)]
    assert (values(store), values(store, topic="u")) == ([b"t"], [b"u"])


@pytest.mark.parametrize(
    "change",
    [
        lambda part: replace(part, partition=7),
        lambda part: replace(part, path="data/2026111815/other/x.frames"),
        lambda part: replace(part, path="logs/x/y/z"),
        lambda part: replace(part, path=part.path.replace("data/20", "data/10")),
        lambda part: replace(part, records=0),
        lambda part: replace(part, runs=((-1, 5),)),
        lambda part: replace(part, schema=1),
        lambda part: replace(part, largest=part.smallest - 1),
        lambda _: "part",
    ],
)
def test_messages_of_tasks_are_not_trusted(store: Store, change: Callable[[Any], Any]) -> None:
    (part,) = staged(store, "job", {0: [b"a"]})
    assert isinstance(part, StagedSlice)
    with pytest.raises(InvalidCommitError):
        store.commit("job", [change(part)])
    with pytest.raises(InvalidCommitError, match="twice"):
        store.commit("job", [part, part])
    assert store.visible_ends(TOPIC) == (0, 0)


def test_aborted_jobs_leave_nothing_and_undecided_ones_keep_their_data(
    store: Store, tmp_path: Path
) -> None:
    staged(store, "job", {0: [b"a"]})
    store.abort("job")
    assert not list((tmp_path / "data").rglob("*.frames"))
    parts = staged(store, "job", {0: [b"a"]})
    log = store._engine._catalog.log(TOPIC)  # type: ignore[attr-defined]
    backend = log.backend.inner
    backend.create, create = _no_reply, backend.create
    vfs = faulty(tmp_path)
    log._patience._clock = _Hurried(vfs)
    with pytest.raises(StorageError, match="may or may not"):
        store.commit("job", parts)
    backend.create = create
    store.abort("job")
    assert list((tmp_path / "data").rglob("*.frames"))
    object_commits._undecided.discard("job")


def _no_reply(*_: Any) -> None:
    raise TimeoutError("no reply")


class _Hurried:
    """A clock on which an hour passes with every look."""

    def __init__(self, vfs: Any) -> None:
        self._vfs = vfs
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 3600
        return self._now

    def sleep(self, _: float) -> None:
        return

    def now_us(self) -> int:
        return int(self._vfs.now_us())


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


def test_topics_are_made_changed_and_deleted(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path)
    other.append(TOPIC, 0, [b"a"])
    with pytest.raises(TopicExistsError):
        other.create_topic(TOPIC)
    assert store.add_partitions(TOPIC, 5).partitions == 5
    assert other.topic(TOPIC).partitions == 5
    assert other.append(TOPIC, 4, [b"z"]).end == 1
    with pytest.raises(ConfigError, match="cannot shrink"):
        store.add_partitions(TOPIC, 1)
    with pytest.raises(PartitionNotFoundError):
        store.append(TOPIC, 9, [b"a"])
    assert store.alter_topic(TOPIC, compression="zstd").settings == {"compression": "zstd"}
    assert other.topic(TOPIC).settings == {"compression": "zstd"}
    uuid = store.topic(TOPIC).uuid
    store.commit_offsets("g", {TOPIC: {0: 1}})
    store.delete_topic(TOPIC)
    for each in (store, other, Store.open(tmp_path)):
        assert each.topics() == []
        with pytest.raises(TopicNotFoundError):
            each.append(TOPIC, 0, [b"late"])
    other.create_topic(TOPIC)
    assert store.topic(TOPIC).uuid != uuid
    assert values(store) == []
    assert store.committed_offsets("g") == {}


def test_a_writer_that_knew_a_deleted_topic_writes_nothing(store: Store, tmp_path: Path) -> None:
    parts = staged(store, "job", {0: [b"old"]})
    other = Store.open(tmp_path)
    other.delete_topic(TOPIC)
    with pytest.raises(TopicNotFoundError):
        store.append_columns(TOPIC, 0, columns_of([b"late"]))
    other.create_topic(TOPIC, 2)
    store.commit("job", parts)  # as in a native store: the job names a topic, not its uuid
    assert values(other) == [b"old"]


def test_retention_and_deletion_are_trims(store: Store, tmp_path: Path) -> None:
    for number in range(4):
        stamp = T0 + number * 10**6
        store.append(TOPIC, 0, [b"%d" % number] * 2, timestamps=[stamp, stamp])
    reader = Store.open(tmp_path)
    batches = reader.read(TOPIC, 0)
    with pytest.raises(OffsetOutOfRangeError):
        store.delete_records(TOPIC, {0: 99})
    (report,) = store.delete_records(TOPIC, {0: 3})
    assert (report.start_offset, report.segments_before) == (3, 1)
    assert next(iter(rows(batches)))["offset"] == 0  # its data is still there
    assert offsets(reader) == [3, 4, 5, 6, 7]
    with pytest.raises(OffsetOutOfRangeError):
        reader.read(TOPIC, 0, start=2)
    store.alter_topic(TOPIC, retention_ms=1000)
    assert store.retain(dry_run=True) == {(TOPIC, 0): [3, 4]}
    assert store.retain() == {(TOPIC, 0): [3, 4]}
    assert store.offsets(TOPIC, 0).start == 6
    store.delete_records(TOPIC, {0: 8})
    assert (store.offsets(TOPIC, 0).start, values(store)) == (8, [])
    assert reader.append(TOPIC, 0, [b"next"]).start == 8
    assert store.scrub()[0].problems == ()


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


def test_small_slices_are_merged_and_recompressed(store: Store, tmp_path: Path) -> None:
    for number in range(12):
        store.append(TOPIC, 0, [b"%d" % number] * 5, keys=[b"k"] * 5)
    store.delete_records(TOPIC, {0: 3})
    reader = Store.open(tmp_path)
    before, planned = values(reader), reader.segments(TOPIC, 0)
    (report,) = store.merge(TOPIC, dry_run=True)
    assert (report.segments_before, report.segments_after, report.done) == (12, 1, False)
    (report,) = store.merge(TOPIC)
    assert (report.segments_before, report.segments_after, report.start_offset) == (12, 1, 3)
    (segment,) = store.segments(TOPIC, 0)
    assert (segment.base, segment.end) == (3, 60)
    assert values(store) == values(reader) == before
    assert store.merge(TOPIC) == []
    slices = [(each, each.base, each.end) for each in planned]
    assert [row["value"] for row in rows(reader.read_slices(TOPIC, 0, slices))] == before
    store.append(TOPIC, 0, [b"x" * 5000] * 3)
    saved = store.recompress(TOPIC, compression="zstd", dry_run=True)[0].saved_bytes
    assert saved > 0
    assert store.recompress(TOPIC, compression="zstd")[0].saved_bytes > 0
    assert store.recompress(TOPIC, compression="zstd") == []
    assert values(Store.open(tmp_path)) == [*before, *[b"x" * 5000] * 3]
    assert errors(store) == []


def test_a_rewrite_is_given_up_if_a_slice_is_gone(store: Store, tmp_path: Path) -> None:
    for number in range(4):
        store.append(TOPIC, 0, [b"%d" % number])
    other, done = Store.open(tmp_path), list[int]()

    def meanwhile(_: object) -> None:
        if not done:
            done.append(1)
            other.append(TOPIC, 0, [b"late"])
            other.delete_records(TOPIC, {0: 2})

    assert store.merge(TOPIC, progress=meanwhile) == []
    assert values(store) == [b"2", b"3", b"late"]
    assert store.merge(TOPIC)[0].segments_before == 3
    assert values(other) == [b"2", b"3", b"late"]


def test_typed_rows_are_merged_with_their_columns(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    store.create_topic("rows", schema=SCHEMA)
    for number in range(4):
        store.append_table("rows", pa.table({"id": [number], "name": [str(number)]}))
    store.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    store.append_table("rows", pa.table({"id": [4], "late": ["x"]}))
    before = store.scan("rows").to_table()
    assert store.merge("rows")[0].segments_before == 5
    assert Store.open(tmp_path).scan("rows").to_table() == before
    assert errors(store) == []


def test_garbage_is_deleted_and_live_data_stays(tmp_path: Path) -> None:
    make(tmp_path, 1).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.commit("kept", staged(store, "kept", {0: [b"a"]}))
    staged(store, "crashed", {0: [b"lost"]})
    store.create_topic("gone")
    store.delete_topic("gone")
    engine = store._engine
    assert isinstance(engine, ObjectEngine)
    assert store.collect_garbage() == (0, 0)
    vfs.clock_us = vfs.inner.now_us() + 3 * 24 * 3600 * 10**6
    planned = engine._collector.collect(dry_run=True)
    assert any("/crashed/" in key for key in planned.keys)
    assert sum(key.startswith("logs/") for key in planned.keys) == 2
    count = (len(planned.keys), planned.size)
    assert store.collect_garbage(dry_run=True) == store.collect_garbage() == count
    assert store.collect_garbage() == (0, 0)
    assert values(store) == values(Store.open(tmp_path)) == [b"a"]
    assert "crashed" not in "".join(tree(tmp_path))


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
    opened = [call for call in vfs.calls if call.kind == "open:read"]
    assert len(opened) < 60


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


def test_few_requests_are_made(tmp_path: Path) -> None:
    """Requests cost money and time: these are the numbers that the cost model counts with."""
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


def test_typed_topics_evolve_with_their_rows(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    store.create_topic("rows", 2, schema=SCHEMA, key_columns=["id"])
    store.append_table("rows", pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}))
    other = Store.open(tmp_path)
    assert sorted(other.scan("rows").to_table().to_pydict()["id"]) == [1, 2, 3]
    assert other.scan("rows", where="id > 2").to_table().num_rows == 1
    wider = SCHEMA.append(pa.field("extra", pa.int32()))
    registered = store.register_schema("rows", wider, add=True)
    assert (registered.version, other.schema("rows").version) == (2, 1)  # type: ignore[union-attr]
    assert store.register_schema("rows", wider, add=True) == registered
    store.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    store.append_table("rows", pa.table({"id": [4], "late": ["x"]}))
    found = other.scan("rows", columns=["id", "late"]).to_table().to_pydict()
    assert dict(zip(found["id"], found["late"], strict=True)) == {1: None, 2: None, 3: None, 4: "x"}
    assert [each.origin for each in other.schema_versions("rows")] == ["create", "write", "alter"]
    with pytest.raises(SchemaMismatchError):
        store.append_table("rows", pa.table({"other": [1]}))
    with pytest.raises(InvalidRecordError, match="typed topic"):
        store.append("rows", 0, [b"a"])
    assert errors(store) == []


def test_rows_of_a_registered_version_publish_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    store.create_topic("rows", 1, schema=SCHEMA)
    wider = SCHEMA.append(pa.field("extra", pa.int32()))
    version = store.register_schema("rows", wider, add=True)
    batch = pa.RecordBatch.from_pydict({"id": [1], "name": ["a"], "extra": [7]}, schema=wider)
    columns = make_typed_columns(
        batch, version, topic="rows", timestamp_column=None, now_us=T0, max_record_bytes=None
    )
    stage = store.stage("job")
    stage.write("rows", 0, columns)
    parts = stage.finish()
    store.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    assert store.schema("rows").names.keys() == {"id", "name", "late"}  # type: ignore[union-attr]
    store.commit("job", parts)
    assert Store.open(tmp_path).scan("rows").to_table().to_pydict() == {
        "id": [1], "name": ["a"], "late": [None], "extra": [7],
    }  # fmt: skip


def test_a_key_column_never_gets_what_cannot_be_compared(tmp_path: Path) -> None:
    """Every later write and compaction of such a topic would fail."""
    store = Store.open(tmp_path, layout="objects", create=True)
    at = pa.struct([("x", pa.int8())])
    store.create_topic("rows", 2, schema=pa.schema([("at", at)]), key_columns=["at"])
    bad = pa.schema([("at", pa.struct([("m", pa.map_(pa.string(), pa.int8()))]))])
    for call in (
        lambda: store.register_schema("rows", bad, add=True),
        lambda: store.alter_topic("rows", add_columns=bad),
    ):
        with pytest.raises(InvalidSchemaError, match="'rows', key column at: found type map"):
            call()
    assert [found.schema.version for found in store.schema_versions("rows")] == [1]
    store.append_table("rows", pa.table({"at": pa.array([{"x": 1}], at)}))


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


def test_threads_and_stores_race_for_one_partition(tmp_path: Path) -> None:
    make(tmp_path, 1).close()
    vfs = faulty(tmp_path)
    vfs.real_syncs = False
    stores = [on(vfs) for _ in range(3)]
    failed: list[BaseException] = []

    def run(store: Store, name: int) -> None:
        try:
            for each in range(15):
                store.append(TOPIC, 0, [b"%d-%d" % (name, each)])
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=run, args=(store, 2 * at + twin))
        for at, store in enumerate(stores)
        for twin in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    found = values(Store.open(tmp_path))
    assert sorted(found) == sorted(b"%d-%d" % (n, each) for n in range(6) for each in range(15))
    for name in range(6):
        own = [int(each.partition(b"-")[2]) for each in found if each.startswith(b"%d-" % name)]
        assert own == list(range(15))


@pytest.mark.slow
def test_every_crash_leaves_all_of_a_commit_or_nothing(tmp_path: Path) -> None:
    """The process is killed before each of its changes; the job is repeated by the next one."""

    def job(store: Store) -> None:
        store.create_topic(TOPIC, 2, exist_ok=True)
        parts = staged(store, "job", {0: [b"a", b"b"], 1: [b"c"]})
        store.commit("job", parts, app="app", version=1)
        store.commit_offsets("g", {TOPIC: {0: 2}})

    for calls in range(300):
        root = tmp_path / str(calls)
        vfs = faulty(root)
        vfs.real_syncs = False
        try:
            Store.open(root, layout="objects", create=True).close()
            vfs.crash_after = calls
            job(on(vfs))
            break
        except CrashError:
            store = Store.open(root)
            if TOPIC in store.topics():
                assert store.visible_ends(TOPIC) in ((0, 0), (2, 1))
            job(store)
            assert (values(store), values(store, 1)) == ([b"a", b"b"], [b"c"])
            assert store.committed_offsets("g") == {TOPIC: {0: 2}}
            assert errors(store) == []
    else:
        pytest.fail("the job makes more than 300 changes")
    assert calls > 30
    assert os.listdir(root / "tmp") == []


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
