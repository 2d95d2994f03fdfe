"""Compaction of stores of objects: the same result as in a native store, without a lock."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from storage_core import Store
from storage_core.errors import DamagedLogError
from storage_core.objects.maintenance import compaction
from storage_core.objects.vfs_backend import VfsBackend
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.objects.object_stores import later, on
from tests.support.sizes import examples
from tests.support.store_lives import Record, contents, in_segments, latest, numbered
from tests.support.stores import TOPIC, columns_of, errors, offsets, values
from tests.support.typed.typed_segments import rows, rows_as_batch

COMPACT: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"x" * 2000])
GROUPS = st.lists(
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=8)), min_size=1, max_size=9), max_size=6
)
EVENTS = pa.schema([("user", pa.string()), ("n", pa.int32())])
ROWS = st.fixed_dictionaries(
    {"user": st.none() | st.sampled_from(["", "a", "b"]), "n": st.none() | st.integers(0, 3)}
)


def make(path: Path, groups: list[list[Record]], **settings: Any) -> Store:
    return in_segments(path, groups, layout="objects", **{**COMPACT, **settings})


def a_day_later(path: Path) -> Store:
    vfs = faulty(path)
    later(vfs, 25 / 24)
    return on(vfs)


@pytest.mark.slow
@given(groups=GROUPS, frame_records=st.integers(1, 4), again=GROUPS)
@settings(max_examples=examples(20), deadline=None)
def test_what_stays_is_what_a_dict_would_keep(
    groups: list[list[Record]], frame_records: int, again: list[list[Record]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = make(Path(directory), groups, frame_records=frame_records)
        before = contents(store)
        for more in ([], again):
            for group in more:
                store.append(TOPIC, 0, [v for _, v in group], keys=[k for k, _ in group])
            before += contents(store, start=before[-1]["offset"] + 1)
            store.compact(TOPIC)
            end = store.offsets(TOPIC, 0).end
            kept = set(latest([(row["offset"], row["key"], row["value"]) for row in before], end))
            expected = [row for row in before if row["offset"] in kept]
            assert contents(store) == contents(Store.open(directory)) == expected
        assert store.check() == []
        store.merge(TOPIC)
        assert contents(store) == contents(Store.open(directory)) == expected
        assert store.check() == []
        assert store.offsets(TOPIC, 0).start == 0


@pytest.mark.slow
@given(groups=st.lists(st.lists(ROWS, min_size=1, max_size=9), min_size=1, max_size=5))
@settings(max_examples=examples(10), deadline=None)
def test_typed_rows_stay_as_a_dict_would_keep_them(groups: list[list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(directory, layout="objects", create=True)
        store.create_topic(TOPIC, schema=EVENTS, key_columns=["user"], **COMPACT)
        for group in groups:
            store.append_table(TOPIC, rows_as_batch(group, EVENTS), partition=0)
        before = rows(store)
        last = {row["user"]: row["_offset"] for row in before}
        store.compact(TOPIC)
        kept = [row for row in before if last[row["user"]] == row["_offset"]]
        assert rows(store) == kept
        assert store.check() == []


def test_tombstones_go_after_their_time_and_never_before_what_they_delete(tmp_path: Path) -> None:
    store = make(tmp_path, [[(b"k", b"v"), (b"other", b"v")], [(b"k", None)]])
    assert store.compact(TOPIC)[0].records_removed == 1
    assert offsets(store) == [1, 2, 3]
    assert store.compact(TOPIC)[0].note == "nothing is new"
    (mark,) = json.loads(next(tmp_path.glob("logs/*/cleaned/0.json")).read_text())["marks"]
    assert mark[0] == 4
    tomorrow = a_day_later(tmp_path)
    assert tomorrow.compact(TOPIC)[0].records_removed == 1
    assert offsets(tomorrow) == [1, 3]


def test_a_lost_or_damaged_checkpoint_costs_a_pass_and_no_tombstone(tmp_path: Path) -> None:
    store = make(tmp_path, [[(b"k", b"v")], [(b"k", None)]])
    store.compact(TOPIC)
    (path,) = tmp_path.glob("logs/*/cleaned/0.json")
    for damage in (b"", b"{", b'{"format": 1, "topic_uuid": "x"}', b"[]"):
        path.unlink()
        path.write_bytes(damage)
        assert a_day_later(tmp_path).compact(TOPIC, dry_run=True) == []
    assert offsets(store) == [1, 2]


def test_a_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    store = make(tmp_path, numbered(4, keys=2))
    before = contents(store)
    (planned,) = store.compact(TOPIC, dry_run=True)
    assert (planned.records_removed, planned.done) == (10, False)
    assert contents(Store.open(tmp_path)) == before
    assert store.compact(TOPIC)[0].records_removed == planned.records_removed


def test_many_slices_are_replaced_by_few_objects(tmp_path: Path) -> None:
    store = make(tmp_path, numbered(30, keys=2))
    commits = len(list(tmp_path.glob("logs/*/*.commit")))
    store.compact(TOPIC)
    assert len(list(tmp_path.glob("data/*/*.frames"))) == 1
    assert len(list(tmp_path.glob("logs/*/*.commit"))) == commits + 1


def test_slices_that_are_gone_meanwhile_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others delete, merge and append between the upload and the commit."""
    monkeypatch.setattr(compaction, "_UPLOAD_BYTES", 1)
    store, other = make(tmp_path, numbered(6, keys=2)), Store.open(tmp_path)
    done = list[int]()

    def meanwhile(_: object) -> None:
        done.append(1)
        if len(done) == 9:  # all keys are known, and the first slice is being rewritten
            other.append(TOPIC, 0, [b"late"], keys=[b"k0"])
            other.delete_records(TOPIC, {0: 4})
            other.merge(TOPIC)

    (report,) = store.compact(TOPIC, progress=meanwhile)
    assert len(done) > 9
    assert (report.note, report.done) == ("segments changed meanwhile", False)
    assert not list(tmp_path.glob("logs/*/cleaned/*"))
    assert offsets(other) == [*range(4, 20)]
    store.compact(TOPIC)
    assert offsets(other) == [17, 18, 19]
    assert errors(store) == []


