"""Small batches that the planner reads itself: what it hands to Spark, and what it leaves to tasks.

The query of these tests compares every batch that is handed over with what a task reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import StructType, _parse_datatype_string

from cursus_spark import compat
from cursus_spark.errors import CursusError
from cursus_spark.read.task import planned_batches
from cursus_spark.stream import inline
from storage_core import Store
from tests.support.spark.micro_batches import TOPIC, MicroBatches, joined, payloads, texts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a topic of two partitions and twenty records."""
    with Store.open(tmp_path / "log", create=True) as made:
        made.create_topic(TOPIC, 2)
        for partition in (0, 1):
            made.append(TOPIC, partition, payloads(0, 10, f"{partition}:"))
        yield made


def query(store: Store, **options: Any) -> MicroBatches:
    return MicroBatches(Path(store.path), **options)


@pytest.mark.parametrize(
    ("options", "handed_over"),
    [
        ({}, 5),
        ({"inlineBatchBytes": 0}, 0),
        ({"inlineBatchBytes": 10}, 0),
        ({"minPartitions": 2}, 0),
        ({"maxRecordsPerPartition": 3}, 0),
        ({"maxRecordsPerPartition": 4}, 5),
    ],
)
def test_a_small_batch_is_handed_over_unless_the_options_ask_for_tasks(
    store: Store, options: dict[str, Any], handed_over: int
) -> None:
    stream = query(store, maxOffsetsPerTrigger=4, **options)
    found = joined(stream.drain())
    assert sorted(found) == sorted(texts(0, 10, "0:") + texts(0, 10, "1:"))
    assert stream.handed_over == handed_over


def test_more_records_than_the_limit_are_for_tasks(store: Store) -> None:
    stream = query(store)
    store.append(TOPIC, 0, [b"x"] * inline.MOST_RECORDS)
    assert len(stream.drain()[0]) == inline.MOST_RECORDS + 20
    assert stream.handed_over == 0
    store.append(TOPIC, 1, [b"x"] * inline.MOST_RECORDS)
    assert len(stream.drain()[0]) == inline.MOST_RECORDS
    assert stream.handed_over == 1


def test_records_that_grow_when_they_are_decompressed_are_for_tasks(store: Store) -> None:
    store.create_topic("zipped", compression="zstd")
    store.append("zipped", 0, [b"x" * 1000] * 100)
    stream = MicroBatches(Path(store.path), "zipped", inlineBatchBytes="20k")
    assert [len(batch) for batch in stream.drain()] == [100]
    assert stream.handed_over == 0
    store.append("zipped", 0, [b"x" * 1000] * 30)
    assert [len(batch) for batch in stream.drain()] == [30]
    assert stream.handed_over == 1


def test_a_batch_is_read_the_same_way_after_a_restart_with_either_setting(store: Store) -> None:
    stream = query(store)
    assert stream.plan_next()
    rows = stream.run_logged()
    for size in ("0", "1m", "0"):
        store.append(TOPIC, 0, [b"later"])
        assert stream.restart(inlineBatchBytes=size).run_logged() == rows
    assert stream.handed_over == 2


def test_an_empty_topic_of_a_projection_and_a_missing_partition_hand_over_no_rows(
    store: Store,
) -> None:
    store.create_topic("empty")
    stream = MicroBatches(Path(store.path), "empty")
    assert stream.drain() == [[]]


