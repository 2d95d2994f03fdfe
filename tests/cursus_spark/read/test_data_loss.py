"""Records that go away between planning and reading are an error, or a warning if asked for."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from storage_core import Store
from tests.support.spark.dataframes import TOPIC, Log, one_line_error

STAY = "failOnDataLoss"


def segments_of_ten(log: Log) -> Store:
    """Ten segments of ten records."""
    store = log.create(1, retention_bytes=1)
    for number in range(10):
        store.append(TOPIC, 0, [f"{number}-{row}".encode() for row in range(10)])
        store.roll(TOPIC, 0)
    return store


def planned(log: Log, **options: str) -> DataFrame:
    """A read whose plan is made now and read by the next action."""
    frame = log.read(schema="offset long", maxRecordsPerPartition="20", **options)
    assert frame.rdd.getNumPartitions() == 5
    return frame


def test_segments_that_retention_removed_are_an_error(log: Log) -> None:
    store = segments_of_ten(log)
    frame = planned(log)
    assert store.retain(TOPIC)
    start = store.offsets(TOPIC, 0).start
    assert start > 10
    found = one_line_error(frame.collect)
    assert found.startswith("[CURSUS_DATA_LOSS] orders-0: records ")
    assert found.endswith(
        f"are no longer in the log (it now starts at {start}). Set failOnDataLoss to false to "
        f"continue from {start}."
    )


def test_without_fail_on_data_loss_the_rest_is_read(log: Log) -> None:
    store = segments_of_ten(log)
    frame = planned(log, failOnDataLoss="false")
    store.retain(TOPIC)
    start = store.offsets(TOPIC, 0).start
    assert sorted(row.offset for row in frame.collect()) == list(range(start, 100))


def test_a_start_that_is_gone_is_an_error_or_the_first_there_is(log: Log) -> None:
    store = segments_of_ten(log)
    store.retain(TOPIC)
    start = store.offsets(TOPIC, 0).start
    where = {"startingOffsets": '{"orders":{"0":3}}'}
    assert one_line_error(lambda: log.read(**where).collect()) == (
        f"[CURSUS_DATA_LOSS] orders-0: records 3 to {start - 1} are no longer in the log (it now "
        f"starts at {start}). Set failOnDataLoss to false to continue from {start}."
    )
    assert log.offsets(failOnDataLoss="false", **where)[0] == (0, start)


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_deleted_since_is_not_taken_for_another(log: Log, again: bool) -> None:
    store = segments_of_ten(log)
    strict, lenient = planned(log), planned(log, failOnDataLoss="false")
    store.delete_topic(TOPIC)
    if again:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"other"] * 100)
    event = "deleted and created again" if again else "deleted"
    assert one_line_error(strict.collect) == (
        f"[CURSUS_DATA_LOSS] Topic 'orders' was {event} since the query was planned. Load it "
        "again, or set failOnDataLoss to false to continue without it."
    )
    assert lenient.collect() == []
