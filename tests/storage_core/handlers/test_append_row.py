"""Single rows of typed topics through handlers and the manager."""

from __future__ import annotations

import datetime
import errno
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import DiskManager, Store, StoreConfig
from storage_core.errors import (
    ConfigError,
    InvalidRecordError,
    RecordTooLargeError,
    SchemaMismatchError,
    WriteFailedError,
)
from storage_core.format.typed_columns import key_partitions
from storage_core.handlers.disk_handler import DiskHandler
from storage_core.schema.conform import conform
from tests.support.faulty_vfs import faulty
from tests.support.handler_helpers import NEVER_MS
from tests.support.stores import on
from tests.support.typed.typed_segments import frames, rows, typed_store

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("day", pa.date32()),
        ("took", pa.duration("us")),
        ("f", pa.float32()),
        ("d", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
        ("s", pa.struct([("a", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.int32(), pa.string())),
    ]
)
EVENT: dict[str, Any] = {
    "id": 1,
    "at": datetime.datetime(2026, 11, 1, 9, tzinfo=UTC),
    "wall": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "day": datetime.date(1960, 2, 29),
    "took": datetime.timedelta(days=-1, microseconds=1),
    "f": 0.5,
    "d": Decimal("1.50"),
    "raw": b"\x00\xff",
    "s": {"a": ["x", None]},
    "m": {1: "one", 2: None},
}


def handler_of(path: Path, schema: pa.Schema = SCHEMA, **settings: Any) -> DiskHandler:
    store = typed_store(path, schema, **settings)
    return DiskHandler(store, "t", 0, StoreConfig(linger_ms=NEVER_MS))


def test_values_of_python_and_of_json_are_the_same(tmp_path: Path) -> None:
    with handler_of(tmp_path, timestamp_column="at") as handler:
        first = handler.append_row(EVENT)
        as_json = {
            "id": 1, "at": "2026-11-01T09:00:00Z", "wall": "1969-12-31T23:59:59.999999",
            "day": "1960-02-29", "took": "INTERVAL '-0 23:59:59.999999' DAY TO SECOND",
            "f": "NaN", "d": "1.5", "raw": "AP8=", "s": {"A": ["x", None]},
            "M": [{"key": 1, "value": "one"}, {"key": 2}],
        }  # fmt: skip
        second = handler.append_row(as_json)
        third = handler.append_row({"id": 3, "f": float("inf"), "s": {}})
        assert (first.result(), second.result(), third.result()) == (0, 1, 2)
    found = rows(Store.open(tmp_path))
    assert found[0] == {
        **EVENT, "_offset": 0, "_timestamp": EVENT["at"], "m": [(1, "one"), (2, None)]
    }  # fmt: skip
    assert repr(found[1]) == repr({**found[0], "_offset": 1, "f": float("nan")})
    assert found[2]["f"] == float("inf")
    assert found[2]["_timestamp"] > EVENT["at"]
    # One batch for all of them: no Arrow object for a single row.
    assert [frame.header.records for frame in frames(Store.open(tmp_path))] == [3]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"id": None}, "column id: found null or nothing, wanted bigint NOT NULL"),
        ({}, "column id: found null"),
        ({"id": True}, "column id: found true, wanted bigint"),
        ({"id": 1, "x": 1}, "column x: found no such column"),
        ({"id": 1, 2: 1}, "column `2`: found no such column"),
        ({"id": 1, "f": 1e300}, "column f: found 1e[+]300, wanted float"),
        ({"id": 1, "d": 1.5}, "column d: found 1.5, wanted decimal"),
        ({"id": 1, "d": Decimal("0.001")}, "column d: found"),
        ({"id": 1, "day": EVENT["at"]}, "column day: found"),
        ({"id": 1, "wall": EVENT["at"]}, "column wall: found"),
        ({"id": 1, "raw": 7}, "column raw: found 7"),
        ({"id": 1, "s": {"a": [b"x"]}}, "column s.a.element: found"),
        ({"id": 1, "s": [1]}, "column s: found"),
        ({"id": 1, "m": {(1, 2): "x"}}, "column m.key: found"),
        ({"id": 1, "m": {"1": "x"}}, "column m: found"),
        ({"id": 1, "at": datetime.datetime.max.replace(tzinfo=UTC), "took": object()}, "took"),
    ],
)
def test_a_bad_row_fails_alone(tmp_path: Path, row: Any, error: str) -> None:
    with handler_of(tmp_path, timestamp_column="at") as handler:
        before = handler.append_row({"id": 1})
        with pytest.raises(SchemaMismatchError, match=f"topic 't', .*{error}"):
            handler.append_row(row)
        after = handler.append_row({"id": 2})
        assert (before.result(), after.result()) == (0, 1)


