"""The reading side of a store. It takes no lock and changes no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from .. import arguments
from ..config import StoreConfig
from ..errors import (
    ConfigError,
    DataLossError,
    OffsetOutOfRangeError,
)
from ..format.columns import READ_SCHEMA
from ..format.selection import RECORD_FIELDS, SYSTEM_FIELDS, FrameCounts, Projection, Selection
from ..io.io_errors import typed_metadata_errors, typed_read_errors
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile
from ..types import (
    Int64s,
    OffsetRange,
    Problem,
    SegmentContents,
    SegmentInfo,
    TimeBounds,
    TimeRange,
)
from ..vfs import Vfs
from . import read_arguments
from .read_arguments import Offsets
from .requests import StoreRequests

if TYPE_CHECKING:
    from ..commit.ledger import LedgerEntry
    from ..engine.api import Engine
    from ..format.frame_scan import StoredFrame
    from ..log.published import Published
    from ..metadata.schema_files import RegisteredSchema
    from ..predicate import binder as predicates
    from ..predicate import parser
    from ..predicate.bound import Bound
    from ..schema.fields import SchemaVersion
    from ..segments import batches as record_batches
    from ..segments.partition_reader import PartitionReader
    from . import scan as scans
    from .scan import Edge, Scan
else:
    record_batches = LazyModule("storage_core.segments.batches")
    scans = LazyModule("storage_core.store.scan")
    parser = LazyModule("storage_core.predicate.parser")
    predicates = LazyModule("storage_core.predicate.binder")

READ_COLUMNS = tuple(READ_SCHEMA.names)


class StoreReads(StoreRequests):
    """The read operations of ``Store``. Safe for several threads."""

    def __init__(self, vfs: Vfs, config: StoreConfig, engine: Engine) -> None:
        super().__init__(engine)
        self._vfs = vfs
        self._config = config

    @property
    def path(self) -> str:
        """The store's directory."""
        return self._vfs.root

    @property
    def layout(self) -> str:
        """Name of the store's layout."""
        return self._engine.name

    @property
    def config(self) -> StoreConfig:
        """The store's settings; topics may override some of them."""
        return self._config

    def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        with typed_metadata_errors():
            return self._engine.topics()

    def topic(self, topic: str) -> TopicFile:
        """Identity, partitions and settings of a topic."""
        with typed_metadata_errors(topic):
            return self._engine.topic(topic)

    def schema(self, topic: str, version: int | None = None) -> SchemaVersion | None:
        """The published schema of a typed topic; None for a records topic.

        Args:
            topic: An existing topic.
            version: Another version of a typed topic, which must be registered.
        """
        with typed_metadata_errors(topic):
            if version is None:
                return self._schema(topic, self._engine.published(topic))
            return self._engine.schemas(topic).get(version)

    def schema_versions(self, topic: str) -> list[RegisteredSchema]:
        """The schema versions of a typed topic up to the published one, and their origins.

        Among them may be versions that were registered by writes and never published.

        Raises:
            SchemaMismatchError: it is a records topic.
        """
        with typed_metadata_errors(topic):
            schemas, version = self._engine.schemas(topic), self._engine.published(topic).schema
            return [found for found in schemas.all() if found.schema.version <= (version or 0)]

    def offsets(self, topic: str, partition: int) -> OffsetRange:
        """The log start offset and the high watermark."""
        with self.reading_once():
            reader = self._reader(topic, partition)
            return self._bounds(reader, topic, partition, self.visible_ends(topic))

    def start_offset(self, topic: str, partition: int) -> int:
        """The log start offset, even if no record is visible yet."""
        return self._reader(topic, partition).start_offset()

    def skipped(self, topic: str, partition: int) -> list[OffsetRange]:
        """The ranges of damaged records that were given up with ``skip_damaged``."""
        return self._reader(topic, partition).skipped()

    def recovery_due(self, topic: str, partition: int) -> bool:
        """Whether the last writer crashed, so that the high watermark may be too low."""
        self._require_partition(topic, partition)
        with typed_metadata_errors(topic):
            return self._engine.recovery_due(topic, partition)

    def visible_ends(self, topic: str) -> tuple[int, ...]:
        """The high watermark of every partition at one instant: a consistent snapshot."""
        with typed_metadata_errors(topic):
            return self._engine.high_watermarks(topic)

    def require_sound_end(self, topic: str, partition: int) -> None:
        """Raise if the bytes after the last valid record are damage, not a torn tail.

        ``read`` without ``end`` does this itself.

        Raises:
            DamagedLogError: the log is damaged. Pass ``end`` to ``read`` for the records before.
        """
        self._reader(topic, partition).require_sound_end()

    def segments(
        self, topic: str, partition: int, *, by_names: bool = False, offsets: Offsets = None
    ) -> list[SegmentInfo]:
        """The segments below the high watermark.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            by_names: Open no file: take each segment to end where the next one begins. A missing
                file is then seen only by a read. By default the end of each is looked up.
            offsets: Segments without any of these may be left out.
        """
        wanted = read_arguments.wanted_offsets(offsets)
        with self.reading_once():
            end = self._high_watermark(topic, partition)
            return self._reader(topic, partition).segments(end, by_names, wanted)

    def read_slices(
        self,
        topic: str,
        partition: int,
        slices: Iterable[tuple[SegmentInfo, int, int]],
        columns: Sequence[str] | None = None,
        on_loss: Callable[[DataLossError], None] | None = None,
        times: TimeRange | None = None,
        schema: SchemaVersion | None = None,
        where: Bound | str | None = None,
        counts: FrameCounts | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read ranges that a planner took from ``segments``. Lists no files, checks no bounds.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            slices: In each a segment, the first offset, and the offset to stop before.
            columns: As for ``read``.
            on_loss: Called if records were removed since ``segments`` listed them. If it returns,
                the read continues at the first record that is left. By default the error is raised.
            times: Only records with timestamps in this range, in whatever order they stand.
            schema: The columns of a typed topic as the planner saw them; structs may lack fields.
                By default the published schema.
            where: As for ``read``; a planner passes it bound.
            counts: Counts the frames that are read and skipped.
        """
        arguments.instance("slices", slices, Iterable, "a list of (segment, start, end)")
        arguments.function("on_loss", on_loss)
        with self.reading_once():
            reader = self._reader(topic, partition)
            selection = self.selection(topic, partition, columns, schema, where, times)
        if counts is not None:
            selection = replace(selection, counts=counts)

        def batches() -> Iterator[pa.RecordBatch]:
            for planned in slices:
                segment, start, end = read_arguments.checked_slice(planned)
                pieces = reader.read_slice(segment, start, end, selection)
                while True:
                    try:
                        yield from pieces
                        break
                    except DataLossError as error:
                        if on_loss is None:
                            raise
                        on_loss(error)
                        pieces = reader.read_rest(error.offset or 0, end, selection)

        return record_batches.join_small(batches())

    def may_match(
        self,
        topic: str,
        partition: int,
        segments: Iterable[SegmentInfo],
        where: Bound | str,
        schema: SchemaVersion | None = None,
    ) -> list[bool]:
        """Which segments can have a record that matches, by statistics: a planner skips the rest.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            segments: What ``segments`` returned.
            where: As for ``read_slices``.
            schema: As for ``read_slices``.
        """
        listed = read_arguments.listed_segments(segments)
        reader = self._reader(topic, partition)
        selection = self.selection(topic, partition, (), schema, where)
        return [reader.may_match(segment, selection) for segment in listed]

    def index_entries(
        self, topic: str, partition: int, segment: SegmentInfo
    ) -> tuple[Int64s, Int64s]:
        """Offsets and byte positions of a segment's sparse index: where a planner may split it."""
        arguments.instance("segment", segment, SegmentInfo, "one of what segments() returned")
        return self._reader(topic, partition).index_entries(segment)

    def slice_contents(
        self, topic: str, partition: int, segment: SegmentInfo
    ) -> SegmentContents | None:
        """What the commit of a slice says about its records, without reading them.

        None if it is gone. Only in layout ``objects``, where every segment is a slice.
        """
        with typed_metadata_errors(topic):
            return self._engine.slice_contents(topic, partition, segment)

    def slice_frames(
        self, topic: str, partition: int, segment: SegmentInfo
    ) -> Iterator[StoredFrame]:
        """The frames of a slice, every byte checked. Only in layout ``objects``."""
        arguments.instance("segment", segment, SegmentInfo, "one of what segments() returned")
        with typed_read_errors(topic, partition, segment.path):
            yield from self._engine.slice_frames(topic, partition, segment)

    def read(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        end: int | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read records in offset order, as Arrow batches.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            start: First offset; by default the log start offset.
            end: Offset to stop before; by default, and at most, the high watermark.
            max_records: Maximum number of records.
            max_bytes: Stop after the record that reaches this many bytes of keys and values.
            columns: A list of any of offset, timestamp, key, value, headers, timestamp_type. By
                default all but the last. A typed topic has its own columns, which are the default,
                and _offset, _timestamp, _partition, _topic.
            where: Only records that match a predicate in Spark's SQL, e.g. ``"id > 5"``.

        Raises:
            OffsetOutOfRangeError: ``start`` is below the log start or above the high watermark.
            DamagedLogError: while iterating, after the last valid record.
            DataLossError: while iterating, if retention removes records before they are read.
        """
        read_arguments.check_numbers(start, end, max_records, max_bytes)
        # At once: rows and their columns are published together.
        with self.reading_once(), typed_metadata_errors(topic):
            reader = self._reader(topic, partition)
            published = self._engine.published(topic)
            schema = self._schema(topic, published)
        bounds = self._bounds(reader, topic, partition, published.ends)
        first = bounds.start if start is None else start
        if not bounds.start <= first <= bounds.end:
            raise OffsetOutOfRangeError(
                f"{topic}-{partition}: offset {first} is out of range. The log starts at "
                f"{bounds.start} and its high watermark is {bounds.end}. Start in this range, or "
                "read later.",
                topic=topic,
                partition=partition,
                offset=first,
                start=bounds.start,
                end=bounds.end,
            )
        stop = bounds.end if end is None else min(end, bounds.end)
        selection = self._selection(topic, partition, columns, schema, where)
        chosen = measured = selection.names
        if max_bytes is not None and selection.projection is None:
            measured = tuple(dict.fromkeys((*chosen, "key", "value")))
            selection = replace(selection, names=measured)
        to_the_end = end is None or end > bounds.end
        batches = reader.read(first, stop, selection, to_the_end=to_the_end)
        if max_records is not None or max_bytes is not None:
            typed = selection.projection is not None
            batches = record_batches.limit(batches, max_records, max_bytes, typed=typed)
        batches = record_batches.join_small(batches)
        return batches if measured == chosen else (batch.select(chosen) for batch in batches)

    def scan(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        start: Edge = None,
        end: Edge = None,
        columns: Sequence[str] | None = None,
        where: Bound | str | None = None,
    ) -> Scan:
        """Records of all partitions as one stream of Arrow batches: a snapshot of this instant.

        Args:
            topic: An existing topic.
            partitions: Some of its partitions, by default all.
            start: First offset of every partition, offsets by partition, or a datetime (UTC if it
                has no zone). What is no longer in the log is left out.
            end: What to stop before, given like ``start``. By default, and at most, it is the
                high watermark.
            columns: As for ``read``.
            where: As for ``read``. Frames that cannot match are skipped.

        Raises:
            InvalidPredicateError: ``where`` is not understood, or does not fit the columns.
        """

        def select(schema: SchemaVersion | None, times: TimeRange | None) -> Selection:
            return self.selection(topic, 0, columns, schema, where, times)

        with self.reading_once():
            return scans.make_scan(self._engine, topic, partitions, start, end, select)

    def selection(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str] | None = None,
        schema: SchemaVersion | None = None,
        where: Bound | str | None = None,
        times: TimeRange | None = None,
    ) -> Selection:
        """What a read wants of a partition, checked against the columns of the topic."""
        if schema is None:
            schema = self.schema(topic) if self.topic(topic).is_typed else None
        elif not hasattr(schema, "fields"):
            raise ConfigError(f"schema must be a SchemaVersion or None, got {schema!r}.")
        if times is not None:
            arguments.instance("times", times, TimeRange, "a TimeRange or None")
        return self._selection(topic, partition, columns, schema, where, times)

    def _selection(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str] | None,
        schema: SchemaVersion | None,
        where: Bound | str | None,
        times: TimeRange | None = None,
    ) -> Selection:
        fields = RECORD_FIELDS if schema is None else {f.name: f.arrow for f in schema.fields}
        known = {**SYSTEM_FIELDS, **fields}
        if columns is None:
            chosen = READ_COLUMNS if schema is None else tuple(fields)
        else:
            chosen = read_arguments.column_names(columns, fields, known, schema)
        if isinstance(where, str):
            where = predicates.bind(parser.parse(where), pa.schema(known.values()))
        elif where is not None and not hasattr(where, "may_match"):
            raise ConfigError(f"where must be a predicate in SQL or None, got {where!r}.")
        projection = None
        if schema is not None:
            wanted = {*chosen, *(() if where is None else where.columns)}
            wanted_fields = {f.name: f for f in schema.fields if f.name in wanted}
            projection = Projection(wanted_fields, self._engine.schemas(topic))
        return Selection(chosen, times, where, projection, topic, partition)

    def offset_for_timestamp(
        self, topic: str, partition: int, timestamp: int | datetime
    ) -> int | None:
        """Offset of the first record at or after ``timestamp``; None if there is none.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            timestamp: A datetime (UTC if it has no zone) or integer microseconds since 1970.
        """
        with self.reading_once():
            end = self._high_watermark(topic, partition)
            reader = self._reader(topic, partition)
            return reader.offset_for_timestamp(read_arguments.moment(timestamp), end)

    def end_of_older(self, topic: str, partition: int, timestamp: int | datetime) -> int | None:
        """Offset after the last record older than ``timestamp``; None if there is none.

        Above ``offset_for_timestamp`` where timestamps are not in the order of offsets.
        """
        with self.reading_once():
            end = self._high_watermark(topic, partition)
            reader = self._reader(topic, partition)
            return reader.end_of_older(read_arguments.moment(timestamp), end)

    def time_bounds(
        self, topic: str, partition: int, segments: Iterable[SegmentInfo]
    ) -> list[TimeBounds | None]:
        """Bounds of the timestamps of segments, from indexes; None where only frames can tell."""
        listed = read_arguments.listed_segments(segments)
        reader = self._reader(topic, partition)
        return [reader.time_bounds(segment) for segment in listed]

    def groups(self) -> list[str]:
        """Consumer groups with committed offsets in this store."""
        with typed_metadata_errors():
            return self._engine.groups.names()

    def committed_offsets(self, group: str) -> dict[str, dict[int, int]]:
        """A group's committed offsets by topic and partition; empty for an unknown group.

        A topic that was deleted since has no committed offsets, even if it was created again.
        """
        with typed_metadata_errors():
            found = self._engine.groups.read(group)
        here = set(self.topics())
        return {
            topic: entry["offsets"]
            for topic, entry in found.items()
            if topic in here and entry["uuid"] == str(self.topic(topic).uuid)
        }

    def ledger(self) -> list[LedgerEntry]:
        """The versions that applications committed, by application and topic."""
        with typed_metadata_errors():
            entries = self._engine.ledger()
        return sorted(entries, key=lambda entry: (entry.app, entry.topic))

    def check(self) -> list[Problem]:
        """Read the whole store and report its problems. Changes nothing."""
        return list(self._engine.check())

    def _schema(self, topic: str, published: Published) -> SchemaVersion | None:
        version = published.schema
        return None if version is None else self._engine.schemas(topic).get(version)

    def _bounds(
        self, reader: PartitionReader, topic: str, partition: int, ends: Sequence[int]
    ) -> OffsetRange:
        read_arguments.require_one_of(len(ends), topic, partition)
        return OffsetRange(min(reader.start_offset(), ends[partition]), ends[partition])

    def _high_watermark(self, topic: str, partition: int) -> int:
        ends = self.visible_ends(topic)
        read_arguments.require_one_of(len(ends), topic, partition)
        return ends[partition]

    def _require_partition(self, topic: str, partition: int) -> TopicFile:
        found = self.topic(topic)
        read_arguments.require_one_of(found.partitions, topic, partition)
        return found

    def _reader(self, topic: str, partition: int) -> PartitionReader:
        self._require_partition(topic, partition)
        with typed_metadata_errors(topic):
            return self._engine.reader(topic, partition)
