"""The stream sink: each batch once, in few segments, and nothing but appending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from storage_core import Store
from tests.support.spark.micro_batches import payloads, texts
from tests.support.spark.streams import Streams, finish, needs_read_limits
from tests.support.stores import columns_of, names

pytestmark = [pytest.mark.matrix, pytest.mark.slow]


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries over a topic ``in`` of one partition."""
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("in")
    made = Streams(spark, tmp_path / "log")
    yield made
    made.stop()


def forget_last_commit(streams: Streams, name: str) -> None:
    """Make Spark believe it was killed before its commit log had the last batch."""
    commits = Path(streams.checkpoint(name)) / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


@needs_read_limits
@pytest.mark.row(42)
def test_a_batch_that_is_run_again_adds_nothing(streams: Streams) -> None:
    rows = streams.read("in", maxOffsetsPerTrigger=2).select("value")
    with streams.store() as store:
        store.append("in", 0, payloads(0, 4))
        finish(streams.write(rows, "out"))
        forget_last_commit(streams, "to-out")
        store.append("in", 0, payloads(4, 5))
    finish(streams.write(rows, "out"))
    assert streams.values("out") == texts(0, 5)


def test_an_empty_batch_commits_and_a_new_checkpoint_is_a_new_query(streams: Streams) -> None:
    rows = streams.read("in").select("value")
    query = finish(streams.write(rows, "out"))
    assert [progress.batchId for progress in query.recentProgress] == [0]
    with streams.store() as store:
        ledger = [path.name for path in (Path(store.path) / "meta" / "ledger").glob("*.json")]
        assert len(ledger) == 1, "an empty batch has its entry too"
        store.append("in", 0, payloads(0, 3))
    finish(streams.write(rows, "out"))
    finish(streams.write(rows, "out", "another checkpoint"))
    assert streams.values("out") == texts(0, 3) * 2


def test_the_application_id_takes_the_place_of_the_query(streams: Streams) -> None:
    with streams.store() as store:
        store.append("in", 0, payloads(0, 3))
    rows = streams.read("in").select("value")
    finish(streams.write(rows, "out", txnAppId="billing"))
    finish(streams.write(rows, "out", "another checkpoint", txnAppId="billing"))
    assert streams.values("out") == texts(0, 3)


@needs_read_limits
@pytest.mark.row(41)
def test_two_queries_into_one_topic_both_arrive_whole_and_in_order(streams: Streams) -> None:
    with streams.store() as store:
        store.create_topic("in-2")
        store.append("in", 0, payloads(0, 12, "a"))
        store.append("in-2", 0, payloads(0, 12, "b"))
    both = [
        streams.write(streams.read(topic, maxOffsetsPerTrigger=3).select("value"), "out", topic)
        for topic in ("in", "in-2")
    ]
    for query in both:
        finish(query)
    found = streams.values("out")
    assert [value for value in found if value[0] == "a"] == texts(0, 12, "a")
    assert [value for value in found if value[0] == "b"] == texts(0, 12, "b")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("complete", "[CURSUS_APPEND_ONLY] Output mode complete is not supported: every batch"),
        ("update", "cursus does not support Update mode"),  # Spark's text, before it asks us
    ],
)
def test_complete_and_update_modes_are_refused_before_a_record_is_read(
    streams: Streams, mode: str, words: str
) -> None:
    """``start()`` has returned: Spark asks a sink for nothing before its first batch."""
    with streams.store() as store:
        store.append("in", 0, payloads(0, 3))
    counted = streams.read("in").groupBy("key").count().selectExpr("string(count) AS value")
    query = streams.write(counted, "out", mode=mode)
    with pytest.raises(PySparkException) as caught:
        finish(query)
    text = str(caught.value)
    assert words in text
    assert "Traceback" not in text
    assert not any(progress.numInputRows for progress in query.recentProgress)
    with streams.store() as store:
        assert "out" not in store.topics()
        assert not store.ledger()


def test_for_each_batch_writes_two_topics_once_each_by_application_and_batch(
    streams: Streams,
) -> None:
    """As documented: the batch id is the version, and a failed batch is run again."""
    with streams.store() as store:
        store.append("in", 0, payloads(0, 4))
    failures = [1]

    def write(rows: DataFrame, batch: int) -> None:
        for topic in ("first", "second"):
            (
                rows.select("value")
                .write.format("cursus")
                .options(topic=topic, txnAppId="both", txnVersion=batch)
                .mode("append")
                .save(str(streams.path))
            )
            if failures and topic == "first":
                failures.pop()
                raise RuntimeError("between the two topics")

    rows = streams.read("in")
    with pytest.raises(PySparkException, match="between the two topics"):
        finish(streams.each(rows, write, "both"))
    finish(streams.each(rows, write, "both"))
    assert streams.values("first") == streams.values("second") == texts(0, 4)


@needs_read_limits
def test_thirty_batches_leave_one_segment(streams: Streams) -> None:
    with streams.store() as store:
        store.append("in", 0, payloads(0, 30))
    rows = streams.read("in", maxOffsetsPerTrigger=1).select("value")
    query = finish(streams.write(rows, "out"))
    assert query.lastProgress is not None
    assert query.lastProgress.batchId == 29
    assert streams.values("out") == texts(0, 30)
    with streams.store() as store:
        assert len(store.segments("out", 0)) == 1


def test_a_thousand_commits_leave_as_many_segments_as_their_bytes_need(tmp_path: Path) -> None:
    segment_bytes, value = 256 << 10, bytes(1000)
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("t", segment_bytes=segment_bytes)
        for batch in range(1000):
            stage = store.stage(f"job-{batch}")
            stage.write("t", 0, columns_of([value]))
            store.commit(f"job-{batch}", stage.finish(), app="query", version=batch)
        assert store.offsets("t", 0).end == 1000
        sizes = [segment.size for segment in store.segments("t", 0)]
    assert len(names(tmp_path / "log", ".log")) == len(sizes)
    needed = -(-sum(sizes) // segment_bytes)
    assert needed <= len(sizes) <= needed + 1
