"""Single rows of a typed topic: checked value by value, and routed by their key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from .. import arguments
from ..errors import (
    InvalidRecordError,
    SchemaMismatchError,
    TopicNotFoundError,
    mismatches_of,
)
from ..format.columns import Columns, check_times
from ..format.typed_columns import key_partitions, make_typed_columns
from ..metadata.topic_file import TopicFile
from ..schema.fields import dotted
from ..schema.json_reader import JsonReader
from ..schema.rows import TypedRows
from ..store.store import Store

# Keys whose partition is remembered: encoding a single key takes longer than all other checks.
_KNOWN_KEYS = 1 << 16


class CheckedRow(NamedTuple):
    """A row whose values fit their columns; ``size`` is at least its number of bytes."""

    reader: JsonReader
    values: tuple[Any, ...]
    size: int


class RowChecks:
    """The checks of one typed topic. Safe for several threads.

    It follows the published schema: a row that does not fit the columns it knows is checked against
    those that were added since.
    """

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._topic = topic
        found = store.topic(topic)
        self.uuid = found.uuid
        self._timestamp_column = found.timestamp_column
        self._key_columns = found.key_columns
        self._max_record_bytes = found.config(store.config).max_record_bytes
        self._reader = self._newest()
        self._partitions: dict[tuple[Any, ...], int] = {}

    def check(self, row: Mapping[str, Any]) -> CheckedRow:
        """The row as it will be stored.

        Raises:
            SchemaMismatchError: a value does not fit its column; names column, found and wanted.
            InvalidRecordError: the row is not a dict, or its time is outside the years 1 to 9999.
            RecordTooLargeError: the row is larger than ``max_record_bytes``.
        """
        arguments.instance("row", row, Mapping, "a dict of column names and values")
        reader = self._reader
        with mismatches_of(self._topic):
            try:
                values = reader.values(row)
            except SchemaMismatchError:
                newest = self._newest()
                if newest.schema.version == reader.schema.version:
                    raise
                self._reader = reader = newest
                values = reader.values(row)
        checked = CheckedRow(reader, values, sum(map(_most_bytes, values)))
        self._check_time(checked)
        if checked.size > self._max_record_bytes:
            self.columns([checked], 0, self._max_record_bytes)
        return checked

    def columns(self, rows: list[CheckedRow], now_us: int, max_record_bytes: int | None) -> Columns:
        """Rows of one reader, ready to be written."""
        reader = rows[0].reader
        return make_typed_columns(
            reader.batch(rows),
            reader.schema,
            topic=self._topic,
            timestamp_column=self._timestamp_column,
            now_us=now_us,
            max_record_bytes=max_record_bytes,
        )

    def partition_of(self, row: CheckedRow, topic: TopicFile) -> int | None:
        """The partition that the row's key belongs to; None if the topic has no key columns.

        ``topic`` is the topic as it is now: partitions may be added.
        """
        if not self._key_columns:
            return None
        count = topic.partitions
        if count == 1:
            return 0
        if topic.uuid != self.uuid:
            raise TopicNotFoundError(
                f"topic {self._topic!r} was deleted and created again. Close the handlers and get "
                "new ones.",
                topic=self._topic,
            )
        schema = row.reader.schema
        places = [schema.positions[schema.names[name].id] for name in self._key_columns]
        key = (count, schema.version, *(_hashable(row.values[place]) for place in places))
        known = self._partitions.get(key)
        if known is None:
            arrays: list[pa.Array | None] = [None] * len(schema.fields)
            for place in places:
                arrays[place] = pa.array([row.values[place]], schema.fields[place].type)
            rows = TypedRows(schema, arrays, 1)
            known = int(key_partitions(rows, self._key_columns, count)[0])
            if len(self._partitions) >= _KNOWN_KEYS:
                self._partitions.clear()
            self._partitions[key] = known
        return known

    def _newest(self) -> JsonReader:
        schema = self._store.schema(self._topic)
        if schema is None:
            raise InvalidRecordError(
                f"topic {self._topic!r} is a records topic: it takes keys and values. Use append.",
                topic=self._topic,
            )
        return JsonReader(schema)

    def _check_time(self, row: CheckedRow) -> None:
        name = self._timestamp_column
        if name is None:
            return
        schema = row.reader.schema
        value = row.values[schema.positions[schema.names[name].id]]
        if value is not None:
            try:
                check_times(value, value)
            except InvalidRecordError as error:
                raise InvalidRecordError(f"timestamp column {dotted((name,))}: {error}") from error


def _most_bytes(value: Any) -> int:
    """At least the bytes that a value takes, without encoding its texts."""
    if value is None:
        return 0
    if isinstance(value, str):
        return 4 + 4 * len(value)
    if isinstance(value, bytes):
        return 4 + len(value)
    if isinstance(value, list | tuple):
        return 4 + sum(map(_most_bytes, value))
    if isinstance(value, dict):
        return sum(map(_most_bytes, value.values()))
    return 16


def _hashable(value: Any) -> Any:
    """A stand-in that is equal only for values of one key; -0.0 and NaN are keys of their own."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return value
