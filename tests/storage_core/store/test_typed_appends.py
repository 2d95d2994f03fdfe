"""Tables in typed topics: what is appended comes back, together or not at all."""

from __future__ import annotations

import datetime
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import (
    ConfigError,
    DamagedMetadataError,
    InvalidPredicateError,
    InvalidRecordError,
    InvalidSchemaError,
    RecordTooLargeError,
    RecoveryNeededError,
    SchemaMismatchError,
)
from storage_core.format.typed_columns import make_typed_columns
from storage_core.types import TimeRange

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("price", pa.decimal128(38, 4)),
        pa.field("place", pa.struct([("lat", pa.float64()), ("tags", pa.list_(pa.string()))])),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


def events(first: int = 0, count: int = 100) -> pa.Table:
    ids = range(first, first + count)
    day = datetime.datetime(1969, 12, 31, 23, 59, tzinfo=datetime.UTC)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "user": [None if each % 10 == 0 else f"user-{each % 7}" for each in ids],
            "at": [day + datetime.timedelta(seconds=each) for each in ids],
            "price": [Decimal(each) / 4 for each in ids],
            "place": [
                None if each % 9 == 0 else {"lat": each / 3, "tags": ["a"] * (each % 4)}
                for each in ids
            ],
            "counts": [None if each % 8 == 0 else [("k", each)] for each in ids],
        },
        schema=EVENTS,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    config = StoreConfig(segment_bytes=1 << 20, frame_records=40)
    with Store.open(tmp_path / "log", create=True, config=config) as opened:
        yield opened


def read_all(store: Store, topic: str = "t", **more: Any) -> pa.Table:
    batches = [
        batch
        for partition in range(store.topic(topic).partitions)
        for batch in store.read(topic, partition, **more)
    ]
    return pa.Table.from_batches(batches).sort_by("id")


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["batch", "table", "stream"])
def test_a_table_comes_back(store: Store, compression: str, kind: str) -> None:
    store.create_topic("t", 3, schema=EVENTS, key_columns=["user"], compression=compression)
    table = events()
    given = {"batch": table.to_batches()[0], "table": table, "stream": table.to_reader(17)}
    offsets = store.append_table("t", given[kind])
    assert sum(map(len, offsets.values())) == 100
    assert read_all(store).equals(table)
    assert store.check() == []


def test_rows_of_one_key_are_in_one_partition_in_their_order(store: Store) -> None:
    store.create_topic("t", 4, schema=EVENTS, key_columns=["user"])
    store.append_table("t", events())
    for partition in range(4):
        for batch in store.read("t", partition, columns=["user", "id", "_partition"]):
            assert set(batch.column("_partition").to_pylist()) == {partition}
            ids: dict[str, list[int]] = {}
            for user, number in zip(*(c.to_pylist() for c in batch.columns[:2]), strict=True):
                ids.setdefault(user, []).append(number)
            assert all(found == sorted(found) for found in ids.values())
    places = {
        user: {p for p in range(4) for b in store.read("t", p) if user in b["user"].to_pylist()}
        for user in {*events()["user"].to_pylist()}
    }
    assert all(len(found) == 1 for found in places.values())


def test_the_timestamp_column_is_the_time_of_the_records(store: Store) -> None:
    store.create_topic("t", schema=EVENTS, timestamp_column="at")
    store.append_table("t", events())
    found = read_all(store, columns=["id", "at", "_timestamp"])
    assert found["at"].to_pylist() == found["_timestamp"].to_pylist()
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert store.offset_for_timestamp("t", 0, moment) == 60
    (segment,) = store.segments("t", 0)
    wanted = TimeRange(0, 10_000_000)
    slices = [(segment, 0, 100)]
    batches = list(store.read_slices("t", 0, slices, columns=["id"], times=wanted))
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(60, 70))


def test_a_row_without_a_time_gets_the_append_time(store: Store) -> None:
    store.create_topic("t", schema=EVENTS, timestamp_column="at")
    table = events(count=2)
    table = table.set_column(2, EVENTS.field("at"), pa.array([None, 5], EVENTS.field("at").type))
    store.append_table("t", table)
    stamps = read_all(store, columns=["id", "_timestamp"])["_timestamp"].cast(pa.int64())
    assert stamps[0].as_py() > 1_700_000_000_000_000
    assert stamps[1].as_py() == 5