def test_a_missing_object_stops_it_and_nothing_is_called_clean(tmp_path: Path) -> None:
    store = make(tmp_path, [[(b"k", b"1" * (2 << 20))], [(b"k", b"2")]])
    (large,) = tmp_path.glob("data/*/*.frames")
    large.rename(tmp_path / "away")
    with pytest.raises(DamagedLogError, match="is missing"):
        store.compact(TOPIC)
    assert not list(tmp_path.glob("logs/*/cleaned/*"))
    (tmp_path / "away").rename(large)
    assert store.compact(TOPIC)[0].records_removed == 1


@pytest.mark.slow
def test_every_crash_leaves_all_latest_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each change; another process appends and compacts again."""
    monkeypatch.setattr(compaction, "_UPLOAD_BYTES", 1)
    for calls in range(200):
        root = tmp_path / str(calls)
        make(root, [[(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")], [(b"b", None)]]).close()
        vfs = faulty(root)
        vfs.real_syncs, vfs.crash_after = False, calls
        try:
            on(vfs).compact(TOPIC)
            break
        except CrashError:
            store = Store.open(root)
            assert set(offsets(store)) >= {2, 3, 4}
            store.compact(TOPIC)
            assert (offsets(store), errors(store)) == ([2, 3, 4], [])
    else:
        pytest.fail("a compaction makes more than 200 changes")
    assert calls > 5
    assert values(Store.open(root)) == [b"2", None, b"the active segment"]


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_merge_and_garbage_collection_beside_it_bring_no_deleted_key_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The pass has not seen the keys of the slice that is gone, so it must not count."""
    Store.open(tmp_path, layout="objects", create=True).close()
    vfs = faulty(tmp_path)
    on(vfs).create_topic(TOPIC, 1, **COMPACT)

    def commit(job: str, key: bytes, value: bytes | None) -> None:
        stage = on(vfs).stage(job)
        stage.write(TOPIC, 0, columns_of([value], keys=[key]))
        on(vfs).commit(job, stage.finish())

    for number, (key, value) in enumerate([(b"k", b"v"), (b"a", b""), (b"k", None), (b"b", b"")]):
        commit(f"job-{number}", key, value)
    later(vfs, 3)
    true, reads = VfsBackend.get_ranges, list[str]()

    def late(backend: VfsBackend, key: str, ranges: Any = None) -> Any:
        reads.append(key)
        if sum(key.startswith("data/") for key in reads) == nth and key.startswith("data/"):
            assert on(vfs).merge(TOPIC)[0].segments_before == 4
            assert on(vfs).collect_garbage()[0] == 4
        return true(backend, key, ranges)

    monkeypatch.setattr(VfsBackend, "get_ranges", late)
    on(vfs).compact(TOPIC)
    monkeypatch.undo()
    for number in range(2):
        later(vfs, 3)
        commit(f"late-{number}", b"late", b"")
        on(vfs).compact(TOPIC)
    assert [row["key"] for row in contents(on(vfs))] == [b"a", b"b", b"late"]
