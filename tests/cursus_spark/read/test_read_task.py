"""A planned read whose topic changes before, or while, its tasks run. No Spark is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from cursus_spark.errors import CursusError
from cursus_spark.options.parse import parse_read_options
from cursus_spark.read.log_slice import LogSlice
from cursus_spark.read.reader import CursusReader
from cursus_spark.schema import HEADERS, read_schema
from storage_core import Store

TOPIC = "orders"
VALUES = StructType([StructField("value", BinaryType())])


class Planned:
    """A read whose tasks are known; they run one after the other."""

    def __init__(self, path: Path, **options: str) -> None:
        self._reader = CursusReader(
            parse_read_options({"path": str(path), "subscribe": TOPIC, **options}), VALUES
        )
        self._tasks = [cast("LogSlice", task) for task in self._reader.partitions()]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for task in self._tasks:
            yield from self._reader.read(task)

    def values(self) -> list[bytes]:
        return [value for batch in self.batches() for value in batch.column("value").to_pylist()]


def store_of_forty(path: Path, layout: str = "native") -> Store:
    """Four segments of ten records."""
    store = Store.open(path, layout=layout, create=True)
    store.create_topic(TOPIC, 1)
    for number in range(4):
        store.append(TOPIC, 0, [b"%d" % (number * 10 + row) for row in range(10)])
        store.roll(TOPIC, 0)
    return store


def test_empty_headers_are_null_as_those_of_kafka(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, 1)
    given: list[list[tuple[str, bytes | None]] | None] = [[("a", b"1"), ("b", None)], [], None, []]
    store.append(TOPIC, 0, [b"v"] * 4, headers=given)
    store.append(TOPIC, 0, [b"v"], headers=[[("c", b"")]])
    options = parse_read_options({"path": str(tmp_path), "subscribe": TOPIC})
    for schema in (
        read_schema(include_headers=True),
        StructType([StructField("headers", HEADERS)]),
    ):
        reader = CursusReader(options, schema)
        tables = [pa.Table.from_batches(reader.read(task)) for task in reader.partitions()]
        found = [
            None if row is None else [(item["key"], item["value"]) for item in row]
            for row in pa.concat_tables(tables).column("headers").to_pylist()
        ]
        assert found == [given[0], None, None, None, [("c", b"")]]


@pytest.mark.parametrize("offset", [1, 10, 13, 39])
def test_only_what_was_deleted_is_lost(tmp_path: Path, offset: int) -> None:
    store = store_of_forty(tmp_path)
    lenient, strict = Planned(tmp_path, failOnDataLoss="false"), Planned(tmp_path)
    store.delete_records(TOPIC, {0: offset})
    assert lenient.values() == [b"%d" % number for number in range(offset, 40)]
    with pytest.raises(CursusError, match=rf"CURSUS_DATA_LOSS.*continue from {offset}"):
        strict.values()


def test_a_topic_that_is_deleted_under_a_task_is_lost_like_any_records(tmp_path: Path) -> None:
    store = store_of_forty(tmp_path)
    for _ in range(4):  # more than is returned at once
        store.append(TOPIC, 0, [b"x"] * 20_000)
        store.roll(TOPIC, 0)
    lenient = Planned(tmp_path, failOnDataLoss="false").batches()
    strict = Planned(tmp_path).batches()
    assert next(lenient).num_rows
    assert next(strict).num_rows
    store.delete_topic(TOPIC)
    assert sum(batch.num_rows for batch in lenient) < 60_000
    with pytest.raises(CursusError, match=r"CURSUS_DATA_LOSS.*was deleted since"):
        list(strict)


@pytest.mark.parametrize("layout", ["native", "cursus", "cursus-broker", "rustlog"])
def test_a_recreated_topic_is_not_read_for_the_old_one(tmp_path: Path, layout: str) -> None:
    store = store_of_forty(tmp_path, layout)
    lenient, strict = Planned(tmp_path, failOnDataLoss="false"), Planned(tmp_path)
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC, 1)
    store.append(TOPIC, 0, [b"other"] * 40)
    assert lenient.values() == []
    with pytest.raises(CursusError, match="deleted and created again"):
        strict.values()


@pytest.mark.parametrize("most", ["1", "128", "1023", "1024"])
def test_a_tiny_limit_of_bytes_ends_and_reads_everything(tmp_path: Path, most: str) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, 2, compression="zstd")
        for partition in range(2):
            store.append(TOPIC, partition, [b""] * 8192)
    ends = '{"orders":{"0":8192,"1":3}}'
    assert len(Planned(tmp_path, maxBytesPerPartition=most, endingOffsets=ends).values()) == 8195
