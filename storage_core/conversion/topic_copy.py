"""How one topic is copied: what is read of the source, written to the target and compared.

A records topic becomes a records topic. A typed topic becomes a typed topic with the same schema
versions, or a records topic whose values are the rows as JSON.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConversionError, DataLossError, UnsupportedColumnError
from ..format.columns import TIMESTAMP, Columns, make_columns
from ..format.numbers import number_column, numbers_of
from ..format.record_sizes import check_sizes
from ..format.selection import RECORD_FIELDS
from ..layouts.registry import LAYOUTS
from ..schema import keys
from ..schema.conform import conform
from ..schema.fields import Field, SchemaVersion
from ..schema.json_writer import json_rows
from ..schema.rows import TypedRows, concat
from ..store.store import Store
from ..types import TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED
from .comparison import floats_as_bits, without_empties
from .progress import SourcePartition

TypedAs = Literal["json"]
_NO_LIMIT = 1 << 30
_NO_TIME = number_column(np.array([-1000]), TIMESTAMP)[0]
Batch = TypeVar("Batch", pa.Table, pa.RecordBatch)


@dataclass(frozen=True)
class CopyOptions:
    """What the caller of a conversion chose."""

    drop: frozenset[str] = frozenset()
    renumber: bool = False
    typed_as: TypedAs | None = None


def copy_of(source: Store, target: Store, topic: str, options: CopyOptions) -> TopicCopy:
    """How to copy a topic.

    Raises:
        UnsupportedColumnError: the target cannot store its rows.
    """
    if not source.topic(topic).is_typed:
        return RecordCopy(source, target, topic, options)
    if options.typed_as == "json":
        return JsonCopy(source, target, topic, options)
    return TypedCopy(source, target, topic, options)


class TopicCopy(ABC):
    """One topic."""

    offset = "offset"
    """The name of the column of offsets in the batches of both sides."""

    def __init__(self, source: Store, target: Store, topic: str, options: CopyOptions) -> None:
        self._source = source
        self._target = target
        self._topic = topic
        self._options = options
        self._is_timed = "timestamp" in LAYOUTS[source.layout].columns
        self._native = LAYOUTS[target.layout].stores_all

    def make_topic(self) -> None:
        """Create the topic in the target, or check the one that is there."""
        found = self._source.topic(self._topic)
        native = LAYOUTS[self._source.layout].stores_all and self._native
        settings = dict(found.settings) if native else {}
        made = self._create(found.partitions, settings)
        if made < found.partitions:
            self._target.add_partitions(self._topic, found.partitions)

    @abstractmethod
    def _create(self, partitions: int, settings: dict[str, Any]) -> int:
        """Create the topic if it is missing; how many partitions it has."""

    @abstractmethod
    def read(self, part: SourcePartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """What is copied of the source, as the target has it but for what it cannot store."""

    @abstractmethod
    def read_target(
        self, part: SourcePartition, start: int | None, end: int | None
    ) -> Iterator[pa.RecordBatch]:
        """What the target has, with the same columns."""

    @abstractmethod
    def columns(self, piece: Sequence[pa.RecordBatch]) -> Columns:
        """Batches of ``read`` ready to be written, without their offsets."""

    @abstractmethod
    def comparable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What must be equal on both sides, as the target stores it."""

    def _require_records(self) -> None:
        if self._target.topic(self._topic).is_typed:
            raise ConversionError(
                f"topic {self._topic!r} is a typed topic in the target, expected a records topic. "
                "Choose an empty target.",
                topic=self._topic,
            )


