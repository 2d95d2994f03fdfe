"""Writers, collectors and processes that sleep or die at the worst moment: no record is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.errors import (
    CommitUnknownError,
    DataLossError,
    InvalidCommitError,
    StorageError,
    TopicNotFoundError,
)
from storage_core.objects import commit_log, commits, object_source
from storage_core.objects.commit_log import CommitLog
from storage_core.objects.garbage import collect_log
from tests.support.faulty_vfs import Fault, FaultyVfs, faulty
from tests.support.objects.object_stores import DAY_US, later, on, staged_one
from tests.support.stores import TOPIC, columns_of, errors, values


@pytest.fixture
def store(vfs: FaultyVfs) -> Iterator[Store]:
    with on(vfs) as found:
        found.create_topic(TOPIC, 1)
        yield found


def log_of(store: Store) -> CommitLog:
    found: CommitLog = store._engine._catalog.log(TOPIC)  # type: ignore[attr-defined]
    return found


def before(target: object, name: str, act: Callable[[], None], nth: int = 1) -> None:
    """Do something before the n-th call of a method, as if the caller had slept there."""
    true, calls = getattr(target, name), 0

    def late(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            act()
        return true(*arguments, **named)

    setattr(target, name, late)


def _committed(store: Store, job: str, parts: list[Any]) -> None:
    store.commit(job, parts)


@pytest.mark.row(45)
def test_a_commit_that_slept_while_its_data_was_deleted_does_not_happen(
    store: Store, vfs: FaultyVfs
) -> None:
    parts = staged_one(store, "slept", b"late")

    def sleep() -> None:
        later(vfs, 3)
        assert on(vfs).collect_garbage()[0] == 1

    before(log_of(store).backend, "create", sleep)
    with pytest.raises(InvalidCommitError, match="garbage collection may have deleted"):
        store.commit("slept", parts)
    assert (values(on(vfs)), errors(on(vfs))) == ([], [])


@pytest.mark.row(45)
def test_a_commit_right_before_the_fence_keeps_its_data(store: Store, tmp_path: Path) -> None:
    parts, ahead = staged_one(store, "slow", b"a"), faulty(tmp_path)
    staged_one(store, "crashed", b"x")
    later(ahead, 3)  # the collector's clock is wrong, so for the writer the data is new
    collecting = on(ahead)
    backend = collecting._engine._backend  # type: ignore[attr-defined]
    before(backend, "create", lambda: _committed(store, "slow", parts))
    assert collecting.collect_garbage()[0] == 1
    assert (values(store), errors(on(ahead))) == ([b"a"], [])
    late = staged_one(store, "late", b"b")
    with pytest.raises(InvalidCommitError, match="uploaded before"):
        store.commit("late", late)


@pytest.mark.row(45)
def test_a_collector_whose_clock_is_a_year_ahead_stops_writers_for_an_hour_at_most(
    store: Store, vfs: FaultyVfs, tmp_path: Path
) -> None:
    ahead = faulty(tmp_path)
    staged_one(store, "crashed", b"x")
    later(ahead, 365)
    assert on(ahead).collect_garbage()[0] == 1
    later(vfs, 1 / 24)
    store.commit("next", staged_one(store, "next", b"a"))
    assert (values(on(vfs)), errors(on(vfs))) == ([b"a"], [])


@pytest.mark.row(45)
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_topic_that_is_made_while_garbage_is_collected_keeps_its_data(
    store: Store, tmp_path: Path, nth: int
) -> None:
    """Also where the collector's clock is so wrong that all data is old."""
    ahead, made = faulty(tmp_path), list[int]()
    staged_one(store, "crashed", b"x")
    later(ahead, 3)
    collecting = on(ahead)
    backend = collecting._engine._backend  # type: ignore[attr-defined]

    def make() -> None:
        store.create_topic("new", 1)
        stage = store.stage("new")
        stage.write("new", 0, columns_of([b"a"]))
        store.commit("new", stage.finish())
        made.append(nth)

    before(backend, "list_after", make, nth)
    collecting.collect_garbage()
    if not made:
        make()
    assert (values(store, topic="new"), errors(store)) == ([b"a"], [])


@pytest.mark.row(45)
def test_a_collector_that_slept_deletes_no_inline_records(
    store: Store, vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 3)
    for each in range(4):
        store.append(TOPIC, 0, [b"%d" % each])
    log = on(vfs)._engine._catalog.get(TOPIC)[0]  # type: ignore[attr-defined]

    def sleep() -> None:
        for each in range(4, 9):
            store.append(TOPIC, 0, [b"%d" % each])
        later(vfs, 3)

    before(log.backend, "list_after", sleep)
    collect_log(log, DAY_US, dry_run=False)
    assert values(on(vfs)) == [b"%d" % each for each in range(9)]


def test_an_abort_deletes_nothing_that_is_committed(store: Store, vfs: FaultyVfs) -> None:
    """A job may be aborted after its commit, and may have any name."""
    store.commit("done", staged_one(store, "done", b"a"))
    store.append(TOPIC, 0, [bytes(Random(1).randbytes(2 << 20))])
    left = staged_one(store, "done", b"never")
    for job in ("done", "append", "rewrite"):
        on(vfs).abort(job)
    assert (len(values(on(vfs))), errors(on(vfs))) == (2, [])
    with pytest.raises(FileNotFoundError):
        log_of(store).backend.get_ranges(left[0].path)


