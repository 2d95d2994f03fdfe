"""``check`` next to writers, on listings that are wrong, and of intents, ledger and groups."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from storage_core import Problem, Store, StoreConfig
from storage_core.errors import DamagedMetadataError
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import TOPIC, columns_of, make_store, on, reopen, segment, values

LAYOUTS = ["native", "cursus", "cursus-broker", "rustlog"]


@pytest.mark.timeout(60)
def test_a_file_that_is_listed_but_never_there_is_reported(tmp_path: Path) -> None:
    with make_store(tmp_path, segment_bytes=4096) as store:
        for _ in range(3):
            store.append(TOPIC, 0, [b"x" * 3000])
    vfs = faulty(tmp_path)
    vfs.fail("open:read", errno.ENOENT, times=1 << 60, path=segment(tmp_path, 1).name)
    [problem] = on(vfs).check()
    assert (problem.severity, problem.code) == ("error", "LOG_DAMAGED")
    assert problem.path == str(segment(Path(), 1))


@pytest.mark.parametrize("layout", ["native", "objects"])
def test_a_topic_whose_name_is_lost_is_missed(tmp_path: Path, layout: str) -> None:
    """As after a restore that left a file out: no list of topics shows it."""
    with Store.open(tmp_path, layout=layout, create=True) as store:
        for topic in ("lost", "kept", "empty"):
            store.create_topic(topic, 2)
        for topic in ("lost", "kept"):
            store.append(topic, 1, [b"x"])
        store.create_topic("deleted")
        store.append("deleted", 0, [b"x"])
        store.delete_topic("deleted")
        assert store.check() == []
    (entry,) = (tmp_path / "topics" / "lost").glob("*.json")
    entry.unlink()
    with Store.open(tmp_path) as store:
        assert store.topics() == ["empty", "kept"]
        [problem] = store.check()
    assert (problem.severity, problem.code) == ("error", "METADATA_DAMAGED")
    assert "nobody sees" in problem.message


@pytest.mark.parametrize("layout", ["native", "objects"])
@pytest.mark.parametrize("change", ["create", "delete"])
def test_a_topic_that_comes_or_goes_meanwhile_is_not_missed(
    tmp_path: Path, layout: str, change: str
) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as other:
        other.create_topic("early")
        other.append("early", 0, [b"x"])
        for nth in range(1, 50, 3):
            vfs, calls, name = faulty(tmp_path), 0, f"t{nth}"
            if change == "delete":
                other.create_topic(name)
                other.append(name, 0, [b"x"])

            def act(*_: object, nth: int = nth, name: str = name) -> None:
                nonlocal calls
                calls += 1
                if calls == nth and change == "create":
                    other.create_topic(name)
                    other.append(name, 0, [b"x"])
                elif calls == nth:
                    other.delete_topic(name)

            vfs.hook = act
            with Store(vfs, StoreConfig(), layout) as store:
                codes = [problem.code for problem in store.check()]
            assert "METADATA_DAMAGED" not in codes, nth
            if calls < nth:
                break
            if name in other.topics():
                other.delete_topic(name)


def test_a_lost_first_segment_is_missed_and_a_deleted_one_is_not(tmp_path: Path) -> None:
    """Both leave a log that begins later. A deletion takes the indexes first."""
    with make_store(tmp_path, segment_bytes=4096) as store:
        for _ in range(6):
            store.append(TOPIC, 0, [b"x" * 3000])
    with reopen(tmp_path) as store:
        store.delete_records(TOPIC, {0: 2})
        assert store.check() == []
    lost = segment(tmp_path, 2)
    lost.unlink()
    with reopen(tmp_path) as store:
        assert store.start_offset(TOPIC, 0) == 3
        [problem] = store.check()
        assert (problem.severity, problem.code) == ("error", "LOG_DAMAGED")
        assert problem.path == str(segment(Path(), 2))
        for suffix in (".idx", ".timeidx"):
            lost.with_suffix(suffix).unlink()
        assert store.check() == []


def test_merges_beside_a_check_do_not_make_it_begin_again(tmp_path: Path) -> None:
    store = make_store(tmp_path, segment_bytes=8192)
    for _ in range(10):
        store.append(TOPIC, 0, [b"x" * 7000])
    writer, vfs = reopen(tmp_path), faulty(tmp_path)
    looks = rounds = 0

    def small_segments() -> None:
        for _ in range(4):
            writer.append(TOPIC, 0, [b"y"])
            writer.roll(TOPIC, 0)

    def merge_meanwhile(kind: str, path: str) -> None:
        nonlocal looks, rounds
        looks += (kind, path) == ("listdir", str(segment(Path()).parent))
        if kind == "stat" and path.endswith(segment(tmp_path, 7).name) and rounds < 25:
            rounds += 1
            small_segments()
            writer.merge(TOPIC)

    small_segments()
    vfs.hook = merge_meanwhile
    assert on(vfs).check() == []
    assert 0 < rounds < 25
    assert looks <= 3


def store_with_state(path: Path, layout: str) -> Store:
    """A store with an entry in the ledger and a consumer group."""
    store = Store.open(path, layout=layout, create=True)
    store.create_topic(TOPIC, 1)
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of([b"v"]))
    store.commit("job", stage.finish(), app="app", version=1)
    store.commit_offsets("readers", {TOPIC: {0: 1}})
    return store


def state_file(path: Path, layout: str, kind: str) -> Path:
    directory = path / ("meta" if layout == "native" else ".cursus-spark") / kind
    directory.mkdir(exist_ok=True)
    return next(directory.glob("*.json"), directory / "deadbeef.json")


def found(store: Store) -> list[tuple[str, str, str | None]]:
    return [(problem.severity, problem.code, problem.path) for problem in store.check()]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["intents", "ledger", "consumer-offsets"])
@pytest.mark.parametrize("damage", [b"{", b"{}\n", b""])
def test_damaged_state_is_found(tmp_path: Path, layout: str, kind: str, damage: bytes) -> None:
    store = store_with_state(tmp_path, layout)
    assert found(store) == []
    file = state_file(tmp_path, layout, kind)
    file.write_bytes(damage)
    where = str(file.relative_to(tmp_path))
    assert found(Store.open(tmp_path, layout=layout)) == [("error", "METADATA_DAMAGED", where)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_keeps_writers_out_is_what_check_says(tmp_path: Path, layout: str) -> None:
    store_with_state(tmp_path, layout).close()
    state_file(tmp_path, layout, "intents").write_text("{")
    store = Store.open(tmp_path, layout=layout)
    (problem,) = store.check()
    with pytest.raises(DamagedMetadataError) as caught:
        store.append(TOPIC, 0, [b"w"])
    assert (str(caught.value), caught.value.path) == (problem.message, problem.path)


def test_a_commit_that_nobody_finishes_is_a_warning_until_a_writer_does(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    committer = on(vfs)
    stage = committer.stage("job")
    stage.write(TOPIC, 0, columns_of([b"v"]))
    parts = stage.finish()

    def die(kind: str, path: str) -> None:
        if kind == "pwritev" and "/segments/" in path:
            raise CrashError("after the commit point")

    vfs.hook = die
    with pytest.raises(CrashError):
        committer.commit("job", parts)
    store = Store.open(tmp_path)
    assert unfinished(store.check()) == []  # it may be at it
    (intent,) = (tmp_path / "meta/intents").glob("*.json")
    long_ago = time.time() - 3600
    os.utime(intent, (long_ago, long_ago))
    (problem,) = unfinished(store.check())
    assert (problem.severity, problem.code) == ("warning", "RECOVERY_NEEDED")
    store.repair()
    assert (store.check(), values(store)) == ([], [b"v"])


def unfinished(problems: list[Problem]) -> list[Problem]:
    return [problem for problem in problems if "commit is pending" in problem.message]
