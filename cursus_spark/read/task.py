"""A reading task, on the executor: splits of segments become Arrow batches of Spark's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from storage_core import DataLossError, Store, TopicNotFoundError, use_processors
from storage_core.format.numbers import lengths_of, number_column, starts_of
from storage_core.format.selection import FrameCounts
from storage_core.lazy import LazyModule

from ..errors import cursus_error, one_line_errors
from ..logs import logger
from ..options.read_options import ReadOptions
from ..schema import arrow_schema
from ..store import TopicPartition, driver_has_a_store, open_for_read, require_same_store
from .data_loss import Available, Loss, aged_out, data_loss, lose
from .log_slice import LogSlice, segment_of

if TYPE_CHECKING:
    from storage_core import SchemaVersion

    from . import typed_task
    from .query_where import QueryWhere
else:  # most tasks read records
    typed_task = LazyModule("cursus_spark.read.typed_task")

_log = logger()
_STORED = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
_FULL_ROWS = 16_384


class _PartitionRead(NamedTuple):
    """What to read of one partition, and what makes Spark's batches of it."""

    names: tuple[str, ...]
    schema: SchemaVersion | None
    convert: Callable[[pa.RecordBatch], pa.RecordBatch]


def _opened(options: ReadOptions, task: LogSlice) -> Store:
    with driver_has_a_store(options.path):
        return open_for_read(options, task.pins)


def read_slice(
    options: ReadOptions, schema: StructType, task: LogSlice, predicate: QueryWhere | None = None
) -> Iterator[pa.RecordBatch]:
    """All batches of one task."""
    with one_line_errors():
        yield from planned_batches(options, schema, task, predicate)


def planned_batches(
    options: ReadOptions, schema: StructType, task: LogSlice, predicate: QueryWhere | None
) -> Iterator[pa.RecordBatch]:
    """The same, with the errors of the engine as they are."""
    if not task.splits:
        return
    use_processors(1)  # Spark runs a task on every other processor
    bound = None if predicate is None else predicate.bound
    counts = FrameCounts()
    with _opened(options, task) as store:
        store.read_ahead(
            [(each.path, each.start_position, each.end_position) for each in task.splits]
        )
        read_of = _reads(store, options, schema, task, predicate)
        gone: set[str] = set()
        for where, splits in groupby(task.splits, lambda split: (split.topic, split.partition)):
            if where[0] in gone or not _is_planned_topic(store, options, task, where[0]):
                gone.add(where[0])
                continue
            names, stored, convert = read_of(where)
            slices = ((segment_of(split), split.start_offset, split.end_offset) for split in splits)
            on_loss = partial(_on_loss, store, options, task, where)
            times = options.times(*where)
            for batch in store.read_slices(
                *where, slices, names, on_loss, times, stored, bound, counts
            ):
                yield convert(batch)
    if bound is not None:
        _log.info("where: %d frames read, %d skipped", counts.read, counts.skipped)


def _reads(
    store: Store,
    options: ReadOptions,
    schema: StructType,
    task: LogSlice,
    predicate: QueryWhere | None,
) -> Callable[[TopicPartition], _PartitionRead]:
    """What to read, by partition. It decides once for all partitions of a topic."""
    if not task.versions:
        target = arrow_schema(schema)
        stored = tuple(dict.fromkeys(_stored_columns(target)))
        return lambda where: _PartitionRead(stored, None, _converter(target, stored, where))

    @lru_cache
    def of_topic(topic: str) -> _PartitionRead:
        found = store.schema(topic, task.versions[topic])
        assert found is not None
        merge = options.merge_schema
        return _PartitionRead(*typed_task.typed_read(topic, found, schema, predicate, merge=merge))

    return lambda where: of_topic(where[0])


def _is_planned_topic(store: Store, options: ReadOptions, task: LogSlice, topic: str) -> bool:
    """Whether the topic is the one that was planned; if not, ``failOnDataLoss`` decides."""
    try:
        if str(store.topic(topic).uuid) == task.ids.get(topic):
            return True
        event = "deleted and created again"
    except TopicNotFoundError:
        event = "deleted"
    _lose(store, options, task, _not_the_planned(topic, event))
    return False


