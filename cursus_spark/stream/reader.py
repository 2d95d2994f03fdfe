"""The stream source as Spark sees it: the driver plans micro-batches, tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from storage_core.lazy import LazyModule

from ..compat import HandsOverBatches, ReadLimit, SupportsTriggerAvailableNow, spark_takes_batches
from ..errors import CursusError, one_line_errors
from ..options.stream_read_options import StreamReadOptions
from ..read.log_slice import LogSlice
from ..read.task import read_slice
from ..worker import got_work

if TYPE_CHECKING:
    from ..read import typed_topics
    from ..read.query_where import QueryWhere
    from ..read.typed_topics import Schemas
    from . import inline, planner
    from .planner import StreamPlanner
else:  # the driver plans, and tasks do not
    inline = LazyModule("cursus_spark.stream.inline")
    planner = LazyModule("cursus_spark.stream.planner")
    typed_topics = LazyModule("cursus_spark.read.typed_topics")


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of an invalid query at the first call.

    PySpark 4.1 to 4.3 hide an error of ``streamReader`` under one of their own, about a variable
    without a value. They show errors of a reader.
    """

    def __init__(self, error: CursusError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        with one_line_errors():
            raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815
    reportLatestOffset = _refuse  # noqa: N815


class CursusStreamReader(HandsOverBatches, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source. One long-lived object plans on the driver; pickled copies of it read."""

    def __init__(
        self,
        options: StreamReadOptions,
        schema: StructType,
        *,
        typed: bool = False,
        where: QueryWhere | None = None,
        loaded: Schemas | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._typed = typed
        self._where = where
        self._loaded = loaded
        self.hands_over = spark_takes_batches()
        self._made_planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Carry what to read, never the planner and its open files."""
        return {
            "options": self._options,
            "schema": self._schema,
            "typed": self._typed,
            "where": self._where,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        CursusStreamReader.__init__(self, **state)
        got_work()

    @property
    def planner(self) -> StreamPlanner:
        """The planner of this query, made at its first use."""
        if self._made_planner is None:
            columns = typed_topics.QueryColumns(
                self._options, self._schema, typed=self._typed, loaded=self._loaded
            )
            self._made_planner = planner.StreamPlanner(self._options, columns, self._where)
        return self._made_planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """A symbol for the start of a new query."""
        return self.planner.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits of the options."""
        return self.planner.default_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read only what is there when the first batch is planned."""
        self.planner.stop_at_first_batch()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next batch; equal to ``start`` when there is nothing to read."""
        with one_line_errors():
            return self.planner.latest_offset(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the topics end: Spark's progress shows the lag of the query by it."""
        with one_line_errors():
            return self.planner.report_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one batch, from the two offsets alone; Spark gets a small one with them."""
        with one_line_errors():
            tasks = self.planner.plan_batch(start, end)
            if self._options.inline_batch_bytes and self.hands_over:
                batches = inline.inline_batches(self._options, self._schema, tasks, self._where)
                self.hold(batches)
                if batches is not None:
                    self.planner.handed_over(start, end)
            return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        task = partition if isinstance(partition, LogSlice) else LogSlice(())
        return read_slice(self._options, self._schema, task, self._where)

    def commit(self, end: dict[str, Any]) -> None:
        """Mirror a finished batch into the consumer group, where lag tools read it."""
        with one_line_errors():
            self.planner.batch_done(end)
