"""``LagListener``: the lag of a stream by partition, from the progress of real queries."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from cursus_spark import LagListener, QueryLag
from cursus_spark.stream.lag_listener import lag_of
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT


def position(**ends: dict[str, int]) -> str:
    return json.dumps({"v": 1, "id": dict.fromkeys(ends, "u"), "pos": ends})


def progress(*sources: tuple[str | None, str | None], name: str | None = "q") -> Any:
    """A progress as Spark passes it, with the end and the latest offset of each source."""
    one = {"description": "", "startOffset": None, "numInputRows": 0,
           "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}  # fmt: skip
    return StreamingQueryProgress.fromJson(
        {
            "id": "3b2f2a4e-0000-4000-8000-000000000001",
            "runId": "3b2f2a4e-0000-4000-8000-000000000002",
            "name": name,
            "timestamp": "2026-11-18T20:00:00.000Z",
            "batchId": 7,
            "batchDuration": 1,
            "durationMs": {},
            "stateOperators": [],
            "sources": [{**one, "endOffset": end, "latestOffset": new} for end, new in sources],
            "sink": {"description": "", "numOutputRows": 0},
            "numInputRows": 0,
            "inputRowsPerSecond": 0.0,
            "processedRowsPerSecond": 0.0,
        }
    )


def test_lag_is_by_topic_and_partition() -> None:
    end = position(orders={"0": 10, "1": 5})
    latest = position(orders={"0": 25, "1": 5, "2": 3}, late={"0": 4})
    found = lag_of(progress((end, latest)))
    assert found == QueryLag(
        "q", 7, {("orders", 0): 15, ("orders", 1): 0, ("orders", 2): 3, ("late", 0): 4}
    )
    assert found.records == 22
    assert str(found) == (
        "query q, batch 7: 22 records behind (orders-0: 15, late-0: 4, orders-2: 3)"
    )


def test_several_sources_are_added_up_and_other_sources_are_left_alone() -> None:
    one = (position(t={"0": 1}), position(t={"0": 3}))
    other = ('{"t":{"0":1}}', '{"t":{"0":99}}')
    found = lag_of(progress(one, one, other, (None, None)))
    assert found is not None
    assert found.partitions == {("t", 0): 4}
    assert lag_of(progress(other)) is None
    unnamed = lag_of(progress(one, name=None))
    assert unnamed is not None
    assert unnamed.query == "3b2f2a4e-0000-4000-8000-000000000001"


def test_without_the_latest_offset_nothing_is_known() -> None:
    found = lag_of(progress((position(t={"0": 1}), None)))
    assert found is not None
    assert found.partitions == {}


def test_more_partitions_than_fit_a_line() -> None:
    lag = QueryLag("q", 1, {("t", number): 1 for number in range(100)})
    assert str(lag).endswith(", …)")
    assert len(str(lag)) < 200


@pytest.mark.slow
def test_the_programs_of_the_page_run_and_a_real_query_is_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[QueryLag] = []
    listener = LagListener(seen.append)
    spark.streams.addListener(listener)
    try:
        kitchen = Kitchen("docs/metrics.md", spark, tmp_path)
        kitchen.run_all((ROOT / "docs" / "metrics.md").read_text())
        deadline = time.monotonic() + 60
        while not seen or seen[-1].partitions:
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.records for lag in seen] == [600, 200, 0, 0]
    assert {lag.query for lag in seen} == {"watched"}
    labels = {"query": "watched", "topic": "events", "partition": "0"}
    assert REGISTRY.get_sample_value("stream_lag_records", labels) == 0
    printed = kitchen.printed["Consumer groups"]
    assert 'cursus_group_lag_records{group="watchers",topic="events",partition="0"} 0' in printed
