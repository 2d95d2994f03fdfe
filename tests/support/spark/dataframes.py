"""Short ways to write, read and compare topics through Spark; the tests' own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession

from storage_core import Store

TOPIC = "orders"


@dataclass(frozen=True)
class Log:
    """A log directory seen through a Spark session."""

    spark: SparkSession
    path: Path

    def frame(self, rows: Sequence[Any], schema: str) -> DataFrame:
        """Rows as one task, in their order."""
        return self.spark.createDataFrame(list(rows), schema).coalesce(1)

    def values(self, *values: Any) -> DataFrame:
        """Rows of a text value alone."""
        return self.frame([(value,) for value in values], "value string")

    def write(self, rows: DataFrame, topic: str | None = TOPIC, /, **options: Any) -> None:
        """Append rows to a topic."""
        given = options if topic is None else {"topic": topic, **options}
        rows.write.format("cursus").options(**given).mode("append").save(str(self.path))

    def reader(self, topic: str | None = TOPIC, /, **options: Any) -> DataFrameReader:
        """A read before its ``load``."""
        given = options if topic is None else {"subscribe": topic, **options}
        return self.spark.read.format("cursus").options(**given)

    def read(self, topic: str | None = TOPIC, /, schema: str = "", **options: Any) -> DataFrame:
        """A topic, with all columns unless ``schema`` names some."""
        reader = self.reader(topic, **options)
        return (reader.schema(schema) if schema else reader).load(str(self.path))

    def texts(self, topic: str | None = TOPIC, /, **options: Any) -> list[str]:
        """The values of a read as text, sorted."""
        rows = self.read(topic, schema="value string", **options).collect()
        return sorted(row.value for row in rows)

    def offsets(self, topic: str | None = TOPIC, /, **options: Any) -> list[tuple[int, int]]:
        """Partition and offset of every record of a read, sorted."""
        rows = self.read(topic, schema="partition int, offset long", **options).collect()
        return sorted((row.partition, row.offset) for row in rows)

    def store(self, **arguments: Any) -> Store:
        """The same directory without Spark."""
        return Store.open(self.path, **arguments)

    def create(self, partitions: int = 1, topic: str = TOPIC, **settings: Any) -> Store:
        """A new native store with one topic."""
        store = self.store(create=True)
        store.create_topic(topic, partitions, **settings)
        return store


def first(frame: DataFrame) -> Row:
    """The first row of a frame that has one."""
    row = frame.first()
    assert row is not None
    return row


def one_line_error(action: Callable[[], object]) -> str:
    """The text of our error in what Spark raises: its own line, without a Python traceback."""
    with pytest.raises(PySparkException) as caught:
        action()
    text = str(caught.value)
    assert "Traceback" not in text, text
    found = re.search(r"CursusError: (\[CURSUS_[A-Z0-9_]+\] .*)", text)
    assert found, text
    return found[1].strip()
