"""Brokers' directories through Spark: read, written with the same protocol, damage reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers.broker_directories import BROKER, CURSUS, KINDS, RUSTLOG, Kind
from tests.support.spark.dataframes import TOPIC, Log, first, one_line_error

PAYLOADS = [[b"a", b"b"], [b"c"], [b"d", b"e"]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_brokers_directory_is_read_as_it_is(log: Log, kind: Kind) -> None:
    kind.write(log.path, PAYLOADS)
    rows = log.read().orderBy("offset").collect()
    assert [(row.offset, row.value) for row in rows] == list(
        enumerate([b"a", b"b", b"c", b"d", b"e"])
    )
    assert {(row.topic, row.partition, row.timestamp, row.timestampType) for row in rows} == {
        (TOPIC, 0, None, -1)
    }
    assert log.texts(layout=kind.layout, startingOffsets='{"orders":{"0":3}}') == ["d", "e"]


@pytest.mark.parametrize("layout", ["native", "cursus", "cursus-broker", "rustlog"])
def test_a_missing_path_becomes_a_directory_of_the_layout_asked_for(log: Log, layout: str) -> None:
    rows = log.frame([("a", 0), ("b", 1), ("c", 1)], "value string, partition int")
    log.write(rows, layout=layout, numPartitions=2)
    log.write(rows, numPartitions=2)
    assert log.store().layout == layout
    assert log.offsets() == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert log.texts() == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_what_a_layout_cannot_store_is_refused_and_the_topic_stays_writable(
    log: Log, layout: str
) -> None:
    log.write(log.values("first"), layout=layout)
    null = one_line_error(lambda: log.write(log.values("a", None)))
    assert null.startswith("[CURSUS_RECORD_INVALID] value 1 of the append is null")
    stamped = log.frame([("v",)], "value string").selectExpr(
        "value", "current_timestamp() timestamp"
    )
    assert "[CURSUS_COLUMN_UNSUPPORTED]" in one_line_error(lambda: log.write(stamped))
    log.write(log.values("last"))
    assert log.texts() == ["first", "last"]


def test_keys_and_headers_go_through_a_cursus_broker(log: Log) -> None:
    schema = "key string, value string, headers array<struct<key:string,value:binary>>"
    log.write(log.frame([("k", "v", [("event_type", b"x")])], schema), layout="cursus-broker")
    row = first(log.read(includeHeaders="true"))
    assert (row.key, row.value, row.headers) == (b"k", b"v", [("event_type", b"x")])


@pytest.mark.parametrize("kind", [CURSUS, BROKER, RUSTLOG], ids=lambda kind: kind.name)
def test_damage_after_the_last_sound_record_is_an_error_and_no_silent_end(
    log: Log, kind: Kind
) -> None:
    (file,) = kind.write(log.path, [[b"a", b"b"]])
    with file.open("ab") as stream:
        stream.write(b"\xff" * 64)
    found = one_line_error(lambda: log.read().collect())
    assert found.startswith("[CURSUS_LOG_DAMAGED] orders-0")
    assert log.texts(endingOffsets='{"orders":{"0":2}}') == ["a", "b"]


def test_times_of_a_directory_without_times_are_an_error(log: Log) -> None:
    RUSTLOG.write(log.path, PAYLOADS)
    found = one_line_error(lambda: log.read(startingTimestamp="2026-01-01T00:00:00Z").collect())
    assert found.startswith("[CURSUS_")
    assert "timestamp" in found


def test_a_directory_of_nothing_we_know_is_named(log: Log) -> None:
    log.path.mkdir()
    (log.path / "notes.txt").write_text("hello")
    found = one_line_error(lambda: log.read().collect())
    assert found.startswith(f"[CURSUS_LAYOUT_NOT_FOUND] {log.path} is not a log directory.")
    missing = one_line_error(
        lambda: (
            log.spark.read.format("cursus")
            .option("subscribe", "t")
            .load(str(log.path / "missing"))
            .collect()
        )
    )
    assert missing.startswith(f"[CURSUS_LAYOUT_NOT_FOUND] {log.path}/missing does not exist.")


def test_a_path_that_is_a_file_is_one_line(log: Log, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).write_bytes(b"mine")
    rows = log.frame([("x",)], "value string")
    reading = log.spark.read.format("cursus").option("subscribe", "orders")
    writing = rows.write.format("cursus").option("topic", "orders").mode("append")
    for attempt in (lambda: reading.load(path), lambda: writing.save(path)):
        found = one_line_error(attempt)
        assert found.startswith(f"[CURSUS_LAYOUT_NOT_FOUND] {path} is a file or inside one")
