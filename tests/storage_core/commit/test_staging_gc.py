"""What write jobs left behind goes when it is old, and nothing else goes with it."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from storage_core import StagedPart, Store, StoreConfig
from storage_core.commit.staging_gc import StagingGc
from storage_core.engine.native import NativeEngine
from storage_core.errors import InvalidCommitError
from tests.support.faulty_vfs import CrashError, FaultyVfs, faulty
from tests.support.stores import TOPIC, columns_of, errors, on, values

TTL_MS = StoreConfig().staging_ttl_ms
OLD_S = TTL_MS / 1000 + 60
LAYOUTS = ["native", "cursus", "cursus-broker", "rustlog"]
LARGE = [b"%d" % n + b"x" * 1400 for n in range(5)]


def new(path: Path, layout: str = "native") -> Store:
    store = Store.open(path, layout=layout, create=True)
    small: dict[str, Any] = {"segment_bytes": 4096, "frame_bytes": 1024, "compression": "none"}
    for topic in (TOPIC, "u"):
        store.create_topic(topic, 1, **(small if layout == "native" else {}))
    return store


def stage(store: Store, job: str, *records: bytes, topic: str = TOPIC) -> Sequence[StagedPart]:
    made = store.stage(job)
    made.write(topic, 0, columns_of(list(records) or [job.encode()]))
    return made.finish()


def folder(path: Path, layout: str, name: str) -> Path:
    if layout == "native":
        return path / {"staging": "staging"}.get(name, f"meta/{name}")
    return path / ".cursus-spark" / name


def jobs(path: Path, layout: str = "native") -> set[str]:
    return {entry.name for entry in folder(path, layout, "staging").iterdir()}


def gc_of(store: Store) -> StagingGc:
    assert isinstance(store._engine, NativeEngine)
    return store._engine.staging_gc


def apps(store: Store) -> set[str]:
    return {entry.app for entry in store._engine.ledger()}


def later(path: Path) -> FaultyVfs:
    """Another process, when the time to live of all that is there now has passed."""
    vfs = faulty(path)
    vfs.clock_us = vfs.now_us() + int(OLD_S * 1e6)
    return vfs


def make_old(*paths: Path) -> None:
    for path in paths:
        for entry in (*path.glob("**/*"), path):
            at = entry.stat().st_mtime - OLD_S
            os.utime(entry, (at, at))


def die_before(vfs: FaultyVfs, kind: str, part_of_path: str) -> None:
    """End the process before its first call of this kind."""

    def hook(called: str, path: str) -> None:
        if called == kind and part_of_path in path:
            raise CrashError(f"before {called} {path}")

    vfs.hook = hook


@pytest.mark.row(8, 38)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_old_staging_and_old_plain_entries_go(tmp_path: Path, layout: str) -> None:
    store = new(tmp_path, layout)
    stage(store, "orphan")
    stage(store, "orphan-of-many")
    stage(store, "orphan-of-many")
    store.commit("plain", stage(store, "plain"))
    store.commit("named-1", stage(store, "named-1"), app="application", version=1)
    stage(store, "plain", b"a zombie of a job that is done")
    make_old(folder(tmp_path, layout, "staging"), folder(tmp_path, layout, "ledger"))
    stage(store, "fresh")
    store.commit("fresh-plain", stage(store, "fresh-plain"))
    committed = values(store)

    vfs = faulty(tmp_path)
    other = Store(vfs, StoreConfig(), layout)
    other.commit("next", stage(other, "next", topic="u"))
    assert jobs(tmp_path, layout) == {"fresh"}
    assert apps(other) == {"application", "fresh-plain", "next"}
    assert values(other) == committed
    again = other.commit("named-2", stage(other, "named-2"), app="application", version=1)
    assert again.skipped
    assert errors(other) == []


@pytest.mark.row(38)
def test_a_task_that_still_writes_keeps_the_staging_of_its_whole_job(tmp_path: Path) -> None:
    store = new(tmp_path)
    parts = [*stage(store, "job", b"one task"), *stage(store, "job", b"another")]
    make_old(tmp_path / "staging" / "job")
    # Bytes that are added to a file move its own time, not that of its folder.
    os.utime(tmp_path / parts[0].path)
    other = on(faulty(tmp_path))
    other.commit("next", stage(other, "next", topic="u"))
    store.commit("job", parts)
    assert values(store) == [b"one task", b"another"]


@pytest.mark.row(8, 38)
@pytest.mark.parametrize("records", [[b"small"], LARGE], ids=["copied", "linked"])
def test_staging_that_a_decided_commit_needs_stays_however_old(
    tmp_path: Path, records: list[bytes]
) -> None:
    new(tmp_path).close()
    vfs = faulty(tmp_path)
    dying = on(vfs)
    parts = stage(dying, "decided", *records)
    # After the commit point, before anything of it is in the log.
    die_before(vfs, "pwritev" if len(records) == 1 else "link", "segments")
    with pytest.raises(CrashError):
        dying.commit("decided", parts)
    assert len(list((tmp_path / "meta" / "intents").iterdir())) == 1

    other = on(later(tmp_path))
    other.commit("next", stage(other, "next", topic="u"))
    assert jobs(tmp_path) == {"decided"}
    assert values(other) == []
    other.append(TOPIC, 0, [b"behind"])
    assert values(other) == [*records, b"behind"]
    assert jobs(tmp_path) == set()
    assert errors(other) == []


def test_a_job_that_is_being_committed_or_aborted_just_now_is_left_alone(tmp_path: Path) -> None:
    store = new(tmp_path)
    stage(store, "busy")
    stage(store, "orphan")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        assert isinstance(store._engine, NativeEngine)
        with store._engine.commits.ledger.lock_names(["busy"], 1000):
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        other = on(later(tmp_path))
        gc_of(other).sweep_if_due()
    finally:
        done.set()
        thread.join()
    assert jobs(tmp_path) == {"busy"}


def test_a_commit_does_not_sweep_what_it_commits(tmp_path: Path) -> None:
    store = new(tmp_path)
    parts = stage(store, "slow")
    other = on(later(tmp_path))
    other.commit("slow", parts)
    assert values(other) == [b"slow"]
    assert jobs(tmp_path) == set()


def test_a_job_whose_staging_was_swept_commits_nothing(tmp_path: Path) -> None:
    store = new(tmp_path)
    parts = stage(store, "slow")
    other = on(later(tmp_path))
    other.commit("next", stage(other, "next", topic="u"))
    with pytest.raises(InvalidCommitError, match="slow"):
        store.commit("slow", parts)
    assert values(store) == []


def test_old_halves_of_intents_go_and_whole_ones_and_fresh_halves_stay(tmp_path: Path) -> None:
    store = new(tmp_path)
    store.commit("first", stage(store, "first"))
    intents = tmp_path / "meta" / "intents"
    for name in ("old.json.tmp", "fresh.json.tmp"):
        (intents / name).write_bytes(b"half")
    make_old(intents / "old.json.tmp")
    other = on(faulty(tmp_path))
    other.commit("next", stage(other, "next"))
    assert {entry.name for entry in intents.iterdir()} == {"fresh.json.tmp"}


def test_a_sweep_is_made_once_an_hour(tmp_path: Path) -> None:
    vfs = later(tmp_path)
    new(tmp_path).close()
    store = on(vfs)
    store.commit("first", stage(store, "first"))
    stage(store, "orphan")
    store.commit("second", stage(store, "second"))
    assert jobs(tmp_path) == {"orphan"}
    gc_of(store)._swept = -3601
    store.commit("third", stage(store, "third"))
    assert jobs(tmp_path) == set()


@pytest.mark.row(8, 38)
@pytest.mark.parametrize(
    ("kind", "part_of_path", "nth"),
    [
        ("listdir", "staging", 1),
        ("stat", "staging/orphan", 1),
        ("listdir", "staging/orphan", 1),
        ("unlink", "staging/orphan", 1),
        ("rmdir", "staging/orphan", 1),
        ("listdir", "meta/intents", 3),  # the commit itself looks twice before
        ("stat", ".json.tmp", 1),
        ("unlink", ".json.tmp", 1),
        ("unlink", "meta/ledger", 1),
    ],
)
def test_a_sweep_that_fails_fails_no_commit(
    tmp_path: Path, kind: str, part_of_path: str, nth: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = new(tmp_path)
    stage(store, "orphan")
    store.commit("plain", stage(store, "plain"))
    (tmp_path / "meta" / "intents" / "half.json.tmp").write_bytes(b"half")
    vfs = later(tmp_path)
    other = on(vfs)
    parts = stage(other, "next")
    fault = vfs.fail(kind, errno.EIO, path=part_of_path, nth=nth)
    with caplog.at_level(logging.WARNING, "storage_core"):
        result = other.commit("next", parts)
    assert fault.seen >= nth
    assert re.search("staging was not removed|is removed later", caplog.text)
    assert not result.skipped
    assert values(other) == [b"plain", b"next"]
    assert errors(other) == []
    # The next one does what this one could not.
    last = on(later(tmp_path))
    gc_of(last).sweep_if_due()
    assert jobs(tmp_path) == set()
    assert apps(last) <= {"next"}


@pytest.mark.row(38)
def test_a_damaged_ledger_entry_stops_the_sweep_and_is_kept(tmp_path: Path) -> None:
    store = new(tmp_path)
    store.commit("plain", stage(store, "plain"))
    (entry,) = (tmp_path / "meta" / "ledger").glob("*.json")
    entry.write_bytes(b"rot")
    other = on(later(tmp_path))
    gc_of(other).sweep_if_due()
    assert entry.read_bytes() == b"rot"