@pytest.mark.row(46)
def test_an_abort_in_another_process_keeps_what_may_still_be_committed(
    store: Store, vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, elsewhere = staged_one(store, "job", b"a"), on(vfs)
    backend = log_of(store).backend
    true, requests = backend.create, list[Any]()

    def delayed(*request: Any) -> None:
        requests.append(request)
        raise PermissionError(13, "the connection is gone")

    monkeypatch.setattr(backend, "create", delayed)
    with pytest.raises(StorageError):
        store.commit("job", parts)
    monkeypatch.setattr(commits, "_undecided", set())  # another process has a set of its own
    elsewhere.abort("job", tried=True)
    true(*requests[0])  # the request arrives after all
    assert (values(on(vfs)), errors(on(vfs))) == ([b"a"], [])
    staged_one(elsewhere, "never", b"x")
    elsewhere.abort("never")
    assert not [name for name in vfs.listdir("data") if "never" in vfs.listdir(f"data/{name}")]


@pytest.mark.row(44)
def test_a_create_that_is_denied_after_a_lost_reply_is_not_called_failed(store: Store) -> None:
    backend, answers = log_of(store).backend, [TimeoutError("no reply"), PermissionError(13, "no")]

    def create(*_: Any) -> None:
        raise answers.pop(0)

    backend.create = create  # type: ignore[method-assign, assignment]
    with pytest.raises(CommitUnknownError):
        store.append(TOPIC, 0, [b"a"])


@pytest.mark.row(45)
def test_a_deleted_log_is_collected_although_the_collector_crashes(
    store: Store, vfs: FaultyVfs
) -> None:
    store.append(TOPIC, 0, [b"a"])
    sleeper = on(vfs)
    slept = log_of(sleeper)
    slept.refresh()
    store.delete_topic(TOPIC)
    later(vfs, 3)
    vfs.faults.append(Fault("unlink", errno.EIO, nth=2, path="logs/"))
    with pytest.raises(StorageError):
        store.collect_garbage()
    vfs.faults.clear()
    assert on(vfs).collect_garbage()[0] > 0
    assert on(vfs).collect_garbage() == (0, 0)
    # A writer that slept meanwhile must not believe that its record is in the log.
    slept._seen = slept._now()
    with pytest.raises(StorageError):
        sleeper.append(TOPIC, 0, [b"late"])
    assert on(vfs).collect_garbage()[0] <= 1
    with pytest.raises(TopicNotFoundError):
        on(vfs).read(TOPIC, 0)
    on(vfs).create_topic(TOPIC, 1)
    assert values(on(vfs)) == []


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("at", ["replace_if", "get_ranges"])
def test_two_collectors_at_once_need_no_second_try(
    store: Store, vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch, deleted: bool, at: str
) -> None:
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 3)
    store.create_topic("other", 1)
    for each in range(8):
        stage = store.stage(f"job{each}")
        stage.write(TOPIC, 0, columns_of([b"%d" % each]))
        store.commit(f"job{each}", stage.finish())
    if deleted:
        store.delete_topic(TOPIC)
    staged_elsewhere = store.stage("crashed")
    staged_elsewhere.write("other", 0, columns_of([b"x"]))
    staged_elsewhere.finish()
    later(vfs, 3)
    for nth in range(1, 2 if at == "replace_if" else 16):
        first = on(vfs)
        backend = first._engine._backend  # type: ignore[attr-defined]
        before(backend, at, lambda: on(vfs).collect_garbage() and None, nth)
        first.collect_garbage()
    assert on(vfs).collect_garbage() == (0, 0)
    assert values(on(vfs), topic="other") == []
    assert errors(on(vfs)) == []
    if not deleted:
        assert values(on(vfs)) == [b"%d" % each for each in range(8)]


@pytest.mark.row(45)
def test_a_topic_whose_deletion_was_cut_off_is_gone_for_everybody(
    store: Store, vfs: FaultyVfs
) -> None:
    """The process dies after the commit that deletes the topic, before listings know it."""
    store.create_topic("other", 1)
    store.commit("done", staged_one(store, "done", b"a"))
    vfs.faults.append(Fault("rename", errno.EIO, nth=1, path=".deleted"))
    with pytest.raises(StorageError):
        store.delete_topic(TOPIC)
    vfs.faults.clear()
    assert on(vfs).topics() == ["other"]
    assert not [entry for entry in on(vfs).ledger() if entry.topic == TOPIC]
    assert errors(on(vfs)) == []
    staged_elsewhere = on(vfs).stage("never")
    staged_elsewhere.write("other", 0, columns_of([b"x"]))
    staged_elsewhere.finish()
    on(vfs).abort("never")
    assert not [name for name in vfs.listdir("data") if "never" in vfs.listdir(f"data/{name}")]
    on(vfs).create_topic(TOPIC, 2)
    assert on(vfs).topics() == ["other", TOPIC]


