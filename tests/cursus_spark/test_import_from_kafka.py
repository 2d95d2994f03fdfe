"""The example that imports from Kafka, over rows of the columns that Spark's Kafka source gives.

Our own source gives the same columns, so a topic of ours stands in for one of Kafka's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.import_from_kafka import as_records, copy, require_broker
from tests.support.spark.dataframes import Log

KAFKA = """key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
    timestampType int, headers array<struct<key:string,value:binary>>"""
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_kafkas_rows_keep_everything_but_their_offsets(log: Log) -> None:
    rows = [
        (b"ada", b"1", "orders", 1, 700, NOON, 0, [("trace", b"x")]),
        (b"ada", None, "orders", 1, 702, NOON, 1, None),
        (None, b"\xff", "orders", 0, 5, NOON, 0, []),
    ]
    log.write(as_records(log.frame(rows, KAFKA)), None, numPartitions=2)
    found = log.read("orders", includeHeaders="true").orderBy("partition", "offset").collect()
    assert [
        (row.partition, row.offset, row.key, row.value, row.timestamp, row.timestampType)
        for row in found
    ] == [
        (0, 0, None, b"\xff", NOON.replace(tzinfo=None), 0),
        (1, 0, b"ada", b"1", NOON.replace(tzinfo=None), 0),
        (1, 1, b"ada", None, NOON.replace(tzinfo=None), 0),
    ]
    assert [[tuple(header) for header in row.headers] for row in found] == [
        [("kafka", b"0@5")],
        [("trace", b"x"), ("kafka", b"1@700")],
        [("kafka", b"1@702")],
    ]


def test_a_second_import_takes_only_what_is_new(log: Log, tmp_path: Path) -> None:
    kafka = Log(log.spark, tmp_path / "kafka")
    store = kafka.create(2)

    def run() -> int:
        rows = (
            log.spark.readStream.format("cursus")
            .options(subscribe="orders", startingOffsets="earliest", includeHeaders="true")
            .load(str(kafka.path))
        )
        copy(rows, str(log.path), 2, str(tmp_path / "checkpoint")).awaitTermination()
        return log.read("orders").count()

    store.append("orders", 0, [b"a", b"b"])
    store.append("orders", 1, [b"c"])
    assert run() == 3
    assert run() == 3
    store.append("orders", 1, [b"d"])
    assert run() == 4
    assert log.offsets("orders") == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("127.0.0.1:9", "no Kafka broker answers: 127.0.0.1:9"),
        ("127.0.0.1:9, 127.0.0.1:7", "127.0.0.1:7"),
        ("kafka", "expected host:port, got 'kafka'"),
    ],
)
def test_a_broker_that_is_not_there_is_named(servers: str, words: str) -> None:
    with pytest.raises(SystemExit, match=words):
        require_broker(servers)
