"""Batch reads: the driver plans, tasks on the executors read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from storage_core.lazy import LazyModule

from ..errors import one_line_errors
from ..options.read_options import ReadOptions
from ..store import open_for_read
from ..worker import SentToTasks
from .log_slice import LogSlice
from .task import read_slice

if TYPE_CHECKING:
    from . import planning, typed_topics
    from .query_where import QueryWhere
else:  # the driver plans, and tasks do not
    planning = LazyModule("cursus_spark.read.planning")
    typed_topics = LazyModule("cursus_spark.read.typed_topics")


class CursusReader(SentToTasks, DataSourceReader):
    """One batch query. It is planned once: all actions on the DataFrame read the same records.

    It has no ``pushFilters``: Spark 4.3 caches the pushed plan on the shared source, so a second
    query on the same DataFrame would return the first one's rows. Ranges belong in options.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        *,
        typed: bool = False,
        where: QueryWhere | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._typed = typed
        self._where = where

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, planned from one snapshot of all partitions."""
        with one_line_errors(), open_for_read(self._options) as store:
            columns = typed_topics.QueryColumns(self._options, self._schema, typed=self._typed)
            return planning.plan_batch(store, self._options, columns, self._where)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task. Without tasks Spark passes an empty partition."""
        task = partition if isinstance(partition, LogSlice) else LogSlice(())
        return read_slice(self._options, self._schema, task, self._where)
