"""Topics of a store of objects, and the columns of typed ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.errors import (
    ConfigError,
    InvalidRecordError,
    InvalidSchemaError,
    PartitionNotFoundError,
    SchemaMismatchError,
    TopicExistsError,
    TopicNotFoundError,
)
from storage_core.format.typed_columns import make_typed_columns
from tests.support.objects.object_stores import SCHEMA, staged
from tests.support.stores import T0, TOPIC, columns_of, errors, values


def test_topics_are_made_changed_and_deleted(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path)
    other.append(TOPIC, 0, [b"a"])
    with pytest.raises(TopicExistsError):
        other.create_topic(TOPIC)
    assert store.add_partitions(TOPIC, 5).partitions == 5
    assert other.topic(TOPIC).partitions == 5
    assert other.append(TOPIC, 4, [b"z"]).end == 1
    with pytest.raises(ConfigError, match="cannot shrink"):
        store.add_partitions(TOPIC, 1)
    with pytest.raises(PartitionNotFoundError):
        store.append(TOPIC, 9, [b"a"])
    assert store.alter_topic(TOPIC, compression="zstd").settings == {"compression": "zstd"}
    assert other.topic(TOPIC).settings == {"compression": "zstd"}
    uuid = store.topic(TOPIC).uuid
    store.commit_offsets("g", {TOPIC: {0: 1}})
    store.delete_topic(TOPIC)
    for each in (store, other, Store.open(tmp_path)):
        assert each.topics() == []
        with pytest.raises(TopicNotFoundError):
            each.append(TOPIC, 0, [b"late"])
    other.create_topic(TOPIC)
    assert store.topic(TOPIC).uuid != uuid
    assert values(store) == []
    assert store.committed_offsets("g") == {}


def test_a_creator_that_lost_the_name_leaves_no_log(store: Store, tmp_path: Path) -> None:
    """Two create a topic at once: the log of the one that was second is garbage."""
    catalog = store._engine._catalog  # type: ignore[attr-defined]
    true = catalog._register

    def late(topic: str, number: int, log_id: str) -> None:
        with Store.open(tmp_path) as other:
            other.create_topic(topic, 3)
        true(topic, number, log_id)

    catalog._register = late
    with pytest.raises(TopicExistsError):
        store.create_topic("u", 1)
    assert len(store.visible_ends("u")) == 3
    logs = {path.parent.name for path in tmp_path.glob("logs/*/*.commit")}
    live = {catalog.get(name)[0].name for name in store.topics()}
    (left,) = logs - live
    assert catalog.open_log(left).refresh().deleted
    assert store.append("u", 2, [b"a"]).end == 1


def test_a_writer_that_knew_a_deleted_topic_writes_nothing(store: Store, tmp_path: Path) -> None:
    parts = staged(store, "job", {0: [b"old"]})
    other = Store.open(tmp_path)
    other.delete_topic(TOPIC)
    with pytest.raises(TopicNotFoundError):
        store.append_columns(TOPIC, 0, columns_of([b"late"]))
    other.create_topic(TOPIC, 2)
    store.commit("job", parts)  # as in a native store: the job names a topic, not its uuid
    assert values(other) == [b"old"]


def test_typed_topics_evolve_with_their_rows(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    store.create_topic("rows", 2, schema=SCHEMA, key_columns=["id"])
    store.append_table("rows", pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}))
    other = Store.open(tmp_path)
    assert sorted(other.scan("rows").to_table().to_pydict()["id"]) == [1, 2, 3]
    assert other.scan("rows", where="id > 2").to_table().num_rows == 1
    wider = SCHEMA.append(pa.field("extra", pa.int32()))
    registered = store.register_schema("rows", wider, add=True)
    assert (registered.version, other.schema("rows").version) == (2, 1)  # type: ignore[union-attr]
    assert store.register_schema("rows", wider, add=True) == registered
    store.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    store.append_table("rows", pa.table({"id": [4], "late": ["x"]}))
    found = other.scan("rows", columns=["id", "late"]).to_table().to_pydict()
    assert dict(zip(found["id"], found["late"], strict=True)) == {1: None, 2: None, 3: None, 4: "x"}
    assert [each.origin for each in other.schema_versions("rows")] == ["create", "write", "alter"]
    with pytest.raises(SchemaMismatchError):
        store.append_table("rows", pa.table({"other": [1]}))
    with pytest.raises(InvalidRecordError, match="typed topic"):
        store.append("rows", 0, [b"a"])
    assert errors(store) == []


def test_a_typed_topic_without_a_key_is_not_created_to_be_compacted(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    with pytest.raises(ConfigError, match="no key columns"):
        store.create_topic("rows", schema=SCHEMA, cleanup_policy="compact")
    assert store.topics() == []


def test_rows_of_a_registered_version_publish_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    store.create_topic("rows", 1, schema=SCHEMA)
    wider = SCHEMA.append(pa.field("extra", pa.int32()))
    version = store.register_schema("rows", wider, add=True)
    batch = pa.RecordBatch.from_pydict({"id": [1], "name": ["a"], "extra": [7]}, schema=wider)
    columns = make_typed_columns(
        batch, version, topic="rows", timestamp_column=None, now_us=T0, max_record_bytes=None
    )
    stage = store.stage("job")
    stage.write("rows", 0, columns)
    parts = stage.finish()
    store.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    assert store.schema("rows").names.keys() == {"id", "name", "late"}  # type: ignore[union-attr]
    store.commit("job", parts)
    assert Store.open(tmp_path).scan("rows").to_table().to_pydict() == {
        "id": [1], "name": ["a"], "late": [None], "extra": [7],
    }  # fmt: skip


def test_a_key_column_never_gets_what_cannot_be_compared(tmp_path: Path) -> None:
    """Every later write and compaction of such a topic would fail."""
    store = Store.open(tmp_path, layout="objects", create=True)
    at = pa.struct([("x", pa.int8())])
    store.create_topic("rows", 2, schema=pa.schema([("at", at)]), key_columns=["at"])
    bad = pa.schema([("at", pa.struct([("m", pa.map_(pa.string(), pa.int8()))]))])
    for call in (
        lambda: store.register_schema("rows", bad, add=True),
        lambda: store.alter_topic("rows", add_columns=bad),
    ):
        with pytest.raises(InvalidSchemaError, match="'rows', key column at: found type map"):
            call()
    assert [found.schema.version for found in store.schema_versions("rows")] == [1]
    store.append_table("rows", pa.table({"at": pa.array([{"x": 1}], at)}))


def test_two_threads_that_open_a_topic_at_once_read_all_of_it(store: Store, tmp_path: Path) -> None:
    """One of them looks for the log while the other has found it, and a writer appends."""
    store.append(TOPIC, 0, [b"a"])
    other = Store.open(tmp_path)
    catalog = other._engine._catalog  # type: ignore[attr-defined]
    true = catalog._find

    def slowly(topic: str) -> object:
        catalog._find = true
        found = true(topic)
        assert other.visible_ends(TOPIC)[0] == 1  # the other thread
        store.append(TOPIC, 0, [b"b"])
        return found

    catalog._find = slowly
    assert values(other) == [b"a", b"b"]
