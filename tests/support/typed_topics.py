"""Typed topics for tests of schema commits: jobs that bring columns, and what readers see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from storage_core import SchemaVersion, StagedPart, Store
from storage_core.commit.protocol import CommitResult
from storage_core.format.typed_columns import make_typed_columns

from .stores import TOPIC

EVENTS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("user", pa.string())])


def with_columns(**types: pa.DataType) -> pa.Schema:
    """The columns of ``EVENTS`` and more."""
    return pa.schema([*EVENTS, *(pa.field(name, kind) for name, kind in types.items())])


class Seen(NamedTuple):
    """What a reader sees of a typed topic at one instant."""

    columns: tuple[str, ...]
    rows: tuple[tuple[bytes, ...], ...]


def create_typed(store: Store, partitions: int = 2, topic: str = TOPIC) -> None:
    store.create_topic(topic, partitions, schema=EVENTS)


def stage_rows(
    store: Store,
    job: str,
    schema: SchemaVersion,
    places: tuple[int, ...] = (1,),
    topic: str = TOPIC,
) -> list[StagedPart]:
    """Stage one row for each partition; its user names the job."""
    staging = store.stage(job)
    row = pa.record_batch({"id": [1], "user": [job]})
    columns = make_typed_columns(
        row, schema, timestamp_column=None, now_us=1, max_record_bytes=None
    )
    for partition in places:
        staging.write(topic, partition, columns)
    return staging.finish()


def commit_rows(
    store: Store, job: str, columns: pa.Schema, places: tuple[int, ...] = (1,), topic: str = TOPIC
) -> CommitResult:
    """What a write job with mergeSchema does: register, stage, commit."""
    schema = store.register_schema(topic, columns, add=True, widen=True)
    return store.commit(job, stage_rows(store, job, schema, places, topic), topics=[topic])


def schema_of(store: Store, topic: str = TOPIC) -> SchemaVersion:
    found = store.schema(topic)
    assert found is not None
    return found


def seen(store: Store, topic: str = TOPIC) -> Seen:
    columns = tuple(field.name for field in schema_of(store, topic).fields)
    partitions = range(store.topic(topic).partitions)
    return Seen(columns, tuple(tuple(_users(store, topic, each)) for each in partitions))


def _users(store: Store, topic: str, partition: int) -> Iterator[bytes]:
    for batch in store.read(topic, partition, columns=["user"]):
        for user in batch.column(0).to_pylist():
            yield user.encode()
