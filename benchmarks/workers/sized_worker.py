"""Does the work of one Spark task in this process and prints how much memory it took."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from cursus_spark.datasource import CursusDataSource
from storage_core import Store, StoreConfig

from ..data import UnsyncedVfs
from .memory import anonymous_bytes

TOPIC = "sized"
_BATCH_ROWS, _BATCH_BYTES = 10_000, 64 << 20  # as Spark makes them
_EVERY = 5


class Work(NamedTuple):
    """What one worker does."""

    task: str
    path: str
    record_bytes: int
    partitions: int
    frame_bytes: int
    total_bytes: int


class Peak:
    """The most anonymous memory that was seen, looked at now and then."""

    def __init__(self) -> None:
        self.before = self.most = anonymous_bytes()
        self._calls = 0

    def look(self) -> None:
        self._calls += 1
        if self._calls % _EVERY == 0:
            self.most = max(self.most, anonymous_bytes())


def build(work: Work) -> None:
    """An empty topic for a writer; for a reader one that has all records."""
    Store.open(work.path, create=True).close()
    with Store(UnsyncedVfs(Path(work.path)), StoreConfig()) as store:
        store.create_topic(
            TOPIC, work.partitions, frame_bytes=work.frame_bytes, frame_records=1 << 20
        )
        if work.task == "read":
            share = max(1, work.total_bytes // work.record_bytes // work.partitions)
            rows = min(share, max(1, _BATCH_BYTES // work.record_bytes))
            values = random_values(rows, work.record_bytes)
            for partition in range(work.partitions):
                for first in range(0, share, rows):
                    store.append(TOPIC, partition, values.slice(0, min(rows, share - first)))


def random_values(rows: int, size: int) -> pa.Array:
    """Random records of one size."""
    offsets = np.arange(rows + 1, dtype=np.int32) * size
    content = np.random.default_rng(1).bytes(rows * size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def read(work: Work, peak: Peak) -> None:
    """Read the whole topic as one task."""
    options = {"path": work.path, "subscribe": TOPIC, "maxBytesPerPartition": "1t"}
    source = CursusDataSource(options)
    reader = source.reader(source.schema())
    for task in reader.partitions():
        for _ in reader.read(task):
            peak.look()


def write(work: Work, peak: Peak) -> None:
    """Write keyed rows to all partitions, as one task."""
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // work.record_bytes))
    schema = StructType().add("key", BinaryType()).add("value", BinaryType())
    batch = pa.RecordBatch.from_arrays(
        [random_values(rows, 8), random_values(rows, work.record_bytes)], names=schema.names
    )
    batches = max(1, work.total_bytes // (rows * work.record_bytes))

    def given() -> Iterator[pa.RecordBatch]:
        for _ in range(batches):
            peak.look()
            yield batch

    options = {"path": work.path, "topic": TOPIC, "numPartitions": str(work.partitions)}
    CursusDataSource(options).writer(schema, False).write(given())


def resident_peak() -> int:
    """The largest resident size of this process, with the pages of mapped files."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no line 'VmHWM:'")


def main(arguments: list[str]) -> None:
    task, path, *numbers = arguments
    work = Work(task, path, *map(int, numbers))
    peak = Peak()
    {"read": read, "write": write}[task](work, peak)
    print(max(peak.most, anonymous_bytes()) - peak.before, peak.before, resident_peak())


if __name__ == "__main__":
    main(sys.argv[1:])
