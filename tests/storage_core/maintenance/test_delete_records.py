"""Deleting up to an offset, groups that hold retention, and limits by age and size beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError, DataLossError, OffsetOutOfRangeError
from tests.support.brokers.broker_directories import BROKER, CURSUS, RUSTLOG
from tests.support.store_lives import contents, in_segments, numbered
from tests.support.stores import TOPIC, offsets, reopen


@pytest.mark.parametrize("offset", range(14))
def test_exactly_the_records_below_the_offset_go(tmp_path: Path, offset: int) -> None:
    store = in_segments(tmp_path, numbered(4), frame_records=2)
    before = contents(store)
    (guess,) = store.delete_records(TOPIC, {0: offset}, dry_run=True)
    assert contents(store) == before
    (report,) = store.delete_records(TOPIC, {0: offset})
    assert (report.start_offset, report.done) == (offset, True)
    assert (guess.segments_before, guess.done) == (report.segments_before, offset == 0)
    assert store.offsets(TOPIC, 0).start == reopen(tmp_path).offsets(TOPIC, 0).start == offset
    assert contents(store) == before[offset:]
    store.append(TOPIC, 0, [b"next"])
    assert offsets(reopen(tmp_path)) == list(range(offset, 14))
    assert store.check() == []
    assert store.repair() != []
    assert offsets(store) == list(range(offset, 14))


def test_a_compacted_segment_is_cut_between_its_records(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(4, keys=3), cleanup_policy="compact", compression="lz4")
    store.compact(TOPIC, min_dirty_ratio=0)
    store.merge(TOPIC)
    assert offsets(store) == [9, 10, 11, 12]
    for offset, left in ((4, [9, 10, 11, 12]), (10, [10, 11, 12]), (13, [])):
        store.delete_records(TOPIC, {0: offset})
        assert (store.offsets(TOPIC, 0).start, offsets(store)) == (offset, left)
        assert store.check() == []


def test_offsets_that_are_not_there_are_refused(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(2))
    for offset in (-1, 8):
        with pytest.raises(OffsetOutOfRangeError, match="has offsets 0 to 7"):
            store.delete_records(TOPIC, {0: offset})
    assert offsets(store) == list(range(7))


def test_a_reader_that_lags_learns_where_to_go_on(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(3))
    reader = reopen(tmp_path)
    plan = [(info, info.base, info.end) for info in reader.segments(TOPIC, 0)]
    store.delete_records(TOPIC, {0: 5})
    with pytest.raises(DataLossError, match="Continue from 5"):
        list(reader.read_slices(TOPIC, 0, plan[:1]))
    with pytest.raises(DataLossError, match="Continue from 5"):
        list(reader.read_slices(TOPIC, 0, plan[1:2]))
    found = list(reader.read_slices(TOPIC, 0, [(plan[1][0], 5, 6), *plan[2:]]))
    assert [n for batch in found for n in batch.column("offset").to_pylist()] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("offset", range(1, 14))
def test_a_reader_that_may_lose_records_loses_only_those_that_are_gone(
    tmp_path: Path, offset: int
) -> None:
    store = in_segments(tmp_path, numbered(4), frame_records=2)
    reader = reopen(tmp_path)
    plan = []
    for info in reader.segments(TOPIC, 0):
        middle = min(info.base + 2, info.end)
        plan += [(info, info.base, middle), (info, middle, info.end)]
    store.delete_records(TOPIC, {0: offset})
    lost: list[int | None] = []
    batches = reader.read_slices(TOPIC, 0, plan, on_loss=lambda error: lost.append(error.offset))
    found = [number for batch in batches for number in batch.column("offset").to_pylist()]
    assert found == list(range(offset, 13))
    assert lost, "no loss was reported"


def test_nothing_goes_that_a_holding_group_has_not_read(tmp_path: Path) -> None:
    store = in_segments(
        tmp_path, numbered(5), retention_bytes=0, retention_hold_groups="billing, audit"
    )
    assert store.retain() == {}
    store.commit_offsets("billing", {TOPIC: {0: 9}})
    assert store.retain(dry_run=True) == {}
    store.commit_offsets("audit", {TOPIC: {0: 7}})
    assert store.retain(dry_run=True) == {(TOPIC, 0): [0, 3]}
    assert store.retain() == {(TOPIC, 0): [0, 3]}
    (report,) = store.delete_records(TOPIC, {0: 12})
    assert report.start_offset == 7
    assert "has read up to 7" in report.note
    store.alter_topic(TOPIC, retention_hold_groups=None)
    assert store.retain() == {(TOPIC, 0): [7, 9, 12]}


def test_a_group_of_an_older_topic_of_the_name_has_read_nothing(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(2))
    store.commit_offsets("g", {TOPIC: {0: 6}})
    store.delete_topic(TOPIC)
    store.close()
    store = Store.open(tmp_path, config=StoreConfig(retention_hold_groups="g", retention_bytes=0))
    store.create_topic(TOPIC)
    for _ in range(2):
        store.append(TOPIC, 0, [b"x"])
        store.roll(TOPIC, 0)
    assert store.retain() == {}


def test_whole_files_of_a_broker_go(tmp_path: Path) -> None:
    for kind in (BROKER, RUSTLOG):
        root = tmp_path / kind.name
        kind.write(root, [[b"a", b"b"], [b"c", b"d"], [b"e"]])
        store = Store.open(root)
        (guess,) = store.delete_records("orders", {0: 3}, dry_run=True)
        assert (guess.segments_before, guess.start_offset) == (1, 2)
        (report,) = store.delete_records("orders", {0: 3})
        assert (report.start_offset, offsets(store, topic="orders")) == (2, [2, 3, 4])
        with pytest.raises(OffsetOutOfRangeError):
            store.delete_records("orders", {0: 6})
    CURSUS.write(tmp_path / "c", [[b"a"], [b"b"]])
    with pytest.raises(ConfigError, match="counts offsets"):
        Store.open(tmp_path / "c").delete_records("orders", {0: 1})
