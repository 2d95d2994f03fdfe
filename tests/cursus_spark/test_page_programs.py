"""The programs of the landing page and of the references run as they stand.

What such a page takes for granted (a topic, a DataFrame) is made before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from storage_core import Store
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the tests; what a page leaves in it is removed."""
    yield spark
    for query in spark.streams.active:
        query.stop()
    spark.catalog.dropTempView("orders")


def rows(spark: SparkSession) -> DataFrame:
    """Rows of a typed topic with the columns that the pages name."""
    return spark.range(100).selectExpr(
        "concat('user-', id % 7) AS user",
        "named_struct('clicks', int(id), 'page', '/') AS ctx",
        "double(id * 2) AS amount",
        "timestamp'2026-11-01 00:00:00Z' + make_dt_interval(0, 0, id) AS ts",
    )


def text(page: str) -> str:
    return (ROOT / page).read_text()


def test_the_programs_of_the_landing_page(session: SparkSession, tmp_path: Path) -> None:
    page = "docs/index.md"
    orders = rows(session)
    assert Kitchen(page, session, tmp_path, {"orders": orders}).run_all(text(page)) == 1
    with Store.open(tmp_path / "log") as store:
        assert sum(store.visible_ends("orders")) == 100


def test_the_programs_of_the_connector_page(session: SparkSession, tmp_path: Path) -> None:
    page = "docs/connector.md"
    events = rows(session)
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("orders")
        store.append("orders", 0, [b"one"])
        schema = events.limit(0).toArrow().schema
        store.create_topic("events", partitions=8, schema=schema, key_columns=["user"])
    kitchen = Kitchen(page, session, tmp_path, {"events": events})
    assert kitchen.run_all(text(page)) == 4
    with Store.open(tmp_path / "log") as store:
        assert sum(store.visible_ends("events")) == 100


def test_the_programs_of_the_streaming_page(session: SparkSession, tmp_path: Path) -> None:
    page, log = "docs/streaming.md", str(tmp_path / "log")
    with Store.open(log, create=True) as store:
        store.create_topic("orders")
    orders = session.readStream.format("cursus").option("subscribe", "orders").load(log)
    amounts = orders.selectExpr("double(string(value)) AS amount")

    def feed() -> None:
        """A page starts a query and leaves it running: give it something, and stop it."""
        [query] = session.streams.active
        query.processAllAvailable()  # it begins at the end of the topic, which it knows then
        with Store.open(log) as store:
            store.append("orders", 0, [b"5", b"5000"])
        query.processAllAvailable()
        query.stop()
        assert query.exception() is None

    kitchen = Kitchen(page, session, tmp_path, {"orders": amounts}, after_each=feed)
    assert kitchen.run_all(text(page)) == 2
    with Store.open(log) as store:
        ends = {topic: sum(store.visible_ends(topic)) for topic in store.topics()}
        assert ends == {"orders": 4, "shouted": 2, "large": 1, "small": 1}