def test_what_is_no_row_is_refused(tmp_path: Path) -> None:
    with handler_of(tmp_path, max_record_bytes=1024, timestamp_column="at") as handler:
        for wrong in (None, [("id", 1)], b"x", 7):
            with pytest.raises(ConfigError, match="row must be a dict"):
                handler.append_row(wrong)  # type: ignore[arg-type]
        with pytest.raises(RecordTooLargeError, match="more than max_record_bytes=1024"):
            handler.append_row({"id": 1, "raw": bytes(1100)})
        # The bound of a text counts four bytes a character; what it takes is what counts.
        handler.append_row({"id": 1, "s": {"a": ["x" * 900]}}).result()
        with pytest.raises(InvalidRecordError, match="timestamp column at: "):
            handler.append_row({"id": 1, "at": "+290000-01-01T00:00:00Z"})


def test_the_two_kinds_of_topics_say_which_method_they_take(tmp_path: Path) -> None:
    with handler_of(tmp_path / "typed") as handler:
        with pytest.raises(InvalidRecordError, match=r"is a typed topic.*Use append_row"):
            handler.append(b"x")
        with pytest.raises(InvalidRecordError, match=r"is a typed topic.*Use append_row"):
            handler.append("x", key=b"k", headers={})
        with pytest.raises(InvalidRecordError, match=r"is a typed topic.*Use append_row"):
            handler.write_direct(b"x")
        assert handler.append_row({"id": 1}).result() == 0
    with DiskManager(StoreConfig(log_dir=str(tmp_path / "records"))) as manager:
        with pytest.raises(InvalidRecordError, match=r"is a records topic.*Use append"):
            manager.get_handler("t", 0).append_row({"id": 1})
        with pytest.raises(InvalidRecordError, match=r"is a records topic.*Use append"):
            manager.append_row("t", {"id": 1})


def test_columns_that_are_added_meanwhile_are_taken(tmp_path: Path) -> None:
    with handler_of(tmp_path) as handler:
        old = handler.append_row({"id": 1})
        with pytest.raises(SchemaMismatchError, match="column more"):
            handler.append_row({"id": 2, "more": 5})
        handler._store.alter_topic("t", add_columns=pa.schema([("more", pa.int32())]))
        new = handler.append_row({"id": 2, "more": 5})
        last = handler.append_row({"id": 3})
        assert [future.result() for future in (old, new, last)] == [0, 1, 2]
    store = Store.open(tmp_path)
    assert [row["more"] for row in rows(store)] == [None, 5, None]
    assert [(frame.version, frame.header.records) for frame in frames(store)] == [(1, 1), (2, 2)]
    assert store.check() == []


def test_rows_are_read_back_through_the_handler(tmp_path: Path) -> None:
    with handler_of(tmp_path) as handler:
        for n in range(5):
            handler.append_row({"id": n})
        handler.flush()
        found = handler.read_messages(1, 3)
        assert found.next_offset == 4
        assert found.records.column("_offset").to_pylist() == [1, 2, 3]
        assert found.records.column("id").to_pylist() == [1, 2, 3]
        nothing = handler.read_messages(5, 3)
        assert (nothing.records.num_rows, nothing.next_offset) == (0, 5)
        assert nothing.records.schema.names == found.records.schema.names