def _lose(store: Store, options: ReadOptions, task: LogSlice, loss: Loss) -> None:
    """Let ``failOnDataLoss`` decide, unless nothing is lost: this host has another store."""
    require_same_store(store, options.path, task.store)
    lose(options, loss)


def _not_the_planned(topic: str, event: str) -> Loss:
    return data_loss(
        topic,
        f"Topic '{topic}' was {event} since the query was planned.",
        "Load it again, or set failOnDataLoss to false to continue without it.",
    )


def _on_loss(
    store: Store,
    options: ReadOptions,
    task: LogSlice,
    where: TopicPartition,
    error: DataLossError,
) -> None:
    lost = error.offset or 0
    try:
        start = store.start_offset(*where)
    except TopicNotFoundError:
        _lose(store, options, task, _not_the_planned(where[0], "deleted"))
        return
    if start > lost:
        _lose(store, options, task, aged_out(where, lost, Available(start, start)))
    else:
        advice = "Set failOnDataLoss to false to read what is left."
        _lose(store, options, task, data_loss(where[0], str(error), advice))


def _stored_columns(target: pa.Schema) -> list[str]:
    """Columns to decode. With string columns also the offset, which errors name."""
    names = [_STORED[name] for name in target.names if name in _STORED]
    text = any(target.field(name).type == pa.string() for name in ("key", "value") if name in names)
    return [*names, "offset"] if text or not names else names


def _converter(
    target: pa.Schema, stored: tuple[str, ...], where: TopicPartition
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function from stored batches to Spark's. It decides once for all batches."""
    if stored == tuple(target.names) and _same_types(target):
        return lambda batch: pa.RecordBatch.from_arrays(batch.columns, schema=target)

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(stored, batch.columns, strict=True))
        arrays = []
        for field in target:
            if field.name == "topic":
                arrays.append(_repeated(_topic_column, where[0], batch.num_rows))
            elif field.name == "partition":
                arrays.append(_repeated(_partition_column, where[1], batch.num_rows))
            else:
                arrays.append(_typed(columns, field, where))
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    return convert


def _same_types(target: pa.Schema) -> bool:
    return all(field.type != pa.string() and field.name != "headers" for field in target)


def _typed(columns: dict[str, pa.Array], field: pa.Field, where: TopicPartition) -> pa.Array:
    column = columns[_STORED[field.name]]
    if field.name == "headers":
        column = _without_empty_lists(column)
    if column.type == field.type:
        return column
    if field.type != pa.string():
        return column.cast(field.type)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        offset = _first_bad_text(column, columns["offset"])
        raise cursus_error(
            "NOT_UTF8",
            f"{where[0]}-{where[1]}: the {field.name} at offset {offset} is not UTF-8. "
            f"Read it as binary: .schema('{field.name} binary').",
        ) from None


def _without_empty_lists(headers: pa.Array) -> pa.Array:
    """Null for every empty list of headers, as Kafka's source has it."""
    full = lengths_of(headers) > 0
    if full.all():
        return headers
    valid = pa.py_buffer(np.packbits(full, bitorder="little"))
    buffers = [valid, pa.py_buffer(starts_of(headers))]
    return pa.Array.from_buffers(headers.type, len(headers), buffers, children=[headers.values])


def _first_bad_text(column: pa.Array, offsets: pa.Array) -> int:
    for row, item in enumerate(column):
        try:
            (item.as_py() or b"").decode()
        except UnicodeDecodeError:
            return int(offsets[row].as_py())
    return -1


def _repeated(column: Callable[[Any, int], pa.Array], value: str | int, rows: int) -> pa.Array:
    """One value in every row: a slice of a cached column, as most batches are about as long."""
    if rows > _FULL_ROWS:
        return column(value, rows)
    return _full_column(column, value).slice(0, rows)


@lru_cache(maxsize=64)
def _full_column(column: Callable[[Any, int], pa.Array], value: str | int) -> pa.Array:
    return column(value, _FULL_ROWS)


def _topic_column(topic: str, rows: int) -> pa.Array:
    text = topic.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _partition_column(partition: int, rows: int) -> pa.Array:
    return number_column(np.full(rows, partition, dtype=np.int32))
