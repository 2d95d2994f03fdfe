"""Compaction against a plain dict: the last record of each key stays, at its offset."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from storage_core import Store, StoreConfig, UpkeepProgress
from storage_core.errors import ConfigError
from storage_core.maintenance.compaction_policy import CleanerCheckpoint, CleanPass
from tests.support.faulty_vfs import faulty
from tests.support.sizes import examples
from tests.support.store_lives import Record, contents, in_segments, latest, numbered
from tests.support.stores import TOPIC, errors, hours_later, names

COMPACT: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"key", b"x" * 2000])
VALUES = st.none() | st.binary(max_size=8)
GROUPS = st.lists(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=9), max_size=6)


def plain(store: Store) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row["offset"], row["key"], row["value"]) for row in contents(store)]


def offsets_of(store: Store) -> list[int]:
    return [row["offset"] for row in contents(store)]


@pytest.mark.slow
@given(
    groups=GROUPS,
    frame_records=st.integers(1, 4),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
    again=GROUPS,
)
@settings(max_examples=examples(30), deadline=None)
def test_what_stays_is_what_a_dict_would_keep(
    groups: list[list[Record]], frame_records: int, codec: str, again: list[list[Record]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = in_segments(
            Path(directory),
            groups,
            frame_records=frame_records,
            compression=codec,
            cleanup_policy="compact",
        )
        before = contents(store)
        for more in ([], again):
            for group in more:
                store.append(TOPIC, 0, [v for _, v in group], keys=[k for k, _ in group])
                store.roll(TOPIC, 0)
            if more:
                store.append(TOPIC, 0, [b"active again"])
                before += contents(store, start=before[-1]["offset"] + 1)
            store.compact(TOPIC, min_dirty_ratio=0)
            sealed = store.segments(TOPIC, 0)[-1].base
            kept = latest([(row["offset"], row["key"], row["value"]) for row in before], sealed)
            assert contents(store) == [row for row in before if row["offset"] in set(kept)]
            start = before[len(before) // 2]["offset"]
            assert contents(Store.open(directory), start=start) == [
                row for row in before if row["offset"] in set(kept) and row["offset"] >= start
            ]
        assert store.check() == []
        store.merge(TOPIC)
        assert [row["offset"] for row in contents(store)] == kept
        store.recompress(TOPIC, compression="lz4")
        assert contents(store) == [row for row in before if row["offset"] in set(kept)]
        assert store.check() == []
        assert store.offsets(TOPIC, 0).start == 0


def test_more_keys_than_memory_take_more_passes_with_the_same_result(tmp_path: Path) -> None:
    groups = numbered(6, each=2000, keys=5000, size=1)
    config = StoreConfig(compaction_memory_bytes=64 << 10)
    for name, given_config in (("small", config), ("large", StoreConfig())):
        store = in_segments(tmp_path / name, groups, config=given_config, **COMPACT)
        (report,) = store.compact(TOPIC)
        assert (report.records_removed, report.done) == (7000, True)
        marks = json.loads((tmp_path / name / "topics/t/0/cleaned.json").read_text())["marks"]
        assert len(marks) == (1 if name == "large" else pytest.approx(8, abs=6))
        assert marks[-1][0] == 12_000
        assert offsets_of(store) == [*range(7000, 12_001)]


def test_records_of_the_active_segment_alone_are_left_and_said(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, partitions=1, **COMPACT)
    store.append(TOPIC, 0, [b"x", b"y"], keys=[b"k", b"k"])
    assert store.compact(TOPIC)[0].note == "no segment is sealed yet"


def test_too_little_new_is_left_and_said(tmp_path: Path) -> None:
    store = in_segments(
        tmp_path, numbered(4, size=500), **{**COMPACT, "min_cleanable_dirty_ratio": 0.5}
    )
    assert store.compact(TOPIC)[0].records_removed == 10
    assert store.compact(TOPIC)[0].note == "nothing is new"
    store.append(TOPIC, 0, [b"y"], keys=[b"k0"])
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    (report,) = store.compact(TOPIC)
    assert report.records_removed == 0
    assert "is new, less than 50%" in report.note
    assert store.compact(TOPIC, min_dirty_ratio=0)[0].records_removed == 1


def test_a_dry_run_counts_what_would_go(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(4), **COMPACT)
    before = contents(store)
    (guess,) = store.compact(TOPIC, dry_run=True)
    assert contents(store) == before
    (real,) = store.compact(TOPIC)
    assert (guess.records_removed, guess.segments_before) == (10, 4)
    assert (real.records_removed, real.segments_before) == (10, 4)
    assert not guess.done
    assert guess.saved_bytes > 0


def test_only_topics_that_ask_for_it_are_compacted(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(3))
    with pytest.raises(ConfigError, match="cleanup_policy is 'delete'"):
        store.compact(TOPIC)
    assert store.compact() == []
    store.alter_topic(TOPIC, cleanup_policy="delete,compact", retention_bytes=0)
    assert len(store.retain(dry_run=True)[TOPIC, 0]) == 3
    store.alter_topic(TOPIC, cleanup_policy="compact")
    assert store.retain() == {}
    assert store.compact()[0].records_removed == 7


def test_a_null_value_stays_until_its_time_is_up_and_then_goes(tmp_path: Path) -> None:
    groups: list[list[Record]] = [[(b"a", b"1"), (b"b", b"2")], [(b"a", None)], [(b"c", b"3")]]
    store = in_segments(tmp_path, groups, delete_retention_ms=3_600_000, **COMPACT)
    assert store.compact(TOPIC)[0].records_removed == 1
    assert plain(store)[:3] == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    assert hours_later(tmp_path, 0.9).compact(TOPIC)[0].note == "nothing is new"
    after = hours_later(tmp_path, 1.1)
    assert after.compact(TOPIC)[0].records_removed == 1
    assert offsets_of(after) == [1, 3, 4]
    assert after.compact(TOPIC)[0].note == "nothing is new"


def test_a_null_value_never_goes_before_what_it_deletes(tmp_path: Path) -> None:
    groups: list[list[Record]] = [[(b"a", b"1")], [(b"a", None)]]
    store = in_segments(tmp_path, groups, delete_retention_ms=0, **COMPACT)
    assert store.compact(TOPIC)[0].records_removed == 1
    assert plain(store)[0] == (1, b"a", None)
    assert store.compact(TOPIC)[0].records_removed == 1
    assert offsets_of(store) == [2]


def test_segments_may_lose_every_record_and_the_log_goes_on(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(5, keys=1), **COMPACT)
    store.compact(TOPIC)
    assert offsets_of(store) == [14, 15]
    assert offsets_of(Store.open(tmp_path)) == [14, 15]
    assert [row["offset"] for row in contents(store, start=3)] == [14, 15]
    assert contents(store, start=3, end=9) == []
    assert store.offset_for_timestamp(TOPIC, 0, 0) == 14
    store.append(TOPIC, 0, [b"more"])
    assert store.offsets(TOPIC, 0).end == 17
    assert errors(store) == []
    assert store.merge(TOPIC)[0].segments_after == 1
    assert offsets_of(store) == [14, 15, 16]
    assert store.check() == []


def test_lost_marks_cost_a_pass_and_nothing_else(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(3), **COMPACT)
    store.compact(TOPIC)
    before = contents(store)
    (tmp_path / "topics/t/0/cleaned.json").write_text("{}")
    assert store.compact(TOPIC) == []
    assert contents(store) == before
    assert store.compact(TOPIC)[0].note == "nothing is new"


def test_a_stopped_compaction_goes_on_later(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(6), **COMPACT)
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 9

    (stopped,) = store.compact(TOPIC, stop=stop)
    assert (stopped.done, stopped.note) == (False, "stopped")
    assert 0 < stopped.records_removed < 16
    assert names(tmp_path, ".rewrite") == []
    (rest,) = store.compact(TOPIC)
    assert rest.records_removed + stopped.records_removed == 16
    assert offsets_of(store) == [16, 17, 18]


def test_passes_are_few_and_never_too_early() -> None:
    checkpoint = CleanerCheckpoint()
    for at in range(100):
        checkpoint = checkpoint.after(at + 1, at * 1000, tombstones=5, horizon=0)
    assert len(checkpoint.passes) <= 33
    assert checkpoint.first_dirty_offset == 100
    assert all(each.at_us >= (each.upto - 1) * 1000 for each in checkpoint.passes)
    two = CleanerCheckpoint((CleanPass(5, 0), CleanPass(9, 2_000_000)), tombstones=1)
    assert two.delete_horizon(1_000_000, delete_retention_ms=1000) == 5
    assert two.after(9, 2_500_000, 1, horizon=5).passes == two.passes


def many_keys(path: Path, **settings: Any) -> Store:
    """Sealed segments with 8,000 keys, each twice: more than fit into the smallest table."""
    config = StoreConfig(compaction_memory_bytes=1 << 16, segment_bytes=1 << 16)
    store = Store.open(path, create=True, config=config)
    store.create_topic(TOPIC, 1, **{**COMPACT, **settings})
    for _ in range(2):
        for first in range(0, 8000, 1000):
            keys = [b"%d" % number for number in range(first, first + 1000)]
            store.append(TOPIC, 0, [b"v" * 40] * 1000, keys)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    return store


def test_records_that_others_go_for_are_durable_before_they_go(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    with Store.open(tmp_path, create=True) as made:
        made.create_topic(TOPIC, 1, **COMPACT)
        made.append(TOPIC, 0, [b"old"] * 3, [b"a", b"b", b"c"])
        made.roll(TOPIC, 0)
        made.alter_topic(TOPIC, fsync="none")
    store = Store(vfs, StoreConfig())
    store.append(TOPIC, 0, [b"new"] * 3, [b"a", b"b", b"c"])
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    begin = len(vfs.calls)
    assert store.compact(TOPIC)[0].records_removed == 3
    calls = vfs.calls[begin:]
    swap = next(at for at, call in enumerate(calls) if call.path.endswith(".rewrite"))
    synced = [call.path for call in calls[:swap] if call.kind == "fsync"]
    assert any(path.endswith(f"{3:020}.log") for path in synced)


def test_a_plan_of_several_passes_says_that_there_is_more_to_do(tmp_path: Path) -> None:
    store = many_keys(tmp_path)
    (planned,) = store.compact(TOPIC, dry_run=True)
    assert not planned.done
    assert "more than one pass" in planned.note
    (report,) = store.compact(TOPIC)
    assert (report.records_removed, report.done) == (8000, True)


def test_segments_that_retention_takes_meanwhile_end_it(tmp_path: Path) -> None:
    store = many_keys(tmp_path, cleanup_policy="delete,compact", retention_bytes=0)
    other = Store.open(tmp_path)
    dropped: list[object] = []

    def drop(progress: UpkeepProgress) -> None:
        if not dropped and progress.done_bytes > 100_000:
            dropped.append(other.retain(TOPIC))

    store.compact(TOPIC, progress=drop)
    assert dropped
    assert store.check() == []
