"""Rows of a typed topic, routed to its partitions, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from storage_core import SchemaVersion
from storage_core.format.typed_columns import make_typed_columns, route

from .routing import ROWS_PER_PARTITION, Routed


@dataclass(frozen=True)
class TypedTopic:
    """The typed topic of a write job, as the driver found or made it.

    ``schema`` is the version of all rows of the job. The commit publishes it if it is new.
    """

    topic: str
    schema: SchemaVersion
    partitions: int
    key_columns: tuple[str, ...] = ()
    timestamp_column: str | None = None


class TypedRouter:
    """Routes the rows of one task. Used by one thread.

    The key columns select the partition. Without them all rows go to the partition with the task's
    number, modulo the number of partitions.
    """

    def __init__(self, target: TypedTopic, *, task: int, now_us: Callable[[], int]) -> None:
        self._target = target
        self._own = task % target.partitions
        self._now_us = now_us

    def rows_wanted(self) -> int:
        """How many rows to route at once; see ``together``."""
        target = self._target
        routed = target.key_columns and target.partitions > 1
        return ROWS_PER_PARTITION * target.partitions if routed else 0

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The batch's rows by partition; columns are matched by name.

        Raises:
            SchemaMismatchError: a null in a NOT NULL column.
        """
        target = self._target
        if not batch.num_rows:
            return
        columns = make_typed_columns(
            batch,
            target.schema,
            topic=target.topic,
            timestamp_column=target.timestamp_column,
            now_us=self._now_us(),
            max_record_bytes=None,  # the staging handler checks the topic's own limit
        )
        for partition, rows in route(columns, target.key_columns, target.partitions, self._own):
            yield Routed(target.topic, partition, rows)
