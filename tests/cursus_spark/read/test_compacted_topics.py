"""Topics with holes: batches, streams, limits and plans after and during compaction and merging."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cursus_spark.datasource import CursusDataSource
from storage_core import Store
from tests.support.spark.dataframes import TOPIC, Log
from tests.support.spark.micro_batches import MicroBatches
from tests.support.spark.streams import Streams, finish

KEYS, SEGMENTS, EACH = 30, 12, 40


def fill(store: Store, segments: int = SEGMENTS, first: int = 0) -> None:
    """Sealed segments of records whose value is their offset; of each key the last ones stay."""
    for segment in range(segments):
        numbers = range(first + segment * EACH, first + (segment + 1) * EACH)
        values, keys = [b"%d" % n for n in numbers], [b"k%d" % (n * n % KEYS) for n in numbers]
        store.append(TOPIC, 0, values, keys=keys)
        store.roll(TOPIC, 0)


def survivors(store: Store) -> list[int]:
    """What stays after compaction, by a plain dict."""
    end, upto = store.offsets(TOPIC, 0).end, store.segments(TOPIC, 0)[-1].base
    last = {n * n % KEYS: n for n in range(upto)}
    return sorted({*last.values(), *range(upto, end)})


def compacted(path: Path, **settings: Any) -> Store:
    store = Store.open(path, create=True)
    store.create_topic(TOPIC, cleanup_policy="compact", frame_records=16, **settings)
    fill(store)
    store.append(TOPIC, 0, [b"%d" % (SEGMENTS * EACH)])
    (report,) = store.compact(TOPIC, min_dirty_ratio=0)
    assert report.records_removed == SEGMENTS * EACH + 1 - len(survivors(store))
    return store


@pytest.mark.parametrize("merged", [False, True])
def test_a_batch_reads_what_is_left_however_it_is_cut(log: Log, merged: bool) -> None:
    store = compacted(log.path, index_interval_bytes=0)
    if merged:
        assert store.merge(TOPIC)[0].segments_after == 1
    left = survivors(store)
    ways: list[dict[str, Any]] = [{}, {"minPartitions": 7}, {"maxBytesPerPartition": 2000}]
    for options in ways:
        assert [offset for _, offset in log.offsets(**options)] == left
    hole = next(n for n in range(10, 400) if n not in left)
    bounds = {
        "startingOffsets": json.dumps({TOPIC: {"0": hole}}),
        "endingOffsets": json.dumps({TOPIC: {"0": hole + 300}}),
    }
    assert [offset for _, offset in log.offsets(**bounds)] == [
        n for n in left if hole <= n < hole + 300
    ]
    assert log.read().count() == len(left)


def test_tasks_planned_before_read_the_same_records_after(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, cleanup_policy="compact", frame_records=16)
    fill(store)
    store.append(TOPIC, 0, [b"active"])
    source = CursusDataSource({"path": str(tmp_path), "subscribe": TOPIC, "minPartitions": "9"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()

    def read() -> list[int]:
        found = []
        for task in tasks:
            mine, part = pickle.loads(pickle.dumps((reader, task)))
            found += [row["offset"] for batch in mine.read(part) for row in batch.to_pylist()]
        return found

    assert read() == [*range(SEGMENTS * EACH + 1)]
    store.recompress(TOPIC, compression="zstd")
    assert read() == [*range(SEGMENTS * EACH + 1)]
    assert store.merge(TOPIC)[0].segments_before == SEGMENTS
    assert read() == [*range(SEGMENTS * EACH + 1)]
    store.compact(TOPIC, min_dirty_ratio=0)
    assert read() == survivors(store)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 50}, {"maxBytesPerTrigger": 1000}])
def test_a_stream_over_holes_ends_and_reads_each_record_once(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    store = compacted(tmp_path / "log")
    stream = MicroBatches(tmp_path / "log", TOPIC, **limit).available_now()
    batches = stream.drain()
    assert [int(value) for batch in batches for value in batch] == survivors(store)
    assert len(batches) > 1
    if "maxOffsetsPerTrigger" in limit:
        assert len(batches) == -(-(SEGMENTS * EACH + 1) // 50)
        assert min(map(len, batches)) == 0, "a batch may lie in a hole, and moves on all the same"
    assert stream.position()["pos"] == {TOPIC: {"0": SEGMENTS * EACH + 1}}


def test_a_batch_that_is_run_again_after_a_compaction_is_no_loss(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "log", create=True)
    store.create_topic(TOPIC, cleanup_policy="compact")
    fill(store, 3)
    stream = MicroBatches(tmp_path / "log", TOPIC, maxOffsetsPerTrigger=100)
    assert stream.plan_next()
    assert len(stream.run_logged()) == 100
    store.append(TOPIC, 0, [b"120"])
    store.compact(TOPIC, min_dirty_ratio=0)
    store.merge(TOPIC)
    again = [row["offset"] for row in stream.restart().run_logged()]
    assert again == [n for n in survivors(store) if n < 100]
    stream.finish()
    assert [int(value) for value in stream.trigger() or []] == [
        n for n in survivors(store) if n >= 100
    ]


def test_a_real_stream_reads_a_compacted_topic_while_it_grows(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = compacted(tmp_path / "log")
    streams = Streams(spark, tmp_path / "log")
    rows = streams.read(TOPIC, maxOffsetsPerTrigger=100).select("value")
    finish(streams.write(rows, "out", "copy", numPartitions=1))
    left = survivors(store)
    assert [int(value) for value in streams.values("out")] == left
    first = SEGMENTS * EACH + 1
    fill(store, 2, first)
    store.append(TOPIC, 0, [b"%d" % (first + 2 * EACH)])
    store.compact(TOPIC, min_dirty_ratio=0)
    store.merge(TOPIC)
    finish(streams.write(rows, "out", "copy", numPartitions=1))
    new = [row for batch in store.read(TOPIC, 0, start=first) for row in batch["value"].to_pylist()]
    assert [int(value) for value in streams.values("out")] == left + [int(value) for value in new]
    streams.stop()
