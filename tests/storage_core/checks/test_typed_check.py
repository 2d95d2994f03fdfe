"""``check`` and ``repair`` of typed topics: schema files, frames, statistics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import Problem, SchemaVersion, Store
from storage_core.checks import inspect
from storage_core.engine import base
from storage_core.errors import DamagedMetadataError
from storage_core.format.typed_columns import make_typed_columns
from storage_core.metadata import high_watermark, slots
from storage_core.schema import statistics
from storage_core.schema.statistics import ColumnStatistics
from tests.support.stores import T0, after_reboot, segment, segments
from tests.support.typed.typed_segments import fill, rows, typed_store

SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("f", pa.float64()),
     ("s", pa.string()), ("b", pa.binary()), ("tags", pa.list_(pa.string()))]
)  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": 1, "at": T0, "f": 1.0, "s": "a" * 100, "b": b"\xff" * 100, "tags": ["x"]},
    {"id": 2, "at": T0 + 5, "f": float("nan"), "s": "\U0010ffff" * 40, "b": b"", "tags": None},
    {"id": None, "at": T0 + 1, "f": None, "s": None, "b": None, "tags": []},
]


def store_of(path: Path, **settings: Any) -> Store:
    store = typed_store(path, SCHEMA, timestamp_column="at", **settings)
    fill(store, [ROWS, ROWS])
    return store


def found(path: Path) -> list[Problem]:
    return Store.open(path).check()


def test_a_sound_typed_topic_has_no_problems(tmp_path: Path) -> None:
    for codec in ("none", "zstd"):
        store = store_of(tmp_path / codec, compression=codec, key_columns=["s"])
        store.alter_topic("t", add_columns=pa.schema([("more", pa.null())]))
        fill(store, [ROWS])
        assert store.check() == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_schema_file_that_is_missing_or_damaged_is_named(tmp_path: Path, version: int) -> None:
    store = store_of(tmp_path)
    store.alter_topic("t", add_columns=pa.schema([("more", pa.int8())]))
    store.close()
    path = tmp_path / f"topics/t/schemas/{version:08}.json"
    content = path.read_text()
    path.write_text(content.replace('"int64"', '"int32"').replace('"int8"', '"int16"'))
    assert f"{version:08}.json" in found(tmp_path)[0].message
    path.unlink()
    problems = found(tmp_path)
    assert {problem.code for problem in problems} == {"METADATA_DAMAGED"}
    assert any(f"{version:08}.json is missing" in problem.message for problem in problems)
    if version == 1:
        assert {problem.path for problem in problems} >= {
            f"topics/t/0/segments/{0:020}.log", f"topics/t/0/segments/{3:020}.log"
        }  # fmt: skip


def test_published_json_is_checked_and_repaired(tmp_path: Path) -> None:
    store_of(tmp_path).close()
    path = tmp_path / "topics/t/schemas/published.json"
    content = path.read_bytes()
    path.unlink()
    [problem] = found(tmp_path)
    assert (problem.severity, problem.code) == ("warning", "METADATA_DAMAGED")
    store = Store.open(tmp_path)
    store.repair()
    assert path.read_bytes() == content
    assert store.check() == []


def test_repair_restores_what_can_be_derived(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.alter_topic("t", add_columns=pa.schema([("more", pa.int8())]))
    before = repr(rows(store))
    store.close()
    (tmp_path / "topics/t/watermark").unlink()
    (tmp_path / "meta/broker.id").unlink()
    for index in segments(tmp_path).glob("*idx"):
        index.write_bytes(b"nothing")
    with segment(tmp_path, 6).open("ab") as log:
        log.write(b"a torn tail")
    codes = {problem.code for problem in found(tmp_path)}
    assert codes >= {"IDENTITY_MISMATCH", "RECOVERY_NEEDED", "INDEX_STALE"}
    store = after_reboot(tmp_path)
    (report,) = store.repair()
    assert (report.end_offset, report.cut_bytes) == (7, 11)
    assert repr(rows(store)) == before
    assert store.check() == []


def test_repair_says_what_it_cannot_restore_and_repairs_the_others(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.create_topic("u", schema=SCHEMA)
    store.close()
    for topic in ("t", "u"):
        (tmp_path / f"topics/{topic}/watermark").unlink()
    (tmp_path / "topics/t/schemas/published.json").unlink()
    store = after_reboot(tmp_path)
    with pytest.raises(DamagedMetadataError, match=r"published.json is missing"):
        store.repair()
    assert store.schema("u") is not None
    assert {problem.topic for problem in store.check()} == {"t"}


def test_rows_whose_columns_are_not_published_are_a_problem(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.alter_topic("t", add_columns=pa.schema([("more", pa.int8())]))
    fill(store, [ROWS])
    uid = store.topic("t").uuid.bytes
    store.close()
    watermark = high_watermark.read(store.vfs, "t", uid)
    assert watermark is not None
    assert watermark.schema == 2
    path = tmp_path / "topics/t/watermark"
    path.write_bytes(slots.pack(watermark._replace(schema=1)))
    problems = found(tmp_path)
    assert {problem.code for problem in problems} == {"METADATA_DAMAGED"}
    assert "the published schema lacks" in problems[0].message


Change = Callable[[dict[int, ColumnStatistics]], None]


def _raised(known: dict[int, ColumnStatistics]) -> None:
    known[1] = known[1]._replace(minimum=2)


def _lowered(known: dict[int, ColumnStatistics]) -> None:
    known[2] = known[2]._replace(maximum=T0 + 4)


def _no_nan(known: dict[int, ColumnStatistics]) -> None:
    known[3] = known[3]._replace(has_nan=False)


def _short(known: dict[int, ColumnStatistics]) -> None:
    known[4] = known[4]._replace(maximum="b")


def _no_nulls(known: dict[int, ColumnStatistics]) -> None:
    known[5] = known[5]._replace(nulls=0)


def _other_type(known: dict[int, ColumnStatistics]) -> None:
    known[1] = ColumnStatistics("1", "2", 1)


def _of_a_list(known: dict[int, ColumnStatistics]) -> None:
    known[6] = ColumnStatistics(1, 2, 1)


def _unknown(known: dict[int, ColumnStatistics]) -> None:
    known[77] = ColumnStatistics(1, 2, 0)


LIES = [_raised, _lowered, _no_nan, _short, _no_nulls, _other_type, _of_a_list, _unknown]


@pytest.mark.parametrize("lie", LIES)
def test_statistics_that_lie_are_found_although_the_checksum_is_right(
    tmp_path: Path, lie: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = statistics.of_rows

    def lying(given: Any) -> bytes:
        known = statistics.from_json(honest(given))
        assert known is not None
        lie(known)
        return statistics.to_json(known).encode()

    store = typed_store(tmp_path, SCHEMA, timestamp_column="at")
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "of_rows", lying)
        fill(store, [ROWS])
    problems = [
        problem for problem in store.check() if problem.path == f"topics/t/0/segments/{0:020}.log"
    ]
    [problem] = problems
    assert (problem.severity, problem.code) == ("error", "STATISTICS_WRONG")
    assert (problem.position, problem.offset) == (0, 0)
    store.recompress("t", compression="zstd")
    assert problem.path not in {problem.path for problem in store.check()}


def test_wider_or_missing_statistics_are_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = {1: ColumnStatistics(-9, 9, 1), 4: ColumnStatistics("", None, 1)}
    store = typed_store(tmp_path, SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "of_rows", lambda _: statistics.to_json(wide).encode())
        store.append_table("t", pa.RecordBatch.from_pylist(ROWS, SCHEMA))
        patch.setattr(statistics, "of_rows", lambda _: b"")
        store.append_table("t", pa.RecordBatch.from_pylist(ROWS, SCHEMA))
        assert store.check() == []
        patch.setattr(statistics, "of_rows", lambda _: b"{what}")
        store.append_table("t", pa.RecordBatch.from_pylist(ROWS, SCHEMA))
    [problem] = store.check()
    assert "cannot be read" in problem.message


def test_a_body_that_is_not_what_its_schema_says_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other columns under the number of a registered version: no reader can decode them."""
    store = typed_store(tmp_path, SCHEMA)
    other = typed_store(tmp_path / "other", pa.schema([("id", pa.string())]))
    schema = other.schema("t")
    assert schema is not None
    monkeypatch.setattr(base, "_require_schema", lambda *_: None)
    columns = make_typed_columns(
        pa.record_batch({"id": ["a", "b"]}), SchemaVersion(1, schema.fields),
        topic="t", timestamp_column=None, now_us=T0, max_record_bytes=None,
    )  # fmt: skip
    store.append_columns("t", 0, columns)
    [problem] = store.check()
    assert (problem.code, problem.offset) == ("LOG_DAMAGED", 0)


def test_the_order_of_times_in_the_active_segment_is_seen(tmp_path: Path) -> None:
    store = typed_store(tmp_path, SCHEMA, timestamp_column="at")
    store.append_table("t", pa.RecordBatch.from_pylist(ROWS, SCHEMA))
    path = f"topics/t/0/segments/{0:020}.log"
    order = inspect.time_order(store.vfs, path, 0, sealed=False)
    assert order == inspect.TimeOrder(T0, T0 + 5, in_order=False)
