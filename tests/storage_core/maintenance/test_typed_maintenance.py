"""Merge, recompress, retention, deletion and scrub of typed topics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.config import CODECS
from storage_core.errors import DamagedMetadataError
from storage_core.handlers.background import Maintainer
from tests.support.faulty_vfs import CrashError, FaultyVfs, faulty
from tests.support.stores import T0, after_reboot, errors, names, on, overwrite, segment
from tests.support.typed.typed_segments import fill, frames, rows, typed_store

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("amount", pa.float64()),
    ]
)


def group(first: int, count: int = 4, at: int = T0) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "at": at + n,
            "name": None if n % 3 == 0 else f"name {n}",
            "tags": ["a"] * (n % 3),
            "amount": float("nan") if n % 5 == 0 else n / 2,
        }
        for n in range(first, first + count)
    ]


def store_of(path: Path, segments: int = 5, **settings: Any) -> Store:
    store = typed_store(path, SCHEMA, timestamp_column="at", **settings)
    fill(store, [group(4 * n) for n in range(segments)])
    return store


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Whether rows are equal, NaN included."""
    return repr(found) == repr(wanted)


def evolved(path: Path, **settings: Any) -> Store:
    """Two segments of version 1, then two of version 2, which has a column more."""
    store = typed_store(path, SCHEMA, timestamp_column="at", **settings)
    fill(store, [group(0), group(4)])
    store.alter_topic("t", add_columns=pa.schema([("more", pa.string())]))
    fill(store, [[{**row, "more": "x"} for row in group(8)], group(12)])
    return store


def test_merge_joins_frames_of_one_schema_version(tmp_path: Path) -> None:
    store = evolved(tmp_path)
    before = rows(store)
    (report,) = store.merge("t")
    assert (report.segments_before, report.segments_after) == (4, 1)
    assert same(rows(store), before)
    assert same(rows(Store.open(tmp_path), start=6, end=11), before[6:11])
    merged = frames(store)
    assert [frame.version for frame in merged] == [1, 1, 2, 2]  # a row without a time has its own
    assert [frame.header.records for frame in merged] == [8, 1, 8, 1]
    low, high = merged[0].statistics[1].minimum, merged[0].statistics[1].maximum
    assert (low, high) == (0, 7)
    assert store.scan("t", where="id = 13").to_table().column("id").to_pylist() == [13]
    assert store.check() == []


