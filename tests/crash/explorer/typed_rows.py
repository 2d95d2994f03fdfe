"""Rows of typed topics as the crash tests see them: as bytes that name the row and its columns.

A row has its mark in ``user`` and a value in every column of the schema that it was written with.
It is shown as ``mark+a+b``, with the columns that have a value. So a reader who sees a row without
its columns sees a row that nobody wrote.

The published columns of a topic are shown as one more partition, ``COLUMNS``. Its values only grow,
as those of a log do. So all that holds of records holds of columns: what was acknowledged stays, a
commit brings its rows and its columns or neither, and what was aborted never appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from storage_core import SchemaVersion, Store
from storage_core.format.columns import Columns
from tests.support.stores import columns_of
from tests.support.typed.typed_topics import EVENTS, row_batch, typed_columns, with_columns

COLUMNS = -1
TYPED = {"schema": EVENTS}
"""Settings of a topic that make it a typed one."""
_NOTHING = columns_of([])


def schema_of(store: Store, topic: str) -> SchemaVersion | None:
    """The published columns of a typed topic; None for records."""
    return store.schema(topic) if store.topic(topic).is_typed else None


def wanted(names: Iterable[str], kind: pa.DataType | None = None) -> pa.Schema:
    """The columns of a write that brings these."""
    return with_columns(**{name: kind or pa.int32() for name in names})


def columns_in(topic: str, schema: pa.Schema) -> list[bytes]:
    """What is shown of columns: which they are, and of what type."""
    return [f"column {field.name} {field.type} of {topic}".encode() for field in schema]


def shown(schema: SchemaVersion | None, marks: Iterable[bytes]) -> list[bytes]:
    """What is shown of rows with these marks; of records it is their value."""
    if schema is None:
        return list(marks)
    more = sorted(field.name for field in schema.fields if field.name not in EVENTS.names)
    return [b"+".join([mark, *(name.encode() for name in more)]) for mark in marks]


def made(schema: SchemaVersion | None, marks: Sequence[bytes]) -> Columns:
    """Rows, or records, with these marks."""
    if schema is None:
        return columns_of(list(marks))
    return typed_columns(schema, [mark.decode() for mark in marks])


def table(schema: SchemaVersion, marks: Sequence[bytes]) -> pa.RecordBatch:
    """The same rows as a user gives them."""
    return row_batch(schema, [mark.decode() for mark in marks])


def nothing(store: Store, topic: str) -> Columns:
    """No rows and no records: to append them recovers a partition."""
    if not store.topic(topic).is_typed:
        return _NOTHING
    return typed_columns(store._engine.schemas(topic).get(1), [])


def read_marks(
    store: Store, topic: str, partition: int, start: int, end: int
) -> tuple[list[int], list[bytes]]:
    """Offsets of what a reader sees, and what is shown of it."""
    schema = schema_of(store, topic)
    names = ("offset", "value") if schema is None else ("_offset", *schema.arrow.names)
    offsets, values = list[int](), list[bytes]()
    for batch in store.read(topic, partition, start=start, end=end, columns=names):
        if schema is None:
            offsets += batch.column("offset").to_pylist()
            values += batch.column("value").to_pylist()
            continue
        for row in batch.to_pylist():
            offsets.append(row.pop("_offset"))
            more = sorted(row.keys() - set(EVENTS.names))
            values.append(
                "+".join([row["user"], *(n for n in more if row[n] is not None)]).encode()
            )
    return offsets, values
