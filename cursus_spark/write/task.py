"""A writing task, on the executor: it owns one handler for each topic-partition that it writes.

The handlers stage the rows and publish nothing: Spark may run a task twice, and may end its input
early when another part of the plan fails. The driver commits after Spark reports that all tasks
succeeded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from storage_core import Store
from storage_core.lazy import LazyModule

from ..errors import cursus_error, one_line_errors
from ..options.write_options import StreamWriteOptions
from ..schema import sink_columns
from ..store import DriverStore, ensure_topic, open_in_task_for_write
from .routing import Router, together
from .task_commit import TaskCommit

if TYPE_CHECKING:
    from . import typed_rows
    from .typed_rows import TypedRouter, TypedTopic
else:
    typed_rows = LazyModule("cursus_spark.write.typed_rows")


def write_rows(
    options: StreamWriteOptions,
    schema: StructType,
    target: TypedTopic | None,
    job: str,
    batches: Iterator[pa.RecordBatch],
    driver: DriverStore,
) -> TaskCommit:
    """Stage all rows of a task; the message names the staged parts for the driver.

    Args:
        options: The options of the write.
        schema: The columns of the rows.
        target: The typed topic of the rows; None if they are records.
        job: The name of the write job.
        batches: The rows.
        driver: What the driver knows of the store.
    """
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    with one_line_errors(), open_in_task_for_write(options, driver) as store:
        overrides = {} if options.compression is None else {"compression": options.compression}
        stage = store.stage(job, **overrides)
        router = _router(store, options, schema, target, task)
        for batch in together(batches, router.rows_wanted):
            for routed in router.route(batch):
                handler = stage.get_handler(routed.topic, routed.partition)
                handler.append(routed.columns)
        parts = tuple(stage.finish())
        if target is not None:
            _require_same(store, target)
        return TaskCommit(job, parts, host=os.uname().nodename)


def _require_same(store: Store, target: TypedTopic) -> None:
    """Refuse rows that were routed by other key columns than the topic has now.

    Equal keys would stand in different partitions. The commit looks again: it compares the topic
    with what it was when the rows were staged.
    """
    found = store.topic(target.topic)
    if (found.key_columns, found.timestamp_column) != (target.key_columns, target.timestamp_column):
        raise cursus_error(
            "TOPIC_DIFFERS",
            f"Topic '{target.topic}' was deleted and created again with other key columns, or "
            "another timestamp column, since the write began. Nothing was written; write the rows "
            "again.",
        )


def _router(
    store: Store,
    options: StreamWriteOptions,
    schema: StructType,
    target: TypedTopic | None,
    task: int,
) -> Router | TypedRouter:
    if target is not None:
        return typed_rows.TypedRouter(target, task=task, now_us=_now_us)
    return Router(
        sink_columns(schema, topic=options.topic),
        topic=options.topic,
        task=task,
        partitions_of=_partition_counts(store, options),
        now_us=_now_us,
    )


def _now_us() -> int:
    return time.time_ns() // 1000


def _partition_counts(store: Store, options: StreamWriteOptions) -> Callable[[str], int]:
    known: dict[str, int] = {}

    def count(topic: str) -> int:
        if topic not in known:
            found = ensure_topic(store, options, topic)
            if found.is_typed:
                raise cursus_error(
                    "TOPIC_DIFFERS",
                    f"Topic '{topic}' is a typed topic, and these rows are records. Use "
                    f'.option("topic", "{topic}") to write rows by the names of their columns.',
                )
            known[topic] = found.partitions
        return known[topic]

    return count