def test_a_failure_that_passes_is_a_warning_and_a_task_reads(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails_at_the_end(*arguments: Any) -> Iterator[pa.RecordBatch]:
        yield from planned_batches(*arguments)
        raise OSError(5, "Input/output error", "a segment")

    monkeypatch.setattr(f"{inline.__name__}.planned_batches", fails_at_the_end)
    stream = query(store)
    assert len(joined(stream.drain())) == 20
    assert stream.handed_over == 0
    assert "A task reads the batch, because the planner failed: [Errno 5]" in caplog.text


def test_damage_is_the_error_of_a_task_as_without_it(store: Store) -> None:
    path = Path(store.path) / store.segments(TOPIC, 0)[0].path
    data = bytearray(path.read_bytes())
    place = data.index(b"0:5")
    data[place : place + 3] = b"0;5"
    path.write_bytes(data)
    stream = query(store)
    with pytest.raises(CursusError, match="DAMAGED"):
        stream.trigger()
    assert stream.handed_over == 0


def test_offsets_that_come_again_for_other_records_are_not_those_that_spark_keeps(
    store: Store, tmp_path: Path
) -> None:
    """A restored backup has the topic's uuid and an earlier end: two offsets may come again."""
    stream = query(store, failOnDataLoss="false")
    stream.drain()
    store.close()
    backup, path = tmp_path / "backup", Path(store.path)
    shutil.copytree(path, backup)
    for turn in range(4):
        with Store.open(path) as writer:
            writer.append(TOPIC, 0, payloads(10, 15, f"{turn}:"))
        assert stream.drain() == [texts(10, 15, f"{turn}:")]
        shutil.rmtree(path)
        shutil.copytree(backup, path)
        assert joined(stream.drain()) == []
    assert stream.handed_over == 5


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("columns", "deliverable"),
    [
        ("key binary, value binary, topic string, partition int, offset long", True),
        ("timestamp timestamp, timestampType int", True),
        ("headers array<struct<key: string, value: binary>>", True),
        ("a map<string, array<decimal(9, 2)>>, b timestamp_ntz, c interval day to second", True),
        ("a map<int, struct<b: int, c: array<binary>>>", True),
        ("a array<int>", False),
        ("a map<string, boolean>", False),
        ("a struct<b: array<struct<c: array<date>>>>", False),
        ("a interval hour to minute", False),
        ("a map<string, array<interval day>>", False),
        ("a string collate unicode_ci", False),
        ("a variant", False),
        ("a interval year to month", False),
    ],
)
def test_only_columns_that_arrow_describes_wholly_are_handed_over(
    columns: str, deliverable: bool
) -> None:
    schema = _parse_datatype_string(columns)
    assert isinstance(schema, StructType)
    assert inline.is_deliverable(schema) == deliverable


def test_columns_with_metadata_are_for_tasks() -> None:
    assert not inline.is_deliverable(StructType().add("a", "string", metadata={"x": 1}))
    inner = StructType().add("b", "string", metadata={"x": 1})
    assert not inline.is_deliverable(StructType().add("a", inner))


def test_only_a_release_that_was_tested_gets_batches_with_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert compat.prefetching_class() is not None
    assert not compat.spark_takes_batches(), "this is not PySpark's planning process"
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    compat.prefetching_class.cache_clear()
    try:
        assert compat.prefetching_class() is None
    finally:
        monkeypatch.undo()
        compat.prefetching_class.cache_clear()


def test_a_class_of_another_shape_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compat.prefetching_class()
    assert found is not None
    monkeypatch.setattr(found, "getCache", lambda self: None)  # noqa: ARG005
    compat.prefetching_class.cache_clear()
    try:
        assert compat.prefetching_class() is None
    finally:
        monkeypatch.undo()
        compat.prefetching_class.cache_clear()


def test_a_stream_of_objects_hands_over_what_its_tasks_would_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "objects", create=True, layout="objects") as store:
        store.create_topic(TOPIC, 3)
        for number in range(4):
            for partition in range(3):
                store.append(TOPIC, partition, payloads(0, 5, f"{number}:{partition}:"))
        stream = query(store, maxOffsetsPerTrigger=20)
        assert len(joined(stream.drain())) == 60
        assert stream.handed_over == 3


def test_typed_rows_of_a_predicate_are_handed_over(tmp_path: Path) -> None:
    with Store.open(tmp_path / "log", create=True) as store:
        table = pa.table({"id": list(range(50)), "value": [str(n).encode() for n in range(50)]})
        store.create_topic(TOPIC, schema=table.schema)
        store.append_table(TOPIC, table)
        stream = query(store, where="id >= 40", maxOffsetsPerTrigger=30)
        assert joined(stream.drain()) == texts(40, 50)
        assert stream.handed_over == 2
