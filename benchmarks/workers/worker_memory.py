"""Does the work of a Spark task in a separate process; prints its private memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_write_options
from cursus_spark.schema import read_schema
from cursus_spark.store import DriverStore
from cursus_spark.write.task import write_rows

from .. import data
from .memory import anonymous_bytes

_EVERY = 20


def read(path: str, topic: str, watch: Callable[[], None]) -> None:
    """Read a whole topic as one task."""
    options = {"path": path, "subscribe": topic, "maxBytesPerPartition": "1t"}
    reader = CursusDataSource(options).reader(read_schema(include_headers=False))
    for task in reader.partitions():
        for _ in reader.read(task):
            watch()


def write(path: str, records: str, watch: Callable[[], None]) -> None:
    """Write keyed rows to every partition of a topic, as one task."""
    options = parse_write_options({"path": path, "topic": "written", "numPartitions": "64"})
    schema = StructType().add("key", BinaryType()).add("value", BinaryType())
    batch = pa.RecordBatch.from_arrays(
        [data.values(10_000, 2), data.values(10_000)], ["key", "value"]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(int(records) // batch.num_rows):
            watch()
            yield batch

    write_rows(options, schema, None, "memory", batches(), DriverStore())


def growth(task: Callable[[str, str, Callable[[], None]], None], path: str, what: str) -> int:
    """Peak of anonymous memory, minus that before."""
    start = peak = anonymous_bytes()
    calls = 0

    def watch() -> None:
        nonlocal peak, calls
        calls += 1
        if calls % _EVERY == 0:
            peak = max(peak, anonymous_bytes())

    task(path, what, watch)
    return max(peak, anonymous_bytes()) - start


if __name__ == "__main__":
    print(growth({"read": read, "write": write}[sys.argv[1]], *sys.argv[2:]))
