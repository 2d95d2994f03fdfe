"""The schema files of a typed topic: registered durably, in order, read strictly."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.errors import DamagedMetadataError, SchemaMismatchError, WriteFailedError
from storage_core.io import json_files
from storage_core.metadata.schema_files import TopicSchemas
from storage_core.schema.fields import SchemaVersion
from tests.support.faulty_vfs import CHANGES, Fault, faulty
from tests.support.stores import TOPIC, flips, on, reopen

EVENTS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("user", pa.string())])
WITH_A = EVENTS.append(pa.field("a", pa.int32()))
WITH_B = EVENTS.append(pa.field("b", pa.string()))


def typed_store(path: Path, partitions: int = 2) -> Store:
    store = Store.open(path, create=True)
    store.create_topic(TOPIC, partitions, schema=EVENTS, key_columns=["user"])
    return store


def schemas_of(path: Path, store: Store) -> TopicSchemas:
    return TopicSchemas(faulty(path), TOPIC, store.topic(TOPIC).uuid)


def directory(path: Path) -> Path:
    return path / "topics/t/schemas"


def ids(schema: SchemaVersion) -> dict[str, int]:
    return {field.name: field.id for field in schema.fields}


def test_a_new_typed_topic_has_version_one_and_its_columns(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    schema = store.schema(TOPIC)
    assert schema is not None
    assert (schema.version, schema.arrow) == (1, EVENTS)
    assert sorted(file.name for file in directory(tmp_path).iterdir()) == [
        "00000001.json",
        "published.json",
    ]
    assert [found.origin for found in reopen(tmp_path).schema_versions(TOPIC)] == ["create"]


def test_a_registered_version_is_invisible(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    made = store.register_schema(TOPIC, WITH_A, add=True)
    assert (made.version, ids(made)) == (2, {"id": 1, "user": 2, "a": 3})
    for seen in (store, reopen(tmp_path)):
        found = seen.schema(TOPIC)
        assert found is not None
        assert found.version == 1
        assert [each.schema.version for each in seen.schema_versions(TOPIC)] == [1]


def test_rows_that_fit_register_nothing(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    narrower = pa.schema([pa.field("ID", pa.int32())])
    assert store.register_schema(TOPIC, narrower, add=True, widen=True).version == 1
    assert not (directory(tmp_path) / "00000002.json").exists()


def test_columns_that_may_not_be_added_register_nothing(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    for columns, flags in ((WITH_A, {}), (pa.schema([pa.field("user", pa.int8())]), {"add": True})):
        with pytest.raises(SchemaMismatchError):
            store.register_schema(TOPIC, columns, **flags)
    assert not (directory(tmp_path) / "00000002.json").exists()


def test_the_same_columns_again_take_the_registered_version(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    first = store.register_schema(TOPIC, WITH_A, add=True)
    assert reopen(tmp_path).register_schema(TOPIC, WITH_A, add=True) == first
    assert len(list(directory(tmp_path).iterdir())) == 3


def test_field_ids_of_unpublished_versions_are_not_given_again(tmp_path: Path) -> None:
    typed_store(tmp_path).register_schema(TOPIC, WITH_A, add=True)
    other = reopen(tmp_path).register_schema(TOPIC, WITH_B, add=True)
    assert (other.version, ids(other)) == (3, {"id": 1, "user": 2, "b": 4})


def test_the_same_new_column_of_two_writers_has_one_id(tmp_path: Path) -> None:
    typed_store(tmp_path).register_schema(TOPIC, WITH_A, add=True)
    wide = pa.unify_schemas([WITH_A, WITH_B])
    assert ids(reopen(tmp_path).register_schema(TOPIC, wide, add=True))["a"] == 3


def test_writers_that_register_at_once_get_numbers_and_ids_of_their_own(tmp_path: Path) -> None:
    typed_store(tmp_path)
    made: list[SchemaVersion] = []
    start = threading.Barrier(6)

    def register(number: int) -> None:
        store = reopen(tmp_path)
        start.wait()
        column = EVENTS.append(pa.field(f"c{number}", pa.int64()))
        made.append(store.register_schema(TOPIC, column, add=True))

    threads = [threading.Thread(target=register, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.version for each in made) == [2, 3, 4, 5, 6, 7]
    assert sorted(each.max_id for each in made) == [3, 4, 5, 6, 7, 8]
    assert not [file for file in directory(tmp_path).iterdir() if file.suffix == ".tmp"]


def test_a_crash_while_registering_leaves_the_version_whole_or_absent(tmp_path: Path) -> None:
    typed_store(tmp_path)
    for kind in CHANGES:
        vfs = faulty(tmp_path)
        vfs.faults.append(Fault(kind, 5, path="/schemas"))
        column = EVENTS.append(pa.field(f"of_{kind.replace(':', '_')}", pa.int8()))
        with suppress(WriteFailedError):
            on(vfs).register_schema(TOPIC, column, add=True)
        found = TopicSchemas(faulty(tmp_path), TOPIC, reopen(tmp_path).topic(TOPIC).uuid).all()
        assert [each.schema.version for each in found] == list(range(1, len(found) + 1))


@pytest.mark.row(16)
def test_every_bit_flip_of_a_schema_file_is_detected(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    reads: dict[str, Callable[[TopicSchemas], object]] = {
        "00000001.json": lambda schemas: schemas.get(1),
        "published.json": lambda schemas: schemas.published(),
    }
    for name, read in reads.items():
        file = directory(tmp_path) / name
        sound = file.read_bytes()
        for bit, flipped in flips(sound):
            file.write_bytes(flipped)
            fresh = schemas_of(tmp_path, store)
            with pytest.raises(DamagedMetadataError):
                assert read(fresh) == f"bit {bit} of {name} went unnoticed"
        file.write_bytes(sound)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2"),
        ({"version": 2}, "version 1, found 2"),
        ({"origin": "guess"}, "origin"),
        ({"topic_uuid": "0"}, "belongs to topic 0"),
        ({"created_at": 5}, "created_at"),
        ({"fields": [{"id": 1}]}, "missing"),
        ({"more": 1}, "more"),
    ],
)
@pytest.mark.row(29)
def test_a_schema_file_with_other_contents_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    store = typed_store(tmp_path)
    path = "topics/t/schemas/00000001.json"
    fields = json_files.read(faulty(tmp_path), path)
    assert fields is not None
    (tmp_path / path).write_bytes(json_files.dump({**fields, **change}))
    with pytest.raises(DamagedMetadataError, match=words) as caught:
        schemas_of(tmp_path, store).get(1)
    assert caught.value.path == path


def test_a_missing_version_stops_registering_but_not_the_others(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    store.register_schema(TOPIC, WITH_A, add=True)
    third = store.register_schema(TOPIC, WITH_B, add=True)
    (directory(tmp_path) / "00000002.json").unlink()
    fresh = reopen(tmp_path)
    with pytest.raises(DamagedMetadataError, match=r"00000002.json is missing"):
        fresh.register_schema(TOPIC, EVENTS.append(pa.field("c", pa.int8())), add=True)
    assert schemas_of(tmp_path, store).get(3) == third
    found = fresh.schema(TOPIC)
    assert found is not None
    assert found.version == 1


def test_old_temporary_files_are_swept_and_recent_ones_are_not(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    old, recent = directory(tmp_path) / "old.tmp", directory(tmp_path) / "young.tmp"
    for file in (old, recent):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.register_schema(TOPIC, WITH_A, add=True)
    assert (old.exists(), recent.exists()) == (False, True)


def test_a_crash_before_the_directory_sync_is_made_good_by_the_next_writer(tmp_path: Path) -> None:
    typed_store(tmp_path)
    vfs = faulty(tmp_path)
    vfs.faults.append(Fault("fsync_dir", 5, path="/schemas"))
    with pytest.raises(Exception, match="registering"):
        on(vfs).register_schema(TOPIC, WITH_A, add=True)
    watched = faulty(tmp_path)
    on(watched).register_schema(TOPIC, WITH_A, add=True)
    synced = [call for call in watched.calls if call.kind == "fsync_dir" and "schemas" in call.path]
    assert synced, "a version that another writer left unsynced was named"
