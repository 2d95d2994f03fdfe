"""Small micro-batches, read where they are planned: no task starts a Python worker for them.

The plan is the same as without it, and Spark keeps it beside the batches: if an executor has lost
them, its task reads the plan. So does every task if the planner cannot read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from storage_core import StorageError

from ..errors import CursusError
from ..logs import logger
from ..options.stream_read_options import StreamReadOptions
from ..read.log_slice import LogSlice
from ..read.query_where import QueryWhere
from ..read.task import planned_batches

_log = logger()
MOST_RECORDS = 10_000
# Spark's driver copies every row, and knows the size only here: compressed records grow.
_GROWTH = 4
_SIMPLE = frozenset(
    {
        BinaryType(),
        BooleanType(),
        ByteType(),
        DateType(),
        DayTimeIntervalType(),
        DoubleType(),
        FloatType(),
        IntegerType(),
        LongType(),
        NullType(),
        ShortType(),
        StringType(),
        TimestampNTZType(),
        TimestampType(),
    }
)
_OBJECTS = frozenset({BinaryType(), StringType()})


def inline_batches(
    options: StreamReadOptions,
    schema: StructType,
    tasks: Sequence[LogSlice],
    where: QueryWhere | None,
) -> list[pa.RecordBatch] | None:
    """All batches of a plan; None if tasks must read it.

    They must if the plan is too large or has several tasks, which the user has asked for.
    """
    if len(tasks) != 1 or not _is_small(options, tasks[0]) or not is_deliverable(schema):
        return None
    found, size = [], 0
    try:
        for batch in planned_batches(options, schema, tasks[0], where):
            size += batch.nbytes
            if size > _GROWTH * options.inline_batch_bytes:
                return None
            found.append(batch)
    except (StorageError, CursusError, OSError, MemoryError) as error:
        # A task reports the same error, if it lasts: after the retries that Spark allows it.
        _log.warning("A task reads the batch, because the planner failed: %s", error)
        return None
    return found


def _is_small(options: StreamReadOptions, task: LogSlice) -> bool:
    records = sum(split.end_offset - split.start_offset for split in task.splits)
    size = sum(split.end_position - split.start_position for split in task.splits)
    return records <= MOST_RECORDS and size <= options.inline_batch_bytes


def is_deliverable(schema: StructType) -> bool:
    """Whether Spark takes batches of this schema from a planner.

    It compares the schema with that of the Arrow batches, which cannot say all: not the metadata of
    a column, as catalog tables have it, and not every type.
    """
    return all(not field.metadata and _is_kept(field.dataType) for field in schema.fields)


def _is_kept(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return is_deliverable(kind)
    if isinstance(kind, ArrayType):
        return _is_kept_in_array(kind.elementType, kind.containsNull)
    if isinstance(kind, MapType):
        values = _is_kept_in_array(kind.valueType, kind.valueContainsNull)
        return values and _is_kept_in_array(kind.keyType, nullable=False)
    return isinstance(kind, DecimalType) or kind in _SIMPLE


def _is_kept_in_array(kind: DataType, nullable: bool) -> bool:
    # Spark copies an array of numbers without a look for nulls, and fails at the first one.
    return _is_kept(kind) and not (nullable and kind in _SIMPLE - _OBJECTS)
