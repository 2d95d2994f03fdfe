"""Frames of typed topics: their columns by name, their rows, and what their statistics tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from ..errors import BrokenFrameError
from ..schema import statistics
from ..schema.conform import read_column
from ..schema.fields import SchemaVersion, dotted
from ..schema.rows import TypedRows
from ..schema.statistics import ColumnStatistics
from ..types import TIMESTAMP_ABSENT, TimeBounds
from . import typed_body
from .frame import SPARSE, TIMESTAMPS, FrameHeader
from .selection import Projection, Schemas, Selection
from .typed_body import OFFSET_DELTA, TIMESTAMP_ID

ReadBody: TypeAlias = Callable[[int], memoryview]
"""Reads that many bytes from the beginning of a body."""
_SYSTEM = {OFFSET_DELTA: SPARSE, TIMESTAMP_ID: TIMESTAMPS}
# Topics may have columns of any names but those that begin so.
_NAMES = {OFFSET_DELTA: "_offset", TIMESTAMP_ID: "_timestamp"}
_RECORD_NAMES = {OFFSET_DELTA: "offset_delta", TIMESTAMP_ID: "timestamp"}


class TypedFrame(NamedTuple):
    """The rows of a frame and the columns that the log adds; None where the header has them."""

    rows: TypedRows
    offset_delta: pa.Array | None
    timestamp: pa.Array | None


def decode_projected(
    header: FrameHeader, body: pa.Buffer, projection: Projection | None
) -> dict[str, pa.Array]:
    """The columns of a checked frame by name, as they are returned; without those that are null.

    ``_offset``, counted from the frame's start, and ``_timestamp`` are there if the frame stores
    them. Without a projection there are no others, and they are named as in a records topic.

    Raises:
        BrokenFrameError: the body is not what the header and the schema say.
        SchemaMismatchError: a value does not fit the older type that is read.
    """
    if projection is None:
        version = typed_body.read_preamble(memoryview(body)).schema_version
        found = _decode(header, body, SchemaVersion(version, ()), ())
        return {_RECORD_NAMES[number]: array for number, array in found.items()}
    stored = _schema_of(body, projection.schemas)
    columns = {}
    for number, array in _decode(header, body, stored, projection.by_id).items():
        if number in _NAMES:
            columns[_NAMES[number]] = array
        else:
            wanted = projection.by_id[number]
            columns[wanted.name] = read_column(array, stored.by_id[number], wanted)
    return columns


def decode_rows(
    header: FrameHeader,
    rest: bytes | memoryview,
    schemas: Schemas,
    names: Collection[str] | None = None,
) -> TypedFrame:
    """All of a checked frame, in the schema version that it names.

    With ``names`` only these columns are decoded; the others look null.

    Raises:
        BrokenFrameError: the body is not what the header and the schema say.
    """
    body = pa.py_buffer(rest[: header.body_length])
    stored = schemas.get(schema_version(header, rest))
    wanted = [field.id for field in stored.fields if names is None or field.name in names]
    found = _decode(header, body, stored, wanted)
    arrays = [found.get(field.id) for field in stored.fields]
    return TypedFrame(
        TypedRows(stored, arrays, header.records), found.get(OFFSET_DELTA), found.get(TIMESTAMP_ID)
    )


def schema_version(header: FrameHeader, rest: bytes | memoryview) -> int:
    """The schema version that a frame names, from the beginning of what follows its header.

    Raises:
        BrokenFrameError: the frame has records, or its preamble is cut short or fails its checksum.
    """
    if not header.is_typed:
        raise BrokenFrameError("the frame has records, expected rows of a typed topic")
    return typed_body.read_preamble(rest).schema_version


def may_match(selection: Selection, header: FrameHeader, offset: int, read: ReadBody) -> bool:
    """Whether a record of a frame at ``offset`` can match the predicate, by bounds of its columns.

    The bounds of a typed topic's own columns stand in the body. Damaged or missing ones mean yes:
    if the frame is damaged, its checksum tells.
    """
    where = selection.where
    if where is None:
        return True
    times = None
    if header.timestamp_type != TIMESTAMP_ABSENT:
        times = TimeBounds(header.min_timestamp, header.max_timestamp)
    bounds = bounds_of_place(selection, offset, offset + header.span, times)
    if selection.projection is not None and header.is_typed:
        bounds.update(_bounds_of_columns(header, selection.projection, read))
    wanted = {name: bounds.get(name) for name in where.columns}
    return where.may_match(wanted, header.records)


def bounds_of_place(
    selection: Selection, start: int, end: int, times: TimeBounds | None
) -> dict[str, ColumnStatistics | None]:
    """The bounds of the columns that follow from where records are; ``times`` None: unknown."""
    found: dict[str, ColumnStatistics | None] = {
        "_topic": ColumnStatistics(selection.topic, selection.topic, 0),
        "_partition": ColumnStatistics(selection.partition, selection.partition, 0),
        "_offset": ColumnStatistics(start, end - 1, 0),
        "_timestamp": None if times is None else ColumnStatistics(*times, 0),
    }
    if selection.projection is None:
        found.update(offset=found["_offset"], timestamp=found["_timestamp"])
    return found


def _bounds_of_columns(
    header: FrameHeader, projection: Projection, read: ReadBody
) -> Mapping[str, ColumnStatistics | None]:
    try:
        version, found = versioned_statistics(header, read)
    except BrokenFrameError:
        return {}
    return bounds_of_version(projection, version, header.records, found)


def bounds_of_version(
    projection: Projection, version: int, rows: int, found: Mapping[int, ColumnStatistics]
) -> dict[str, ColumnStatistics | None]:
    """Statistics of rows of one schema version by the names that are read; None: unknown."""
    known = projection.schemas.get(version).positions
    all_null = ColumnStatistics(None, None, rows)
    return {
        field.name: found.get(field.id) if field.id in known else all_null
        for field in projection.fields.values()
    }


def read_statistics(header: FrameHeader, read: ReadBody) -> Mapping[int, ColumnStatistics]:
    """The statistics in a body by field id; empty if they are missing or damaged.

    Raises:
        BrokenFrameError: the preamble is cut short or fails its checksum.
    """
    return versioned_statistics(header, read)[1]


def versioned_statistics(
    header: FrameHeader, read: ReadBody
) -> tuple[int, Mapping[int, ColumnStatistics]]:
    """Schema version and statistics of a body, by field id; none if they are missing or damaged.

    Raises:
        BrokenFrameError: the preamble is cut short or fails its checksum.
    """
    preamble = typed_body.read_preamble(read(min(typed_body.PREAMBLE_BYTES, header.body_length)))
    length = typed_body.PREAMBLE_BYTES + preamble.statistics_length
    if length > header.body_length:
        return preamble.schema_version, {}
    text = typed_body.read_statistics(preamble, read(length))
    found = None if text is None else statistics.from_json(text)
    return preamble.schema_version, found or {}


def wrong_statistics(header: FrameHeader, rest: bytes | memoryview, rows: TypedRows) -> str | None:
    """What is wrong with the statistics of a frame that was decoded; None if they are true.

    Missing ones are not wrong.
    """
    preamble = typed_body.read_preamble(rest)
    if not preamble.statistics_length:
        return None
    text = typed_body.read_statistics(preamble, rest[: header.body_length])
    known = None if text is None else statistics.from_json(text)
    if known is None:
        return "the statistics of the frame cannot be read"
    for field, array in zip(rows.schema.fields, rows.arrays, strict=True):
        found = known.pop(field.id, None)
        if found is None:
            continue
        if array is None:
            is_true = found.nulls == header.records
        else:
            is_true = statistics.are_true(found, array)
        if not is_true:
            return f"the statistics of column {dotted((field.name,))} do not hold for its values"
    return f"the frame has statistics of unknown columns: {sorted(known)}" if known else None


def _schema_of(body: pa.Buffer, schemas: Schemas) -> SchemaVersion:
    return schemas.get(typed_body.read_preamble(memoryview(body)).schema_version)


def _decode(
    header: FrameHeader, body: pa.Buffer, stored: SchemaVersion, wanted: Collection[int]
) -> dict[int, pa.Array]:
    system = [number for number, bit in _SYSTEM.items() if header.columns & bit]
    found = typed_body.decode_columns(
        body,
        records=header.records,
        raw_length=header.raw_length,
        schema=stored,
        wanted={*wanted, *system},
    )
    for number in system:
        if number not in found:
            raise BrokenFrameError(f"the frame lacks {_NAMES[number]}, which its header names")
    for field in stored.fields:
        if not field.nullable and field.id in wanted and field.id not in found:
            raise BrokenFrameError(f"the frame lacks column {field.name}, which is never null")
    return found
