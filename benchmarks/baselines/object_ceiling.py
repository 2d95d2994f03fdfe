"""What Spark and the bare library reach together, and the processor time of each process.

Where the server runs on the same processors, neither PUTs alone nor a sink that writes to a disk
show what a sink of an object store could reach. So ``.format("object_ceiling")`` does the minimum:
it writes the bytes of ``value`` to one object a task while Spark sends them, and reads by GETs,
for which it returns ready-made batches.
"""

from __future__ import annotations

import importlib
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cursus_spark.schema import read_schema

from ..measure import Row, Samples, time_row
from ..processor_time import TICKS, jvm_of, used_by
from .ceiling import BATCH_ROWS, ready_batch

PART_BYTES, PARTS = 8 << 20, 4
_PIECE_BYTES = 1 << 20
_PROCESSORS = os.cpu_count() or 1
_stores: dict[str, Any] = {}


def library(url: str, options: Mapping[str, str]) -> tuple[Any, Any]:
    """The library and its store, as a program that knows nothing of logs uses them."""
    obstore = importlib.import_module("obstore")
    if url not in _stores:
        _stores[url] = importlib.import_module("obstore.store").from_url(
            url, config=dict(options), client_options={"allow_http": True, "timeout": "60s"}
        )
    return obstore, _stores[url]


class ObjectCeilingSource(DataSource):
    """Options: ``storage`` as JSON; of a read ``keys`` as JSON, ``tasks``, ``rows``, ``size``."""

    @classmethod
    def name(cls) -> str:
        return "object_ceiling"

    def schema(self) -> StructType:
        return read_schema(include_headers=False)

    def reader(self, schema: StructType) -> ObjectCeilingReader:
        given = self.options
        keys = json.loads(given["keys"])
        row_bytes = int(given["size"]) / int(given["rows"])
        place = given["path"], json.loads(given["storage"])
        return ObjectCeilingReader(schema, *place, keys, int(given["tasks"]), row_bytes)

    def writer(self, schema: StructType, overwrite: bool) -> ObjectCeilingWriter:  # noqa: ARG002
        column = schema.fieldNames().index("value")
        return ObjectCeilingWriter(
            column, self.options["path"], json.loads(self.options["storage"])
        )


@dataclass
class ObjectCeilingReader(DataSourceReader):
    """GETs whole objects piece by piece, and returns one batch for as many bytes as it has."""

    schema: StructType
    url: str
    storage: dict[str, str]
    keys: list[str]
    tasks: int
    row_bytes: float

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self.keys[at :: self.tasks]) for at in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        obstore, store = library(self.url, self.storage)
        batch, owed = ready_batch(self.schema, BATCH_ROWS), 0.0
        for key in partition.value:
            for piece in obstore.get(store, key).stream(min_chunk_size=_PIECE_BYTES):
                owed += len(piece) / self.row_bytes
                while owed >= BATCH_ROWS:
                    yield batch
                    owed -= BATCH_ROWS
        if owed >= 1:
            yield batch.slice(0, int(owed))


@dataclass
class ObjectCeilingWriter(DataSourceArrowWriter):
    """No frames, no offsets, no partitions, no checksums, no commit."""

    column: int
    url: str
    storage: dict[str, str]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        obstore, store = library(self.url, self.storage)
        obstore.put(
            store, f"ceiling/{uuid.uuid4()}", self._values(iterator), use_multipart=True,
            chunk_size=PART_BYTES, max_concurrency=PARTS,
        )  # fmt: skip
        return WriterCommitMessage()

    def _values(self, batches: Iterator[pa.RecordBatch]) -> Iterator[memoryview]:
        for batch in batches:
            values = batch.column(self.column)
            _, offsets, content = values.buffers()
            edges = np.frombuffer(offsets, np.int32)
            first, last = edges[values.offset], edges[values.offset + len(values)]
            yield memoryview(content).cast("B")[first:last]


@dataclass
class Profile:
    """Processor time of each kind of process, by side and round."""

    spark: SparkSession
    found: dict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))

    def of(self, name: str, side: Callable[[], float]) -> Callable[[], float]:
        """The same side; what it costs is kept."""
        if not Path("/proc").is_dir():
            return side

        def measured() -> float:
            before = self._used()
            seconds = side()
            after = self._used()
            work = {who: (after[who] - before[who]) / TICKS for who in after}
            self.found[name].append({**work, "busy": sum(work.values()) / seconds})
            return seconds

        return measured

    def rows(self, what: str, ours: str, ceiling: str, rounds: int) -> Iterator[Row]:
        """Ours and the ceiling's processor time, and how busy both kept the processors."""
        sides = [self.found[name][-rounds:] for name in (ours, ceiling) if name in self.found]
        if len(sides) < 2:
            return
        for who in ("the JVM", "Spark's Python", "the server"):
            mine, theirs = (
                Samples(tuple(max(each[who], 1 / TICKS) for each in side)) for side in sides
            )
            yield time_row(f"processor time of {what}: {who}", mine, theirs, None, name="ceiling")
        busy, other = (max(each["busy"] for each in side) for side in sides)
        yield Row(
            f"processors busy during {what}", f"{busy:.2f} of {_PROCESSORS}",
            f"{other:.2f} ceiling", busy / max(other, 0.01), None, None,
        )  # fmt: skip

    def _used(self) -> dict[str, int]:
        """Ticks until now. Whatever is neither Spark's nor this process belongs to the server."""
        jvm = jvm_of(self.spark)
        everyone, spark = used_by(os.getpid()), used_by(jvm)
        own = sum(everyone.pop(os.getpid(), (0, 0)))
        parts = {
            "the JVM": {jvm: spark.pop(jvm)},
            "Spark's Python": spark,
            "the server": {
                process: ticks
                for process, ticks in everyone.items()
                if process != jvm and process not in spark
            },
        }
        ticks = {who: sum(map(sum, each.values())) for who, each in parts.items()}
        return {**ticks, "the driver": own}