def test_columns_are_found_by_name_and_missing_ones_are_null(store: Store) -> None:
    store.create_topic("t", schema=EVENTS)
    store.append_table("t", events(count=3).select(["user", "id"]))
    found = read_all(store)
    assert found["id"].to_pylist() == [0, 1, 2]
    assert found["price"].null_count == 3
    assert found.schema.equals(EVENTS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.append_column("more", t["id"]), "column more"),
        (lambda t: t.drop_columns(["id"]), "column id: found no such column"),
        (lambda t: t.set_column(0, "id", t["user"]), "column id"),
        (lambda t: t.set_column(0, "id", pa.nulls(len(t), pa.int64())), "column id: found a null"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(
    store: Store, change: Any, text: str
) -> None:
    store.create_topic("t", 2, schema=EVENTS, key_columns=["user"])
    with pytest.raises(SchemaMismatchError, match=text):
        store.append_table("t", change(events()))
    assert store.visible_ends("t") == (0, 0)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(SchemaMismatchError) as caught:
        call()
    assert caught.value.topic == "t"
    return str(caught.value)


def test_a_refusal_names_the_topic_and_says_what_to_do_without_spark(store: Store) -> None:
    store.create_topic("t", schema=pa.schema([("n", pa.int32()), ("name", pa.string())]))
    unknown, wide = pa.table({"more": [1]}), pa.table({"n": [1 << 40]})
    assert refusal(lambda: store.append_table("t", unknown)) == (
        "topic 't', column more: found bigint, but the topic has no such column. Drop the column, "
        "or add it first with Store.alter_topic(add_columns=...) or cursus alter --add-column."
    )
    assert refusal(lambda: store.append_table("t", wide)) == (
        "topic 't', column n: found bigint, wanted int. Cast it. A write of Spark with "
        "mergeSchema.typeWidening=true, or a job with Store.register_schema(widen=True), widens "
        "the column."
    )
    assert refusal(lambda: store.register_schema("t", unknown.schema)) == (
        "topic 't', column more: found bigint, but the topic has no such column. Drop the column, "
        "or set mergeSchema=true to add it."
    )
    assert refusal(lambda: store.alter_topic("t", add_columns=wide.schema)).startswith(
        "topic 't', column n: found bigint, wanted int. The topic has the column already. To widen"
    )
    named = pa.schema([("Name", pa.int64())])
    assert refusal(lambda: store.alter_topic("t", add_columns=named)) == (
        "topic 't', column name: found bigint, wanted string. The topic has the column already. "
        "Give the new one another name."
    )
    assert store.visible_ends("t") == (0,)


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.timestamp("ns", tz="Europe/Paris"), 1_000_000_001),
        (pa.timestamp("ns"), -1),
        (pa.duration("ns"), 1001),
        (pa.date64(), 86_400_001),
        (pa.timestamp("s"), 1 << 62),
        (pa.timestamp("ms"), -(1 << 62)),
        (pa.duration("s"), 1 << 62),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [False, True])
def test_times_that_microseconds_do_not_hold_are_refused_not_cut(
    store: Store, kind: pa.DataType, number: int, nested: bool
) -> None:
    def column(value: int) -> pa.Array:
        found = pa.array([None, value], pa.int64()).view(kind)
        if not nested:
            return found
        return pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), found)

    store.create_topic("t", schema=pa.schema([("at", column(0).type)]))
    text = refusal(lambda: store.append_table("t", pa.table({"at": column(number)})))
    assert "column at: found" in text
    assert store.visible_ends("t") == (0,)
    exact = column(86_400_000_000_000 if kind in (pa.timestamp("ns"), pa.date64()) else 3000)
    store.append_table("t", pa.table({"at": exact}))
    found = store.scan("t").to_table()["at"]
    assert found.cast(exact.type).to_pylist() == exact.to_pylist()


