"""Commits of rows that bring columns: rows and schema appear together, whatever others do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import SchemaVersion, Store
from storage_core.engine.native import NativeEngine
from storage_core.errors import (
    CommitUnknownError,
    DamagedMetadataError,
    InvalidCommitError,
    InvalidRecordError,
    RecoveryNeededError,
    SchemaMismatchError,
)
from storage_core.io import json_files
from storage_core.metadata import high_watermark
from tests.support.faulty_vfs import Fault, FaultyVfs, faulty
from tests.support.stores import TOPIC, columns_of, make_store, on, reopen, values
from tests.support.typed.typed_topics import (
    EVENTS,
    Seen,
    append_row,
    commit_rows,
    create_typed,
    read_rows,
    schema_of,
    seen,
    stage_rows,
    typed_columns,
    with_columns,
)

A = with_columns(a=pa.int32())
B = with_columns(b=pa.string())


def typed_store(path: Path, partitions: int = 2) -> Store:
    store = Store.open(path, create=True)
    create_typed(store, partitions)
    return store


def files(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "topics/t/schemas").iterdir())


def intents(path: Path) -> list[Path]:
    return sorted((path / "meta/intents").glob("*.json"))


@pytest.mark.row(51)
def test_rows_and_their_columns_appear_together(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    result = commit_rows(store, "j", A)
    assert set(result.offsets) == {(TOPIC, 1)}, "partition 0 got no row"
    assert seen(reopen(tmp_path)) == Seen(("id", "user", "a"), ((), ("j+a",)))
    assert files(tmp_path) == ["00000001.json", "00000002.json", "published.json"]
    assert intents(tmp_path) == []


def test_rows_that_fit_need_no_other_partition(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    vfs = faulty(tmp_path)
    commit_rows(on(vfs), "j", EVENTS)
    assert not [call for call in vfs.calls if "/t/0/" in call.path]
    assert not [call for call in vfs.calls if call.path.endswith("published.json")]
    assert (schema_of(store).version, seen(store).rows) == (1, ((), ("j",)))


@pytest.mark.row(51)
def test_two_jobs_that_add_different_columns_both_succeed(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    first = store.register_schema(TOPIC, A, add=True)
    second = store.register_schema(TOPIC, B, add=True)
    store.commit("second", stage_rows(store, "second", second, (0,)))
    store.commit("first", stage_rows(store, "first", first, (1,)))
    assert seen(store) == Seen(("id", "user", "b", "a"), (("second+b",), ("first+a",)))
    assert (schema_of(store).version, schema_of(store).max_id) == (4, 4)


def test_two_jobs_that_add_the_same_column_share_it(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    first = store.register_schema(TOPIC, A, add=True)
    second = reopen(tmp_path).register_schema(TOPIC, A, add=True)
    assert first == second
    store.commit("one", stage_rows(store, "one", first))
    store.commit("two", stage_rows(store, "two", second))
    assert seen(store) == Seen(("id", "user", "a"), ((), ("one+a", "two+a")))
    assert schema_of(store).version == 2


@pytest.mark.row(51)
def test_a_column_of_two_types_stops_the_second_job_before_its_intent(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    first = store.register_schema(TOPIC, A, add=True)
    second = store.register_schema(TOPIC, with_columns(a=pa.string()), add=True)
    parts = stage_rows(store, "second", second)
    store.commit("first", stage_rows(store, "first", first))
    with pytest.raises(
        SchemaMismatchError, match="topic 't', column a: found string, but another writer"
    ):
        store.commit("second", parts)
    assert seen(reopen(tmp_path)) == Seen(("id", "user", "a"), ((), ("first+a",)))
    assert intents(tmp_path) == []
    assert reopen(tmp_path).check() == []
    store.abort("second")
    commit_rows(store, "third", A)
    assert seen(store).rows == ((), ("first+a", "third+a"))


def test_a_wider_type_covers_the_narrower_one(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    commit_rows(store, "first", A)
    narrow = store.register_schema(TOPIC, with_columns(a=pa.int32(), b=pa.string()), add=True)
    commit_rows(store, "wide", with_columns(a=pa.int64()))
    store.commit("narrow", stage_rows(store, "narrow", narrow))
    assert schema_of(store).arrow == with_columns(a=pa.int64(), b=pa.string())
    assert seen(store).rows == ((), ("first+a", "wide+a", "narrow+a+b"))


def test_columns_that_were_added_by_hand_meanwhile_stay(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    made = store.register_schema(TOPIC, A, add=True)
    parts = stage_rows(store, "j", made)
    reopen(tmp_path).alter_topic(TOPIC, add_columns=pa.schema([pa.field("c", pa.int8())]))
    store.commit("j", parts)
    assert seen(store) == Seen(("id", "user", "c", "a"), ((), ("j+a",)))


def test_a_repeated_commit_changes_nothing(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    made = store.register_schema(TOPIC, A, add=True)
    parts = stage_rows(store, "j", made)
    store.commit("j", parts, app="app", version=1)
    before = seen(store)
    assert store.commit("j", parts, app="app", version=1).skipped
    assert seen(reopen(tmp_path)) == before


def test_parts_of_two_versions_are_published_in_one_schema(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    versions = [store.register_schema(TOPIC, columns, add=True) for columns in (A, B)]
    parts = [
        part
        for number, version in enumerate(versions)
        for part in stage_rows(store, "j", version, (number,))
    ]
    store.commit("j", parts)
    assert seen(store) == Seen(("id", "user", "a", "b"), (("j+a",), ("j+b",)))


def test_one_commit_adds_columns_to_two_topics(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    create_typed(store, topic="u")
    made = {name: store.register_schema(name, A, add=True) for name in (TOPIC, "u")}
    parts = [part for name in made for part in stage_rows(store, "j", made[name], (1,), name)]
    store.commit("j", parts)
    for name in made:
        assert seen(store, name) == Seen(("id", "user", "a"), ((), ("j+a",)))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "typed topic"),
        (0, "no schema version"),
        (True, "no schema version"),
        (1 << 32, "no schema version"),
    ],
)
def test_a_part_without_a_schema_version_is_refused(
    tmp_path: Path, schema: int | None, words: str
) -> None:
    store = typed_store(tmp_path)
    parts = stage_rows(store, "j", schema_of(store))
    with pytest.raises(InvalidCommitError, match=words):
        store.commit("j", [replace(part, schema=schema) for part in parts])
    assert seen(store).rows == ((), ())


def test_a_part_that_names_another_version_than_its_frames_is_refused(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    store.register_schema(TOPIC, A, add=True)
    parts = stage_rows(store, "j", schema_of(store))
    for version in (2, 9):
        with pytest.raises(InvalidCommitError, match=f"does not name schema {version}"):
            store.commit("j", [replace(part, schema=version) for part in parts])
    assert (seen(store).rows, intents(tmp_path)) == (((), ()), [])


def test_rows_of_an_unregistered_version_are_refused(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    made = SchemaVersion(9, schema_of(store).fields)
    with pytest.raises(DamagedMetadataError, match=r"00000009\.json is missing"):
        store.commit("j", stage_rows(store, "j", made))
    assert (seen(store).rows, intents(tmp_path)) == (((), ()), [])


def test_large_parts_become_segments_that_name_their_schema(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    store.alter_topic(TOPIC, segment_bytes=4096, frame_bytes=1024)
    made = store.register_schema(TOPIC, A, add=True)
    staging = store.stage("j")
    for number in range(8):
        staging.write(TOPIC, 1, typed_columns(made, [f"{number}".ljust(1500, ".")]))
    parts = staging.finish()
    assert any(part.own_file for part in parts)
    with pytest.raises(InvalidCommitError, match="does not name schema 1"):
        store.commit("j", [replace(part, schema=1) for part in parts])
    store.commit("j", parts)
    assert [row["user"].rstrip(".") for row in read_rows(store)[1]] == list("01234567")
    assert {row["a"] for row in read_rows(store)[1]} == {7}


def test_rows_of_two_versions_in_one_task_are_parts_of_their_own(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    made = store.register_schema(TOPIC, A, add=True)
    staging = store.stage("j")
    for schema, user in ((schema_of(store), "old"), (made, "new"), (schema_of(store), "last")):
        staging.write(TOPIC, 1, typed_columns(schema, [user]))
    parts = staging.finish()
    assert [part.schema for part in parts] == [1, 2, 1]
    store.commit("j", parts)
    assert seen(store) == Seen(("id", "user", "a"), ((), ("old", "new+a", "last")))


def test_a_records_topic_takes_no_part_with_a_schema(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidRecordError, match="'t' is a records topic"):
        stage_rows(store, "j", schema_of(typed_store(tmp_path / "typed")), (0,))
    staging = store.stage("j")
    staging.write(TOPIC, 0, columns_of([b"a"]))
    parts = [replace(part, schema=1) for part in staging.finish()]
    with pytest.raises(InvalidCommitError, match="'t' is a records topic"):
        store.commit("j", parts)
    assert values(store) == []


def interrupted(path: Path, call: tuple[str, str]) -> None:
    """A commit that fails after its commit point, in a process that then ends."""
    vfs = faulty(path)
    store = on(vfs)
    made = store.register_schema(TOPIC, A, add=True)
    parts = stage_rows(store, "j", made)
    vfs.faults.append(Fault(call[0], 5, path=call[1]))
    with pytest.raises(CommitUnknownError):
        store.commit("j", parts)
    assert len(intents(path)) == 1


AFTER_THE_INTENT = [
    ("pwritev", "t/watermark"),
    ("rename", "published.json"),
    ("unlink", "meta/intents"),
]


def next_append(store: Store) -> None:
    append_row(store, "next")


def next_columns(store: Store) -> None:
    store.alter_topic(TOPIC, add_columns=pa.schema([pa.field("c", pa.int8())]))


def next_commit(store: Store) -> None:
    commit_rows(store, "next", B, (0,))


@pytest.mark.row(13, 51)
@pytest.mark.parametrize("call", AFTER_THE_INTENT, ids=lambda call: call[1])
@pytest.mark.parametrize("follower", [next_append, next_columns, next_commit])
def test_the_next_writer_of_partition_0_publishes_rows_and_columns(
    tmp_path: Path, call: tuple[str, str], follower: Callable[[Store], None]
) -> None:
    typed_store(tmp_path).close()
    interrupted(tmp_path, call)
    before = seen(reopen(tmp_path))
    assert before in (Seen(("id", "user"), ((), ())), Seen(("id", "user", "a"), ((), ("j+a",))))
    follower(reopen(tmp_path))
    after = seen(reopen(tmp_path))
    assert after.columns[:3] == ("id", "user", "a")
    assert after.rows[1] == ("j+a",)
    assert intents(tmp_path) == []
    assert reopen(tmp_path).check() == []


@pytest.mark.row(13, 51)
@pytest.mark.parametrize("call", AFTER_THE_INTENT, ids=lambda call: call[1])
def test_a_lost_watermark_file_shows_no_half_of_a_pending_commit(
    tmp_path: Path, call: tuple[str, str]
) -> None:
    typed_store(tmp_path).close()
    interrupted(tmp_path, call)
    (tmp_path / high_watermark.path_of(TOPIC)).unlink()
    with suppress(RecoveryNeededError):
        assert seen(reopen(tmp_path)) == Seen(("id", "user"), ((), ()))
    reopen(tmp_path).repair()
    assert seen(reopen(tmp_path)) == Seen(("id", "user", "a"), ((), ("j+a",)))


def test_an_old_intent_that_comes_back_lowers_no_schema(tmp_path: Path) -> None:
    typed_store(tmp_path).close()
    interrupted(tmp_path, ("unlink", "meta/intents"))
    (intent,) = intents(tmp_path)
    kept = intent.read_bytes()
    reopen(tmp_path).repair()
    commit_rows(reopen(tmp_path), "next", B, (0,))
    expected = seen(reopen(tmp_path))
    intent.write_bytes(kept)
    append_row(reopen(tmp_path), "later")
    after = seen(reopen(tmp_path))
    assert after.columns == expected.columns == ("id", "user", "a", "b")
    assert after.rows == (("next+a+b", "later+a+b"), ("j+a",))


def test_a_deleted_topic_lets_the_commit_of_the_others_go_on(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    create_typed(store, topic="u")
    made = {name: store.register_schema(name, A, add=True) for name in (TOPIC, "u")}
    vfs: FaultyVfs = faulty(tmp_path)
    failing = on(vfs)
    parts = [part for name in made for part in stage_rows(failing, "j", made[name], (1,), name)]
    vfs.faults.append(Fault("pwritev", 5, path="t/watermark"))
    with pytest.raises(CommitUnknownError):
        failing.commit("j", parts)
    fresh = reopen(tmp_path)
    fresh.delete_topic("u")
    create_typed(fresh, topic="u")
    fresh.repair()
    assert seen(fresh) == Seen(("id", "user", "a"), ((), ("j+a",)))
    assert seen(fresh, "u") == Seen(("id", "user"), ((), ()))


@pytest.mark.row(29)
@pytest.mark.parametrize(
    "schemas",
    [
        {"t": [2, 2]},
        {"t": [1]},
        {"t": [0, 1]},
        {"t": "12"},
        {"u": [1, 2]},
        [1],
        {"t": [1, 1 << 32]},
    ],
    ids=str,
)
def test_schemas_of_an_intent_are_read_strictly(tmp_path: Path, schemas: object) -> None:
    typed_store(tmp_path).close()
    interrupted(tmp_path, ("pwritev", "t/watermark"))
    (intent,) = intents(tmp_path)
    fields = json_files.read(faulty(tmp_path), f"meta/intents/{intent.name}")
    assert fields is not None
    assert (fields["format"], fields["schemas"]) == (3, {"t": [1, 2]})
    intent.write_bytes(json_files.dump({**fields, "schemas": schemas}))
    with pytest.raises(DamagedMetadataError, match="is damaged"):
        append_row(reopen(tmp_path), "x")


def test_the_intent_of_a_records_topic_is_as_before(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.close()
    vfs = faulty(tmp_path)
    failing = on(vfs)
    staging = failing.stage("j")
    staging.write(TOPIC, 0, columns_of([b"a"]))
    parts = staging.finish()
    vfs.faults.append(Fault("pwritev", 5, path="t/watermark"))
    with pytest.raises(CommitUnknownError):
        failing.commit("j", parts)
    (intent,) = intents(tmp_path)
    fields = json_files.read(faulty(tmp_path), f"meta/intents/{intent.name}")
    assert fields is not None
    assert fields["format"] == 1
    assert not {"schemas", "exact"} & set(fields)
    assert "schema" not in fields["partitions"][0]["parts"][0]


RENAMED = pa.schema([pa.field("price", pa.int64(), nullable=False), pa.field("city", pa.string())])
SWAPPED = pa.schema([pa.field("user", pa.string()), pa.field("id", pa.int64())])


def test_rows_of_a_deleted_topic_do_not_enter_one_with_other_keys(tmp_path: Path) -> None:
    """They were routed by the keys of the deleted one."""
    store = typed_store(tmp_path)
    parts = stage_rows(store, "j", schema_of(store))
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC, 2, schema=EVENTS, key_columns=["user"])
    with pytest.raises(InvalidCommitError, match="deleted and created again"):
        store.commit("j", parts)
    assert (read_rows(store), intents(tmp_path)) == ([[], []], [])


@pytest.mark.parametrize("columns", [RENAMED, SWAPPED], ids=["renamed", "swapped"])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_rows_of_a_deleted_topic_do_not_enter_one_with_other_columns(
    tmp_path: Path, columns: pa.Schema, large: bool
) -> None:
    """Both topics have a schema version 1. The rows would get the names of other columns."""
    store = typed_store(tmp_path)
    store.alter_topic(TOPIC, segment_bytes=4096, frame_bytes=1024)
    schema = schema_of(store)
    staging = store.stage("j")
    for number in range(8 if large else 1):
        staging.write(TOPIC, 1, typed_columns(schema, [f"{number}".ljust(1500, ".")]))
    parts = staging.finish()
    assert any(part.own_file for part in parts) is large
    late = store.stage("late")
    late.write(TOPIC, 1, typed_columns(schema, ["early"]))
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC, 2, schema=columns)
    with pytest.raises(InvalidCommitError, match="deleted and created again"):
        store.commit("j", parts)
    with pytest.raises(SchemaMismatchError, match="deleted and created again"):
        store.append_columns(TOPIC, 1, typed_columns(schema, ["a"]))
    with pytest.raises(SchemaMismatchError, match="deleted and created again"):
        late.write(TOPIC, 1, typed_columns(schema, ["late"]))
    assert (read_rows(store), intents(tmp_path)) == ([[], []], [])


def test_rows_of_a_deleted_topic_enter_one_with_the_same_columns(tmp_path: Path) -> None:
    store = typed_store(tmp_path)
    parts = stage_rows(store, "j", schema_of(store))
    store.delete_topic(TOPIC)
    create_typed(store)
    store.commit("j", parts)
    assert seen(store) == Seen(("id", "user"), ((), ("j",)))


@pytest.mark.row(3, 51)
def test_rows_of_other_partitions_wait_for_columns_that_are_not_durable(tmp_path: Path) -> None:
    typed_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.faults.append(Fault("fsync", 5, path="t/watermark"))
    with pytest.raises(CommitUnknownError):
        on(vfs).alter_topic(TOPIC, add_columns=A)
    assert seen(reopen(tmp_path)).columns == ("id", "user", "a"), "visible, and not durable"
    append_row(reopen(tmp_path), "x", partition=1)
    assert intents(tmp_path) == []
    assert seen(reopen(tmp_path)) == Seen(("id", "user", "a"), ((), ("x+a",)))


@pytest.mark.row(3)
def test_a_commit_in_the_ledger_counts_although_its_intent_came_back(tmp_path: Path) -> None:
    typed_store(tmp_path).close()
    interrupted(tmp_path, ("unlink", "meta/intents"))
    (intent,) = intents(tmp_path)
    kept = intent.read_bytes()
    append_row(reopen(tmp_path), "later", partition=0)
    expected = seen(reopen(tmp_path))
    assert expected == Seen(("id", "user", "a"), (("later+a",), ("j+a",)))
    intent.write_bytes(kept)
    (tmp_path / high_watermark.path_of(TOPIC)).unlink()
    engine = reopen(tmp_path)._engine
    assert isinstance(engine, NativeEngine)
    engine.recover(TOPIC)
    assert seen(reopen(tmp_path)) == expected


@pytest.mark.row(3)
def test_high_watermarks_that_are_lost_twice_keep_the_columns(tmp_path: Path) -> None:
    """Killed before ``published.json`` was written: whoever restores the schema copies it, too."""
    typed_store(tmp_path).close()
    interrupted(tmp_path, ("rename", "published.json"))
    for user in ("first", "second"):
        (tmp_path / high_watermark.path_of(TOPIC)).unlink()
        append_row_as_found(tmp_path, user)
    assert seen(reopen(tmp_path)) == Seen(("id", "user", "a"), (("first+a", "second+a"), ("j+a",)))


def append_row_as_found(path: Path, user: str) -> None:
    """Recover the topic, finish what is pending, and append with the columns that are there."""
    engine = reopen(path)._engine
    assert isinstance(engine, NativeEngine)
    engine.recover(TOPIC)
    append_row(reopen(path), user)
