"""Sweeps that run by themselves after commits: bounded, and as careful as ``cursus gc``."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import InvalidCommitError
from storage_core.objects import collector, commit_log
from storage_core.objects.collector import Collector
from storage_core.objects.vfs_backend import TEMPORARY, VfsBackend
from tests.support.counting import count_calls
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.objects.object_stores import later, on, staged_one
from tests.support.stores import TOPIC, errors, values


@pytest.fixture
def store(vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 5)
    monkeypatch.setattr(collector, "CHECKPOINT_INTERVAL", 5)
    with on(vfs) as found:
        found.create_topic(TOPIC, 1)
        yield found


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts every call of the seam."""
    names = ("create", "put", "get_ranges", "list_after", "delete", "replace_if")
    return count_calls(monkeypatch, VfsBackend, names)


def data(vfs: FaultyVfs) -> set[str]:
    root = Path(vfs.root)
    return {str(path.relative_to(root)) for path in root.glob("data/**/*.frames")}


def sweeper(store: Store) -> Collector:
    found: Collector = store._engine._collector  # type: ignore[attr-defined]
    return found


def test_commits_sweep_what_crashed_jobs_left(store: Store, vfs: FaultyVfs) -> None:
    (orphan,) = staged_one(store, "crashed", b"never")
    store.commit("job", staged_one(store, "job", b"a"))
    later(vfs, 3)
    (recent,) = staged_one(store, "running", b"later")
    for number in range(10):
        store.append(TOPIC, 0, [b"%d" % number])
    assert orphan.path not in data(vfs)
    assert recent.path in data(vfs)
    assert values(store) == [b"a", *(b"%d" % number for number in range(10))]
    commits = sorted(Path(vfs.root).glob("logs/*/*.commit"))
    later(vfs, 3)
    store.delete_records(TOPIC, {0: 11})
    for number in range(30):
        store.append(TOPIC, 0, [b"more%d" % number])
    assert sum(path.exists() for path in commits) < len(commits), "their records were deleted"
    assert values(on(vfs)) == [b"more%d" % n for n in range(30)]
    assert errors(store) == []


def test_commits_sweep_the_temporary_files_of_crashed_writers(store: Store, vfs: FaultyVfs) -> None:
    store.append(TOPIC, 0, [b"a"])
    left, recent = Path(vfs.root, TEMPORARY, "left"), Path(vfs.root, TEMPORARY, "young")
    for path in (left, recent):
        path.write_bytes(b"half")
    two_hours_ago = time.time() - 2 * 3600
    os.utime(left, (two_hours_ago, two_hours_ago))
    for number in range(10):
        store.append(TOPIC, 0, [b"%d" % number])
    assert not left.exists()
    assert recent.exists()


