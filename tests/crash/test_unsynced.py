"""Topics without syncs after a power cut: a shorter log, never a closed partition or a hole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DamagedLogError
from storage_core.metadata import high_watermark as watermark
from tests.crash.explorer.disk import Choice, Item, kept, lost
from tests.crash.explorer.invariants import CONFIG, History, World, look, new_store
from tests.crash.explorer.scenarios import BIG, SMALL
from tests.support.faulty_vfs import faulty
from tests.support.interrupted_recovery import recover_after_every_crash
from tests.support.stores import (
    T0,
    TOPIC,
    after_reboot,
    columns_of,
    errors,
    make_store,
    names,
    on,
    overwrite,
    reopen,
    segment,
    segments,
    tree,
    values,
)

ALL = [b"%d" % number for number in range(8)]


def four_segments(path: Path) -> None:
    """Two records in each, never synced; the last segment is open."""
    with make_store(path, fsync="none", index_interval_bytes=0) as store:
        for value in ALL:
            store.append(TOPIC, 0, [value])
            if value in (b"1", b"3", b"5"):
                store.roll(TOPIC, 0)


def lose(path: Path, base: int, how: str) -> None:
    """What a power cut may leave of a segment with two records."""
    log = segment(path, base)
    frame = log.stat().st_size // 2
    os.chmod(log, 0o644)
    if how == "garbled":
        overwrite(log, lambda data: data.__setitem__(slice(frame + 64, frame + 72), bytes(8)))
    else:
        os.truncate(log, {"empty": 0, "torn": frame + 9, "a frame less": frame}[how])
    os.chmod(log, 0o444)


@pytest.mark.row(1, 4)
@pytest.mark.parametrize(
    ("how", "left"), [("empty", 2), ("torn", 3), ("a frame less", 3), ("garbled", 3)]
)
def test_the_log_ends_at_the_first_bad_place_whatever_stands_after_it(
    how: str, left: int, tmp_path: Path
) -> None:
    four_segments(tmp_path)
    lose(tmp_path, 2, how)
    following = {base: segment(tmp_path, base).read_bytes() for base in (4, 6)}
    store = after_reboot(tmp_path)
    assert store.append(TOPIC, 0, [b"next"]).start == left
    assert values(store) == [*ALL[:left], b"next"]
    assert errors(store) == []
    saved = {(segments(tmp_path) / name).read_bytes() for name in names(tmp_path, ".broken")}
    assert saved >= set(following.values())
    again = after_reboot(tmp_path)
    assert again.append(TOPIC, 0, []).start == left + 1
    assert values(again) == [*ALL[:left], b"next"]


def test_the_report_says_what_was_set_aside(tmp_path: Path) -> None:
    four_segments(tmp_path)
    lose(tmp_path, 2, "a frame less")
    following = sum(segment(tmp_path, base).stat().st_size for base in (4, 6))
    (report,) = after_reboot(tmp_path).repair()
    assert (report.end_offset, report.cut_bytes, report.removed_segments) == (3, following, 2)
    assert report.saved_as is not None
    assert (tmp_path / report.saved_as).exists()


@pytest.mark.row(4)
@pytest.mark.parametrize("how", ["empty", "torn", "a frame less", "garbled"])
def test_a_crash_at_any_step_of_it_ends_in_the_same_bytes(how: str, tmp_path: Path) -> None:
    original = tmp_path / "original"
    four_segments(original)
    lose(original, 2, how)
    recover_after_every_crash(original, tmp_path)


@pytest.mark.row(6)
@pytest.mark.parametrize("how", ["empty", "torn", "a frame less"])
def test_what_a_commit_made_durable_is_damage_when_it_goes_bad(how: str, tmp_path: Path) -> None:
    four_segments(tmp_path)
    store = reopen(tmp_path)
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of([b"committed"]))
    store.commit("job", stage.finish())
    store.close()
    (tmp_path / "meta/checkpoint.json").unlink()
    lose(tmp_path, 2, how)
    before = tree(segments(tmp_path))
    with pytest.raises(DamagedLogError, match="were durable"):
        after_reboot(tmp_path).append(TOPIC, 0, [b"x"])
    assert tree(segments(tmp_path)) == before


def test_files_that_are_gone_are_damage_although_nothing_was_synced(tmp_path: Path) -> None:
    with make_store(tmp_path, fsync="none") as store:
        store.append(TOPIC, 0, [b"a", b"b"])
    for file in segment(tmp_path).parent.iterdir():
        file.unlink()
    with pytest.raises(
        DamagedLogError, match="the log has no segment, but it had records up to offset 2"
    ):
        reopen(tmp_path).append(TOPIC, 0, [b"c"])
    assert reopen(tmp_path).offsets(TOPIC, 0).end == 2


def test_a_killed_writer_leaves_nothing_to_cut(tmp_path: Path) -> None:
    four_segments(tmp_path)
    vfs = faulty(tmp_path)
    on(vfs).repair()
    assert values(reopen(tmp_path)) == ALL
    assert names(tmp_path, ".broken") == []


def test_no_reader_sees_a_part_of_a_commit_where_more_was_shown_before() -> None:
    vfs = new_store({"t": 2}, fsync="none", **SMALL)
    world = World(vfs, History(), CONFIG)
    world.append_lazily("t", 0, b"a".ljust(BIG, b"."), b"b".ljust(BIG, b"."))
    # The high watermark may reach the disk although what it shows does not.
    uid = Store(vfs, CONFIG).topic("t").uuid.bytes
    watermark.make_durable(vfs, "t", uid, 1000)
    vfs = vfs.power_cut(lost, b"a second boot...")
    store = Store(vfs, CONFIG)
    assert store.visible_ends("t") == (2, 0)
    world = World(vfs, History(), CONFIG)
    txn = world.stage("app", 1, {("t", 0): 2, ("t", 1): 1})

    def observe(kind: str, path: str) -> None:
        vfs.hook = None
        for disk in (vfs, vfs.power_cut(lost, b"a third boot....")):
            shown = [bool(found) for _, found in look(disk).values()]
            assert shown in ([], [False], [False, False], [True, True]), f"{kind} {path}"
        vfs.hook = observe

    vfs.hook = observe
    world.commit(txn)
    vfs.hook = None
    assert [len(found) for _, found in look(vfs).values()] == [2, 1]


@pytest.mark.row(17)
def test_the_time_index_of_a_segment_that_was_cut_does_not_come_back() -> None:
    """It would fit the segment, filled again to the same size, and hide its later records."""
    directory = "topics/t/0/segments"
    log = f"{directory}/{0:020d}.log"
    vfs = new_store({"t": 1}, fsync="none")
    store, value = Store(vfs, CONFIG), bytes(1000)
    for number in range(4):
        store.append("t", 0, [value], timestamps=[T0 + number])
    store.roll("t", 0)
    sealed = vfs.stat(log)
    assert sealed is not None

    def torn(items: Sequence[Item]) -> Choice:
        last = max(item for item in items if item.ages == 2 and item.what == sealed.identity[1])
        return {**kept(items), last: 0}

    vfs = vfs.power_cut(torn, b"a second boot...")
    store = Store(vfs, CONFIG)
    (report,) = store.repair()
    assert (report.end_offset, report.cut_bytes) == (3, sealed.size // 4)
    store.append("t", 0, [value], timestamps=[T0 + 1000])
    filled = vfs.stat(log)
    assert filled is not None
    assert filled.size == sealed.size
    steps = vfs.steps

    def as_it_was_sealed(items: Sequence[Item]) -> Choice:
        names_of = {
            item: [name for _, name, _ in steps[item.part]] for item in items if item.what < 0
        }
        lost_names = [item for item, changed in names_of.items() if changed[0].endswith("idx")]
        return {**kept(items), **dict.fromkeys(lost_names, 0)}

    vfs = vfs.power_cut(as_it_was_sealed, b"a third boot....")
    store = Store(vfs, CONFIG)
    store.append("t", 0, [b"next"], timestamps=[T0 + 2000])
    assert store.offset_for_timestamp("t", 0, T0 + 500) == 3
    store.roll("t", 0)
    store.append("t", 0, [b"last"], timestamps=[T0 + 3000])
    again = Store(vfs, CONFIG)
    assert [again.offset_for_timestamp("t", 0, T0 + at) for at in (3, 1001, 2001)] == [3, 4, 5]
