"""A Python streaming source and sink that do the minimum: the floor of every micro-batch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, StructType

from ..data import RECORD_BYTES


class TrivialSource(DataSource):
    """``.format("trivial")``: ``batches`` batches of ``rows`` constant records, and a sink.

    The sink discards the rows. With the option ``latencies`` each value is the time it was written,
    and the sink appends its age in seconds to that file.
    """

    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> StructType:
        return StructType().add("value", BinaryType())

    def streamReader(self, schema: StructType) -> TrivialReader:  # noqa: ARG002, N802
        return TrivialReader(int(self.options["rows"]), int(self.options["batches"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TrivialWriter:  # noqa: ARG002, N802
        return TrivialWriter(self.options.get("latencies"))


class TrivialReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Counts batches, with one task each."""

    def __init__(self, rows: int, batches: int) -> None:
        self._rows, self._batches = rows, batches

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        values = pa.array([b"x" * RECORD_BYTES] * self._rows, pa.binary())
        yield pa.RecordBatch.from_arrays([values], names=["value"])

    def commit(self, end: dict[str, Any]) -> None:
        pass


@dataclass(frozen=True)
class Done(WriterCommitMessage):
    """A task has ended."""

    rows: int


class TrivialWriter(DataSourceStreamArrowWriter):
    """Reads only the number of rows, or their age."""

    def __init__(self, latencies: str | None) -> None:
        self._latencies = latencies

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        rows, ages = 0, []
        for batch in iterator:
            rows += batch.num_rows
            if self._latencies is not None:
                now = time.time()
                ages += [now - float(value) for value in batch.column("value").to_pylist()]
        if ages and self._latencies is not None:
            with Path(self._latencies).open("a") as file:
                file.write(json.dumps(ages) + "\n")
        return Done(rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
