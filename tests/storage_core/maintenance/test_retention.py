"""Retention: whole sealed segments, by age and by size, and never a step back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.maintenance.retention import segments_to_drop
from storage_core.segments.deletion_markers import pack_marker, unpack_marker
from tests.support.faulty_vfs import CHANGES, CrashError, faulty
from tests.support.stores import (
    T0,
    TOPIC,
    after_reboot,
    errors,
    flips,
    make_store,
    names,
    offsets,
    on,
    reopen,
    segment,
    segments,
    tree,
)

MARKER = bytes.fromhex("4352535401000000000000000000012c553cbb50")


def test_deletion_marker_has_these_bytes() -> None:
    assert pack_marker(300).hex() == MARKER.hex()
    assert unpack_marker(MARKER) == 300


def test_every_bit_flip_and_truncation_of_a_deletion_marker_is_detected() -> None:
    for bit, flipped in flips(MARKER):
        assert unpack_marker(flipped) is None, bit
    for size in range(len(MARKER)):
        assert unpack_marker(MARKER[:size]) is None


def choose(
    sizes: list[int], ages: list[int], *, ms: int | None = None, size: int | None = None
) -> int:
    return segments_to_drop(
        sizes,
        lambda position: 10**9 - ages[position] * 1000,
        now_us=10**9,
        retention_ms=ms,
        retention_bytes=size,
    )


def test_old_segments_go_from_the_start_only() -> None:
    assert choose([1, 1, 1, 1], [50, 40, 30, 0], ms=35) == 2
    assert choose([1, 1, 1, 1], [50, 10, 50, 0], ms=35) == 1
    assert choose([1, 1, 1, 1], [10, 50, 50, 0], ms=35) == 0
    assert choose([1, 1, 1], [35, 0, 0], ms=35) == 0


def test_active_segment_always_stays() -> None:
    assert choose([1, 1, 1], [99, 99, 99], ms=0) == 2
    assert choose([5, 5, 5], [0, 0, 0], size=0) == 2
    assert choose([5], [99], ms=0, size=0) == 0
    assert choose([], [], ms=0, size=0) == 0


def test_size_limit_is_kept_from_above_not_below() -> None:
    assert choose([10, 10, 10, 10], [0] * 4, size=30) == 1
    assert choose([10, 10, 10, 10], [0] * 4, size=29) == 1
    assert choose([10, 10, 10, 10], [0] * 4, size=20) == 2
    assert choose([10, 10, 10, 10], [0] * 4, size=40) == 0


def test_either_limit_is_enough() -> None:
    assert choose([10, 10, 10, 10], [99, 0, 0, 0], ms=50, size=20) == 2


def test_no_limit_drops_nothing() -> None:
    assert choose([10, 10], [99, 99]) == 0


def filled(path: Path, count: int = 5, **settings: int) -> Store:
    """One record per segment, a second apart from T0 on; the last one is open."""
    store = make_store(path, index_interval_bytes=0, **settings)
    for number in range(count):
        store.append(TOPIC, 0, [b"%d" % number * 100], timestamps=[T0 + number * 1_000_000])
        if number < count - 1:
            store.roll(TOPIC, 0)
    return store


def at(path: Path, clock_us: int) -> Store:
    vfs = faulty(path)
    vfs.clock_us = clock_us
    return on(vfs)


def test_without_limits_nothing_is_dropped(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert store.retain() == {}
    assert offsets(store) == [0, 1, 2, 3, 4]


def test_age_limit_drops_what_is_older_for_every_store_at_once(tmp_path: Path) -> None:
    filled(tmp_path, retention_ms=1000).close()
    reader = reopen(tmp_path)
    assert offsets(reader) == [0, 1, 2, 3, 4]
    store = at(tmp_path, T0 + 3_000_000)
    assert store.retain(TOPIC) == {(TOPIC, 0): [0, 1]}
    for each in (store, reader):
        assert each.offsets(TOPIC, 0).start == 2
        assert offsets(each) == [2, 3, 4]
        assert each.offset_for_timestamp(TOPIC, 0, T0) == 2
    assert names(tmp_path, ".tomb") == []
    assert len(list(segments(tmp_path).iterdir())) == 3 + 2 + 3
    assert errors(store) == []
    assert store.retain() == {}


def test_size_limit_drops_the_oldest(tmp_path: Path) -> None:
    store = filled(tmp_path)
    size = segment(tmp_path).stat().st_size
    store.alter_topic(TOPIC, retention_bytes=3 * size)
    assert store.retain() == {(TOPIC, 0): [0, 1]}
    assert offsets(store) == [2, 3, 4]
    store.alter_topic(TOPIC, retention_bytes=0)
    assert store.retain() == {(TOPIC, 0): [2, 3]}
    assert store.append(TOPIC, 0, [b"x"]).start == 5
    assert errors(store) == []


@pytest.mark.row(34)
def test_clock_that_went_back_makes_nothing_older(tmp_path: Path) -> None:
    filled(tmp_path, retention_ms=1000).close()
    assert at(tmp_path, T0 - 10**12).retain() == {}
    assert at(tmp_path, 0).retain() == {}


def test_newest_record_decides_though_it_is_not_the_last(tmp_path: Path) -> None:
    with make_store(tmp_path, retention_ms=1000) as store:
        store.append(TOPIC, 0, [b"a", b"b"], timestamps=[T0 + 60_000_000, T0])
        store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [b"c"])
    assert at(tmp_path, T0 + 60_500_000).retain() == {}
    assert at(tmp_path, T0 + 61_000_001).retain() == {(TOPIC, 0): [0]}


@pytest.mark.row(17)
@pytest.mark.parametrize("how", ["zeros", "zero padded", "truncated", "garbage", "of another"])
def test_lying_time_index_never_makes_retention_delete_early(tmp_path: Path, how: str) -> None:
    filled(tmp_path, retention_ms=1000).close()
    index = segment(tmp_path, 2, ".timeidx")
    data = index.read_bytes()
    index.write_bytes(
        {
            "zeros": bytes(len(data)),
            "zero padded": data + bytes(160),
            "truncated": data[:16],
            "garbage": os.urandom(len(data)),
            "of another": segment(tmp_path, 0, ".timeidx").read_bytes(),
        }[how]
    )
    store = at(tmp_path, T0 + 3_000_000)
    assert store.retain() == {(TOPIC, 0): [0, 1]}
    assert offsets(store) == [2, 3, 4]


def test_sealed_time_index_of_another_time_is_not_asked_either(tmp_path: Path) -> None:
    """Its checksum is right and the size it names fits: only the log itself may decide."""
    filled(tmp_path, retention_ms=1000).close()
    segment(tmp_path, 3, ".timeidx").write_bytes(segment(tmp_path, 0, ".timeidx").read_bytes())
    segment(tmp_path, 2, ".timeidx").write_bytes(segment(tmp_path, 0, ".timeidx").read_bytes())
    assert at(tmp_path, T0 + 3_000_000).retain() == {(TOPIC, 0): [0, 1]}


def test_deletion_markers_are_durable_before_anything_goes_and_go_after_that_is_durable(
    tmp_path: Path,
) -> None:
    """A power cut may undo any removal that was not synced: the order protects the start."""
    filled(tmp_path, retention_ms=1000).close()
    vfs = faulty(tmp_path)
    vfs.clock_us = T0 + 3_000_000
    on(vfs).retain()
    steps = [
        (call.kind, call.path[-8:].partition(".")[2])
        for call in vfs.calls
        if "segments" in call.path and call.kind in CHANGES
    ]
    bury = [("unlink", suffix) for suffix in ("idx", "timeidx", "stats", "log")]
    mark = [("open:create", "tomb"), ("pwritev", "tomb"), ("fsync", "tomb")]
    sync = ("fsync_dir", "")
    assert steps == [*mark, *mark, sync, *bury, *bury, sync, ("unlink", "tomb"), ("unlink", "tomb")]


@pytest.mark.row(21)
def test_crash_after_any_step_ends_in_the_same_state(tmp_path: Path) -> None:
    original = tmp_path / "original"
    filled(original, retention_ms=1000).close()

    def retain(path: Path, crash_after: int | None = None) -> int:
        vfs = faulty(path)
        vfs.clock_us, vfs.crash_after = T0 + 3_000_000, crash_after
        on(vfs).retain()
        return vfs.changes

    whole = tmp_path / "whole"
    shutil.copytree(original, whole)
    steps = retain(whole)
    expected = tree(segments(whole))
    for count in range(steps):
        path = tmp_path / f"crash-{count}"
        shutil.copytree(original, path)
        with pytest.raises(CrashError):
            retain(path, count)
        seen = reopen(path).offsets(TOPIC, 0).start
        assert seen in (0, 1, 2)
        assert offsets(reopen(path)) == list(range(seen, 5))
        store = after_reboot(path)
        store.append(TOPIC, 0, [])
        start = store.offsets(TOPIC, 0).start
        assert start >= seen
        assert names(path, ".tomb") == []
        assert errors(store) == []
        retain(path)
        assert tree(segments(path)) == expected
        shutil.rmtree(path)


@pytest.mark.row(20, 21)
@pytest.mark.parametrize(
    "contents", [pack_marker(2), b"", b"torn", bytes(20)], ids=["whole", "empty", "torn", "zeros"]
)
def test_deletion_marker_hides_its_segment_from_readers_before_it_is_gone(
    tmp_path: Path, contents: bytes
) -> None:
    filled(tmp_path).close()
    segment(tmp_path, 0, ".tomb").write_bytes(contents)
    store = reopen(tmp_path)
    assert offsets(store) == [1, 2, 3, 4]
    assert [(problem.severity, problem.code) for problem in store.check()] == [
        ("warning", "RECOVERY_NEEDED")
    ]
    (report,) = store.repair()
    assert report.removed_segments == 1
    assert not segment(tmp_path, 0).exists()
    assert store.check() == []


def test_deletion_marker_whose_earlier_neighbour_was_lost_in_a_power_cut_covers_it(
    tmp_path: Path,
) -> None:
    """Names that were not synced may survive in any subset; the start must not split the log."""
    filled(tmp_path).close()
    segment(tmp_path, 1, ".tomb").write_bytes(pack_marker(2))
    store = after_reboot(tmp_path)
    assert offsets(store) == [2, 3, 4]
    assert store.append(TOPIC, 0, [b"x"]).start == 5
    assert offsets(reopen(tmp_path)) == [2, 3, 4, 5]
    assert store.check() == []


def test_deletion_marker_without_a_segment_is_cleared_away(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for suffix in (".log", ".idx", ".timeidx"):
        segment(tmp_path, 0, suffix).unlink()
    segment(tmp_path, 0, ".tomb").write_bytes(pack_marker(1))
    store = after_reboot(tmp_path)
    store.append(TOPIC, 0, [b"x"])
    assert names(tmp_path, ".tomb") == []
    assert offsets(store) == [1, 2, 3, 4, 5]


def test_start_does_not_go_back_when_all_but_the_open_segment_are_gone(tmp_path: Path) -> None:
    store = filled(tmp_path, retention_bytes=0)
    store.retain()
    assert store.offsets(TOPIC, 0).start == 4
    for _ in range(2):
        again = after_reboot(tmp_path)
        again.repair()
        assert again.offsets(TOPIC, 0).start == 4
        assert offsets(again) == [4]
