"""What ``append`` makes of lines: records, or rows of a typed topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from ...errors import RECORD_ERRORS, InvalidRecordError, StorageError, mismatches_of
from ...format.columns import Columns, check_times, make_columns
from ...format.partitioner import partition_for_keys
from ...format.typed_columns import key_partitions, make_typed_columns
from ...schema.json_reader import JsonReader, JsonRow
from ...store.store import Store
from ...types import TIMESTAMP_SUPPLIED, OffsetRange
from ..common.record_text import Incoming, parse_record

Line = TypeVar("Line", Incoming, JsonRow)


class _Appender(ABC, Generic[Line]):
    """Chooses a partition for each line and keeps the offsets that were written."""

    def __init__(self, store: Store, topic: str, partition: int | None) -> None:
        self._store = store
        self._topic = topic
        self._fixed = partition
        self._count = store.topic(topic).partitions
        self._largest = store.partition_log(topic, partition or 0).config.max_record_bytes
        self._next = 0
        self.count = 0
        self.written: dict[int, OffsetRange] = {}

    def parsed(self, text: bytes) -> Line:
        """What a line holds.

        Raises:
            InvalidRecordError: it is none, or names a partition that the topic does not have.
            SchemaMismatchError: a value does not fit its column.
        """
        found = self._parse(text)
        wanted = found.partition
        if self._fixed is None and wanted is not None and wanted >= self._count:
            raise InvalidRecordError(
                f"{self._topic!r} has no partition {wanted}; it has partitions 0 to "
                f"{self._count - 1}. Pass --partition to append all records to one partition."
            )
        return found

    def first_refused(self, lines: dict[int, Line]) -> tuple[int, StorageError] | None:
        """The first line that the store would refuse, and its error.

        Checked before the append: a refused record fails the whole append of its partition. The
        records are checked one by one only if the check of all of them fails.
        """
        try:
            self._check(list(lines.values()))
        except RECORD_ERRORS:
            for number, line in lines.items():
                try:
                    self._check([line])
                except RECORD_ERRORS as error:
                    return number, error
        return None

    def append(self, lines: list[Line]) -> None:
        """Append lines; those without key and partition go to partitions in turn."""
        by_partition: dict[int, list[Line]] = {}
        for line, partition in zip(lines, self._partitions(lines), strict=True):
            by_partition.setdefault(partition, []).append(line)
        for partition, chosen in by_partition.items():
            written = self._store.append_columns(self._topic, partition, self._columns(chosen))
            known = self.written.get(partition, written)
            self.written[partition] = OffsetRange(known.start, written.end)
            self.count += len(chosen)
        self._next = (self._next + 1) % self._count

    def _partitions(self, lines: list[Line]) -> list[int]:
        partitions = []
        for line, by_key in zip(lines, self._by_key(lines), strict=True):
            wanted = line.partition if self._fixed is None else self._fixed
            if wanted is None:
                wanted = self._next if by_key is None else by_key
            partitions.append(wanted)
        return partitions

    def _check(self, lines: list[Line]) -> None:
        self._store.check_columns(self._topic, self._fixed or 0, self._columns(lines))

    @abstractmethod
    def _parse(self, text: bytes) -> Line: ...

    @abstractmethod
    def _columns(self, lines: list[Line]) -> Columns: ...

    @abstractmethod
    def _by_key(self, lines: list[Line]) -> list[int | None]:
        """The partition that the key of each line chooses; None without a key."""


class RecordAppender(_Appender[Incoming]):
    """Lines as values, as key and value, or as JSON."""

    def __init__(
        self,
        store: Store,
        topic: str,
        partition: int | None,
        as_json: bool,
        separator: str | None,
    ) -> None:
        super().__init__(store, topic, partition)
        self._as_json = as_json
        self._separator = separator

    def _parse(self, text: bytes) -> Incoming:
        if self._as_json:
            return parse_record(text)
        if self._separator is None:
            return Incoming(text)
        key, found, value = text.partition(self._separator.encode())
        if not found:
            raise InvalidRecordError(f"the line has no {self._separator!r} between key and value.")
        return Incoming(value, key)

    def _columns(self, lines: list[Incoming]) -> Columns:
        return make_columns(
            pa.array([record.value for record in lines], pa.binary()),
            _or_none([record.key for record in lines]),
            _or_none([record.timestamp for record in lines]),
            _or_none([record.headers for record in lines]),
            now_us=self._store.vfs.now_us(),
            max_record_bytes=self._largest,
        )

    def _by_key(self, lines: list[Incoming]) -> list[int | None]:
        keys = pa.array([record.key for record in lines], pa.binary())
        hashed = partition_for_keys(keys, self._count).tolist()
        return [
            None if record.key is None else by_key
            for record, by_key in zip(lines, hashed, strict=True)
        ]


class RowAppender(_Appender[JsonRow]):
    """Lines as rows of a typed topic, in JSON."""

    def __init__(self, store: Store, topic: str, partition: int | None) -> None:
        super().__init__(store, topic, partition)
        file, schema = store.topic(topic), store.schema(topic)
        assert schema is not None
        self._key_columns, self._timestamp_column = file.key_columns, file.timestamp_column
        self._reader = JsonReader(schema)

    def _parse(self, text: bytes) -> JsonRow:
        with mismatches_of(self._topic):
            return self._reader.read(text)

    def _columns(self, lines: list[JsonRow]) -> Columns:
        columns = make_typed_columns(
            self._reader.batch(lines),
            self._reader.schema,
            topic=self._topic,
            timestamp_column=self._timestamp_column,
            now_us=self._store.vfs.now_us(),
            max_record_bytes=self._largest,
        )
        return self._with_times(columns, lines)

    def _with_times(self, columns: Columns, lines: list[JsonRow]) -> Columns:
        """With the timestamps of rows that name one and have none in the timestamp column."""
        given = {n: row.timestamp for n, row in enumerate(lines) if row.timestamp is not None}
        if self._timestamp_column is not None:
            place = self._reader.schema.arrow.names.index(self._timestamp_column)
            given = {n: stamp for n, stamp in given.items() if lines[n].values[place] is None}
        if not given:
            return columns
        stamps = np.empty(columns.count, np.int64)
        stamps[:] = columns.timestamps
        for number, stamp in given.items():
            check_times(stamp, stamp)
            stamps[number] = stamp
        return replace(columns, timestamps=stamps, timestamp_type=TIMESTAMP_SUPPLIED)

    def _by_key(self, lines: list[JsonRow]) -> list[int | None]:
        if not self._key_columns or not lines:
            return [None] * len(lines)
        rows = self._columns(lines).rows
        assert rows is not None
        return list(key_partitions(rows, self._key_columns, self._count).tolist())


def _or_none(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values
