"""The commit log: its protocol against a model, and its rules one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from storage_core import Store
from storage_core.errors import CommitUnknownError, DamagedMetadataError, WriteFailedError
from storage_core.io import json_files
from storage_core.objects import commit_log
from storage_core.objects.commit_log import CommitLog, Draft
from storage_core.objects.garbage import collect_log
from storage_core.objects.reads.kept_logs import forget_all
from storage_core.objects.slices import Slice
from storage_core.objects.state import Commit, LogState, Transaction, state_fields
from tests.support.objects.objects_world import TOPIC, TTL_S, World, in_small, names, with_manifests
from tests.support.sizes import OBJECT_WORLDS

TROUBLE = {
    "others act": 0.05,
    "lost request": 0.03,
    "lost reply": 0.05,
    "delayed": 0.05,
    "delivery": 0.1,
    "overlap": 0.05,
    "repeated": 0.03,
    "read fails": 0.03,
    "stale list": 0.0,
    "hours pass": 0.3,
    "denied": 0.01,
    "clock jumps": 0.05,
    "collect": 0.2,
    "merge": 0.1,
    "trim": 0.05,
    "read": 0.3,
}
CALM: dict[str, float] = {}


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    in_small(monkeypatch)


def run(random: Random, steps: int, **changed: float) -> World:
    world = World(random, {**TROUBLE, **changed})
    world.play(steps)
    return world


def run_with_manifests(random: Random, steps: int, **changed: float) -> World:
    with pytest.MonkeyPatch.context() as patch:
        with_manifests(patch)
        return run(random, steps, **changed)


@settings(max_examples=OBJECT_WORLDS, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32),
    st.integers(1, 80),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.01, 0.05, 0.08]),
    st.sampled_from([0.0, 0.5]),
)
@pytest.mark.row(44, 45)
def test_no_trouble_breaks_the_log(
    seed: int, steps: int, stale: float, sleepy: float, whole: float
) -> None:
    changed = {"stale list": stale, "others act": sleepy, "whole listing": whole}
    run(Random(seed), steps, **changed)


@settings(max_examples=OBJECT_WORLDS // 10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2]), st.sampled_from([0.01, 0.05, 0.08]))
@pytest.mark.row(44, 45)
def test_no_trouble_breaks_manifests(seed: int, stale: float, sleepy: float) -> None:
    changed = {"stale list": stale, "others act": sleepy, "merge": 0.25, "trim": 0.03}
    run_with_manifests(Random(seed), 80, **changed)


@pytest.mark.slow
def test_the_model_moves_slices_into_manifests() -> None:
    worlds = [run_with_manifests(Random(seed), 90, merge=0.2) for seed in range(4)]
    assert sum(world.moves for world in worlds) > 9
    assert max(len(world.manifests) for world in worlds) > 2


@pytest.mark.slow
def test_the_model_meets_what_it_is_for() -> None:
    worlds = [run(Random(seed), 120) for seed in range(12)]
    assert sum(world.ghosts for world in worlds) > 0
    assert sum(world.unknown for world in worlds) > 0
    assert sum(world.fenced for world in worlds) > 0
    assert sum(world.merges for world in worlds) > 0
    assert sum(world.collected for world in worlds) > 0
    assert sum(world.swept for world in worlds) > 0
    assert sum(len(world.acknowledged) for world in worlds) > 300
    worlds = [run(Random(seed), 120, **{"stale list": 0.3}) for seed in range(4)]
    assert sum(world.stale_lists for world in worlds) > 0


def piece(name: str = "data/x", records: int = 1) -> Slice:
    return Slice(0, records, name, 0, 100, 0, 0, records, 0, 0, 0)


def adding(name: str, who: Transaction | None = None) -> Callable[[LogState], Draft | None]:
    def build(state: LogState) -> Draft | None:
        if who is not None and state.has_version(who.app, who.version, exact=True):
            return None
        topic = TOPIC if state.topic is None else None
        commit = Commit([(0, piece(name))], who, topic=topic, written_at="now")
        return Draft(commit, repeatable=who is not None)

    return build


def calm(writers: int = 2) -> World:
    return World(Random(1), CALM, writers)


def filled(world: World, commits: int) -> CommitLog:
    for number in range(commits):
        world.logs[0].commit(adding(f"data/{number}"))
    return world.logs[0]


def test_a_warm_poll_is_one_read_that_finds_nothing() -> None:
    world = calm()
    filled(world, 7)
    log = world.logs[1]
    log.refresh()
    calls: list[str] = []
    read = log.backend.get_ranges

    def counted(key: str, ranges: Any = None) -> object:
        calls.append(key)
        return read(key, ranges)

    log.backend.get_ranges = counted  # type: ignore[method-assign, assignment]
    log.refresh()
    assert calls == ["logs/log/00000000000000000007.commit"]


def test_the_state_of_a_cold_reader_is_that_of_the_writer() -> None:
    world = calm()
    who = Transaction("app", 7, plain=False)
    log = filled(world, 10)
    log.commit(adding("data/v", who))
    log.commit(lambda _: Draft(Commit(trims={0: 4}, written_at="now")))
    assert state_fields(world.logs[1].refresh()) == state_fields(log.state())
    assert log.state().partitions[0].start == 4
    assert names(log.state(), 0)[0] == "data/4"
    assert world.logs[1].commit(adding("data/again", who)).happened is False


@pytest.mark.row(44)
def test_a_poll_that_fails_half_way_is_repeated_from_where_it_began() -> None:
    world = calm()
    filled(world, 3)
    reader = world.logs[1]
    reader.refresh()
    wanted = names(filled(world, 3).state(), 0)
    read, calls = reader.backend.get_ranges, list[str]()

    def denied(key: str, ranges: Any = None) -> Any:
        calls.append(key)
        if len(calls) == 3:
            raise PermissionError(13, "denied")
        return read(key, ranges)

    reader.backend.get_ranges = denied  # type: ignore[method-assign]
    with pytest.raises(PermissionError):
        reader.refresh()
    assert names(reader.refresh(), 0) == wanted


def test_an_inline_slice_stands_in_the_commit() -> None:
    world = calm()

    def build(_: LogState) -> Draft:
        inline = piece("")._replace(position=8, size=4)
        return Draft(
            Commit([(0, inline)], topic=TOPIC, written_at="x" * 999), [b"12345678", b"abcd"]
        )

    state = world.logs[0].commit(build).state
    assert state_fields(state) == state_fields(world.logs[1].refresh())
    found = state.partitions[0].all()[0]
    assert found.key == "logs/log/00000000000000000000.commit"
    data = world.store.get_ranges(found.key, [(found.position, found.size)]).pieces[0]
    assert bytes(data) == b"abcd"


@pytest.mark.row(45)
def test_a_writer_that_slept_through_garbage_collection_does_not_win() -> None:
    world = calm()
    filled(world, 4)
    sleeper = world.logs[1]
    sleeper.refresh()
    create = sleeper.backend.create

    def late(key: str, data: object) -> None:
        sleeper.backend.create = create  # type: ignore[method-assign]
        for _ in range(9):
            world.logs[0].commit(adding(f"data/other{len(world.canonical)}"))
        world.time_s += 2 * TTL_S
        assert collect_log(world.logs[0], TTL_S * 10**6, dry_run=False).keys
        create(key, data)  # type: ignore[arg-type]

    sleeper.backend.create = late  # type: ignore[method-assign]
    done = sleeper.commit(adding("data/late", Transaction("app", 1, plain=False)))
    assert world.ghosts == 1
    assert done.state.number == 13
    sleeper.backend.create = late  # type: ignore[method-assign]
    with pytest.raises(CommitUnknownError, match="slept"):
        sleeper.commit(adding("data/plain"))
    world.check_end()


@pytest.mark.row(45)
def test_a_reader_that_slept_reads_the_checkpoint() -> None:
    world = calm()
    filled(world, 4)
    world.logs[1].refresh()
    for each in range(9):
        world.logs[0].commit(adding(f"data/more{each}"))
    world.time_s += 2 * TTL_S
    collect_log(world.logs[0], TTL_S * 10**6, dry_run=False)
    assert world.logs[1].refresh().number == 12


@pytest.mark.row(45)
def test_a_reader_that_is_idle_notices_a_collector_with_a_shorter_time_to_live() -> None:
    world = calm()
    filled(world, 4)
    reader = world.logs[1]
    reader.refresh()
    for each in range(9):
        world.logs[0].commit(adding(f"data/more{each}"))
    world.time_s += 300
    assert collect_log(world.logs[0], 60 * 10**6, dry_run=False).keys
    assert reader.refresh().number == 12
    world.check_end()


def test_a_damaged_checkpoint_is_left_out_while_the_commits_before_it_are_there() -> None:
    world = calm()
    filled(world, 8)
    *_, earlier, last = sorted(key for key in world.store.objects if key.endswith("checkpoint"))
    state = state_fields(world.logs[0].state())
    world.store.put(last, [b"?" * 100])
    found = world.open_log()
    assert state_fields(found.refresh()) == state
    found.commit(adding("data/next"))
    assert world.logs[1].refresh().number == 8, "and the next writer stores another one"
    world.store.put(earlier, [b"?" * 100])
    assert world.open_log().refresh().number == 8
    newest = max(key for key in world.store.objects if key.endswith("checkpoint"))
    world.time_s += 2 * TTL_S
    assert collect_log(world.logs[0], TTL_S * 10**6, dry_run=False).keys
    world.store.put(newest, [b"?" * 100])
    with pytest.raises(DamagedMetadataError, match="checkpoint"):
        world.open_log().refresh()


def test_garbage_collection_keeps_commits_with_inline_records() -> None:
    world = calm()
    log = world.logs[0]
    inline = Draft(Commit([(0, piece(""))], topic=TOPIC, written_at="now"), [b"x" * 100])
    log.commit(lambda _: inline)
    filled(world, 9)
    world.time_s += 2 * TTL_S
    planned = collect_log(log, TTL_S * 10**6, dry_run=True)
    assert log.boundary() == 0
    assert collect_log(log, TTL_S * 10**6, dry_run=False) == planned
    left = [info.key for info in world.store.list_after("logs/log/")]
    assert "logs/log/00000000000000000000.commit" in left
    assert "logs/log/00000000000000000001.commit" not in left
    assert state_fields(world.open_log().refresh()) == state_fields(log.state())


def test_a_lost_commit_is_damage_and_not_the_end() -> None:
    world = calm()
    filled(world, 5)
    world.store.delete(["logs/log/00000000000000000004.commit"])
    world.store.put("logs/log/00000000000000000005.commit", [b"?"])
    with pytest.raises(DamagedMetadataError, match="logs/log"):
        world.open_log().refresh()
    world = calm()
    filled(world, 8)
    world.store.delete(["logs/log/00000000000000000006.commit"])
    with pytest.raises(DamagedMetadataError, match="logs/log"):
        world.open_log().refresh()


@pytest.mark.parametrize("lost", [[1], [4], [4, 5], [6]])
def test_a_lost_commit_is_damage_in_a_directory_too(tmp_path: Path, lost: list[int]) -> None:
    """It is opened by its hint, without a listing that would show the gap."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "CHECKPOINT_INTERVAL", 20)
        check_lost_commits(tmp_path, lost)


