"""Typed topics in several segments: made, filled, and looked into frame by frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from storage_core import SchemaVersion, Store, StoreConfig
from storage_core.format import typed_frames
from storage_core.format.frame import FrameHeader
from storage_core.format.frame_scan import segment_frames
from storage_core.format.typed_columns import make_typed_columns
from storage_core.schema.statistics import ColumnStatistics
from tests.support.stores import TOPIC


class Frame(NamedTuple):
    """What a typed frame says of itself."""

    offset: int
    header: FrameHeader
    version: int
    statistics: Mapping[int, ColumnStatistics]


def typed_store(
    path: Path,
    schema: pa.Schema,
    *,
    config: StoreConfig | None = None,
    layout: str = "native",
    **settings: Any,
) -> Store:
    """A new store with the typed topic ``t``."""
    store = Store.open(path, create=True, config=config, layout=layout)
    store.create_topic(TOPIC, schema=schema, **settings)
    return store


def fill(
    store: Store,
    groups: Iterable[Sequence[Mapping[str, Any]]],
    *,
    schema: pa.Schema | None = None,
    version: SchemaVersion | None = None,
) -> None:
    """Append a sealed segment for each group of rows, and one row in the active segment.

    With ``version``, a registered one, the rows are committed and publish it.
    """
    found = store.schema(TOPIC)
    assert found is not None
    for number, group in enumerate(groups):
        batch = rows_as_batch(group, schema or found.arrow)
        if version is None:
            store.append_table(TOPIC, batch, partition=0)
        else:
            stage = store.stage(f"job-{number}")
            columns = make_typed_columns(
                batch, version, topic=TOPIC, timestamp_column=store.topic(TOPIC).timestamp_column,
                now_us=store.vfs.now_us(), max_record_bytes=None,
            )  # fmt: skip
            stage.write(TOPIC, 0, columns)
            store.commit(f"job-{number}", stage.finish())
        store.roll(TOPIC, 0)
    first = found.fields[0]
    last: dict[str, Any] = {} if first.nullable else {first.name: "-"}
    if pa.types.is_integer(first.type):
        last = {first.name: -1}
    store.append_table(TOPIC, rows_as_batch([last], found.arrow), partition=0)


def rows_as_batch(group: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch; texts become decimals where the column wants them."""
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in group]
        if pa.types.is_decimal(field.type):
            arrays.append(pa.array(values, pa.string()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows(store: Store, **bounds: Any) -> list[dict[str, Any]]:
    """All rows of the partition with their offsets and times."""
    found = store.schema(TOPIC)
    assert found is not None
    columns = ["_offset", "_timestamp", *(field.name for field in found.fields)]
    batches = store.read(TOPIC, 0, columns=columns, **bounds)
    return [row for batch in batches for row in batch.to_pylist()]


def _beginning(rest: memoryview, size: int) -> memoryview:
    return rest[:size]


def frames(store: Store) -> list[Frame]:
    """All frames with rows."""
    found = []
    for segment in store.segments(TOPIC, 0):
        for stored in segment_frames(store.vfs, segment.path, segment.base):
            if stored.header.records:
                rest = stored.rest
                known = typed_frames.read_statistics(stored.header, partial(_beginning, rest))
                version = typed_frames.schema_version(stored.header, rest)
                found.append(Frame(stored.offset, stored.header, version, known))
    return found
