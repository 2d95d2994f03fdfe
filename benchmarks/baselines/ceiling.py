"""The upper limit for a Python source: ready-made batches, and bytes that are only written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cursus_spark.schema import arrow_schema, read_schema

from .. import data

BATCH_ROWS = 8192


class CeilingSource(DataSource):
    """``.format("ceiling")``: ``rows`` records in ``tasks`` tasks, the same batch each time."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        return read_schema(include_headers=False)

    def reader(self, schema: StructType) -> CeilingReader:
        return CeilingReader(schema, int(self.options["rows"]), int(self.options["tasks"]))


class CeilingReader(DataSourceReader):
    """Builds one batch and returns it until the task has its number of rows."""

    def __init__(self, schema: StructType, rows: int, tasks: int) -> None:
        self._schema, self._rows, self._tasks = schema, rows, tasks

    def partitions(self) -> Sequence[InputPartition]:
        edges = np.linspace(0, self._rows, self._tasks + 1).astype(int).tolist()
        return [InputPartition(high - low) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = partition.value
        batch = ready_batch(self._schema, min(BATCH_ROWS, left))
        while left:
            taken = min(left, batch.num_rows)
            yield batch if taken == batch.num_rows else batch.slice(0, taken)
            left -= taken


def ready_batch(schema: StructType, rows: int) -> pa.RecordBatch:
    """A batch as the cursus reader returns it for records with only a value."""
    made = {
        "key": pa.nulls(rows, pa.binary()),
        "value": data.values(rows),
        "topic": pa.repeat(pa.scalar("orders"), rows),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "offset": pa.array(np.arange(rows)),
        "timestamp": pa.array(np.full(rows, 10**15), pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(1, pa.int32()), rows),
    }
    target = arrow_schema(schema)
    return pa.RecordBatch.from_arrays([made[name] for name in target.names], schema=target)


class BytesOnlySource(DataSource):
    """``.format("bytes_only")``: a sink that writes the bytes of ``value`` to a file per task."""

    @classmethod
    def name(cls) -> str:
        return "bytes_only"

    def schema(self) -> StructType:
        return read_schema(include_headers=False)

    def writer(self, schema: StructType, overwrite: bool) -> BytesOnlyWriter:  # noqa: ARG002
        sync = self.options.get("sync", "true") == "true"
        return BytesOnlyWriter(schema.fieldNames().index("value"), self.options["path"], sync=sync)


@dataclass
class BytesOnlyWriter(DataSourceArrowWriter):
    """No frames, no offsets, no partitions, no checksums, no commit."""

    column: int
    path: str
    sync: bool

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        Path(self.path).mkdir(parents=True, exist_ok=True)
        fd = os.open(f"{self.path}/{uuid.uuid4()}", os.O_CREAT | os.O_WRONLY)
        try:
            for batch in iterator:
                self._write_all(fd, batch.column(self.column))
            if self.sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        return WriterCommitMessage()

    def _write_all(self, fd: int, values: pa.Array) -> None:
        _, offsets, content = values.buffers()
        edges = np.frombuffer(offsets, np.int32)
        first, last = edges[values.offset], edges[values.offset + len(values)]
        piece = memoryview(content)[first:last]
        while piece:
            piece = piece[os.write(fd, piece) :]
