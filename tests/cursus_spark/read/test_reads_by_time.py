"""Batches by time are exact, also where timestamps are not in the order of offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cursus_spark.errors import CursusError
from cursus_spark.options.parse import parse_read_options, parse_stream_read_options
from cursus_spark.read.planning import plan
from cursus_spark.read.ranges import batch_ranges
from cursus_spark.stream.start_offsets import first_position
from storage_core import Store, StoreConfig
from tests.support.faulty_vfs import faulty
from tests.support.spark.dataframes import TOPIC, Log, one_line_error
from tests.support.stores import T0

MS = T0 // 1000
DAYS = [5, 6, 3, 4, 1, 2, 3]
"""The day of each file of an ingest, in the order in which Spark happened to read them."""


def ingest(store: Store, *, rolls: bool = True) -> list[int]:
    """Ten records for each day, in files that came in no order; the day of each offset."""
    for day in DAYS:
        stamps = [T0 + (day * 100 + number) * 1000 for number in range(10)]
        store.append(TOPIC, 0, [b"%d" % day] * 10, timestamps=stamps)
        if rolls:
            store.roll(TOPIC, 0)
    return [day for day in DAYS for _ in range(10)]


def day_options(first: int, last: int) -> dict[str, str]:
    return {
        "startingTimestamp": str(MS + 100 * first),
        "endingTimestamp": str(MS + 100 * (last + 1)),
    }


@pytest.mark.parametrize("rolls", [True, False])
def test_one_day_of_an_unordered_topic_is_read_whole(log: Log, rolls: bool) -> None:
    days = ingest(log.create(frame_records=7), rolls=rolls)
    for first, last in ((3, 3), (1, 2), (4, 6), (0, 9)):
        found = [offset for _, offset in log.offsets(**day_options(first, last))]
        assert found == [at for at, day in enumerate(days) if first <= day <= last]


def test_one_end_by_time_is_exact_too(log: Log) -> None:
    days = ingest(log.create(frame_records=7))
    found = [offset for _, offset in log.offsets(endingTimestamp=str(MS + 300))]
    assert found == [at for at, day in enumerate(days) if day < 3]
    found = [offset for _, offset in log.offsets(startingTimestamp=str(MS + 500))]
    assert found == [at for at, day in enumerate(days) if day >= 5]
    by_partition = f'{{"{TOPIC}":{{"0":{MS + 300}}}}}'
    found = [offset for _, offset in log.offsets(endingOffsetsByTimestamp=by_partition)]
    assert found == [at for at, day in enumerate(days) if day < 3]
    found = [
        offset
        for _, offset in log.offsets(
            startingOffsets=f'{{"{TOPIC}":{{"0":45}}}}', endingTimestamp=str(MS + 300)
        )
    ]
    assert found == list(range(45, 60))


def test_offsets_mode_is_the_rule_of_kafka(log: Log) -> None:
    ingest(log.create())
    assert log.offsets(timestampMode="offsets", **day_options(3, 3)) == []
    rest = log.offsets(timestampMode="offsets", startingTimestamp=str(MS + 600))
    assert [offset for _, offset in rest] == list(range(10, 70))


def test_a_start_after_all_records_is_an_error_in_both_modes(log: Log) -> None:
    ingest(log.create())
    for mode in ("exact", "offsets"):
        late: dict[str, Any] = {"startingTimestamp": str(MS + 10_000), "timestampMode": mode}
        found = one_line_error(lambda late=late: log.read(**late).collect())  # type: ignore[misc]
        assert "NO_OFFSET_FOR_TIMESTAMP" in found
        assert log.offsets(startingOffsetsByTimestampStrategy="latest", **late) == []


def planned(path: Path, **given: str) -> tuple[list[tuple[int, int]], set[str]]:
    """Offsets of the planned splits, and the log files that planning looked into."""
    vfs = faulty(path)
    store = Store(vfs, StoreConfig())
    options = parse_read_options({"path": str(path), "subscribe": TOPIC, **given})
    vfs.calls.clear()
    tasks = plan(store, options, *batch_ranges(store, options))
    splits = [(each.start_offset, each.end_offset) for task in tasks for each in task.splits]
    kinds = ("open:read", "map")
    return splits, {
        each.path for each in vfs.calls if each.kind in kinds and each.path.endswith(".log")
    }


def test_a_plan_leaves_out_segments_and_does_not_look_into_them(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, 1)
    ingest(store)
    splits, _ = planned(tmp_path, **day_options(3, 3))
    assert splits == [(20, 30), (60, 70)]
    store.create_topic("ordered", 1)
    for day in range(50):
        stamps = [T0 + (day * 100 + number) * 1000 for number in range(10)]
        store.append("ordered", 0, [b"v"] * 10, timestamps=stamps)
        store.roll("ordered", 0)
    splits, opened = planned(tmp_path, subscribe="ordered", **day_options(20, 21))
    assert splits == [(200, 210), (210, 220)]
    assert len(opened) <= 4, opened
    assert planned(tmp_path, subscribe="ordered")[1] == set()


def test_a_stream_refuses_exact_times(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "subscribe": TOPIC}
    assert parse_stream_read_options({**given, "timestampMode": "offsets"}).times(TOPIC, 0) is None
    with pytest.raises(CursusError, match="exact not valid in streaming queries"):
        parse_stream_read_options({**given, "timestampMode": "exact"})


def test_a_stream_that_starts_by_time_warns_of_older_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, 1)
    ingest(store)
    given = {"path": str(tmp_path), "subscribe": TOPIC}
    in_order = parse_stream_read_options({**given, "startingTimestamp": str(MS + 100)})
    assert first_position(store, in_order).positions == {TOPIC: {0: 0}}
    assert caplog.messages == []
    late = parse_stream_read_options({**given, "startingTimestamp": str(MS + 400)})
    assert first_position(store, late).positions == {TOPIC: {0: 0}}
    (said,) = caplog.messages
    assert said.startswith("Times are out of order in orders-0: ")
