"""Recovery: what is cut, what is refused, what is finished, and that it may run twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DamagedLogError, DataLossError
from tests.support.faulty_vfs import faulty
from tests.support.interrupted_recovery import recover_after_every_crash
from tests.support.stores import (
    TOPIC,
    after_reboot,
    errors,
    lock_file,
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


def three_segments(path: Path, partitions: int = 1) -> None:
    """Offsets 0, 1 in the first segment, 2, 3 in the second, 4, 5 in the open one."""
    with make_store(path, partitions, index_interval_bytes=0) as store:
        for partition in range(partitions):
            for number in range(6):
                store.append(TOPIC, partition, [b"%d" % number])
                if number in (1, 3):
                    store.roll(TOPIC, partition)


ALL = [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_clean_store_is_not_recovered(tmp_path: Path) -> None:
    three_segments(tmp_path)
    vfs = faulty(tmp_path)
    on(vfs).append(TOPIC, 0, [b"6"])
    assert not [call for call in vfs.calls if call.kind == "map"]


def test_reports_say_what_was_found(tmp_path: Path) -> None:
    three_segments(tmp_path)
    segment(tmp_path, 0, ".idx").unlink()
    with segment(tmp_path, 4).open("ab") as file:
        file.write(b"torn")
    (report,) = after_reboot(tmp_path).repair()
    assert (report.topic, report.partition, report.end_offset) == (TOPIC, 0, 6)
    assert (report.cut_bytes, report.rebuilt_indexes, report.removed_segments) == (4, 1, 0)
    assert report.saved_as is not None
    assert (tmp_path / report.saved_as).read_bytes() == b"torn"


def test_recovering_twice_changes_nothing_more(tmp_path: Path) -> None:
    three_segments(tmp_path)
    with segment(tmp_path, 4).open("ab") as file:
        file.write(b"torn")
    segment(tmp_path, 2, ".timeidx").unlink()
    after_reboot(tmp_path).repair()
    once = tree(segments(tmp_path))
    after_reboot(tmp_path).repair()
    assert tree(segments(tmp_path)) == once
    assert values(reopen(tmp_path)) == ALL


@pytest.mark.row(4)
def test_recovery_that_crashes_at_any_step_ends_in_the_same_bytes(tmp_path: Path) -> None:
    original = tmp_path / "original"
    three_segments(original)
    with segment(original, 4).open("ab") as file:
        file.write(b"torn tail")
    segment(original, 0, ".idx").unlink()
    segment(original, 0, ".tomb").touch()
    (segments(original) / "x.tmp").touch()

    def crashed(path: Path) -> None:
        assert reopen(path).offsets(TOPIC, 0).start == 2

    def recovered(path: Path) -> None:
        assert values(reopen(path)) == ALL[2:]

    recover_after_every_crash(original, tmp_path, crashed=crashed, recovered=recovered)


@pytest.mark.row(20)
def test_missing_middle_segment_closes_the_partition(tmp_path: Path) -> None:
    three_segments(tmp_path, partitions=2)
    segment(tmp_path, 2).unlink()
    before = tree(segments(tmp_path))
    store = after_reboot(tmp_path)
    with pytest.raises(DamagedLogError, match="Restore the missing segments") as caught:
        store.append(TOPIC, 0, [b"x"])
    assert (caught.value.topic, caught.value.partition) == (TOPIC, 0)
    assert tree(segments(tmp_path)) == before
    assert store.append(TOPIC, 1, [b"x"]).start == 6
    assert "LOG_DAMAGED" in [problem.code for problem in errors(store)]
    with pytest.raises((DamagedLogError, DataLossError)):
        values(store)


@pytest.mark.row(20)
def test_missing_last_segment_closes_the_partition(tmp_path: Path) -> None:
    three_segments(tmp_path)
    segment(tmp_path, 4).unlink()
    with pytest.raises(DamagedLogError, match="recovery point is 6"):
        after_reboot(tmp_path).append(TOPIC, 0, [b"x"])
    assert [problem.code for problem in errors(reopen(tmp_path))] == ["LOG_DAMAGED"]


def test_partition_that_lost_all_segments_refuses_writes(tmp_path: Path) -> None:
    three_segments(tmp_path)
    for file in segments(tmp_path).iterdir():
        file.unlink()
    with pytest.raises(DamagedLogError, match="it had records up to offset 6"):
        after_reboot(tmp_path).append(TOPIC, 0, [b"x"])


@pytest.mark.parametrize("base", [0, 2])
def test_sealed_segment_that_is_empty_or_cut_is_damage_not_the_end(
    tmp_path: Path, base: int
) -> None:
    for size in (0, 10, 100):
        path = tmp_path / str(size)
        three_segments(path)
        log = segment(path, base)
        log.chmod(0o644)
        os.truncate(log, size)
        store = after_reboot(path)
        with pytest.raises(DamagedLogError) as caught:
            store.append(TOPIC, 0, [b"x"])
        assert caught.value.path is not None
        assert caught.value.path.endswith(log.name)
        with pytest.raises(DamagedLogError):
            values(reopen(path), start=base)
        with pytest.raises(DamagedLogError):
            values(reopen(path), start=base + 1)


def test_active_segment_cut_below_the_high_watermark_is_damage_for_readers_too(
    tmp_path: Path,
) -> None:
    three_segments(tmp_path)
    log = segment(tmp_path, 4)
    whole = log.stat().st_size
    for size in (0, 10, whole // 2, whole - 1):
        os.truncate(log, size)
        for start in (4, 5):
            with pytest.raises(DamagedLogError):
                values(reopen(tmp_path), start=start)


def test_file_changed_after_a_clean_close_is_noticed(tmp_path: Path) -> None:
    """No crash does this, but a person restoring a file does; a hole must not follow."""
    three_segments(tmp_path)
    log = segment(tmp_path, 4)
    data = log.read_bytes()
    os.truncate(log, len(data) // 2)
    with pytest.raises(DamagedLogError):
        reopen(tmp_path).append(TOPIC, 0, [b"x"])
    log.write_bytes(data)
    assert reopen(tmp_path).append(TOPIC, 0, [b"6"]).start == 6
    assert values(reopen(tmp_path)) == [*ALL, b"6"]


def test_leftover_temporary_files_are_removed_and_unrecognised_ones_reported(
    tmp_path: Path,
) -> None:
    three_segments(tmp_path)
    (segments(tmp_path) / "00000000000000000002.idx.tmp").touch()
    (segments(tmp_path) / "notes.txt").write_text("mine")
    store = after_reboot(tmp_path)
    store.append(TOPIC, 0, [b"6"])
    assert names(tmp_path, ".tmp") == []
    assert names(tmp_path, ".txt") == ["notes.txt"]
    assert [(problem.severity, problem.code) for problem in store.check()] == [
        ("warning", "STRANGER")
    ]


@pytest.mark.row(17)
@pytest.mark.parametrize("suffix", [".idx", ".timeidx"])
@pytest.mark.parametrize("how", ["missing", "empty", "short", "zeros", "garbage", "stale"])
def test_broken_indexes_of_sealed_segments_are_reported_worked_around_and_repaired(
    tmp_path: Path, suffix: str, how: str
) -> None:
    three_segments(tmp_path)
    index = segment(tmp_path, 0, suffix)
    data = index.read_bytes()
    if how == "missing":
        index.unlink()
    else:
        index.write_bytes(
            {
                "empty": b"",
                "short": data[:-1],
                "zeros": bytes(len(data)),
                "garbage": os.urandom(len(data)),
                "stale": segment(tmp_path, 2, suffix).read_bytes()[:-16] + data[-16:],
            }[how]
        )
    store = reopen(tmp_path)
    assert [problem.code for problem in store.check()] == ["INDEX_STALE"]
    for start in range(6):
        assert values(store, start=start) == ALL[start:]
    store.repair()
    assert store.check() == []
    assert index.read_bytes() == data


def test_sealed_last_segment_stays_closed_after_recovery(tmp_path: Path) -> None:
    three_segments(tmp_path)
    reopen(tmp_path).roll(TOPIC, 0)
    store = after_reboot(tmp_path)
    assert store.append(TOPIC, 0, [b"6"]).start == 6
    assert [info.base for info in store.segments(TOPIC, 0)] == [0, 2, 4, 6]
    assert errors(store) == []


@pytest.mark.parametrize("index", ["kept", "missing"])
def test_sealed_last_segment_that_we_may_not_write_is_left_closed(
    tmp_path: Path, index: str
) -> None:
    """Sealing takes the write permission away; recovery must do without it."""
    three_segments(tmp_path)
    reopen(tmp_path).roll(TOPIC, 0)
    if index == "missing":
        segment(tmp_path, 4, ".idx").unlink()
    vfs = faulty(tmp_path)
    vfs.boot = os.urandom(16)
    vfs.fail("open:write", 13, path="00000000000000000004.log", times=99)
    store = on(vfs)
    assert store.append(TOPIC, 0, [b"6"]).start == 6
    assert values(store) == [*ALL, b"6"]
    assert store.check() == []


def test_lost_state_word_costs_only_a_recovery(tmp_path: Path) -> None:
    three_segments(tmp_path)
    lock_file(tmp_path).write_bytes(b"")
    store = reopen(tmp_path)
    assert store.append(TOPIC, 0, [b"6"]).start == 6
    assert values(store) == [*ALL, b"6"]


def test_failed_repair_leaves_a_working_store_as_it_was(tmp_path: Path) -> None:
    three_segments(tmp_path)
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.append(TOPIC, 0, [b"6"])
    vfs.fail("map", 24)
    with pytest.raises(Exception, match="Too many open files"):
        store.repair()
    assert store.append(TOPIC, 0, [b"7"]).start == 7
    assert [info.base for info in store.segments(TOPIC, 0)] == [0, 2, 4]
    assert errors(store) == []


def test_damage_in_one_topic_does_not_stop_the_repair_of_others(tmp_path: Path) -> None:
    three_segments(tmp_path)
    with reopen(tmp_path) as store:
        store.create_topic("u")
        store.append("u", 0, [b"a"])
    overwrite(segment(tmp_path, 0), lambda data: data.__setitem__(100, data[100] ^ 1))
    with (tmp_path / "topics/u/0/segments/00000000000000000000.log").open("ab") as file:
        file.write(b"torn")
    store = after_reboot(tmp_path)
    store.append("u", 0, [b"b"])
    assert values(store, topic="u") == [b"a", b"b"]


def test_repair_of_the_other_topics_goes_on_past_a_damaged_one(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        for topic in ("broken", "torn"):
            store.create_topic(topic)
            store.append(topic, 0, [b"first"])
            store.append(topic, 0, [b"second"])
    damaged = tmp_path / "topics/broken/0/segments/00000000000000000000.log"
    data = bytearray(damaged.read_bytes())
    data[70] ^= 1
    damaged.write_bytes(data)
    torn = tmp_path / "topics/torn/0/segments/00000000000000000000.log"
    torn.write_bytes(torn.read_bytes() + b"half a frame")
    (tmp_path / "meta/checkpoint.json").unlink()
    with Store.open(tmp_path) as store:
        with pytest.raises(DamagedLogError, match="broken-0"):
            store.repair()
        assert {problem.topic for problem in store.check()} == {"broken"}


def test_without_boot_ids_whoever_comes_next_looks_at_the_log(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="none").close()
    first = faulty(tmp_path)
    first.boot = bytes(16)
    with on(first) as store:
        store.append(TOPIC, 0, [b"kept"])
        size = segment(tmp_path).stat().st_size
        store.append(TOPIC, 0, [b"lost"])
    log = segment(tmp_path).read_bytes()
    segment(tmp_path).write_bytes(log[:size] + bytes(len(log) - size))  # as a power cut may
    second = faulty(tmp_path)
    second.boot = bytes(16)
    store = on(second)
    assert store.recovery_due(TOPIC, 0)
    store.append(TOPIC, 0, [b"new"])
    assert values(store) == [b"kept", b"new"]