def test_a_sweep_is_rare_and_its_requests_are_bounded(
    store: Store, vfs: FaultyVfs, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_SWEPT", 8)
    for number in range(20):
        staged_one(store, f"crashed{number}", b"never")
    later(vfs, 3)
    left = [20]
    while left[-1]:
        requests.clear()
        assert sweeper(store).sweep_if_due().keys or not left[-1]
        assert sum(requests.values()) <= 32, requests
        requests.clear()
        sweeper(store).sweep_if_due()
        assert requests == {"get_ranges": 1}, "the hint says that it is too early"
        left.append(len(data(vfs)))
        later(vfs, 0.1)
    assert left == [20, 12, 4, 0]


def test_a_sweep_that_would_cost_too_much_is_left_to_gc(
    store: Store, vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged_one(store, "crashed", b"never")
    later(vfs, 3)
    monkeypatch.setattr(collector, "_SWEPT_TOPICS", 0)
    assert not sweeper(store).sweep_if_due().keys
    for number in range(6):
        store.append(TOPIC, 0, [b"%d" % number])
    assert len(data(vfs)) == 1
    assert store.collect_garbage()[0] >= 1
    assert not data(vfs)


def test_what_other_programs_left_among_the_data_stays(store: Store, vfs: FaultyVfs) -> None:
    (orphan,) = staged_one(store, "crashed", b"never")
    job = Path(vfs.root, orphan.path).parent
    hour = job.parent if job.parent.name != "data" else job
    theirs = [
        job / "notes.txt",
        hour / "_$folder$",
        hour / ".DS_Store",
        hour / "a" / "b" / "c.frames",
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs")
    later(vfs, 3)
    assert sweeper(store).sweep_if_due().keys == (orphan.path,)
    assert store.collect_garbage()[0] == 0
    assert [path.read_bytes() for path in theirs] == [b"theirs"] * 4


def test_what_other_programs_left_among_the_logs_is_no_log(store: Store, vfs: FaultyVfs) -> None:
    store.commit("job", staged_one(store, "job", b"a"))
    (log,) = Path(vfs.root, "logs").iterdir()
    theirs = [
        log.parent / ".DS_Store",
        log.parent / "_$folder$",
        log.parent / "notes" / "x.txt",
        log.parent / "a b" / "x.txt",
        log / ".DS_Store",
    ]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"theirs")
    for sweep in (sweeper(store).sweep_if_due, lambda: sweeper(store).collect(dry_run=False)):
        (orphan,) = staged_one(store, "crashed", b"never")
        later(vfs, 3)
        assert orphan.path in sweep().keys
    assert (values(store), errors(store)) == ([b"a"], [])
    assert [path.read_bytes() for path in theirs] == [b"theirs"] * 5
    assert {path.name for path in log.parent.iterdir()} == {log.name, *(
        path.relative_to(log.parent).parts[0] for path in theirs[:4]
    )}  # fmt: skip
    assert len(list((log.parent / "notes").iterdir())) == 1


@pytest.mark.row(45)
def test_a_sweep_fences_what_it_deletes(store: Store, vfs: FaultyVfs) -> None:
    """A commit that comes between the look and the deletion keeps its data, or is refused."""
    ahead = faulty(Path(vfs.root))
    later(ahead, 3)  # the sweeper's clock is wrong, so for the writer the data is new
    sweeping = Store(ahead, StoreConfig(), "objects")
    parts = staged_one(store, "slow", b"a")
    staged_one(store, "crashed", b"x")
    backend = sweeper(sweeping)._backend
    create, met = backend.create, list[str]()

    def late(key: str, *rest: Any) -> None:
        if not met:
            met.append(key)
            store.commit("slow", parts)
        create(key, *rest)

    backend.create = late  # type: ignore[method-assign, assignment]
    assert len(sweeper(sweeping).sweep_if_due().keys) == 1
    assert met
    assert (values(store), errors(Store(ahead, StoreConfig(), "objects"))) == ([b"a"], [])


def test_a_damaged_hint_begins_again(store: Store, vfs: FaultyVfs) -> None:
    staged_one(store, "crashed", b"never")
    later(vfs, 3)
    (Path(vfs.root) / "sweep").write_bytes(b"?")
    assert len(sweeper(store).sweep_if_due().keys) == 1


def test_a_topic_whose_name_is_lost_keeps_its_data(store: Store, vfs: FaultyVfs) -> None:
    store.create_topic("other", 1)
    store.commit("job", staged_one(store, "job", b"a"))
    staged_one(store, "crashed", b"never")
    later(vfs, 3)
    (name,) = Path(vfs.root).glob(f"topics/{TOPIC}/*.json")
    content = name.read_bytes()
    name.unlink()
    assert len(sweeper(on(vfs)).sweep_if_due().keys) == 1
    name.write_bytes(content)
    assert values(on(vfs)) == [b"a"]


@pytest.mark.row(45)
def test_a_clock_that_jumps_makes_no_job_happen_twice(store: Store, vfs: FaultyVfs) -> None:
    """Jobs leave the ledger only where the fence refuses their data."""
    parts = staged_one(store, "job", b"a")
    store.commit("job", parts)
    ahead = faulty(Path(vfs.root))
    later(ahead, 30)
    jumped = Store(ahead, StoreConfig(), "objects")
    for number in range(20):
        jumped.append(TOPIC, 0, [b"%d" % number])
    slow = faulty(Path(vfs.root))  # for which no time passes
    assert Store(slow, StoreConfig(), "objects").commit("job", parts).skipped
    later(vfs, 2)
    staged_one(store, "crashed", b"never")
    jumped.collect_garbage()
    for number in range(20, 40):
        jumped.append(TOPIC, 0, [b"%d" % number])
    again = Store(slow, StoreConfig(), "objects")
    assert not [entry for entry in again.ledger() if entry.app == "job"]
    with pytest.raises(InvalidCommitError, match="uploaded before"):
        again.commit("job", parts)
    assert values(jumped).count(b"a") == 1
