"""Conversions of typed topics: into typed topics, and into records as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import Store, convert
from storage_core.errors import (
    ConversionError,
    DataLossError,
    SchemaMismatchError,
    StorageError,
    UnsupportedColumnError,
)
from storage_core.schema.json_reader import JsonReader
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import T0, errors, on
from tests.support.stores import rows as records
from tests.support.typed.typed_segments import fill, rows, typed_store

SCHEMA = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        ("at", pa.timestamp("us", tz="UTC")),
        ("f", pa.float64()),
        ("offset", pa.list_(pa.float32())),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("s", pa.struct([("d", pa.decimal128(9, 2)), ("b", pa.binary())])),
    ]
)
NAN = float("nan")


def group(first: int, count: int = 5) -> list[dict[str, Any]]:
    return [
        {
            "user": f"u{n % 3}",
            "at": None if n % 4 == 3 else T0 + n,
            "f": NAN if n % 2 else -0.0,
            "offset": [NAN, None, 1.5][: n % 4],
            "m": [("k", NAN)] if n % 2 else None,
            "s": {"d": None, "b": bytes([n])} if n % 3 else None,
        }
        for n in range(first, first + count)
    ]


def filled(path: Path, **settings: Any) -> Store:
    """A topic with three schema versions, of which the second was never published."""
    store = typed_store(
        path, SCHEMA, key_columns=["user"], timestamp_column="at",
        cleanup_policy="compact", **settings,
    )  # fmt: skip
    store.append_table("t", as_batch(group(0)), partition=0)
    store.roll("t", 0)
    store.register_schema("t", pa.schema([*SCHEMA, ("unseen", pa.int8())]), add=True)
    store.alter_topic("t", add_columns=pa.schema([("more", pa.int32())]))
    more = pa.schema([*SCHEMA, ("more", pa.int32())])
    store.append_table("t", as_batch([{**row, "more": 7} for row in group(5)], more), partition=0)
    return store


def as_batch(group: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(group, schema)


def test_a_typed_topic_keeps_all_that_it_is(tmp_path: Path) -> None:
    source = filled(tmp_path / "a", compression="zstd")
    source.compact("t", min_dirty_ratio=0)
    (done,) = convert(source, tmp_path / "b")
    target = Store.open(tmp_path / "b")
    assert done.copied == len(rows(source)) == 8
    assert repr(rows(target)) == repr(rows(source))
    ours, theirs = source.topic("t"), target.topic("t")
    assert (theirs.key_columns, theirs.timestamp_column) == (("user",), "at")
    assert theirs.settings == ours.settings
    versions = [found.schema for found in target.schema_versions("t")]
    assert versions == [found.schema for found in source.schema_versions("t")]
    assert [found.version for found in versions] == [1, 2, 3]
    assert errors(target) == []
    # Both go on alike.
    for store in (source, target):
        store.alter_topic("t", add_columns=pa.schema([("last", pa.int8())]))
        fill(store, [[{"user": "z"}]])
    assert target.schema("t") == source.schema("t")
    assert target.offsets("t", 0).end == source.offsets("t", 0).end


def test_a_conversion_goes_on_where_it_ended_with_new_columns(tmp_path: Path) -> None:
    source = filled(tmp_path / "a")
    convert(source, tmp_path / "b")
    source.alter_topic("t", add_columns=pa.schema([("last", pa.int8())]))
    fill(source, [[{"user": "z", "last": 1}]])
    (done,) = convert(source, tmp_path / "b")
    assert done.copied == 2
    target = Store.open(tmp_path / "b")
    assert repr(rows(target)) == repr(rows(source))
    assert target.schema("t") == source.schema("t")
    assert convert(source, tmp_path / "b")[0].copied == 0


@pytest.mark.slow
@pytest.mark.parametrize("typed_as", [None, "json"])
def test_a_conversion_that_is_killed_anywhere_goes_on(tmp_path: Path, typed_as: Any) -> None:
    source = filled(tmp_path / "a")
    whole = tmp_path / "whole"
    convert(source, whole, typed_as=typed_as)
    columns = None if typed_as else ["_offset", "_timestamp", "user", "f"]
    wanted = repr(records(Store.open(whole).read("t", 0, columns=columns)))
    step, killed = 0, True
    while killed:
        path = tmp_path / str(step)
        Store.open(path, create=True).close()
        vfs = faulty(path)
        vfs.crash_after, vfs.real_syncs = step, False
        try:
            convert(source, on(vfs), typed_as=typed_as)
            killed = False
        except CrashError:
            convert(source, path, typed_as=typed_as)
        found = Store.open(path)
        assert repr(records(found.read("t", 0, columns=columns))) == wanted
        assert errors(found) == []
        step += 5


def test_times_of_the_append_are_kept(tmp_path: Path) -> None:
    source = typed_store(tmp_path / "a", SCHEMA)
    fill(source, [group(0)])
    convert(source, tmp_path / "b")
    assert repr(rows(Store.open(tmp_path / "b"))) == repr(rows(source))


def test_rows_can_be_numbered_from_0(tmp_path: Path) -> None:
    source = filled(tmp_path / "a")
    source.delete_records("t", {0: 2})
    for again in range(2):
        (done,) = convert(source, tmp_path / "b", renumber=True)
        assert done.copied == (0 if again else 8)
    found = rows(Store.open(tmp_path / "b"))
    assert [row["_offset"] for row in found] == list(range(8))
    without = [{**row, "_offset": at} for at, row in enumerate(rows(source))]
    assert repr(found) == repr(without)


def test_an_emptied_topic_goes_on_at_its_offset(tmp_path: Path) -> None:
    source = filled(tmp_path / "a")
    source.delete_records("t", {0: 10})
    convert(source, tmp_path / "b")
    target = Store.open(tmp_path / "b")
    fill(target, [[{"user": "z"}]])
    assert [row["_offset"] for row in rows(target)] == [10, 11]


def test_a_target_with_another_topic_of_the_name_is_refused(tmp_path: Path) -> None:
    source = filled(tmp_path / "a")
    other = typed_store(tmp_path / "b", SCHEMA)
    with pytest.raises(ConversionError, match="key columns and timestamp column are"):
        convert(source, other)
    columns = pa.schema([pa.field("user", pa.string(), nullable=False), ("at", SCHEMA.types[1])])
    other = typed_store(tmp_path / "c", columns, key_columns=["user"], timestamp_column="at")
    with pytest.raises(SchemaMismatchError, match="other columns in schema version 1"):
        convert(source, other)
    record_store = Store.open(tmp_path / "d", create=True)
    record_store.create_topic("t")
    with pytest.raises(ConversionError, match="kind, key columns"):
        convert(source, record_store)
    with pytest.raises(ConversionError, match="is a typed topic in the target"):
        convert(record_store, source)
    with pytest.raises(ConversionError, match="is a typed topic in the target"):
        convert(typed_store(tmp_path / "e", SCHEMA), source, typed_as="json")


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_layout_without_columns_says_what_to_do(tmp_path: Path, layout: str) -> None:
    source = filled(tmp_path / "a")
    with pytest.raises(UnsupportedColumnError, match="--typed-as json"):
        convert(source, tmp_path / "b", layout=layout)
    assert list((tmp_path / "b").glob("[a-z]*")) == []
    with pytest.raises(UnsupportedColumnError, match="columns of its own"):
        convert(source, tmp_path / "c", drop=["timestamp"])
    with pytest.raises(StorageError, match="typed_as must be"):
        convert(source, tmp_path / "c", typed_as="xml")  # type: ignore[arg-type]


def test_rows_become_json_that_can_be_read_again(tmp_path: Path) -> None:
    source = filled(tmp_path / "a")
    # A tombstone: it has nothing but its key.
    source.append_table("t", pa.record_batch({"user": ["u1"]}), partition=0)
    before = rows(source)
    (done,) = convert(source, tmp_path / "b", typed_as="json")
    assert done.copied == 11
    target = Store.open(tmp_path / "b")
    assert not target.topic("t").is_typed
    found = records(target.read("t", 0))
    assert [row["offset"] for row in found] == list(range(11))
    assert [row["timestamp"] for row in found] == [row["_timestamp"] for row in before]
    assert [json.loads(row["key"]) for row in found] == [{"user": row["user"]} for row in before]
    assert [row["value"] is None for row in found] == [False] * 10 + [True]
    schema = source.schema("t")
    assert schema is not None
    reader = JsonReader(schema)
    back = reader.batch([reader.read(row["value"]) for row in found[:10]]).to_pylist()
    plain = [{name: row[name] for name in schema.arrow.names} for row in before[:10]]
    assert repr(back) == repr(plain)
    # Compaction of the records keeps what compaction of the rows keeps.
    for store in (source, target):
        store.roll("t", 0)
    fill(source, [])
    target.append("t", 0, [b"active"])
    for store in (source, target):
        store.compact("t", min_dirty_ratio=0)
    assert [row["offset"] for row in records(target.read("t", 0))] == [
        row["_offset"] for row in rows(source)
    ]
    assert convert(source, tmp_path / "c", typed_as="json", drop=["key"])[0].copied
    kept = records(Store.open(tmp_path / "c").read("t", 0))
    assert all(row["key"] is None and row["value"] is not None for row in kept)


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_rows_become_json_in_the_files_of_a_broker(tmp_path: Path, layout: str) -> None:
    source = filled(tmp_path / "a")
    source.append_table("t", pa.record_batch({"user": ["u1"]}), partition=0)
    drop = [] if layout == "cursus-broker" else ["key"]
    if drop:
        with pytest.raises(UnsupportedColumnError, match="'key'"):
            convert(source, tmp_path / "b", layout=layout, typed_as="json")
    (done,) = convert(source, tmp_path / "b", layout=layout, typed_as="json", drop=drop)
    assert done.copied == 11
    found = records(Store.open(tmp_path / "b").read("t", 0))
    values = [json.loads(row["value"]) for row in found]
    assert [row["user"] for row in values] == [row["user"] for row in rows(source)]
    assert values[-1]["f"] is None
    if not drop:
        assert json.loads(found[0]["key"]) == {"user": "u0"}


def test_equal_keys_have_equal_texts(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.list_(pa.float64())), ("v", pa.int8())])
    source = typed_store(tmp_path / "a", schema, key_columns=["k"])
    table = pa.table({"k": [[-0.0], [0.0], [NAN], [-NAN], None], "v": [1] * 5}, schema=schema)
    source.append_table("t", table)
    convert(source, tmp_path / "b", typed_as="json")
    keys = [row["key"] for row in records(Store.open(tmp_path / "b").read("t", 0))]
    assert keys == [b'{"k":[0.0]}'] * 2 + [b'{"k":["NaN"]}'] * 2 + [b'{"k":null}']


def test_topics_of_both_kinds_are_copied_together(tmp_path: Path) -> None:
    source = filled(tmp_path / "a")
    source.create_topic("u", 2)
    source.append("u", 1, [b"x"])
    convert(source, tmp_path / "b")
    convert(source, tmp_path / "c", typed_as="json")
    for path, typed in ((tmp_path / "b", True), (tmp_path / "c", False)):
        store = Store.open(path)
        assert store.topic("t").is_typed is typed
        assert records(store.read("u", 1, columns=["value"])) == [{"value": b"x"}]
        assert store.check() == []


@pytest.mark.parametrize("typed_as", [None, "json"])
def test_rows_that_are_removed_meanwhile_are_not_called_copied(
    tmp_path: Path, typed_as: Any
) -> None:
    source = Store.open(tmp_path / "a", create=True)
    source.create_topic("t", 2, schema=pa.schema([("id", pa.int64())]))
    for partition in (0, 1):
        source.append_table("t", pa.table({"id": list(range(100))}), partition=partition)
    seen = list[Any]()

    def remove(progress: Any) -> None:
        if not seen:
            source.delete_records("t", {1: 60})
        seen.append(progress)

    with pytest.raises(DataLossError, match="t-1: records 0 to 59"):
        convert(source, tmp_path / "b", typed_as=typed_as, progress=remove)
    found = convert(source, tmp_path / "b", typed_as=typed_as)
    assert [(each.offsets.start, each.offsets.end) for each in found] == [(0, 100), (60, 100)]
