"""Typed topics as users make and change them: kind, columns, keys, added columns."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import SchemaVersion, Store
from storage_core.errors import (
    DamagedMetadataError,
    InvalidSchemaError,
    RecoveryNeededError,
    SchemaMismatchError,
    StorageError,
    TopicExistsError,
    UnsupportedTypeError,
)
from storage_core.io import json_files
from storage_core.metadata import high_watermark
from tests.support.faulty_vfs import faulty
from tests.support.stores import TOPIC, make_store, reopen, values

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
COLUMN = pa.schema([pa.field("amount", pa.float64())])


def typed_store(path: Path, **more: Any) -> Store:
    store = Store.open(path, create=True)
    store.create_topic(TOPIC, 2, schema=EVENTS, **more)
    return store


def schema_of(store: Store) -> SchemaVersion:
    found = store.schema(TOPIC)
    assert found is not None
    return found


def test_kind_key_columns_and_timestamp_column_are_kept(tmp_path: Path) -> None:
    typed_store(tmp_path, key_columns=["USER", "id"], timestamp_column="at", compression="zstd")
    found = reopen(tmp_path).topic(TOPIC)
    assert (found.kind, found.is_typed, found.key_columns) == ("typed", True, ("user", "id"))
    assert (found.timestamp_column, found.settings) == ("at", {"compression": "zstd"})


def test_the_schema_can_be_pickled_for_tasks(tmp_path: Path) -> None:
    schema = schema_of(typed_store(tmp_path))
    assert schema.arrow == EVENTS  # cached before it is pickled
    sent = pickle.dumps(schema)
    assert pickle.loads(sent) == schema
    assert len(sent) < 1000


def test_a_records_topic_has_the_files_of_before(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert store.schema(TOPIC) is None
    assert store.topic(TOPIC).kind == "records"
    fields = json_files.read(faulty(tmp_path), "topics/t/topic.json")
    assert fields is not None
    names = {"format", "uuid", "store_uuid", "partitions", "created_at", "settings"}
    assert (set(fields), fields["format"]) == (names, 1)
    assert not (tmp_path / "topics/t/schemas").exists()
    assert (tmp_path / "topics/t/watermark").read_bytes()[12:16] == bytes(4), "no schema"


def test_columns_are_added_for_all_readers_at_once(tmp_path: Path) -> None:
    store, other = typed_store(tmp_path), reopen(tmp_path)
    before = schema_of(other)
    store.alter_topic(TOPIC, add_columns=COLUMN)
    after = schema_of(other)
    assert (before.version, after.version) == (1, 2)
    assert after.arrow == EVENTS.append(COLUMN.field(0))
    assert [found.origin for found in other.schema_versions(TOPIC)] == ["create", "alter"]
    other.alter_topic(TOPIC, add_columns=COLUMN)
    assert schema_of(store) == after, "columns that are there already make no version"


def test_columns_and_settings_can_change_in_one_call(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    changed = store.alter_topic(TOPIC, add_columns=COLUMN, compression="zstd")
    assert changed.settings == {"compression": "zstd"}
    assert changed.is_typed
    assert schema_of(store).version == 2
    assert store.add_partitions(TOPIC, 4).is_typed


def test_a_registered_version_is_skipped_by_an_added_column(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    store.register_schema(TOPIC, pa.schema([pa.field("x", pa.int8())]), add=True)
    store.alter_topic(TOPIC, add_columns=COLUMN)
    schema = schema_of(store)
    assert (schema.version, schema.max_id) == (3, 5)
    assert "x" not in schema.arrow.names


def test_an_added_column_of_another_type_is_refused(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    with pytest.raises(SchemaMismatchError, match="user"):
        store.alter_topic(TOPIC, add_columns=pa.schema([pa.field("user", pa.int8())]))
    assert schema_of(store).version == 1


def test_a_schema_that_no_reader_would_take_is_refused(tmp_path: Path) -> None:
    """Its file would be larger than the limit for metadata, and its topic could not be read."""
    store = typed_store(tmp_path)
    huge = pa.schema([pa.field("x" * (17 << 20), pa.int8())])
    for call in (
        lambda: store.alter_topic(TOPIC, add_columns=huge),
        lambda: store.register_schema(TOPIC, huge, add=True),
        lambda: store.create_topic("other", schema=huge),
    ):
        with pytest.raises(InvalidSchemaError, match=r"bytes with its names, at most 16777216 fit"):
            call()
    assert store.topics() == [TOPIC]
    assert schema_of(reopen(tmp_path)).version == 1
    store.alter_topic(TOPIC, add_columns=COLUMN)
    assert schema_of(reopen(tmp_path)).version == 2


def test_a_records_topic_gets_no_columns(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    for call in (
        lambda: store.alter_topic(TOPIC, add_columns=COLUMN),
        lambda: store.register_schema(TOPIC, COLUMN, add=True),
        lambda: store.schema_versions(TOPIC),
    ):
        with pytest.raises(SchemaMismatchError, match="'t' is a records topic"):
            call()
    assert values(store) == [b"a"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema": pa.schema([])}, "at least one column"),
        ({"schema": EVENTS, "key_columns": ["none"]}, "names 'none', which is no column"),
        ({"schema": EVENTS, "key_columns": ["id", "ID"]}, "twice"),
        ({"schema": EVENTS, "timestamp_column": "none"}, "no column"),
        ({"schema": EVENTS, "timestamp_column": "id"}, "must be a timestamp"),
        ({"key_columns": ["id"]}, "give the schema too"),
        ({"timestamp_column": "id"}, "give the schema too"),
        ({"schema": pa.schema([pa.field("a", pa.int8()), pa.field("A", pa.int8())])}, "case"),
    ],
)
def test_what_cannot_be_a_typed_topic_is_refused(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    store = Store.open(tmp_path, create=True)
    with pytest.raises(InvalidSchemaError, match=words):
        store.create_topic(TOPIC, **given)
    assert store.topics() == []


def test_a_type_that_has_no_column_is_refused_by_name(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    with pytest.raises(UnsupportedTypeError, match="time64"):
        store.create_topic(TOPIC, schema=pa.schema([pa.field("a", pa.time64("us"))]))
    assert store.topics() == []


def test_a_topic_is_created_once(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    with pytest.raises(TopicExistsError):
        store.create_topic(TOPIC, schema=COLUMN)
    assert store.create_topic(TOPIC, schema=COLUMN, exist_ok=True) == store.topic(TOPIC)
    assert schema_of(store).arrow == EVENTS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 3}, "format 3 is unknown"),
        ({"kind": "records"}, "kind"),
        ({"key_columns": ["a", "a"]}, "key_columns"),
        ({"key_columns": [1]}, "key_columns"),
        ({"key_columns": "id"}, "key_columns"),
        ({"timestamp_column": 5}, "timestamp_column"),
        ({"timestamp_column": ""}, "timestamp_column"),
    ],
)
@pytest.mark.row(29)
def test_the_topic_file_of_a_typed_topic_is_read_strictly(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    typed_store(tmp_path)
    fields = json_files.read(faulty(tmp_path), "topics/t/topic.json")
    assert fields is not None
    (tmp_path / "topics/t/topic.json").write_bytes(json_files.dump({**fields, **change}))
    with pytest.raises(DamagedMetadataError, match=words):
        reopen(tmp_path).topic(TOPIC)


def lose(path: Path) -> None:
    (path / high_watermark.path_of(TOPIC)).unlink()


def test_a_lost_watermark_file_gets_the_published_schema_back(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    store.alter_topic(TOPIC, add_columns=COLUMN)
    store.register_schema(TOPIC, pa.schema([pa.field("x", pa.int8())]), add=True)
    store.close()
    lose(tmp_path)
    with pytest.raises(RecoveryNeededError):
        reopen(tmp_path).schema(TOPIC)
    reopen(tmp_path).repair()
    found = high_watermark.read(faulty(tmp_path), TOPIC, reopen(tmp_path).topic(TOPIC).uuid.bytes)
    assert found is not None
    assert found.schema == 2


def test_columns_can_be_added_after_the_watermark_file_was_lost(tmp_path: Path) -> None:
    typed_store(tmp_path).close()
    lose(tmp_path)
    reopen(tmp_path).alter_topic(TOPIC, add_columns=COLUMN)
    assert schema_of(reopen(tmp_path)).version == 2


def test_without_both_files_the_schema_is_not_guessed(tmp_path: Path) -> None:
    typed_store(tmp_path).close()
    lose(tmp_path)
    (tmp_path / "topics/t/schemas/published.json").unlink()
    with pytest.raises(StorageError, match=r"published\.json is missing"):
        reopen(tmp_path).schema(TOPIC)
    with pytest.raises(StorageError, match=r"published\.json is missing"):
        reopen(tmp_path).alter_topic(TOPIC, add_columns=COLUMN)


def test_a_lost_published_file_is_written_again_by_recovery(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    store.alter_topic(TOPIC, add_columns=COLUMN)
    file = tmp_path / "topics/t/schemas/published.json"
    sound = file.read_bytes()
    file.unlink()
    reopen(tmp_path).repair()
    assert file.read_bytes() == sound
