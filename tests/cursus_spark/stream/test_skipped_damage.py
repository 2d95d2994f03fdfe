"""A stream that meets damage: the error names the way on, and after it the query goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from cursus_spark.errors import CursusError
from storage_core import Store
from storage_core.format.frame_scan import segment_frames
from tests.support.spark.dataframes import Log, one_line_error
from tests.support.spark.micro_batches import TOPIC, MicroBatches, payloads, texts
from tests.support.spark.streams import Streams, finish
from tests.support.stores import overwrite

LOST = "orders-0: records {} to {} were damaged and have been skipped with cursus skip."


def damaged(path: Path, base: int) -> Store:
    """Two segments of thirty records, in frames of ten; the middle frame of one is damaged."""
    store = Store.open(path, create=True)
    store.create_topic(TOPIC)
    for start in range(0, 60, 10):
        if start == 30:
            store.roll(TOPIC, 0)
        store.append(TOPIC, 0, payloads(start, start + 10))
    (found,) = [each for each in store.segments(TOPIC, 0) if each.base == base]
    at = list(segment_frames(store.vfs, found.path, base))[1].position + 100
    overwrite(path / found.path, lambda data: data.__setitem__(at, data[at] ^ 1))
    return store


def left(base: int) -> list[str]:
    return [*texts(0, base + 10), *texts(base + 20, 60)]


@pytest.mark.parametrize("base", [0, 30], ids=["sealed", "active"])
def test_a_stream_goes_on_after_a_skip_and_says_what_it_left_out(
    tmp_path: Path, base: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = damaged(tmp_path, base)
    stream = MicroBatches(tmp_path, failOnDataLoss="false")
    with pytest.raises(CursusError, match=r"LOG_DAMAGED.*cursus skip gives up only the damaged"):
        stream.trigger()
    assert "skipped" not in caplog.text
    store.skip_damaged(TOPIC, 0, base + 10, base + 20)
    lost = LOST.format(base + 10, base + 19)
    with pytest.raises(CursusError, match=lost):
        stream.restart(failOnDataLoss="true").trigger()
    assert stream.restart(failOnDataLoss="false").drain() == [left(base)]
    assert caplog.text.count(lost) == 1
    caplog.clear()
    store.append(TOPIC, 0, payloads(60, 62))
    assert stream.restart(failOnDataLoss="true").drain() == [texts(60, 62)]
    assert caplog.text == ""


@pytest.mark.parametrize("base", [0, 30], ids=["sealed", "active"])
def test_a_batch_reads_the_others_if_it_may(log: Log, base: int) -> None:
    store = damaged(log.path, base)
    found = one_line_error(lambda: log.read(failOnDataLoss="false").collect())
    assert found.startswith("[CURSUS_LOG_DAMAGED] orders-0: ")
    assert found.endswith("In a native store cursus skip gives up only the damaged records.")
    store.skip_damaged(TOPIC, 0, base + 10, base + 20)
    assert one_line_error(lambda: log.read().collect()) == (
        f"[CURSUS_DATA_LOSS] {LOST.format(base + 10, base + 19)} Set failOnDataLoss to false to "
        "read the others."
    )
    assert sorted(log.texts(failOnDataLoss="false")) == sorted(left(base))
    after = f'{{"orders":{{"0":{base + 20}}}}}'
    assert sorted(log.texts(startingOffsets=after)) == sorted(texts(base + 20, 60))


@pytest.mark.slow
def test_a_query_of_spark_goes_on_after_a_skip(log: Log) -> None:
    streams = Streams(log.spark, log.path)
    store = damaged(streams.path, 0)
    store.create_topic("copy")

    def copied() -> StreamingQuery:
        rows = streams.read(TOPIC, failOnDataLoss="false", maxOffsetsPerTrigger=10)
        return streams.write(rows.selectExpr("value"), "copy")

    with pytest.raises(StreamingQueryException, match="cursus skip gives up only the damaged"):
        finish(copied())
    assert streams.values("copy") == texts(0, 10)
    store.skip_damaged(TOPIC, 0, 10, 20)
    finish(copied())
    assert streams.values("copy") == left(0)
