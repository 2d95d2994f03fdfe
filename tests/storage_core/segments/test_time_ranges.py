"""Reads by time return the records of the interval, whatever the order of their timestamps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage_core import Store, TimeRange
from storage_core.format.sparse_index import parse_sealed, seal
from tests.support.stores import T0, TOPIC, make_store, reopen, rows, segment


def shuffled(path: Path, seed: int) -> tuple[Store, list[int]]:
    """Sealed segments, an active one and a hole, and the time of each offset."""
    chance = random.Random(seed)
    store = make_store(path, frame_records=3, index_interval_bytes=chance.choice((0, 200, 1 << 20)))
    times: list[int] = []
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(40)
        stamps = [start + chance.randrange(6) for _ in range(chance.randrange(1, 12))]
        store.append(TOPIC, 0, [b"v"] * len(stamps), timestamps=[T0 + stamp for stamp in stamps])
        times += stamps
        if chance.random() < 0.7:
            store.roll(TOPIC, 0)
    return store, times


def read_by_time(store: Store, times: TimeRange, columns: tuple[str, ...]) -> list[int]:
    """Offsets that all segments together deliver for a range of times."""
    slices = [(each, each.base, each.end) for each in store.segments(TOPIC, 0)]
    return [
        row["offset"] for row in rows(store.read_slices(TOPIC, 0, slices, columns, None, times))
    ]


@pytest.mark.parametrize("seed", range(25))
def test_slices_deliver_exactly_the_records_of_a_range_of_times(tmp_path: Path, seed: int) -> None:
    store, stamps = shuffled(tmp_path, seed)
    for low, high in ((0, 50), (5, 20), (13, 14), (44, 99), (20, 20)):
        found = read_by_time(store, TimeRange(T0 + low, T0 + high), ("offset",))
        assert found == [at for at, stamp in enumerate(stamps) if low <= stamp < high]
    from_ten = [at for at, stamp in enumerate(stamps) if stamp >= 10]
    assert read_by_time(store, TimeRange(T0 + 10), ("offset", "timestamp")) == from_ten


@pytest.mark.parametrize("seed", range(25))
def test_end_of_older_and_bounds_agree_with_the_records(tmp_path: Path, seed: int) -> None:
    store, stamps = shuffled(tmp_path, seed)
    for moment in range(0, 50, 3):
        older = [at + 1 for at, stamp in enumerate(stamps) if stamp < moment]
        assert store.end_of_older(TOPIC, 0, T0 + moment) == (older[-1] if older else None)
    segments = store.segments(TOPIC, 0)
    for each, bounds in zip(segments, store.time_bounds(TOPIC, 0, segments), strict=True):
        assert (bounds is not None) == each.sealed
        if bounds is not None:
            held = [T0 + stamp for stamp in stamps[each.base : each.end]]
            assert bounds == (min(held), max(held))


def test_an_index_without_its_smallest_time_excludes_nothing(tmp_path: Path) -> None:
    store, _ = shuffled(tmp_path, 3)
    store.roll(TOPIC, 0)
    index, log = segment(tmp_path, 0, ".timeidx"), segment(tmp_path, 0)
    size = log.stat().st_size
    before = store.time_bounds(TOPIC, 0, store.segments(TOPIC, 0)[:1])[0]
    found = parse_sealed("time", index.read_bytes(), size)
    assert found is not None
    old = [row for row in zip(*map(list, found), strict=True) if row[1] > 0]
    index.unlink()
    entries = b"".join(int(number).to_bytes(8, "big", signed=True) for row in old for number in row)
    index.write_bytes(seal("time", entries, size))
    again = reopen(tmp_path)
    bounds = again.time_bounds(TOPIC, 0, again.segments(TOPIC, 0)[:1])[0]
    assert bounds is not None
    assert before is not None
    assert bounds.smallest < before.smallest
    assert bounds.largest == before.largest
    assert again.end_of_older(TOPIC, 0, before.smallest + 1) == store.end_of_older(
        TOPIC, 0, before.smallest + 1
    )


def test_compacted_segments_are_read_by_time(tmp_path: Path) -> None:
    store = make_store(tmp_path, frame_records=2, cleanup_policy="compact")
    keys = [b"a", b"b", b"a", b"c", b"b", b"d"]
    stamps = [T0 + stamp for stamp in (5, 9, 1, 7, 3, 8)]
    store.append(TOPIC, 0, [b"v"] * 6, keys=keys, timestamps=stamps)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"], timestamps=[T0 + 9])
    store.compact(TOPIC, min_dirty_ratio=0)
    assert [row["offset"] for row in rows(store.read(TOPIC, 0))] == [2, 3, 4, 5, 6]
    assert read_by_time(store, TimeRange(T0 + 2, T0 + 8), ("offset", "key")) == [3, 4]
    assert store.end_of_older(TOPIC, 0, T0 + 2) == 3