def test_names_are_found_in_any_case(store: Store) -> None:
    """As by Spark: a topic takes names in any case, and none that differ only in it."""
    store.create_topic("t", schema=pa.schema([("Id", pa.int64()), ("name", pa.string())]))
    store.append_table("t", pa.table({"ID": [1], "NAME": ["x"]}))
    scan = store.scan("t", columns=["NAME", "ID", "_OFFSET"], where="iD = 1 and Name = 'x'")
    assert scan.to_table().to_pylist() == [{"name": "x", "Id": 1, "_offset": 0}]
    assert [batch.schema.names for batch in store.read("t", 0, columns=["id"])] == [["Id"]]
    with pytest.raises(InvalidRecordError, match="'Id' as 'ID' and as 'id', which differ only"):
        store.scan("t", columns=["ID", "id"])
    with pytest.raises(InvalidRecordError, match="'nam' does not exist"):
        store.scan("t", columns=["nam"])
    with pytest.raises(InvalidSchemaError) as caught:
        store.append_table("t", pa.table({"Id": [1], "id": [2]}))
    assert str(caught.value) == (
        "topic 't', columns Id and id differ only in case. They are one name to a topic, as to "
        "Spark unless spark.sql.caseSensitive is true. Rename one."
    )
    store.create_topic("records")
    with pytest.raises(InvalidRecordError, match="'KEY' does not exist"):
        store.read("records", 0, columns=["KEY"])


