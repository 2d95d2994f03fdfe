"""Appends and commits of a store of objects: whole, once, and no message is trusted."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from storage_core.errors import (
    ConfigError,
    InvalidCommitError,
    StorageError,
)
from storage_core.objects import commits as object_commits
from storage_core.objects import staging
from storage_core.objects.staging import StagedSlice
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.objects.object_stores import make, on, staged
from tests.support.stores import TOPIC, columns_of, errors, values


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


def test_a_task_of_large_segments_keeps_little_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has to fit into the memory of an executor, whatever the segments of a topic hold."""
    monkeypatch.setattr(staging, "MOST_BUFFERED_BYTES", 50_000)
    store = make(tmp_path, segment_bytes=1 << 30)
    stage, given = store.stage("job"), [b"%d" % each + bytes(20_000) for each in range(10)]
    for value in given:
        stage.write(TOPIC, 0, columns_of([value]))
        stage.get_handler(TOPIC, 0).flush()  # else they wait until they fill a frame
    store.commit("job", list(stage.finish()))
    sizes = [path.stat().st_size for path in (tmp_path / "data").rglob("*.frames")]
    assert len(sizes) > 2
    assert max(sizes) < 150_000
    assert values(store) == given


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError(5, "no"), ConfigError("no library"), MemoryError()])
def test_a_task_whose_upload_failed_names_no_part_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, failing: int, error: Exception
) -> None:
    """A caller that goes on after the error must not commit an object that is nowhere."""
    monkeypatch.setattr(staging, "MOST_BUFFERED_BYTES", 100_000)
    backend = store._engine._backend  # type: ignore[attr-defined]
    true, uploads = backend.put, itertools.count()

    def put(*request: Any) -> None:
        if next(uploads) == failing:
            raise error
        true(*request)

    monkeypatch.setattr(backend, "put", put)
    stage = store.stage("job")
    for size in (150_000, 150_000, 10):  # two uploads by a thread, and one by finish
        with suppress(StorageError, MemoryError):
            stage.write(TOPIC, 0, columns_of([b"x" * size]))
            stage.get_handler(TOPIC, 0).flush()
    for _ in range(2):
        with pytest.raises((StorageError, MemoryError)):
            stage.finish()


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
