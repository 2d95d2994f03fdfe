"""Batch reads: plan on the driver, read on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..errors import one_line_errors
from ..options.query_options import ReadOptions
from ..store import open_for_read
from .log_slice import LogSlice
from .planning import plan
from .ranges import batch_ranges
from .task import read_slice


class CursusReader(DataSourceReader):
    """One batch query. Planned once: later actions on the DataFrame read the same records.

    It has no ``pushFilters``: Spark 4.3 caches the pushed plan on the shared source, so a second
    query on the same DataFrame would return the first one's rows. Ranges belong in options.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, from one snapshot of all partitions."""
        with one_line_errors(), open_for_read(self._options) as store:
            return plan(store, self._options, batch_ranges(store, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task; Spark passes an empty one when there is nothing to read."""
        task = partition if isinstance(partition, LogSlice) else LogSlice(())
        return read_slice(self._options, self._schema, task)
