"""The upper limit for typed topics: ready-made batches of events, and batches only written."""

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

from ..parts import events

FRAME_ROWS = 10_000


class EventsSource(DataSource):
    """``.format("events")``: ``rows`` events in ``tasks`` tasks, the same batch each time.

    As a sink it writes the batches to a file per task, and syncs it.
    """

    @classmethod
    def name(cls) -> str:
        return "events"

    def schema(self) -> str:
        return events.DDL

    def reader(self, schema: StructType) -> EventsReader:
        return EventsReader(schema, int(self.options["rows"]), int(self.options["tasks"]))

    def writer(self, schema: StructType, overwrite: bool) -> EventsWriter:  # noqa: ARG002
        return EventsWriter(self.options["path"])


class EventsReader(DataSourceReader):
    """Builds one batch and returns it until the task has its number of rows."""

    def __init__(self, schema: StructType, rows: int, tasks: int) -> None:
        self._schema, self._rows, self._tasks = schema, rows, tasks

    def partitions(self) -> Sequence[InputPartition]:
        edges = np.linspace(0, self._rows, self._tasks + 1).astype(int).tolist()
        return [InputPartition(high - low) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = partition.value
        batch = events.projected(self._schema, min(FRAME_ROWS, left))
        while left:
            taken = min(left, batch.num_rows)
            yield batch if taken == batch.num_rows else batch.slice(0, taken)
            left -= taken


@dataclass
class EventsWriter(DataSourceArrowWriter):
    """No frames, no offsets, no statistics, no checksums, no commit."""

    path: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        Path(self.path).mkdir(parents=True, exist_ok=True)
        with Path(self.path, str(uuid.uuid4())).open("wb") as file:
            stream = None
            for batch in iterator:
                stream = stream or pa.ipc.new_stream(file, batch.schema)
                stream.write_batch(batch)
            if stream is not None:
                stream.close()
            file.flush()
            os.fsync(file.fileno())
        return WriterCommitMessage()
