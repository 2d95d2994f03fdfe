"""What depends on the release of PySpark: given since 4.2, refused by a clear word on 4.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import __version__
from pyspark.sql import SparkSession

from cursus_spark.compat import READ_LIMITS_REACH_SOURCES
from storage_core import Store
from tests.support.spark.dataframes import one_line_error
from tests.support.spark.micro_batches import payloads, texts
from tests.support.spark.streams import Streams, finish, needs_read_limits

pytestmark = pytest.mark.matrix
LIMITS = {
    "maxOffsetsPerTrigger": "4",
    "maxBytesPerTrigger": "1k",
    "minOffsetsPerTrigger": "1",
    "maxTriggerDelay": "1s",
}


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries over a topic of ten records."""
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("in")
        store.append("in", 0, payloads(0, 10))
    made = Streams(spark, tmp_path / "log")
    yield made
    made.stop()


@pytest.mark.spark
def test_the_names_we_look_for_came_with_4_2() -> None:
    assert (tuple(map(int, __version__.split(".")[:2])) >= (4, 2)) == READ_LIMITS_REACH_SOURCES


@pytest.mark.skipif(READ_LIMITS_REACH_SOURCES, reason="PySpark 4.2 and newer obey limits")
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_would_have_no_effect_is_refused(streams: Streams, name: str) -> None:
    rows = streams.read("in", **{name: LIMITS[name]}).select("value")
    found = one_line_error(lambda: finish(streams.write(rows, "out")))
    words = f"[CURSUS_PYSPARK_TOO_OLD] Option '{name}' needs PySpark 4.2 or newer. This is PySpark"
    assert found.startswith(f"{words} {__version__}, where every batch reads everything.")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "[CURSUS_OPTION_UNKNOWN] Unknown option 'startingoffset'"),
        ({"endingOffsets": "latest"}, "[CURSUS_OPTION_INVALID] Option 'endingOffsets': ending"),
    ],
)
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_a_wrong_option_that_load_does_not_see_is_named_by_the_query(
    streams: Streams, options: dict[str, str], words: str, trigger: dict[str, Any]
) -> None:
    """With ``.schema(...)`` Spark asks the source nothing before the query starts."""
    reader = streams.spark.readStream.format("cursus").schema("value binary")
    rows = reader.options(subscribe="in", **options).load(str(streams.path))
    found = one_line_error(lambda: finish(streams.write(rows, "out", trigger=trigger)))
    assert found.startswith(words)


def test_available_now_reads_what_is_there_and_ends(streams: Streams) -> None:
    rows = streams.read("in").select("value")
    query = streams.write(rows, "out")
    finish(query)
    with streams.store() as store:
        store.append("in", 0, payloads(10, 12))
    finish(streams.write(rows, "out"))
    assert streams.values("out") == texts(0, 12)


@needs_read_limits
def test_limits_make_batches_and_the_progress_shows_the_lag(streams: Streams) -> None:
    query = streams.write(streams.read("in", maxOffsetsPerTrigger=4).select("value"), "out")
    finish(query)
    assert [progress.numInputRows for progress in query.recentProgress][:3] == [4, 4, 2]
    source = json.loads(query.recentProgress[0].json)["sources"][0]
    ends = [source[name]["pos"]["in"]["0"] for name in ("endOffset", "latestOffset")]
    assert ends == [4, 10]
