"""Routes rows to topic-partitions, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_core import NO_KEY, Columns, make_columns, partition_for_keys
from storage_core.format.numbers import is_present, number_column, numbers_of
from storage_core.types import Int64s

from ..errors import cursus_error
from ..schema import SinkColumns

# With fewer rows of each partition in a batch, the calls for each slice take longer than its rows.
ROWS_PER_PARTITION = 1000
_MOST_BYTES = 16 << 20


class Routed(NamedTuple):
    """The records of one batch for one topic-partition, in their order."""

    topic: str
    partition: int
    columns: Columns


def together(
    batches: Iterable[pa.RecordBatch], rows_wanted: Callable[[], int]
) -> Iterator[pa.RecordBatch]:
    """The same rows in their order, small batches joined to about ``rows_wanted()`` rows.

    No more than some megabytes wait. ``rows_wanted`` is asked when the first batch is there.
    """
    waiting, rows, size, wanted = list[pa.RecordBatch](), 0, 0, None
    for batch in batches:
        wanted = rows_wanted() if wanted is None else wanted
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= wanted or size >= _MOST_BYTES:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows as one batch, or as several if one could not hold them."""
    if len(batches) < 2:
        return batches
    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


class Router:
    """Routes the rows of one task. Used by one thread.

    The column ``partition`` takes precedence. Else a key selects its partition as Kafka's default
    partitioner does. A row with neither goes to the partition with the task's number, modulo the
    number of partitions.
    """

    def __init__(
        self,
        places: SinkColumns,
        *,
        topic: str | None,
        task: int,
        partitions_of: Callable[[str], int],
        now_us: Callable[[], int],
    ) -> None:
        self._places = places
        self._topic = topic
        self._task = task
        self._partitions_of = partitions_of
        self._now_us = now_us

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The batch's records by topic and partition."""
        if not batch.num_rows:
            return
        columns = self._columns(batch)
        for topic, rows in self._by_topic(batch):
            part = columns if rows is None else columns.take(rows)
            explicit = self._explicit(batch, rows)
            yield from self._by_partition(topic, part, explicit)

    def rows_wanted(self) -> int:
        """How many rows to route at once; see ``together``."""
        places = self._places
        if places.key is None and places.partition is None:
            return 0
        partitions = 16 if self._topic is None else self._partitions_of(self._topic)
        return ROWS_PER_PARTITION * partitions if partitions > 1 else 0

    def _columns(self, batch: pa.RecordBatch) -> Columns:
        places = self._places
        timestamps = _column(batch, places.timestamp)
        if timestamps is not None and timestamps.null_count == len(timestamps):
            timestamps = None
        return make_columns(
            batch.column(places.value),
            _column(batch, places.key),
            timestamps,
            _column(batch, places.headers),
            now_us=self._now_us(),
            max_record_bytes=None,  # the staging handler checks the topic's own limit
        )

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Int64s | None]]:
        if self._topic is not None:
            yield self._topic, None
            return
        assert self._places.topic is not None
        names = batch.column(self._places.topic)
        if names.null_count:
            raise cursus_error(
                "TOPIC_NULL",
                "null topic present in the data. Fill the 'topic' column, or use "
                '.option("topic", "...").',
            )
        coded = names.dictionary_encode()
        codes = numbers_of(coded.indices)
        if len(coded.dictionary) == 1:
            yield coded.dictionary[0].as_py(), None
            return
        for code, name in enumerate(coded.dictionary.to_pylist()):
            yield name, np.flatnonzero(codes == code)

    def _explicit(self, batch: pa.RecordBatch, rows: Int64s | None) -> pa.Array | None:
        column = _column(batch, self._places.partition)
        if column is None or column.null_count == len(column):
            return None
        return column if rows is None else column.take(number_column(rows))

    def _by_partition(
        self, topic: str, columns: Columns, explicit: pa.Array | None
    ) -> Iterator[Routed]:
        count = self._partitions_of(topic)
        own = self._task % count
        if count == 1 and explicit is None:
            yield Routed(topic, 0, columns)
            return
        if explicit is None and columns.key is None:
            yield Routed(topic, own, columns)
            return
        targets = self._targets(topic, columns, explicit, count, own)
        for partition, rows in columns.by_partition(targets):
            yield Routed(topic, partition, rows)

    def _targets(
        self, topic: str, columns: Columns, explicit: pa.Array | None, count: int, own: int
    ) -> Int64s:
        if columns.key is None:
            target = np.full(columns.count, own, dtype=np.int64)
        else:
            target = partition_for_keys(columns.key, count).astype(np.int64)
            target[target == NO_KEY] = own
        if explicit is not None:
            given, valid = numbers_of(explicit).astype(np.int64), is_present(explicit)
            wrong = valid & ((given < 0) | (given >= count))
            if wrong.any():
                found = int(given[int(np.argmax(wrong))])
                raise cursus_error(
                    "PARTITION_NOT_FOUND",
                    f"partition attribute {found}: topic '{topic}' has partitions 0 to "
                    f"{count - 1}. Correct the column, or add partitions.",
                )
            target = np.where(valid, given, target)
        return target


def _column(batch: pa.RecordBatch, place: int | None) -> pa.Array | None:
    return None if place is None else batch.column(place)