def test_a_failed_write_fails_the_rows_and_closes_the_handler(tmp_path: Path) -> None:
    typed_store(tmp_path, SCHEMA).close()
    vfs = faulty(tmp_path)
    handler = DiskHandler(on(vfs), "t", 0, StoreConfig(linger_ms=NEVER_MS))
    assert handler.append_row({"id": 1}).result() == 0
    vfs.fail("pwritev", errno.EIO, path=".log")
    failing = handler.append_row({"id": 2})
    assert isinstance(failing.exception(), WriteFailedError)
    with pytest.raises(WriteFailedError, match="is closed for writing"):
        handler.append_row({"id": 3})
    handler.close()
    assert [row["id"] for row in rows(Store.open(tmp_path))] == [1]


KEYED = pa.schema([("user", pa.string()), ("f", pa.float64()), ("n", pa.int32())])


def test_the_manager_routes_rows_as_append_table_does(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic("t", 3, schema=KEYED, key_columns=["user", "f"])
    store.close()
    values = [0.0, -0.0, float("nan"), None, 1.5]
    given = [{"user": f"u{n % 7}", "f": values[n % 5], "n": n} for n in range(100)]
    with DiskManager(StoreConfig(log_dir=str(tmp_path), linger_ms=1)) as manager:
        futures = [manager.append_row("t", row) for row in given]
        assert all(future.result() >= 0 for future in futures)
        schema = Store.open(tmp_path).schema("t")
        assert schema is not None
        batch = pa.RecordBatch.from_pylist(given, KEYED)
        wanted = key_partitions(conform(batch, schema), ["user", "f"], 3).tolist()
        wrong = manager.get_handler("t", (wanted[0] + 1) % 3)
        with pytest.raises(InvalidRecordError, match=f"belongs to partition {wanted[0]}"):
            wrong.append_row(given[0])
        manager.get_handler("t", wanted[0]).append_row({**given[0], "n": 1000}).result()
        # More partitions: the key may belong elsewhere from now on.
        Store.open(tmp_path).add_partitions("t", 16)
        moved = [manager.append_row("t", row) for row in given]
        assert all(future.result() >= 0 for future in moved)
        again = key_partitions(conform(batch, schema), ["user", "f"], 16).tolist()
    store = Store.open(tmp_path)
    for partition in range(16):
        found = [n for found in store.read("t", partition) for n in found["n"].to_pylist()]
        ours = [n for n in range(100) if wanted[n] == partition]
        ours += [1000] * (partition == wanted[0])
        assert found == ours + [n for n in range(100) if again[n] == partition]


def test_rows_without_a_key_take_turns(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic("t", 2, schema=KEYED)
    store.close()
    config = StoreConfig(log_dir=str(tmp_path), disk_flush_batch_size=10)
    with DiskManager(config) as manager:
        for n in range(40):
            manager.append_row("t", {"n": n})
    store = Store.open(tmp_path)
    assert [store.offsets("t", partition).end for partition in (0, 1)] == [20, 20]


def test_a_topic_that_was_created_again_is_another_topic(tmp_path: Path) -> None:
    config = StoreConfig(log_dir=str(tmp_path), linger_ms=NEVER_MS)
    with DiskManager(config) as manager:
        store = Store.open(tmp_path, create=True)
        store.create_topic("t", schema=KEYED)
        manager.append_row("t", {"n": 1}).result()
        store.delete_topic("t")
        store.create_topic("t", schema=pa.schema([("other", pa.string())]))
        with pytest.raises(SchemaMismatchError, match="column n"):
            manager.append_row("t", {"n": 2})
        assert manager.append_row("t", {"other": "x"}).result() == 0
    assert [row["other"] for row in rows(Store.open(tmp_path))] == ["x"]
