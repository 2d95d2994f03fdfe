"""Compaction of typed topics against a plain dict: the latest row of each key stays."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError, InvalidSchemaError
from storage_core.handlers.background import Maintainer
from tests.support.sizes import examples
from tests.support.stores import hours_later
from tests.support.typed.typed_segments import fill, frames, rows, typed_store

COMPACT: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
EVENTS = pa.schema([("user", pa.string()), ("n", pa.int32()), ("tags", pa.list_(pa.string()))])
KEYS = st.none() | st.sampled_from(["", "a", "b", "x" * 2000])
ROWS = st.fixed_dictionaries(
    {
        "user": KEYS,
        "n": st.none() | st.integers(0, 3),
        "tags": st.none() | st.lists(st.none() | st.just("t"), max_size=2),
    }
)
GROUPS = st.lists(st.lists(ROWS, min_size=1, max_size=9), min_size=1, max_size=5)


def latest(found: list[dict[str, Any]], key: str, sealed: int) -> list[dict[str, Any]]:
    """What a dict keeps of the rows below ``sealed``, and all rows after it."""
    last = {row[key]: row["_offset"] for row in found if row["_offset"] < sealed}
    return [row for row in found if row["_offset"] >= sealed or last[row[key]] == row["_offset"]]


@pytest.mark.slow
@given(
    groups=GROUPS,
    frame_records=st.integers(1, 4),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
    again=GROUPS,
)
@settings(max_examples=examples(15), deadline=None)
def test_what_stays_is_what_a_dict_would_keep(
    groups: list[list[Any]], frame_records: int, codec: str, again: list[list[Any]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = typed_store(
            Path(directory), EVENTS, key_columns=["user"],
            frame_records=frame_records, compression=codec, **COMPACT,
        )  # fmt: skip
        for more in (groups, again):
            fill(store, more)
            before = rows(store)
            store.compact("t")
            sealed = store.segments("t", 0)[-1].base
            before = latest(before, "user", sealed)
            assert rows(store) == rows(Store.open(directory)) == before
            assert store.check() == []
        store.merge("t")
        store.recompress("t", compression="lz4")
        assert rows(store) == before
        assert store.check() == []


def test_a_key_has_one_latest_row_across_schema_versions(tmp_path: Path) -> None:
    """Widening a key column, or adding a field to a struct in the key, changes no key."""
    at = pa.struct([("x", pa.int8())])
    first = pa.schema(
        [("n", pa.int8()), ("f", pa.float32()), ("d", pa.decimal128(4, 1)), ("at", at),
         ("value", pa.string())]
    )  # fmt: skip
    wide = pa.schema(
        [("n", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(20, 3)),
         ("at", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("value", pa.string()),
         ("more", pa.int32())]
    )  # fmt: skip
    store = typed_store(tmp_path, first, key_columns=["n", "f", "d", "at"], **COMPACT)
    old = [{"n": n, "f": 0.1, "d": "1.5", "at": {"x": n}, "value": f"old {n}"} for n in (1, 2, 3)]
    fill(store, [old], schema=first)
    version = store.register_schema("t", wide, add=True, widen=True)
    assert version.version == 2
    # The float32 0.1 is another double than 0.1: the same key has the old value, widened.
    tenth = pa.scalar(0.1, pa.float32()).cast(pa.float64()).as_py()
    new = [
        {"n": 1, "f": tenth, "d": "1.500", "at": {"x": 1}, "value": "new", "more": 1},
        {"n": 2, "f": tenth, "d": "1.500", "at": {"x": 2, "y": "z"}, "value": "another key"},
        {"n": 3, "f": tenth, "d": "1.500", "at": {"x": 3}, "value": None},
    ]
    fill(store, [new], schema=wide, version=version)
    fill(store, [[{"n": 9}]], schema=wide)
    store.merge("t")  # both versions in one segment
    assert {frame.version for frame in frames(store)} == {1, 2}
    (report,) = store.compact("t")
    assert report.records_removed == 3
    kept = [(row["n"], row["value"]) for row in rows(store)]
    assert kept == [
        (2, "old 2"), (1, "new"), (2, "another key"), (3, None), (-1, None), (9, None), (-1, None),
    ]  # fmt: skip
    assert {frame.version for frame in frames(store)} == {1, 2}
    assert store.check() == []


def test_a_row_of_nothing_but_its_key_stays_until_its_time_is_up(tmp_path: Path) -> None:
    schema = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")),
                        ("n", pa.int32())])  # fmt: skip
    store = typed_store(tmp_path, schema, key_columns=["user"], timestamp_column="at", **COMPACT)
    timed = {"user": "b", "at": 1_700_000_000_000_000}
    fill(store, [[{"user": "a", "n": 1}, {"user": "b", "n": 2}], [{"user": "a"}, timed]])
    store.compact("t")
    assert [row["user"] for row in rows(store)] == ["a", "b", None]
    assert store.compact("t")[0].note == "nothing is new"
    store.close()
    store = hours_later(tmp_path, 30)
    store.compact("t")
    # A row that has a time says more than its key.
    assert [row["user"] for row in rows(store)] == ["b", None]
    assert store.check() == []


def test_rows_that_are_only_a_key_are_no_tombstones(tmp_path: Path) -> None:
    store = typed_store(
        tmp_path, pa.schema([("user", pa.string())]), key_columns=["user"], **COMPACT
    )
    fill(store, [[{"user": "a"}, {"user": "b"}], [{"user": "a"}]])
    wide = pa.schema([("user", pa.string()), ("n", pa.int32())])
    store.alter_topic("t", add_columns=wide)
    fill(store, [[{"user": "c"}]])
    store.compact("t")
    store.close()
    store = hours_later(tmp_path, 30)
    fill(store, [[{"user": "d"}]])
    store.compact("t")
    assert [row["user"] for row in rows(store)] == ["b", "a", "c", None, "d", None]


def test_more_keys_than_memory_take_more_passes(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    config = StoreConfig(compaction_memory_bytes=64 << 10)
    store = typed_store(tmp_path, schema, key_columns=["k"], config=config, **COMPACT)
    numbers = [range(at, at + 2000) for at in range(0, 8000, 2000)]
    fill(store, [[{"k": n % 4000, "v": n} for n in group] for group in numbers])
    (report,) = store.compact("t")
    assert (report.records_removed, report.done) == (4000, True)
    assert [row["v"] for row in rows(store)] == [*range(4000, 8000), None]


def test_a_dry_run_counts_what_would_go(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    store = typed_store(tmp_path, schema, key_columns=["k"], **COMPACT)
    fill(store, [[{"k": n % 3, "v": n} for n in range(10)]])
    before = rows(store)
    (guess,) = store.compact("t", dry_run=True)
    assert rows(store) == before
    (real,) = store.compact("t")
    assert guess.records_removed == real.records_removed == 7


def test_a_topic_without_key_columns_refuses_compaction(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    store = Store.open(tmp_path, create=True, config=StoreConfig(cleanup_policy="compact"))
    with pytest.raises(ConfigError, match="the typed topic has no key columns"):
        store.create_topic("t", schema=schema, cleanup_policy="delete,compact")
    store.create_topic("t", schema=schema)
    with pytest.raises(ConfigError, match="the typed topic has no key columns"):
        store.alter_topic("t", cleanup_policy="compact")
    with pytest.raises(ConfigError, match="typed topic without key columns"):
        store.compact("t")
    assert store.compact() == []
    fill(store, [[{"n": 1}], [{"n": 1}]])
    store.alter_topic("t", merge_below_bytes=1 << 20)
    Maintainer(store)._maintain("t")
    assert [row["n"] for row in rows(store)] == [1, 1, -1]


def test_a_key_column_never_gets_what_cannot_be_compared(tmp_path: Path) -> None:
    at = pa.struct([("x", pa.int8())])
    store = typed_store(tmp_path, pa.schema([("at", at)]), key_columns=["at"])
    bad = pa.struct([("x", pa.int8()), ("m", pa.map_(pa.string(), pa.int8()))])
    with pytest.raises(InvalidSchemaError, match="key column at: found type map"):
        store.register_schema("t", pa.schema([("at", bad)]), add=True)
    with pytest.raises(InvalidSchemaError, match="key column m: found type map"):
        store.create_topic(
            "u", schema=pa.schema([("m", pa.map_(pa.string(), pa.int8()))]), key_columns=["m"]
        )
    assert [found.schema.version for found in store.schema_versions("t")] == [1]