def test_two_billion_nulls_without_a_byte_take_no_memory(store: Store) -> None:
    """They take none in Arrow either: nothing that counts the bytes of rows may allocate them."""
    count = (1 << 31) - 1
    starts = pa.py_buffer(np.array([0, count], np.int32))
    kind = pa.list_(pa.null())
    many = pa.Array.from_buffers(kind, 1, [None, starts], children=[pa.nulls(count)])
    store.create_topic("t", schema=pa.schema([("n", pa.int64()), ("nothings", kind)]))
    tracemalloc.start()
    try:
        store.append_table("t", pa.table({"n": [1], "nothings": many}))
        store.roll("t", 0, begin=True)
        store.recompress("t", compression="zstd")
        (batch,) = store.read("t", 0, max_bytes=100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(batch["nothings"].flatten()) == count
    assert peak < 64 << 20


def test_a_stream_that_fails_on_its_way_adds_no_row(store: Store, tmp_path: Path) -> None:
    store.create_topic("t", 2, schema=EVENTS, key_columns=["user"])
    good, bad = events().to_batches()[0], events().to_batches()[0]
    nulls = pa.nulls(bad.num_rows, pa.int64())
    bad = bad.set_column(0, pa.field("id", pa.int64()), nulls)
    reader = pa.RecordBatchReader.from_batches(bad.schema, [good.cast(bad.schema), bad])
    with pytest.raises(SchemaMismatchError, match="found a null"):
        store.append_table("t", reader)
    assert store.visible_ends("t") == (0, 0)
    assert list((tmp_path / "log" / "staging").glob("*/*.frames")) == []


def test_each_kind_of_topic_refuses_the_other_kind_of_rows(store: Store) -> None:
    store.create_topic("t", schema=EVENTS)
    store.create_topic("r")
    with pytest.raises(InvalidRecordError, match="append_table"):
        store.append("t", 0, [b"v"])
    with pytest.raises(InvalidRecordError, match="Use append"):
        store.append_table("r", events())
    with pytest.raises(InvalidRecordError, match="__arrow_c_stream__"):
        store.append_table("t", [{"id": 1}])


def test_rows_that_are_too_large_are_refused(store: Store) -> None:
    store.create_topic("t", schema=EVENTS, max_record_bytes=1000)
    large = pa.table({"id": [1], "user": ["x" * 2000]})
    with pytest.raises(RecordTooLargeError):
        store.append_table("t", large)


def test_a_row_larger_than_a_frame_is_stored(store: Store) -> None:
    store.create_topic("t", schema=EVENTS, frame_bytes=4096)
    large = pa.table({"id": [1, 2, 3], "user": ["a", "x" * 200_000, "b"]})
    store.append_table("t", large)
    found = read_all(store, columns=["id", "user"])
    assert found.equals(large.cast(found.schema))


def test_where_gives_the_rows_that_match_and_reads_few_frames(store: Store) -> None:
    store.create_topic("t", schema=EVENTS)
    for first in range(0, 400, 100):
        store.append_table("t", events(first))
    found = read_all(store, where="id >= 150 AND id < 160 AND user IS NOT NULL", columns=["id"])
    assert found["id"].to_pylist() == list(range(151, 160))
    (segment,) = store.segments("t", 0)
    batches = list(store.read_slices("t", 0, [(segment, 0, 400)], ["user"], where="id = 7"))
    assert [batch.to_pydict() for batch in batches] == [{"user": ["user-0"]}]
    with pytest.raises(InvalidPredicateError, match="nothing"):
        store.read("t", 0, where="nothing = 3")


def test_bytes_of_a_read_are_limited(store: Store) -> None:
    store.create_topic("t", schema=EVENTS)
    store.append_table("t", events())
    found = list(store.read("t", 0, columns=["id"], max_bytes=80))
    assert sum(batch.num_rows for batch in found) == 10


@pytest.mark.parametrize("layout", ["native", "objects"])
def test_no_column_is_added_with_a_setting_that_is_refused(tmp_path: Path, layout: str) -> None:
    store = Store.open(tmp_path / layout, layout=layout, create=True)
    store.create_topic("t", schema=pa.schema([("id", pa.int64())]))
    more = pa.schema([("extra", pa.int32())])
    refused: list[dict[str, Any]]
    refused = [{"compression": "gzip"}, {"nonsense": 1}, {"cleanup_policy": "compact"}]
    for settings in refused:
        with pytest.raises(ConfigError):
            store.alter_topic("t", add_columns=more, **settings)
        assert store.scan("t").schema.names == ["id"]
    assert store.alter_topic("t", add_columns=more, compression="zstd").settings
    assert store.scan("t").schema.names == ["id", "extra"]


@pytest.mark.parametrize("layout", ["native", "objects"])
def test_rows_of_a_later_version_than_a_new_namesake_has_are_refused(
    tmp_path: Path, layout: str
) -> None:
    """As if the last file of a version were lost; but nobody has to restore it."""
    store = Store.open(tmp_path / layout, layout=layout, create=True)
    store.create_topic("t", schema=pa.schema([("id", pa.int64())]))
    store.alter_topic("t", add_columns=pa.schema([("extra", pa.int32())]))
    late = store.schema("t")
    assert late is not None
    columns = make_typed_columns(
        pa.record_batch({"id": [1]}), late, topic="t", timestamp_column=None, now_us=0,
        max_record_bytes=None,
    )  # fmt: skip
    store.delete_topic("t")
    store.create_topic("t", schema=pa.schema([("id", pa.int64())]))
    with pytest.raises(DamagedMetadataError, match="created again meanwhile, write the rows again"):
        store.append_columns("t", 0, columns)
    assert store.scan("t").to_table().num_rows == 0
    assert store.check() == []
    store.append_table("t", pa.table({"id": [1]}))


def test_rows_written_before_a_column_was_added_are_null_in_it(store: Store) -> None:
    store.create_topic("t", schema=EVENTS)
    store.append_table("t", events())
    store.alter_topic("t", add_columns=pa.schema([("extra", pa.int32())]))
    more = events(100).append_column("extra", pa.array(range(100), pa.int32()))
    store.append_table("t", more)
    found = read_all(store)
    assert found["extra"].null_count == 100
    assert found.select(EVENTS.names).equals(pa.concat_tables([events(), events(100)]))
    assert len(read_all(store, where="extra = 5")) == 1


def test_a_read_shows_rows_and_columns_of_one_instant(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that comes between looking up the end and the columns is not shown alone."""
    store.create_topic("t", schema=EVENTS)
    store.append_table("t", events())
    engine = store._engine
    published = engine.published

    def then_another_commits(topic: str) -> object:
        found = published(topic)
        monkeypatch.setattr(engine, "published", published)
        columns = pa.schema([*EVENTS, ("extra", pa.int32())])
        schema = store.register_schema("t", columns, add=True)
        stage = store.stage("j")
        row = pa.record_batch({"id": pa.array([1], pa.int64()), "extra": pa.array([1], pa.int32())})
        stage.write("t", 0, make_typed_columns(
            row, schema, topic="t", timestamp_column=None, now_us=1, max_record_bytes=None
        ))  # fmt: skip
        store.commit("j", stage.finish())
        return found

    monkeypatch.setattr(engine, "published", then_another_commits)
    found = read_all(store)
    assert (len(found), found.schema.names) == (100, EVENTS.names)
    found = read_all(store)
    assert (len(found), found.schema.names) == (101, [*EVENTS.names, "extra"])


@pytest.mark.row(3)
def test_an_append_restores_the_high_watermarks_that_a_power_cut_took(store: Store) -> None:
    store.create_topic("t", schema=EVENTS)
    store.append_table("t", events())
    (Path(store.path) / "topics/t/watermark").unlink()
    fresh = Store.open(store.path)
    with pytest.raises(RecoveryNeededError):
        fresh.schema("t")
    fresh.append_table("t", events(100))
    assert read_all(fresh).equals(pa.concat_tables([events(), events(100)]))