def test_a_commit_that_is_lost_under_a_warm_process_is_damage(tmp_path: Path) -> None:
    """It would read nothing more for ever, and its next append would take the lost number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "CHECKPOINT_INTERVAL", 20)
        check_commit_lost_under(tmp_path)


def check_commit_lost_under(tmp_path: Path) -> None:
    with Store.open(tmp_path, layout="objects", create=True) as ours:
        ours.create_topic("t")
        ours.append("t", 0, [b"0"])
        forget_all()  # the other store is one of another process
        with Store.open(tmp_path) as others:
            assert others.visible_ends("t") == (1,)
            for number in range(1, 4):
                ours.append("t", 0, [b"%d" % number])
            (directory,) = (tmp_path / "logs").iterdir()
            lost = directory / f"{2:020d}.commit"
            kept = lost.read_bytes()
            lost.unlink()
            for _ in range(2):
                with pytest.raises(DamagedMetadataError, match=lost.name):
                    others.visible_ends("t")
                with pytest.raises(DamagedMetadataError, match=lost.name):
                    others.append("t", 0, [b"in its place"])
            lost.write_bytes(kept)
            assert others.append("t", 0, [b"4"]).start == 4


def check_lost_commits(tmp_path: Path, lost: list[int]) -> None:
    with Store.open(tmp_path, layout="objects", create=True) as store:
        store.create_topic("t")
        for number in range(27):
            store.append("t", 0, [b"%d" % number])
    (directory,) = (tmp_path / "logs").iterdir()
    checkpoint = json.loads((directory / "_last").read_text())["number"]
    for number in lost:
        (directory / f"{checkpoint + number:020d}.commit").unlink()
    for _ in range(2):
        with Store.open(tmp_path) as store:
            with pytest.raises(DamagedMetadataError, match=f"{checkpoint + lost[0]:020d}.commit"):
                list(store.read("t", 0))
            with pytest.raises(DamagedMetadataError, match=directory.name):
                store.append("t", 0, [b"in its place"])


@pytest.mark.parametrize("behind", [2, 3, 4])
def test_an_old_hint_hides_no_lost_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """A copy may have an older ``_last`` than its commits. The later checkpoint holds them all."""
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 10)
    with Store.open(tmp_path, layout="objects", create=True) as store:
        store.create_topic("t")
        for number in range(10 * behind + 15):
            store.append("t", 0, [b"%d" % number])
        end = store.visible_ends("t")
    (directory,) = (tmp_path / "logs").iterdir()
    newest = json.loads((directory / "_last").read_text())["number"]
    oldest = min(int(each.stem) for each in directory.glob("*.checkpoint"))
    (directory / "_last").unlink()
    (directory / "_last").write_bytes(json_files.dump({"number": oldest}))
    for number in range(oldest + 5, newest - 2, 7):
        lost = directory / f"{number:020d}.commit"
        data = lost.read_bytes()
        lost.unlink()
        with Store.open(tmp_path) as store:
            assert store.visible_ends("t") == end, f"without commit {number} of {newest}"
        lost.write_bytes(data)
    (directory / f"{newest + 1:020d}.commit").unlink()
    with pytest.raises(DamagedMetadataError, match=f"{newest + 1:020d}.commit"):
        Store.open(tmp_path).visible_ends("t")


@pytest.mark.row(44)
def test_a_create_that_fails_for_good_is_not_repeated() -> None:
    world = calm()
    log = filled(world, 2)
    tries = []

    def denied(key: str, _: object) -> None:
        tries.append(key)
        raise PermissionError(13, "denied")

    log.backend.create = denied  # type: ignore[method-assign, assignment]
    with pytest.raises(WriteFailedError, match="denied"):
        log.commit(adding("data/x"))
    assert len(tries) == 1


@pytest.mark.row(44)
def test_a_reply_that_is_lost_after_a_long_wait_leaves_no_doubt() -> None:
    """A request may take longer than patience lasts: the second one tells what the first did."""
    world = calm()
    log = filled(world, 2)
    create, read = log.backend.create, log.backend.inner.get_ranges
    calls = list[str]()

    def slowly(key: str, data: Any) -> None:
        calls.append(key)
        create(key, data)
        if len(calls) == 1:
            world.time_s += 60
            raise TimeoutError("no reply")

    def late(key: str, ranges: Any = None) -> Any:
        calls.append(key)
        if len(calls) == 1:
            world.time_s += 60
            raise TimeoutError("no reply")
        return read(key, ranges)

    log.backend.create = slowly  # type: ignore[method-assign]
    assert log.commit(adding("data/x")).happened
    assert len(calls) == 2
    calls.clear()
    log.backend.inner.get_ranges = late  # type: ignore[method-assign]
    assert names(log.refresh(), 0)[-1] == "data/x"
    assert calls[0] == calls[1]


@pytest.mark.row(44)
def test_a_boundary_that_cannot_be_read_leaves_the_outcome_unknown() -> None:
    world = calm()
    log = filled(world, 2)
    world.store.put("logs/log/boundary", [b"?"])
    with pytest.raises(CommitUnknownError, match="boundary"):
        log.commit(adding("data/x"))


@pytest.mark.row(44)
def test_no_answer_at_all_leaves_the_outcome_unknown() -> None:
    world = calm()
    log = filled(world, 2)
    world.likely = {"delayed": 1.0}
    with pytest.raises(CommitUnknownError, match="no reply"):
        log.commit(adding("data/x"))
    world.likely = CALM
    world.unknown += 1
    world.check_end()
    assert names(world.logs[1].refresh(), 0)[-1] == "data/x"
