"""A scan: records of a topic as one stream of Arrow batches, for any program that takes Arrow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from ..errors import ConfigError, InvalidRecordError
from ..format.columns import microseconds
from ..format.selection import FrameCounts, Selection
from ..io.io_errors import typed_metadata_errors
from ..segments.batches import join_small
from ..segments.partition_reader import PartitionReader
from ..types import TimeRange

if TYPE_CHECKING:
    import pandas

    from ..engine.api import Engine
    from ..schema.fields import SchemaVersion

    Select: TypeAlias = Callable[[SchemaVersion | None, TimeRange | None], Selection]

Edge: TypeAlias = int | Mapping[int, int] | datetime | None
"""Where a scan begins or ends: an offset, offsets by partition, or a time."""
_EDGE = "an offset, a dict of partition to offset, or a datetime"
_log = logging.getLogger("storage_core")


class _Place(NamedTuple):
    """The offsets of one partition that a scan reads."""

    reader: PartitionReader
    selection: Selection
    start: int
    end: int
    to_the_end: bool


class Scan:
    """What ``Store.scan`` found: a snapshot of a topic. It reads when its rows are asked for.

    Every call reads the same records again. pyarrow, pandas, Polars and DuckDB take it as it is, by
    ``__arrow_c_stream__``. ``counts`` are the frames of the latest read: how many it decoded, and
    how many frames and whole segments it skipped.
    """

    def __init__(self, topic: str, schema: pa.Schema, places: Sequence[_Place]) -> None:
        self.schema = schema
        self.counts = FrameCounts()
        self._topic = topic
        self._places = places

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch, one partition after another, each in the order of offsets.

        Raises:
            DamagedLogError: while iterating, after the last valid record.
            DataLossError: while iterating, if records of the snapshot have been removed since.
        """
        self.counts = counts = FrameCounts()
        yield from join_small(self._read(counts))
        _log.info(
            "scan of topic %r: %d frames read, %d skipped; %d segments skipped",
            self._topic, counts.read, counts.skipped, counts.segments,
        )  # fmt: skip

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which reads as it is consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_table(self) -> pa.Table:
        """All rows as an Arrow table. Without compression its columns are maps of the files."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame. pandas must be installed."""
        return self.to_table().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """The rows as a stream of Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _read(self, counts: FrameCounts) -> Iterator[pa.RecordBatch]:
        for reader, selection, start, end, to_the_end in self._places:
            counted = replace(selection, counts=counts)
            yield from reader.read(start, end, counted, to_the_end=to_the_end)


def make_scan(
    engine: Engine,
    topic: str,
    partitions: Iterable[int] | None,
    start: Edge,
    end: Edge,
    select: Select,
) -> Scan:
    """Plan a scan: check its arguments and fix what it reads. See ``Store.scan``.

    ``select`` says what to read of a topic with that schema, in that range of times.
    """
    times = _times(start, end)
    _check_edge("start", start)
    _check_edge("end", end)
    with typed_metadata_errors(topic):
        # The ends and the schema of one instant: no row has a column that the schema lacks.
        ends, version = engine.published(topic)
        schema = None if version is None else engine.schemas(topic).get(version)
    for name, edge in (("start", start), ("end", end)):
        for partition in edge if isinstance(edge, Mapping) else ():
            _require_partition(name, partition, len(ends), topic)
    selection = select(schema, times)
    if not selection.names:
        raise InvalidRecordError("columns is empty. Name at least one column, such as _offset.")
    places = []
    for partition in _partitions(partitions, len(ends), topic):
        with typed_metadata_errors(topic):
            reader = engine.reader(topic, partition)
        stop = _offset(end, partition)
        first = max(reader.start_offset(), _offset(start, partition) or 0)
        to_the_end = stop is None or stop > ends[partition]
        last = ends[partition] if stop is None else min(stop, ends[partition])
        here = replace(selection, partition=partition)
        places.append(_Place(reader, here, first, last, to_the_end))
    return Scan(topic, pa.schema([selection.field(name) for name in selection.names]), places)


def _partitions(given: Iterable[int] | None, count: int, topic: str) -> list[int]:
    if given is None:
        return list(range(count))
    found = given.to_pylist() if hasattr(given, "to_pylist") else given
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise ConfigError(f"partitions must be a list of numbers, got {given!r}.")
    chosen = list(dict.fromkeys(found))
    for partition in chosen:
        _require_partition("partitions", partition, count, topic)
    return chosen


def _require_partition(argument: str, partition: object, count: int, topic: str) -> None:
    if type(partition) is not int or not 0 <= partition < count:
        raise ConfigError(
            f"{argument} has {partition!r} in it; the partitions of topic {topic!r} are 0 to "
            f"{count - 1}."
        )


def _check_edge(name: str, edge: object) -> None:
    offsets = list(edge.values()) if isinstance(edge, Mapping) else [edge]
    keys = list(edge) if isinstance(edge, Mapping) else []
    if edge is None or isinstance(edge, datetime):
        return
    if not all(type(number) is int and number >= 0 for number in (*keys, *offsets)):
        raise InvalidRecordError(f"{name} must be {_EDGE}, got {edge!r}.")


def _offset(edge: Edge, partition: int) -> int | None:
    if isinstance(edge, Mapping):
        return edge.get(partition)
    return None if isinstance(edge, datetime) else edge


def _times(start: Edge, end: Edge) -> TimeRange | None:
    first, last = (
        microseconds(edge) if isinstance(edge, datetime) else None for edge in (start, end)
    )
    if first is None and last is None:
        return None
    all_times = TimeRange()
    return TimeRange(
        all_times.start if first is None else first, all_times.end if last is None else last
    )
