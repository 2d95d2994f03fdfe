"""What a task reads of a typed topic, and how that becomes the columns of the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from storage_core import Field, SchemaVersion
from storage_core.schema.conform import read_column
from storage_core.schema.fields import fold

from ..typed.columns import metadata_column, read_field, wanted_field
from ..typed.spark_types import arrow_type
from .query_where import QueryWhere


class TypedRead(NamedTuple):
    """The columns to read, the schema that has them, and what makes Spark's batches of theirs."""

    names: tuple[str, ...]
    schema: SchemaVersion
    convert: Callable[[pa.RecordBatch], pa.RecordBatch]


class _Change(NamedTuple):
    """A column that the predicate reads in another form than the query."""

    place: int
    read: Field
    wanted: Field


def typed_read(
    topic: str,
    stored: SchemaVersion,
    schema: StructType,
    where: QueryWhere | None,
    *,
    merge: bool,
) -> TypedRead:
    """What to read of a topic with this schema.

    A column that the predicate needs is read as the predicate was bound to it, whatever the query
    wants of it: the predicate may need a field of a struct that the query leaves out.
    """
    tested = {} if where is None else {fold(field.name): field for field in where.columns}
    fields = {name: read_field(stored.by_name(field.name), field) for name, field in tested.items()}
    names, changes = list[str](), list[_Change]()
    for place, column in enumerate(schema.fields):
        metadata = metadata_column(column.name)
        if metadata is not None:
            names.append(metadata)
            continue
        key, own = fold(column.name), stored.by_name(column.name)
        if own is None:
            wanted = read_field(None, pa.field(column.name, arrow_type(column.dataType)))
        else:
            wanted = wanted_field(own, column, merge=merge)
        read = fields.setdefault(key, wanted)
        names.append(read.name)
        if read is not wanted and read.type != wanted.type:
            changes.append(_Change(place, read, wanted))
    target = pa.schema(
        [
            pa.field(column.name, arrow_type(column.dataType), column.nullable)
            for column in schema.fields
        ]
    )
    chosen = SchemaVersion(stored.version, tuple(fields.values()))
    return TypedRead(tuple(names), chosen, _converter(topic, target, tuple(changes)))


def _converter(
    topic: str, target: pa.Schema, changes: tuple[_Change, ...]
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = list(batch.columns)
        for place, read, wanted in changes:
            arrays[place] = read_column(arrays[place], read, wanted, topic)
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    return convert
