"""Streams into typed topics: each row once, with the columns that it brings, across kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.sizes import LONG
from tests.support.spark.killing import Deaths, KillingDataSource
from tests.support.spark.micro_batches import payloads, texts
from tests.support.spark.streams import Streams, finish
from tests.support.stores import errors

pytestmark = pytest.mark.slow

STEPS = ("after stage", "after intent", "after publish")


@pytest.fixture
def deaths(tmp_path: Path) -> Deaths:
    return Deaths(str(tmp_path / "deaths"))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path, deaths: Deaths) -> Iterator[Streams]:
    """Queries that can be killed, over a records topic ``in``."""
    spark.dataSource.register(KillingDataSource)
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("in")
        store.append("in", 0, payloads(0, 4))
    made = Streams(spark, tmp_path / "log", "cursus-killing", {"deaths": deaths.directory})
    yield made
    made.stop()


def run(streams: Streams, *columns: str, **options: Any) -> None:
    """Copy what is new in ``in`` as rows of these columns."""
    rows = streams.read("in").selectExpr(*columns)
    finish(streams.write(rows, "out", keyColumns="text", numPartitions=2, **options))


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_rows_and_their_new_columns_arrive_once_whenever_the_sink_is_killed(
    streams: Streams, deaths: Deaths
) -> None:
    run(streams, "string(value) text")
    merging = {"mergeSchema": "true", "mergeSchema.typeWidening": "true"}
    deaths.never_abort()
    for number, step in enumerate(STEPS if LONG else STEPS[1:2]):
        with streams.store() as store:
            store.append("in", 0, payloads(4 + number, 5 + number))
        deaths.arm(step)
        columns = ("length(value) AS size", "string(value) text", f"{number} AS `new {number}`")
        for _ in range(2):
            with suppress(StreamingQueryException):
                run(streams, *columns, **merging)
        assert deaths.armed() == []
        with streams.store() as store:
            table = store.scan("out").to_table()
            assert errors(store) == []
        assert Counter(table["text"].to_pylist()) == Counter(texts(0, 5 + number))
        expected = ["text", "size", *(f"new {each}" for each in range(number + 1))]
        assert table.column_names == expected
        assert table[f"new {number}"].to_pylist().count(number) == 1


def test_a_type_that_does_not_fit_ends_the_query_before_its_tasks(
    streams: Streams,
) -> None:
    streams.format, streams.options = "cursus", {}
    run(streams, "string(value) text", "offset")
    with streams.store() as store:
        store.append("in", 0, payloads(4, 5))
    with pytest.raises(StreamingQueryException, match=r"'out', column offset: found s"):
        run(streams, "string(value) text", "string(offset) offset")
    with streams.store() as store:
        assert store.scan("out").to_table().num_rows == 4
        assert list((Path(store.path) / "meta" / "intents").iterdir()) == []
