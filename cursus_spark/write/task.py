"""A writing task, on the executor: it owns one handler for each topic-partition that it writes.

The handlers stage the rows and publish nothing: Spark may run a task twice, and may end its input
early when another part of the plan fails. The driver commits after Spark reports that all tasks
succeeded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from storage_core import Store

from ..errors import one_line_errors
from ..options.write_options import StreamWriteOptions
from ..schema import sink_columns
from ..store import ensure_topic, open_for_write
from .routing import Router
from .task_commit import TaskCommit


def write_rows(
    options: StreamWriteOptions, schema: StructType, job: str, batches: Iterator[pa.RecordBatch]
) -> TaskCommit:
    """Stage all rows of a task; the message names the staged parts for the driver."""
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    with one_line_errors(), open_for_write(options) as store:
        overrides = {} if options.compression is None else {"compression": options.compression}
        stage = store.stage(job, **overrides)
        router = Router(
            sink_columns(schema, topic=options.topic),
            topic=options.topic,
            task=task,
            partitions_of=_partition_counts(store, options),
            now_us=lambda: time.time_ns() // 1000,
        )
        for batch in batches:
            for routed in router.route(batch):
                handler = stage.get_handler(routed.topic, routed.partition)
                handler.append(routed.columns)
        return TaskCommit(job, tuple(stage.finish()), host=os.uname().nodename)


def _partition_counts(store: Store, options: StreamWriteOptions) -> Callable[[str], int]:
    known: dict[str, int] = {}

    def count(topic: str) -> int:
        if topic not in known:
            known[topic] = ensure_topic(store, options, topic)
        return known[topic]

    return count
