"""Tables appended to typed topics: read in batches, routed by key, published together."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from ..errors import InvalidRecordError, StorageError
from ..format.columns import Columns
from ..format.typed_columns import make_typed_columns, route
from ..metadata.topic_file import TopicFile
from ..schema.conform import check_fits
from ..schema.fields import Field, SchemaVersion
from ..types import OffsetRange

if TYPE_CHECKING:
    from ..commit.protocol import CommitResult
    from ..commit.staging import Stage, StagedPart
    from ..vfs import Vfs

TableLike: TypeAlias = Any
"""A RecordBatch, a Table, a RecordBatchReader, or anything with ``__arrow_c_stream__``."""
_WANTED = "a RecordBatch, a Table, or an object with __arrow_c_stream__ such as a DataFrame"
# Rows without a key go to one partition for a whole batch, and the next batch to the next one.
_turn = itertools.count()


class TypedStore(Protocol):
    """What this module needs of a store."""

    @property
    def vfs(self) -> Vfs: ...
    def topic(self, topic: str) -> TopicFile: ...
    def register_schema(self, topic: str, columns: Sequence[Field]) -> SchemaVersion: ...
    def append_columns(self, topic: str, partition: int, columns: Columns) -> OffsetRange: ...
    def stage(self, job: str) -> Stage: ...
    def commit(self, job: str, parts: Sequence[StagedPart]) -> CommitResult: ...


def append_table(
    store: TypedStore, topic: str, data: TableLike, partition: int | None
) -> Mapping[int, OffsetRange]:
    """Append all rows of ``data``; no reader sees a part of them. See ``Store.append_table``."""
    found = store.topic(topic)
    if not found.is_typed:
        raise InvalidRecordError(
            f"topic {topic!r} is a records topic: it takes keys and values. Use append."
        )
    # The published schema, read as a writer does: the high watermarks may be lost.
    schema = store.register_schema(topic, ())
    names, batches = _batches(data)
    check_fits(names, schema, topic=topic)
    routed = _routed(topic, batches, found, schema, partition, store.vfs.now_us)
    first = next(routed, None)
    if first is None:
        return {}
    second = next(routed, None)
    if second is None:
        return {first[0]: store.append_columns(topic, *first)}
    return _commit(store, topic, itertools.chain((first, second), routed))


def _commit(
    store: TypedStore, topic: str, routed: Iterable[tuple[int, Columns]]
) -> Mapping[int, OffsetRange]:
    """Stage and commit: no reader sees a part of the table."""
    job = f"append-{uuid.uuid4()}"
    stage = store.stage(job)
    try:
        for partition, columns in routed:
            stage.write(topic, partition, columns)
        parts = stage.finish()
    except StorageError:
        stage.discard()
        raise
    result = store.commit(job, parts)
    return {partition: offsets for (_, partition), offsets in result.offsets.items()}


def _routed(
    topic: str,
    batches: Iterable[pa.RecordBatch],
    found: TopicFile,
    schema: SchemaVersion,
    partition: int | None,
    now_us: Callable[[], int],
) -> Iterator[tuple[int, Columns]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = make_typed_columns(
            batch,
            schema,
            topic=topic,
            timestamp_column=found.timestamp_column,
            now_us=now_us(),
            max_record_bytes=found.settings.get("max_record_bytes"),
        )
        if partition is not None:
            yield partition, columns
        else:
            own = 0 if found.key_columns else next(_turn) % found.partitions
            yield from route(columns, found.key_columns, found.partitions, own)


def _batches(data: TableLike) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, reader
    raise InvalidRecordError(f"data must be {_WANTED}, got {type(data).__name__}.")
