"""``dump``: the frames and index entries of a topic's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

from ...checks.inspect import ColumnFacts, indexes, typed_columns
from ...config import CODECS
from ...errors import BrokenFrameError, PartitionNotFoundError, StorageError
from ...format.file_names import segments_directory
from ...format.frame import HEADERS_BIT, KEY, SPARSE, TIMESTAMPS, VALUE
from ...format.frame_scan import StoredFrame, segment_frames
from ...format.selection import Schemas
from ...io.io_errors import typed_read_errors
from ...layouts.registry import LAYOUTS
from ...metadata.schema_files import RegisteredSchema, TopicSchemas
from ...schema.fields import Field, SchemaVersion, dotted
from ...schema.json_writer import json_values
from ...segments.listing import list_segments, log_path
from ...store.store import Store
from ...types import SegmentInfo
from ..common import arguments, output
from ..common.formatting import iso, number, printable, size
from ..common.record_text import record_object
from ..common.row_text import PLACE, json_line, row_objects

_COLUMNS = {
    KEY: "key", VALUE: "value", HEADERS_BIT: "headers", TIMESTAMPS: "timestamp", SPARSE: "offsets",
}  # fmt: skip
Entry = dict[str, Any]


@click.command()
@arguments.with_store
@arguments.topic
@arguments.partition
@click.option(
    "--segment",
    type=click.IntRange(min=0),
    metavar="BASE",
    help="Only the segment with this base offset.",
)
@click.option("--records", is_flag=True, help="Show the records too.")
@click.option("--no-index", is_flag=True, help="Do not show index entries.")
@arguments.isolation
@arguments.as_json
@click.pass_context
def dump(
    ctx: click.Context,
    store: Store,
    topic: str,
    partition: int | None,
    segment: int | None,
    records: bool,
    no_index: bool,
    as_json: bool,
) -> None:
    """Show the frames and index entries of TOPIC's files.

    Verifies the checksum of every frame, also past the high watermark. In layout objects segments
    are slices, and their index entries are not shown. Broker layouts have no frames; their records
    are shown. Exit code 1 if there is damage.
    """
    found, frames = 0, LAYOUTS[store.layout].frames
    for each in _partitions(store, topic, partition):
        if frames == "files":
            entries = _native(store, topic, each, segment, with_records=records)
        elif frames == "slices":
            entries = _objects(store, topic, each, segment, with_records=records)
        else:
            entries = _broker(store, topic, each, segment)
        for entry in entries:
            if no_index and entry["kind"] == "index_entry":
                continue
            found += entry["kind"] == "problem"
            click.echo(json.dumps(entry, ensure_ascii=False) if as_json else _line(entry))
    if found:
        ctx.exit(output.PROBLEMS)


def _partitions(store: Store, topic: str, partition: int | None) -> list[int]:
    """As ``chosen_partitions``, but without reading the high watermark, which may be lost."""
    count = store.topic(topic).partitions
    if partition is None:
        return list(range(count))
    if partition >= count:
        raise PartitionNotFoundError(
            f"topic {topic!r} has no partition {partition}; it has partitions 0 to {count - 1}.",
            topic=topic,
        )
    return [partition]


def _native(
    store: Store, topic: str, partition: int, segment: int | None, *, with_records: bool
) -> Iterator[Entry]:
    directory = segments_directory(topic, partition)
    try:
        high_watermark: int | None = store.visible_ends(topic)[partition]
    except StorageError as error:
        high_watermark = None
        yield {"kind": "problem", "code": error.code, "message": str(error)}
    file = store.topic(topic)
    schemas = TopicSchemas(store.vfs, topic, file.uuid) if file.is_typed else None
    listing = list_segments(store.vfs, directory)
    for base in listing.bases:
        if segment not in (None, base):
            continue
        path = log_path(directory, base)
        stat = store.vfs.stat(path)
        closed = not listing.is_last(base)
        yield {
            "kind": "segment", "path": path, "base": base, "closed": closed,
            "bytes": 0 if stat is None else stat.size,
        }  # fmt: skip
        try:
            with typed_read_errors(topic, partition, path):
                for frame in segment_frames(store.vfs, path, base):
                    yield from _frame(frame, high_watermark, schemas)
                    if with_records and high_watermark is not None:
                        yield from _records(store, topic, partition, frame, high_watermark)
        except StorageError as error:
            yield _broken(error, high_watermark, closed)
        yield from _index_entries(store, path, base)


class _Versions:
    """The schema versions of a typed topic."""

    def __init__(self, store: Store, topic: str) -> None:
        self._found = store.schema_versions(topic)

    def get(self, version: int) -> SchemaVersion:
        return self._found[version - 1].schema

    def all(self) -> list[RegisteredSchema]:
        return self._found


def _objects(
    store: Store, topic: str, partition: int, segment: int | None, *, with_records: bool
) -> Iterator[Entry]:
    high_watermark = store.visible_ends(topic)[partition]
    schemas = _Versions(store, topic) if store.topic(topic).is_typed else None
    for found in store.segments(topic, partition):
        if segment not in (None, found.base):
            continue
        yield _segment_entry(found)
        try:
            for frame in store.slice_frames(topic, partition, found):
                yield from _frame(frame, high_watermark, schemas)
                if with_records:
                    yield from _records(store, topic, partition, frame, high_watermark)
        except StorageError as error:
            yield _broken(error, high_watermark, closed=True)
        yield from _planner_entries(store, topic, partition, found)


def _segment_entry(found: SegmentInfo) -> Entry:
    return {
        "kind": "segment", "path": found.path, "base": found.base, "closed": found.sealed,
        "bytes": found.size,
    }  # fmt: skip


def _frame(
    frame: StoredFrame, high_watermark: int | None, schemas: Schemas | None
) -> Iterator[Entry]:
    header = frame.header
    version, columns = None, list[ColumnFacts]()
    if header.is_typed and schemas is not None:
        version, columns = typed_columns(frame, schemas)
    yield {
        "kind": "frame",
        "position": frame.position,
        "length": header.length,
        "offset": frame.offset,
        "span": header.span,
        "records": header.records,
        **({} if version is None else {"schema_version": version}),
        "columns": [
            *(name for bit, name in _COLUMNS.items() if header.columns & bit),
            *(column.field.name for column in columns if column.storage is not None),
        ],
        "compression": CODECS[header.codec],
        "body_bytes": header.body_length,
        "raw_bytes": header.raw_length,
        "timestamp_type": "append" if header.timestamp_type else "supplied",
        "min_timestamp": iso(header.min_timestamp) if header.records else None,
        "max_timestamp": iso(header.max_timestamp) if header.records else None,
        "durable_upto": header.recovery_point,
        "visible": None if high_watermark is None else frame.offset + header.span <= high_watermark,
    }
    yield from map(_column, columns)


def _column(column: ColumnFacts) -> Entry:
    field, storage, known = column
    entry: Entry = {"kind": "column", "name": field.name, "field_id": field.id}
    if storage is not None:
        entry["encodings"] = list(dict.fromkeys(storage.encodings))
        entry["compression"] = list(dict.fromkeys(storage.codecs))
        entry["body_bytes"], entry["raw_bytes"] = storage.stored, storage.raw
    if known is not None:
        entry["nulls"] = known.nulls
        entry["min"], entry["max"] = (_bound(each, field) for each in known[:2])
        if known.has_nan:
            entry["nan"] = True
    return entry


def _bound(value: Any, field: Field) -> Any:
    try:
        return json_values(pa.array([value], field.type), field)[0]
    except (pa.ArrowException, ValueError, OverflowError):  # statistics are hints; these are wrong
        return None


def _records(
    store: Store, topic: str, partition: int, frame: StoredFrame, high_watermark: int
) -> Iterator[Entry]:
    end = min(frame.offset + frame.header.span, high_watermark)
    if frame.offset < end:
        if frame.header.is_typed:
            schema = store.schema(topic)
            assert schema is not None
            columns = [*PLACE, *schema.arrow.names]
            for batch in store.read(topic, partition, frame.offset, end, columns=columns):
                for row in row_objects(topic, partition, batch):
                    yield {"kind": "row", "row": row}
            return
        for batch in store.read(topic, partition, frame.offset, end):
            for row in batch.to_pylist():
                yield {"kind": "record", **record_object(topic, partition, row)}


def _broken(error: StorageError, high_watermark: int | None, closed: bool) -> Entry:
    """A torn tail, or damage: no reader has seen bytes past the high watermark."""
    place = {"position": error.position, "offset": error.offset}
    broken = isinstance(error.__cause__, BrokenFrameError)
    if (
        broken
        and not closed
        and high_watermark is not None
        and (error.offset or 0) >= high_watermark
    ):
        return {"kind": "torn_tail", **place, "message": str(error.__cause__)}
    return {"kind": "problem", "code": error.code, **place, "message": str(error)}


def _index_entries(store: Store, path: str, base: int) -> Iterator[Entry]:
    for index in indexes(store.vfs, path):
        yield {
            "kind": "index", "index": index.kind, "base": base, "state": index.state,
            "entries": len(index.first),
        }  # fmt: skip
        for first, second in zip(index.first.tolist(), index.second.tolist(), strict=True):
            if index.kind == "offset":
                fields: Entry = {"offset": first, "position": second}
            else:
                fields = {"timestamp": iso(first) if first > -(1 << 62) else None, "offset": second}
            yield {"kind": "index_entry", "index": index.kind, **fields}


def _broker(store: Store, topic: str, partition: int, segment: int | None) -> Iterator[Entry]:
    try:
        for found in store.segments(topic, partition, by_names=True):
            if segment not in (None, found.base):
                continue
            yield _segment_entry(found)
            for batch in store.read(topic, partition, found.base, found.end):
                for row in batch.to_pylist():
                    yield {"kind": "record", **record_object(topic, partition, row)}
            yield from _planner_entries(store, topic, partition, found)
        for _ in store.read(topic, partition, store.offsets(topic, partition).end):
            pass  # raises if bytes at the end of the log are not records
    except StorageError as error:
        yield {
            "kind": "problem", "code": error.code, "position": error.position,
            "offset": error.offset, "message": str(error),
        }  # fmt: skip


def _planner_entries(
    store: Store, topic: str, partition: int, found: SegmentInfo
) -> Iterator[Entry]:
    offsets, positions = store.index_entries(topic, partition, found)
    for offset, position in zip(offsets.tolist(), positions.tolist(), strict=True):
        yield {"kind": "index_entry", "index": "offset", "offset": offset, "position": position}


def _line(entry: Entry) -> str:
    kind = entry["kind"]
    if kind == "segment":
        state = "sealed" if entry["closed"] else "active"
        return f"{entry['path']}  base {entry['base']}, {state}, {size(entry['bytes'])}"
    if kind == "problem":
        return f"  PROBLEM [{entry['code']}] {entry['message']}"
    if kind == "torn_tail":
        return f"  torn tail at byte {entry['position']}: {entry['message']}. No record is lost."
    if kind == "index":
        return f"  {entry['index']} index, {entry['state']}, {number(entry['entries'])} entries"
    if kind == "index_entry":
        fields = [f"{name} {value}" for name, value in entry.items() if name not in _SHOWN]
        return f"    {' → '.join(fields)}"
    if kind == "record":
        return f"    {_record_text(entry)}"
    if kind == "row":
        return f"    {_record_text(entry['row'])}"
    if kind == "column":
        return f"    column {_column_text(entry)}"
    fields = [f"{name}={_short(value)}" for name, value in entry.items() if name != "kind"]
    return f"  frame {' '.join(fields)}"


_SHOWN = ("kind", "index")


def _short(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _column_text(entry: Entry) -> str:
    if "encodings" not in entry:
        return f"{dotted((entry['name'],))} field_id={entry['field_id']} null in all rows"
    rest = [
        f"{name}={_short(value) if isinstance(value, list) else json_line(value)}"
        for name, value in entry.items()
        if name not in ("kind", "name")
    ]
    return printable(f"{dotted((entry['name'],))} {' '.join(rest)}".encode())


def _record_text(entry: Entry) -> str:
    shown = {
        name: value for name, value in entry.items() if name not in ("kind", "topic", "_topic")
    }
    return json.dumps(shown, ensure_ascii=False)