class RecordCopy(TopicCopy):
    """Records as they are."""

    def _create(self, partitions: int, settings: dict[str, Any]) -> int:
        made = self._target.create_topic(self._topic, partitions, exist_ok=True, **settings)
        self._require_records()
        return made.partitions

    def read(self, part: SourcePartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return self._source.read(
            part.topic, part.partition, start=start, end=end, columns=tuple(RECORD_FIELDS)
        )

    def read_target(
        self, part: SourcePartition, start: int | None, end: int | None
    ) -> Iterator[pa.RecordBatch]:
        return self._target.read(part.topic, part.partition, start=start, end=end)

    def columns(self, piece: Sequence[pa.RecordBatch]) -> Columns:
        """Timestamps of the append are copied only to native stores."""
        table = pa.Table.from_batches(piece)
        drop = self._options.drop
        supplied = pc.any(pc.equal(table["timestamp_type"], TIMESTAMP_SUPPLIED)).as_py()
        timed = "timestamp" not in drop and (self._native or supplied)
        return make_columns(
            table["value"],
            None if "key" in drop else table["key"],
            self._with_times(table)["timestamp"] if timed else None,
            None if "headers" in drop else table["headers"],
            now_us=self._target.vfs.now_us(),
            max_record_bytes=_max_record_bytes(self._target, self._topic),
        )

    def _with_times(self, batch: Batch) -> Batch:
        """Where records have times, one without has -1 millisecond, as Kafka's consumers see it."""
        at = batch.schema.get_field_index("timestamp")
        if not self._is_timed or not batch.column(at).null_count:
            return batch
        return batch.set_column(at, "timestamp", pc.fill_null(batch.column(at), _NO_TIME))

    def comparable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        drop = self._options.drop
        names = [name for name in ("key", "headers") if name not in drop]
        if self._is_timed and self._native and "timestamp" not in drop:
            names.append("timestamp")
        names += ["value"] if self._options.renumber else ["value", "offset"]
        chosen = self._with_times(batch).select(names)
        return chosen if self._native else without_empties(chosen)


class _TypedSource(TopicCopy):
    """The rows of a typed topic in the schema that was published when the conversion began."""

    def __init__(self, source: Store, target: Store, topic: str, options: CopyOptions) -> None:
        super().__init__(source, target, topic, options)
        found = source.schema(topic)
        assert found is not None
        self._schema: SchemaVersion = found
        self._names = [field.name for field in found.fields]

    def _read_rows(
        self, store: Store, part: SourcePartition, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        slices = [
            (segment, max(segment.base, start), min(segment.end, end))
            for segment in store.segments(part.topic, part.partition)
            if segment.end > start and segment.base < end
        ]
        first = store.start_offset(part.topic, part.partition)
        if start < min(first, end):
            raise DataLossError(
                f"{part.name}: records {start} to {min(first, end) - 1} were removed during the "
                "conversion. Run it again.",
                topic=part.topic,
                partition=part.partition,
                offset=start,
            )
        columns = ("_offset", "_timestamp", *self._names)
        return store.read_slices(part.topic, part.partition, slices, columns, schema=self._schema)


class TypedCopy(_TypedSource):
    """Rows with their columns: the target gets every schema version, with its number and ids."""

    offset = "_offset"

    def __init__(self, source: Store, target: Store, topic: str, options: CopyOptions) -> None:
        super().__init__(source, target, topic, options)
        if not self._native:
            raise UnsupportedColumnError(
                f"layout {target.layout} cannot store the columns of the typed topic {topic!r}. "
                "Convert its rows to JSON (--typed-as json, typed_as='json'), or convert to a "
                "native store.",
                topic=topic,
            )
        if options.drop:
            raise UnsupportedColumnError(
                f"column {min(options.drop)!r} cannot be dropped: the typed topic {topic!r} has "
                "columns of its own. Convert its rows to JSON (--typed-as json, typed_as='json').",
                topic=topic,
            )

    def _create(self, partitions: int, settings: dict[str, Any]) -> int:
        found, versions = self._source.topic(self._topic), self._source.schema_versions(self._topic)
        made = self._target.create_topic(
            self._topic, partitions, exist_ok=True,
            schema=versions[0].schema.fields, key_columns=found.key_columns,
            timestamp_column=found.timestamp_column, **settings,
        )  # fmt: skip
        ours = (found.kind, found.key_columns, found.timestamp_column)
        theirs = (made.kind, made.key_columns, made.timestamp_column)
        if ours != theirs:
            raise ConversionError(
                f"topic {self._topic!r}: kind, key columns and timestamp column are {theirs} in "
                f"the target and {ours} in the source. Choose an empty target.",
                topic=self._topic,
            )
        self._target.adopt_schemas(self._topic, versions)
        return made.partitions

    def read(self, part: SourcePartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return self._read_rows(self._source, part, start, end)

    def read_target(
        self, part: SourcePartition, start: int | None, end: int | None
    ) -> Iterator[pa.RecordBatch]:
        bounds = self._target.offsets(part.topic, part.partition)
        first = bounds.start if start is None else start
        last = bounds.end if end is None else end
        return self._read_rows(self._target, part, first, last)

    def columns(self, piece: Sequence[pa.RecordBatch]) -> Columns:
        rows = concat([conform(batch.select(self._names), self._schema) for batch in piece])
        check_sizes(rows.bounds, _max_record_bytes(self._target, self._topic))
        return Columns(
            count=rows.count,
            timestamps=numbers_of(pa.concat_arrays([batch["_timestamp"] for batch in piece])),
            timestamp_type=TIMESTAMP_SUPPLIED,  # else the log would stamp them again
            key=None,
            value=None,
            headers=None,
            bounds=rows.bounds,
            rows=rows,
        )

    def comparable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [name for name in batch.schema.names if name != "_offset"]
        return floats_as_bits(batch.select(names) if self._options.renumber else batch)


class JsonCopy(RecordCopy, _TypedSource):
    """Rows as records: the value is the row as a JSON object, the key that of its key columns.

    A record of a topic without key columns has no key. A tombstone has a null value, where the
    layout can store one.
    """

    def __init__(self, source: Store, target: Store, topic: str, options: CopyOptions) -> None:
        super().__init__(source, target, topic, options)
        self._key_columns = source.topic(topic).key_columns
        first = source.schema_versions(topic)[0].schema
        has_values = any(field.name not in self._key_columns for field in first.fields)
        keyed = bool(self._key_columns) and "key" not in options.drop
        self._has_tombstones = self._native and keyed and has_values

    def read(self, part: SourcePartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return map(self._as_records, self._read_rows(self._source, part, start, end))

    def _as_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = conform(batch.select(self._names), self._schema)
        count, values = rows.count, json_rows(rows)
        texts: list[bytes | None] = [_json(row) for row in values]
        if self._has_tombstones:
            for row in keys.tombstones(rows, self._key_columns).nonzero()[0].tolist():
                texts[row] = None
        columns = {
            "offset": batch["_offset"],
            "timestamp": batch["_timestamp"],
            "key": self._keys(rows, values),
            "value": pa.array(texts, pa.binary()),
            "headers": pa.nulls(count, RECORD_FIELDS["headers"].type),
            # A layout without times loses none: the timestamp column is in the value.
            "timestamp_type": pa.repeat(pa.scalar(TIMESTAMP_APPENDED, pa.int32()), count),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _keys(self, rows: TypedRows, values: Sequence[dict[str, Any]]) -> pa.Array:
        names = self._key_columns
        if not names:
            return pa.nulls(rows.count, pa.binary())
        found = ({name: row[name] for name in names} for row in values)
        if any(_has_float(self._schema.names[name]) for name in names):
            found = ({name: _plain(row[name]) for name in row} for row in found)
        return pa.array([_json(row) for row in found], pa.binary())


def _max_record_bytes(target: Store, topic: str) -> int:
    if not LAYOUTS[target.layout].stores_all:
        return _NO_LIMIT
    return target.topic(topic).config(target.config).max_record_bytes


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _has_float(field: Field) -> bool:
    return bool(pa.types.is_floating(field.type)) or any(map(_has_float, field.children))


def _plain(value: Any) -> Any:
    """The same key has one text: -0.0 is 0.0, as in the bytes of keys."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
