"""Scans: one stream of Arrow batches over the partitions of a topic of either kind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import (
    ConfigError,
    DamagedLogError,
    InvalidPredicateError,
    InvalidRecordError,
    TopicNotFoundError,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
DAY = datetime(2026, 11, 1, tzinfo=UTC)
ROWS, FRAME = 1000, 50


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    config = StoreConfig(frame_records=FRAME, segment_bytes=1 << 20)
    with Store.open(tmp_path / "log", create=True, config=config) as opened:
        yield opened


def events(first: int = 0, count: int = ROWS) -> pa.Table:
    ids = range(first, first + count)
    users = [None if number % 10 == 0 else f"user-{number % 7}" for number in ids]
    times = [DAY + timedelta(seconds=number) for number in ids]
    return pa.table({"id": pa.array(ids), "user": users, "at": times}, schema=SCHEMA)


def typed(store: Store, partitions: int = 1, **settings: Any) -> Store:
    store.create_topic("t", partitions, schema=SCHEMA, timestamp_column="at", **settings)
    for partition in range(partitions):
        store.append_table("t", events(partition * ROWS), partition=partition)
    return store


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_every_way_to_take_the_rows_gives_all_of_them(store: Store, compression: str) -> None:
    scan = typed(store, 2, compression=compression).scan("t")
    wanted = pa.concat_tables([events(), events(ROWS)])
    assert scan.schema.equals(SCHEMA)
    assert scan.to_table().equals(wanted)
    assert scan.to_reader().read_all().equals(wanted)
    assert pa.RecordBatchReader.from_stream(scan).read_all().equals(wanted)
    assert pa.table(scan).equals(wanted)
    assert scan.to_pandas()["id"].tolist() == list(range(2 * ROWS))
    assert sum(batch.num_rows for batch in scan.batches()) == 2 * ROWS


def test_columns_of_the_topic_and_of_the_log(store: Store) -> None:
    scan = typed(store, 2).scan("t", [1], columns=["_offset", "user", "_partition", "_topic"])
    assert scan.schema.names == ["_offset", "user", "_partition", "_topic"]
    found = scan.to_table()
    assert found["_offset"].to_pylist() == list(range(ROWS))
    assert set(found["_partition"].to_pylist()) == {1}
    assert set(found["_topic"].to_pylist()) == {"t"}
    assert found["user"].equals(events(ROWS)["user"])


def test_where_skips_frames_and_says_how_many(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    scan = typed(store).scan("t", columns=["user"], where="id >= 500 and id < 510")
    with caplog.at_level(logging.INFO, "storage_core"):
        assert scan.to_table().equals(events(500, 10).select(["user"]))
    assert (scan.counts.read, scan.counts.skipped) == (1, ROWS // FRAME - 1)
    assert "scan of topic 't': 1 frames read, 19 skipped" in caplog.text
    assert scan.to_table().num_rows == 10
    assert scan.counts.read == 1, "the counts are those of one read"


@pytest.mark.parametrize(
    "where", ["_offset between 3 and 4", "_timestamp <= TIMESTAMP'2026-11-01'"]
)
def test_where_on_columns_of_the_log(store: Store, where: str) -> None:
    scan = typed(store).scan("t", where=where)
    assert scan.to_table()["id"].to_pylist() == ([3, 4] if "between" in where else [0])
    assert scan.counts.read == 1


@pytest.mark.parametrize(
    ("start", "end", "ids"),
    [
        (990, None, [*range(990, 1000), *range(1990, 2000)]),
        (None, {0: 2, 1: 0}, [0, 1]),
        ({1: 998}, {0: 1}, [0, 1998, 1999]),
        (5000, 6000, []),
        (998, 10**12, [998, 999, 1998, 1999]),
        (DAY + timedelta(seconds=999), DAY + timedelta(seconds=1001), [999, 1000]),
        (datetime(2026, 11, 1, 0, 33, 18), None, [1998, 1999]),
        (DAY, 2, [0, 1, 1000, 1001]),
    ],
)
def test_where_a_scan_begins_and_ends(store: Store, start: Any, end: Any, ids: list[int]) -> None:
    found = typed(store, 2).scan("t", start=start, end=end).to_table()
    assert found["id"].to_pylist() == ids


def test_a_scan_is_a_snapshot(store: Store) -> None:
    scan = typed(store).scan("t")
    store.append_table("t", events(ROWS))
    store.alter_topic("t", add_columns=pa.schema([("more", pa.int32())]))
    assert scan.to_table().equals(events())
    newer = store.scan("t").to_table()
    assert newer.num_rows == 2 * ROWS
    assert newer["more"].null_count == 2 * ROWS


def test_a_records_topic(store: Store) -> None:
    store.create_topic("r", 2)
    stamps = [DAY + timedelta(seconds=number) for number in range(ROWS)]
    for partition in range(2):
        values = [b"%d" % number for number in range(ROWS)]
        store.append("r", partition, values, keys=values, timestamps=stamps)
    found = store.scan("r").to_table()
    assert found.schema.names == ["offset", "timestamp", "key", "value", "headers"]
    assert found.num_rows == 2 * ROWS
    where = (
        "_partition = 1 and _offset >= 900 and key in ('901', '5') and _timestamp > '2026-11-01'"
    )
    scan = store.scan("r", columns=["value", "_offset", "_timestamp"], where=where)
    (row,) = scan.to_table().to_pylist()
    assert row == {"value": b"901", "_offset": 901, "_timestamp": stamps[901]}
    assert scan.counts.read == 2


def test_an_empty_topic_has_its_columns(store: Store) -> None:
    store.create_topic("t", schema=SCHEMA)
    assert store.scan("t").to_table().equals(SCHEMA.empty_table())
    assert store.scan("t", where="id = 1").to_reader().read_all().num_rows == 0


def test_rows_before_damage_come_first_and_nothing_damaged(store: Store) -> None:
    typed(store)
    (segment,) = store.segments("t", 0)
    file = Path(store.path, segment.path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)
    with Store.open(store.path) as again:
        seen: list[int] = []
        batches = again.scan("t").batches()
        with suppress(DamagedLogError):
            while True:
                seen += next(batches).column("id").to_pylist()
    assert seen == list(range(len(seen)))
    assert 0 < len(seen) < ROWS


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"topic": "u"}, TopicNotFoundError, "u"),
        ({"partitions": [2]}, ConfigError, "partitions has 2 in it; .* are 0 to 0"),
        ({"partitions": "0"}, ConfigError, "list of numbers"),
        ({"start": {1: 5}}, ConfigError, "start has 1 in it; .* are 0 to 0"),
        ({"end": {0: 5, 3: 5}}, ConfigError, "end has 3 in it; .* are 0 to 0"),
        ({"start": -1}, InvalidRecordError, "start must be an offset"),
        ({"end": {0: "x"}}, InvalidRecordError, "end must be an offset"),
        ({"columns": ["nothing"]}, InvalidRecordError, "'nothing' does not exist"),
        ({"columns": []}, InvalidRecordError, "at least one column"),
        ({"where": "nothing = 1"}, InvalidPredicateError, "nothing"),
        ({"where": "id ="}, InvalidPredicateError, "id ="),
    ],
)
def test_what_is_refused(store: Store, arguments: Any, error: Any, text: str) -> None:
    typed(store)
    with pytest.raises(error, match=text):
        store.scan(**{"topic": "t", **arguments})
