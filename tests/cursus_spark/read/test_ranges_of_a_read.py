"""Where a batch read starts and ends, and how it is cut into tasks."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from storage_core import Store
from tests.support.spark.dataframes import TOPIC, Log, one_line_error
from tests.support.stores import T0

SECOND = 1_000_000


def three_partitions(log: Log, records: int = 10) -> Store:
    """Partition p holds ``p-0`` … with one second between records."""
    store = log.create(3)
    for partition in range(3):
        store.append(
            TOPIC,
            partition,
            [f"{partition}-{number}".encode() for number in range(records)],
            timestamps=[T0 + number * SECOND for number in range(records)],
        )
    return store


def spans(log: Log, topic: str | None = TOPIC, /, **options: Any) -> dict[int, tuple[int, int]]:
    """First and last offset read of each partition."""
    found: dict[int, list[int]] = {}
    for partition, offset in log.offsets(topic, **options):
        found.setdefault(partition, []).append(offset)
    assert all(offsets == list(range(offsets[0], offsets[-1] + 1)) for offsets in found.values())
    return {partition: (offsets[0], offsets[-1]) for partition, offsets in found.items()}


WHOLE = (0, 9)
MS = T0 // 1000
ISO = datetime.datetime.fromtimestamp(T0 / 1e6, datetime.UTC)


def orders(**bounds: Any) -> str:
    return json.dumps({TOPIC: bounds})


RANGES = {
    "everything": ({}, (WHOLE, WHOLE, WHOLE)),
    "words": ({"startingOffsets": "earliest", "endingOffsets": "latest"}, (WHOLE, WHOLE, WHOLE)),
    "partial JSON": ({"startingOffsets": orders(**{"1": 4})}, (WHOLE, (4, 9), WHOLE)),
    "-2 and -1": (
        {"startingOffsets": orders(**{"0": -2}), "endingOffsets": orders(**{"0": -1, "1": 3})},
        (WHOLE, (0, 2), WHOLE),
    ),
    "topic-level words": (
        {
            "startingOffsets": f'{{"{TOPIC}":"earliest"}}',
            "endingOffsets": f'{{"{TOPIC}":"latest"}}',
        },
        (WHOLE, WHOLE, WHOLE),
    ),
    "an end at the start is no records": ({"endingOffsets": orders(**{"1": 0})}, (WHOLE, WHOLE)),
    "milliseconds": (
        {"startingTimestamp": str(MS + 3000), "endingTimestamp": str(MS + 7000)},
        ((3, 6), (3, 6), (3, 6)),
    ),
    "ISO-8601": (
        {
            "startingTimestamp": (ISO + datetime.timedelta(seconds=8)).isoformat(),
            "endingTimestamp": "2999-01-01T00:00:00Z",
        },
        ((8, 9), (8, 9), (8, 9)),
    ),
    "the largest long is the end": (
        {
            "endingTimestamp": "9223372036854775807",
            "startingOffsetsByTimestamp": orders(**{"0": (1 << 63) - 1, "1": MS + 3000}),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        ((3, 9), WHOLE),
    ),
    "ISO-8601 without a zone is UTC": (
        {"startingTimestamp": (ISO + datetime.timedelta(seconds=8)).isoformat()[:-6]},
        ((8, 9), (8, 9), (8, 9)),
    ),
    "times of single partitions win over offsets": (
        {
            "startingOffsets": orders(**{"0": 5, "1": 5}),
            "startingOffsetsByTimestamp": orders(**{"1": MS + 2000}),
            "endingOffsetsByTimestamp": orders(**{"2": MS + 1000}),
        },
        ((5, 9), (2, 9), (0, 0)),
    ),
    "the time of all takes precedence over everything": (
        {"startingOffsets": orders(**{"0": 5}), "startingTimestamp": str(MS + 9000)},
        ((9, 9), (9, 9), (9, 9)),
    ),
    "no record that recent, latest": (
        {
            "startingOffsetsByTimestamp": orders(**{"0": MS + 99_000}),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        (WHOLE, WHOLE),
    ),
}


@pytest.mark.parametrize("case", RANGES)
def test_a_read_covers_exactly_the_range_asked_for(log: Log, case: str) -> None:
    three_partitions(log)
    options, expected = RANGES[case]
    assert tuple(spans(log, **options).values()) == expected


def test_single_partitions_are_assigned(log: Log) -> None:
    three_partitions(log)
    assert set(spans(log, None, assign=orders_list(0, 2))) == {0, 2}
    missing = one_line_error(lambda: log.read(None, assign=orders_list(7)).collect())
    assert (
        missing
        == "[CURSUS_PARTITION_NOT_FOUND] Option 'assign': topic 'orders' has no partition 7."
    )


def orders_list(*partitions: int) -> str:
    return json.dumps({TOPIC: partitions})


def test_topics_are_chosen_by_list_and_by_pattern(log: Log) -> None:
    store = three_partitions(log, 1)
    for topic in ("clicks", "clicks-old"):
        store.create_topic(topic)
        store.append(topic, 0, [topic.encode()])
    assert log.texts("clicks, clicks-old") == ["clicks", "clicks-old"]
    assert log.texts(None, topic="clicks") == ["clicks"]
    assert log.texts(None, subscribePattern="cl.*s") == ["clicks"]
    assert log.texts(None, subscribePattern="nothing") == []


def tasks(log: Log, **options: Any) -> list[int]:
    """Records of each task of a read."""
    rows = log.read(schema="offset long", **options)
    found = rows.selectExpr("spark_partition_id() task").groupBy("task").count().collect()
    return sorted(row["count"] for row in found)


def test_small_partitions_share_one_task(log: Log) -> None:
    three_partitions(log)
    assert tasks(log) == [30]


def test_tasks_are_cut_by_number_by_records_and_by_bytes(log: Log) -> None:
    store = log.create(1, segment_bytes=1 << 20, frame_records=100)
    store.append(TOPIC, 0, [bytes(1000)] * 4000)
    cut = tasks(log, minPartitions="4")
    assert len(cut) == 4
    assert max(cut) - min(cut) <= 200
    assert tasks(log, maxRecordsPerPartition="1500") == [1333, 1333, 1334]
    by_bytes = tasks(log, maxBytesPerPartition="1m")
    assert len(by_bytes) >= 4
    assert max(by_bytes) <= 1300
    assert sum(by_bytes) == 4000


def test_one_dataframe_is_one_snapshot_and_a_new_one_sees_more(log: Log) -> None:
    store = three_partitions(log, 1)
    frame = log.read()
    assert frame.count() == 3
    store.append(TOPIC, 0, [b"later"])
    assert frame.count() == 3
    assert frame.where("partition = 0").count() == 1
    assert log.read().count() == 4
