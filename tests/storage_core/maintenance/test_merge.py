"""Merging keeps every record, its offset and its time, in fewer files."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store, UpkeepProgress
from storage_core.errors import DamagedLogError
from storage_core.maintenance.merge import merge_groups
from storage_core.segments.sealed import Sealed
from storage_core.vfs import FileStat
from tests.support.store_lives import contents, in_segments, numbered
from tests.support.stores import T0, TOPIC, errors, names, overwrite, segment, segments


def test_small_segments_become_one_with_the_same_contents(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(7))
    before = contents(store)
    (report,) = store.merge(TOPIC)
    assert (report.segments_before, report.segments_after, report.done) == (7, 1, True)
    assert report.bytes_after < report.bytes_before
    assert names(tmp_path, ".log") == [f"{0:020d}.log", f"{21:020d}.log"]
    assert contents(store) == before
    assert contents(Store.open(tmp_path), start=5, end=13) == before[5:13]
    assert errors(store) == []
    assert store.check() == []
    assert store.merge(TOPIC) == []


def test_a_merged_log_takes_appends_and_finds_records_by_time(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC)
    for at in range(5):
        store.append(TOPIC, 0, [b"a", b"b"], timestamps=[T0 + 10 * at, T0 + 10 * at + 5])
        store.roll(TOPIC, 0)
        assert store.offset_for_timestamp(TOPIC, 0, T0 + 10 * at + 5) == 2 * at + 1
    store.append(TOPIC, 0, [b"last"], timestamps=[T0 + 1000])
    store.merge()
    assert [store.offset_for_timestamp(TOPIC, 0, T0 + n) for n in (0, 5, 6, 45, 46)] == [
        0,
        1,
        2,
        9,
        10,
    ]
    store.append(TOPIC, 0, [b"more"])
    assert [row["offset"] for row in contents(Store.open(tmp_path))] == list(range(12))


def test_only_neighbours_that_are_small_and_fit_are_merged() -> None:
    def sealed(*sizes: int) -> list[Sealed]:
        return [
            Sealed(n, n + 1, "", FileStat("file", size, 0, (0, n))) for n, size in enumerate(sizes)
        ]

    def bases(*sizes: int, **limits: int) -> list[list[int]]:
        return [
            [each.base for each in group] for group in merge_groups(sealed(*sizes), 100, **limits)
        ]

    assert bases(10, 10, 60, 10, 49, 49, 10, 10) == [[0, 1], [3, 4], [5, 6, 7]]
    assert bases(10, 50, 10) == []
    assert bases(10, 10, 10, at_least=4) == []
    assert bases(10, 30, 10, 10, below=20) == [[2, 3]]
    assert bases() == []


def test_a_dry_run_changes_nothing_and_says_what_would_be_done(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(4))
    before = names(tmp_path, ".log")
    (report,) = store.merge(TOPIC, dry_run=True)
    assert (report.segments_before, report.segments_after, report.done) == (4, 1, False)
    assert names(tmp_path, ".log") == before


def test_progress_is_reported_and_a_stopped_merge_goes_on_later(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(9, size=900), segment_bytes=8192)
    before, seen = contents(store), list[UpkeepProgress]()
    (stopped,) = store.merge(TOPIC, progress=seen.append, stop=lambda: len(seen) > 5)
    assert (stopped.done, stopped.note) == (False, "stopped")
    assert seen[0].done_bytes == 0
    assert seen[-1].done_bytes > 0
    assert seen[-1].done_bytes < seen[-1].total_bytes
    assert contents(store) == before
    (rest,) = store.merge(TOPIC)
    assert rest.done
    assert rest.segments_before + stopped.segments_before >= 8
    assert contents(store) == before
    assert store.check() == []
    assert [file for file in segments(tmp_path).iterdir() if file.suffix == ".rewrite"] == []


def test_a_reader_that_holds_an_old_segment_finishes_on_it(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(6, each=3, size=5000), frame_records=1)
    before = contents(store)
    reading = store.read(TOPIC, 0)
    first = next(reading)
    plan = [(info, info.base, info.end) for info in store.segments(TOPIC, 0)]
    assert store.merge(TOPIC)[0].segments_before == 6
    rest = [row["offset"] for batch in reading for row in batch.to_pylist()]
    assert first.column("offset").to_pylist() + rest == [row["offset"] for row in before]
    planned = list(store.read_slices(TOPIC, 0, plan))
    assert [row for batch in planned for row in batch.column("offset").to_pylist()] == list(
        range(19)
    )
    assert all(len(store.index_entries(TOPIC, 0, info)) == 2 for info, _, _ in plan)


def test_a_damaged_segment_is_left_alone_with_an_error_that_names_it(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(3))
    before = names(tmp_path, ".log")
    overwrite(segment(tmp_path, 3), lambda data: data.__setitem__(100, data[100] ^ 1))
    with pytest.raises(DamagedLogError, match=f"{3:020d}.log is damaged"):
        store.merge(TOPIC)
    assert names(tmp_path, ".log") == before
    assert names(tmp_path, ".rewrite") == []


def test_frames_of_stamped_and_supplied_times_stay_apart(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC)
    for at in range(6):
        store.append(TOPIC, 0, [b"x"], timestamps=[T0] if at % 2 else None)
        store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    before = contents(store)
    store.merge(TOPIC)
    assert contents(store) == before
    assert [row["timestamp_type"] for row in before][:4] == [1, 0, 1, 0]
