"""Typed topics for tests of schema commits: jobs that bring columns, and what readers see."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from storage_core import Field, SchemaVersion, StagedPart, Store
from storage_core.commit.protocol import CommitResult
from storage_core.format.columns import Columns
from storage_core.format.selection import Projection, Selection
from storage_core.format.typed_columns import make_typed_columns
from storage_core.schema.conform import conform

from ..stores import TOPIC

EVENTS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("user", pa.string())])


def with_columns(**types: pa.DataType) -> pa.Schema:
    """The columns of ``EVENTS`` and more."""
    return pa.schema([*EVENTS, *(pa.field(name, kind) for name, kind in types.items())])


class Seen(NamedTuple):
    """What a reader sees of a typed topic at one instant."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def create_typed(store: Store, partitions: int = 2, topic: str = TOPIC) -> None:
    store.create_topic(topic, partitions, schema=EVENTS)


def row_batch(schema: SchemaVersion, users: Sequence[str]) -> pa.RecordBatch:
    """A row for each user that has a value in every column."""
    values = {field.name: _values(field, users) for field in schema.fields}
    return pa.RecordBatch.from_pydict(values, schema=schema.arrow)


def typed_columns(schema: SchemaVersion, users: Sequence[str]) -> Columns:
    """The same rows as the engine takes them."""
    rows = conform(row_batch(schema, users), schema)
    return Columns(
        count=len(users), timestamps=5, timestamp_type=0, key=None, value=None, headers=None,
        bounds=rows.bounds, rows=rows,
    )  # fmt: skip


def _values(field: Field, users: Sequence[str]) -> Sequence[object]:
    if field.name == "user":
        return users
    return ["x" if field.type == pa.string() else 7] * len(users)


def stage_rows(
    store: Store,
    job: str,
    schema: SchemaVersion,
    places: tuple[int, ...] = (1,),
    topic: str = TOPIC,
) -> list[StagedPart]:
    """Stage one row for each partition; its user is the job."""
    staging = store.stage(job)
    for partition in places:
        staging.write(topic, partition, typed_columns(schema, [job]))
    return staging.finish()


def append_row(store: Store, user: str, partition: int = 0, topic: str = TOPIC) -> None:
    """Append one row that has every published column."""
    store.append_columns(topic, partition, typed_columns(schema_of(store, topic), [user]))


def read_rows(store: Store, topic: str = TOPIC) -> list[list[dict[str, Any]]]:
    """The rows of every partition, with the columns and the ends of one instant."""
    published, schemas = store._engine.published(topic), store._engine.schemas(topic)
    assert published.schema is not None
    fields = {field.name: field for field in schemas.get(published.schema).fields}
    selection = Selection(("_offset", *fields), projection=Projection(fields, schemas))
    found = []
    for partition, end in enumerate(published.ends):
        reader = store._reader(topic, partition)
        batches = reader.read(reader.start_offset(), end, selection)
        found.append([row for batch in batches for row in batch.to_pylist()])
    return found


def commit_rows(
    store: Store, job: str, columns: pa.Schema, places: tuple[int, ...] = (1,), topic: str = TOPIC
) -> CommitResult:
    """What a write job with mergeSchema does: register, stage, commit."""
    schema = store.register_schema(topic, columns, add=True, widen=True)
    return store.commit(job, stage_rows(store, job, schema, places, topic), topics=[topic])


def commit_table(store: Store, topic: str, table: pa.Table) -> list[StagedPart]:
    """Commit rows to partition 0 with the columns and types that they bring; the staged parts."""
    schema = store.register_schema(topic, table.schema, add=True, widen=True)
    job = uuid.uuid4().hex
    staging = store.stage(job)
    for batch in table.to_batches():
        columns = make_typed_columns(
            batch, schema, topic=topic, timestamp_column=None, now_us=7, max_record_bytes=None
        )
        staging.write(topic, 0, columns)
    parts = staging.finish()
    store.commit(job, parts, topics=[topic])
    return parts


def schema_of(store: Store, topic: str = TOPIC) -> SchemaVersion:
    found = store.schema(topic)
    assert found is not None
    return found


def seen(store: Store, topic: str = TOPIC) -> Seen:
    """What a reader sees; the new columns that a row has stand after its user, as in ``j+a``."""
    columns = tuple(field.name for field in schema_of(store, topic).fields)
    partitions = read_rows(store, topic)
    return Seen(columns, tuple(tuple(map(_shown, rows)) for rows in partitions))


def _shown(row: dict[str, Any]) -> str:
    more = [name for name in row if name not in ("_offset", *EVENTS.names)]
    return "+".join([row["user"], *(name for name in more if row[name] is not None)])