def test_a_merged_log_is_found_by_time(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    found = [store.offset_for_timestamp("t", 0, T0 + n) for n in range(20)]
    store.merge("t")
    assert found == [store.offset_for_timestamp("t", 0, T0 + n) for n in range(20)]
    assert found == list(range(20))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_there_and_back_the_rows_stay(tmp_path: Path, codec: Literal["lz4", "zstd"]) -> None:
    store = evolved(tmp_path)
    before, known = rows(store), [frame.statistics for frame in frames(store)]
    versions = [frame.version for frame in frames(store)]
    (guess,) = store.recompress("t", compression=codec, dry_run=True)
    assert guess.segments_before == 4
    for wanted in (codec, "none"):
        (report,) = store.recompress("t", compression=wanted)
        assert report.segments_before == 4
        sealed = frames(store)[:-1]
        assert {CODECS[frame.header.codec] for frame in sealed} == {wanted}
        assert same(rows(store), before)
        assert [frame.statistics for frame in frames(store)] == known
        assert [frame.version for frame in frames(store)] == versions
        assert store.check() == []
    assert store.recompress("t", compression="none") == []


def test_compressed_columns_save_space(tmp_path: Path) -> None:
    store = typed_store(tmp_path, SCHEMA)
    fill(store, [group(0, 5000)])
    (guess,) = store.recompress("t", compression="zstd", dry_run=True)
    (report,) = store.recompress("t", compression="zstd")
    assert report.bytes_after < report.bytes_before / 3
    assert guess.bytes_after == pytest.approx(report.bytes_after, rel=0.1)


def test_retention_goes_by_the_timestamp_column(tmp_path: Path) -> None:
    store = typed_store(tmp_path, SCHEMA, timestamp_column="at", retention_ms=1000)
    now = store.vfs.now_us()
    old = group(0, at=now - 3_600_000_000)
    # The newest row of a segment decides, wherever it stands.
    mixed = [{**row, "at": now} if row["id"] == 5 else row for row in group(4, at=T0)]
    fill(store, [old, mixed, group(8, at=T0)])
    assert store.retain("t", dry_run=True) == {("t", 0): [0]}
    assert store.retain("t") == {("t", 0): [0]}
    assert [row["id"] for row in rows(store)] == [*range(4, 12), -1]
    assert store.check() == []


def test_retention_by_size_drops_the_oldest(tmp_path: Path) -> None:
    store = store_of(tmp_path, retention_bytes=1)
    store.retain("t")
    assert [row["id"] for row in rows(store)] == [-1]
    assert store.offsets("t", 0).start == 20


@pytest.mark.parametrize("offset", [0, 3, 4, 6, 8, 10, 17, 18])
def test_exactly_the_rows_below_the_offset_go(tmp_path: Path, offset: int) -> None:
    store = evolved(tmp_path)
    before = rows(store)
    store.delete_records("t", {0: offset})
    assert same(rows(store), before[offset:])
    assert same(rows(Store.open(tmp_path)), before[offset:])
    assert store.offsets("t", 0).start == offset
    assert store.check() == []


def test_a_compacted_segment_is_cut_between_its_rows(tmp_path: Path) -> None:
    store = typed_store(tmp_path, SCHEMA, key_columns=["name"], cleanup_policy="compact")
    fill(store, [[{"id": n, "name": f"k{n % 4 // 3}"} for n in range(12)]])
    store.compact("t", min_dirty_ratio=0)
    assert [row["_offset"] for row in rows(store)] == [10, 11, 12]
    store.delete_records("t", {0: 11})
    assert [row["id"] for row in rows(store)] == [11, -1]
    assert store.check() == []


def test_a_sound_log_has_no_problems_and_damage_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    (report,) = store.scrub("t")
    assert (report.segments_before, report.problems) == (5, ())
    overwrite(segment(tmp_path, 4), lambda data: data.__setitem__(200, data[200] ^ 1))
    (report,) = store.scrub("t")
    assert [problem.code for problem in report.problems] == ["LOG_DAMAGED"]


def test_scrub_misses_a_schema_that_frames_name(tmp_path: Path) -> None:
    evolved(tmp_path).close()
    (tmp_path / "topics/t/schemas/00000001.json").unlink()
    store = Store.open(tmp_path)
    (report,) = store.scrub("t")
    assert {problem.code for problem in report.problems} == {"METADATA_DAMAGED"}
    assert len(report.problems) == 3
    with pytest.raises(DamagedMetadataError, match=r"00000001\.json is missing"):
        store.merge("t")
    assert len(names(tmp_path, ".log")) == 5
    assert names(tmp_path, ".rewrite") == []


def test_the_maintainer_works_on_typed_topics(tmp_path: Path) -> None:
    store = typed_store(
        tmp_path, SCHEMA, key_columns=["name"], timestamp_column="at",
        cleanup_policy="delete,compact", min_cleanable_dirty_ratio=0.0, merge_below_bytes=1 << 20,
        cold_compression="zstd", cold_after_ms=1000,
    )  # fmt: skip
    fill(store, [[{"id": n, "at": T0, "name": f"k{n % 3}", "amount": 1.0}] for n in range(10)])
    Maintainer(store)._maintain("t")
    assert [row["id"] for row in rows(store)] == [7, 8, 9, -1]
    assert {CODECS[frame.header.codec] for frame in frames(store)[:-1]} == {"zstd"}
    assert len(names(tmp_path, ".log")) == 2
    assert store.check() == []


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "merge": lambda store: store.merge("t"),
    "compact": lambda store: store.compact("t", min_dirty_ratio=0),
    "recompress": lambda store: store.recompress("t", compression="zstd"),
    "delete": lambda store: store.delete_records("t", {0: 6}),
}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_after_any_call_leaves_what_was_or_what_comes(
    tmp_path: Path, operation: str
) -> None:
    """No crash loses a row that stays, and the next run ends as one without a crash."""
    original = tmp_path / "original"
    store = typed_store(original, SCHEMA, key_columns=["name"], cleanup_policy="compact")
    fill(store, [[{"id": n, "name": "a"}, {"id": n, "name": f"b{n}"}] for n in range(3)])
    before = [row["_offset"] for row in rows(store)]
    store.close()

    def run(path: Path, crash_after: int | None = None) -> FaultyVfs:
        vfs = faulty(path)
        vfs.crash_after, vfs.real_syncs = crash_after, False
        OPERATIONS[operation](on(vfs))
        return vfs

    whole = tmp_path / "whole"
    shutil.copytree(original, whole)
    steps, wanted = run(whole).changes, rows(Store.open(whole))
    kept = {row["_offset"] for row in wanted}
    for count in range(steps):
        path = tmp_path / f"crash-{count}"
        shutil.copytree(original, path)
        with pytest.raises(CrashError):
            run(path, count)
        assert kept <= {row["_offset"] for row in rows(Store.open(path))} <= set(before)
        again = after_reboot(path)
        again.append_table("t", pa.record_batch({"id": pa.array([], pa.int64())}))
        assert errors(again) == []
        run(path)
        assert rows(Store.open(path)) == wanted
        assert names(path, ".rewrite") == names(path, ".tomb") == []
        shutil.rmtree(path)
