"""On the executor: the rows of one task are staged, never published.

Spark may run a task twice, and may end its input early when the plan above it fails, so nothing a
task does is visible. Only the driver, told by Spark that all tasks succeeded, commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from storage_core import LayoutNotFoundError, StagedPart, Store, StoreConfig, TopicNotFoundError

from ..errors import cursus_error, one_line_errors
from ..options.query_options import StreamWriteOptions
from ..schema import sink_columns
from .routing import Router


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What one task staged, and for which job; of a stream also the query and its batch."""

    job: str
    parts: tuple[StagedPart, ...]
    query_id: str | None = None
    batch_id: int | None = None


def write_rows(
    options: StreamWriteOptions, schema: StructType, job: str, batches: Iterator[pa.RecordBatch]
) -> TaskCommit:
    """Stage all rows of a task and say what was staged."""
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
                stage.write(routed.topic, routed.partition, routed.columns)
        return TaskCommit(job, tuple(stage.finish()))


def open_for_write(options: StreamWriteOptions) -> Store:
    """The store to write to; a missing one is made, of the layout asked for.

    Who asks not to make topics mistyped the path if there is no store.

    Raises:
        CursusError: there is no store, and none may be made.
    """
    try:
        return Store.open(
            options.path,
            layout=options.layout,
            create=options.create_topic,
            config=StoreConfig.from_environment(),
        )
    except LayoutNotFoundError as error:
        if options.create_topic:
            raise
        raise cursus_error(
            "LAYOUT_NOT_FOUND", f"{error} With createTopic false, a write makes no store."
        ) from None


def ensure_topic(store: Store, options: StreamWriteOptions, topic: str) -> int:
    """Create a topic where that is allowed, and return its number of partitions.

    Raises:
        CursusError: it does not exist and may not be made, or has another number of partitions.
    """
    wanted = options.num_partitions
    try:
        count = store.topic(topic).partitions
    except TopicNotFoundError as error:
        if not options.create_topic:
            raise cursus_error(
                "TOPIC_NOT_FOUND", f"{error} Create it, or set createTopic to true."
            ) from None
        count = store.create_topic(topic, wanted or 1, exist_ok=True).partitions
    if wanted is not None and count != wanted:
        raise cursus_error(
            "PARTITION_COUNT",
            f"Topic '{topic}' has {count} partitions, but numPartitions is {wanted}. Leave the "
            "option out, or add partitions to the topic.",
        )
    return count


def _partition_counts(store: Store, options: StreamWriteOptions) -> Callable[[str], int]:
    known: dict[str, int] = {}

    def count(topic: str) -> int:
        if topic not in known:
            known[topic] = ensure_topic(store, options, topic)
        return known[topic]

    return count