def test_a_deletion_that_was_begun_and_did_not_happen_deletes_nothing(
    store: Store, vfs: FaultyVfs
) -> None:
    store.append(TOPIC, 0, [b"a"])
    vfs.faults.append(Fault("link", errno.EACCES, nth=1, path=".commit"))
    with pytest.raises(StorageError):
        store.delete_topic(TOPIC)
    vfs.faults.clear()
    assert on(vfs).topics() == [TOPIC]
    assert values(on(vfs)) == [b"a"]
    on(vfs).delete_topic(TOPIC)
    assert on(vfs).topics() == []


def test_a_topic_that_is_created_while_another_thread_deletes_its_forerunner_stays(
    store: Store, vfs: FaultyVfs
) -> None:
    catalog = store._engine._catalog  # type: ignore[attr-defined]
    log = log_of(store)
    true = log.commit

    def commit(build: Any) -> Any:
        done = true(build)
        catalog._known.pop(TOPIC, None)
        catalog._kept.pop(TOPIC, None)
        store.create_topic(TOPIC, 2)
        return done

    log.commit = commit  # type: ignore[method-assign]
    store.delete_topic(TOPIC)
    assert store.topics() == on(vfs).topics() == [TOPIC]
    assert len(store.visible_ends(TOPIC)) == 2


@pytest.mark.parametrize("again", [False, True])
def test_a_read_of_a_topic_that_is_deleted_meanwhile_is_data_loss(
    store: Store, vfs: FaultyVfs, again: bool
) -> None:
    """No end of the log, and no damage, which an operator would try to repair."""
    for each in range(3):
        store.append(TOPIC, 0, [b"%d" % each * 1000] * 2000)
    batches = store.read(TOPIC, 0)
    assert 0 < next(batches).num_rows <= 2000
    on(vfs).delete_topic(TOPIC)
    if again:
        on(vfs).create_topic(TOPIC, 1)
        on(vfs).append(TOPIC, 0, [b"new"] * 9000)
        assert store.visible_ends(TOPIC) == (9000,)
    else:
        with pytest.raises(TopicNotFoundError):
            store.visible_ends(TOPIC)
    with pytest.raises(DataLossError, match="offset 2000"):
        list(batches)


def many(first: int, count: int) -> list[bytes]:
    random = Random(first)
    return [b"%05d" % each + random.randbytes(2000) for each in range(first, first + count)]


def test_a_task_reads_what_was_merged_and_collected_since_its_plan(
    store: Store, vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, and in the middle of an object: no record is missing, none comes twice."""
    monkeypatch.setattr(object_source, "_FIRST_BYTES", 1000)
    monkeypatch.setattr(object_source, "_LARGEST_BYTES", 1000)
    wanted = list[bytes]()
    for number in range(3):
        stage = store.stage(f"job-{number}")
        for _ in range(20 if not number else 1):
            found = many(len(wanted), 300)
            stage.write(TOPIC, 0, columns_of(found))
            wanted += found
            stage.get_handler(TOPIC, 0).flush()
        store.commit(f"job-{number}", stage.finish())
    plan = [(segment, segment.base, segment.end) for segment in store.segments(TOPIC, 0)]
    running, losses, (segment, start, end) = on(vfs), list[DataLossError](), plan[0]
    reader = running._engine.reader(TOPIC, 0)
    batches = reader.read_slice(segment, start, end, running.selection(TOPIC, 0))
    seen = list(next(batches)["value"].to_pylist())
    assert 0 < len(seen) < end == 6000, len(seen)
    assert store.merge(TOPIC)[0].segments_before == 3
    later(vfs, 3)
    assert on(vfs).collect_garbage()[0] >= 3
    seen += [value for batch in batches for value in batch["value"].to_pylist()]
    assert seen == wanted[:end]
    late = on(vfs).read_slices(TOPIC, 0, plan, on_loss=losses.append)
    assert [value for batch in late for value in batch["value"].to_pylist()] == wanted
    assert losses == []


def test_a_task_reads_rows_that_were_merged_with_newer_columns_since_its_plan(
    store: Store, vfs: FaultyVfs
) -> None:
    """The plan of a task knows the columns of its time only."""
    store.create_topic("rows", schema=pa.schema([("id", pa.int64())]))
    numbers = list(range(200_000))
    store.append_table("rows", pa.table({"id": numbers}))
    plan = [(segment, segment.base, segment.end) for segment in store.segments("rows", 0)]
    pin = store.pinned("rows")
    assert pin is not None
    store.alter_topic("rows", add_columns=pa.schema([("late", pa.string())]))
    store.append_table("rows", pa.table({"id": [-1], "late": ["x"]}))
    assert store.merge("rows")[0].segments_before == 2
    store.append_table("rows", pa.table({"id": [4]}))
    vfs.unlink(plan[0][0].path.partition("@")[0])  # as a collector does later
    task = on(vfs)
    reads = task._engine.remote
    assert reads is not None
    reads.pin("rows", pin)
    found = [
        value
        for batch in task.read_slices("rows", 0, plan, columns=["id"])
        for value in batch["id"].to_pylist()
    ]
    assert found == numbers
