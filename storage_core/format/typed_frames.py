"""Frames of typed topics: their columns by name, their rows, and what their statistics tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import pyarrow as pa

from ..errors import BrokenFrameError
from ..io.byte_source import Source
from ..schema import statistics
from ..schema.conform import read_up
from ..schema.fields import SchemaVersion
from ..schema.rows import TypedRows
from ..schema.statistics import ColumnStatistics
from . import typed_body
from .frame import SPARSE, TIMESTAMPS, FrameHeader
from .selection import Projection, Schemas, Selection
from .typed_body import OFFSET_DELTA, TIMESTAMP_ID

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
            columns[wanted.name] = read_up(array, stored.by_id[number], wanted)
    return columns


def decode_rows(header: FrameHeader, rest: bytes | memoryview, schemas: Schemas) -> TypedFrame:
    """All of a checked frame, in the schema version that it names.

    Raises:
        BrokenFrameError: the body is not what the header and the schema say.
    """
    body = pa.py_buffer(rest[: header.body_length])
    stored = _schema_of(body, schemas)
    found = _decode(header, body, stored, stored.positions)
    arrays = [found.get(field.id) for field in stored.fields]
    return TypedFrame(
        TypedRows(stored, arrays, header.records), found.get(OFFSET_DELTA), found.get(TIMESTAMP_ID)
    )


def schema_version(rest: bytes | memoryview) -> int:
    """The schema version that a frame names, from the beginning of what follows its header.

    Raises:
        BrokenFrameError: the preamble is cut short or fails its checksum.
    """
    return typed_body.read_preamble(rest).schema_version


def may_match(source: Source, position: int, header: FrameHeader, selection: Selection) -> bool:
    """Whether a row of a frame can match the predicate, by the statistics at ``position``.

    Damaged statistics mean that the frame is read: then its checksum tells.
    """
    where, projection = selection.where, selection.projection
    assert where is not None
    assert projection is not None
    bounds = {
        "_topic": ColumnStatistics(selection.topic, selection.topic, 0),
        "_partition": ColumnStatistics(selection.partition, selection.partition, 0),
        "_timestamp": ColumnStatistics(header.min_timestamp, header.max_timestamp, 0),
    }
    try:
        stored = read_statistics(source, position, header)
    except BrokenFrameError:
        stored = {}
    wanted: dict[str, ColumnStatistics | None] = {}
    for name in where.columns:
        field = projection.fields.get(name)
        wanted[name] = bounds.get(name) if field is None else stored.get(field.id)
    return where.may_match(wanted, header.records)


def read_statistics(
    source: Source, position: int, header: FrameHeader
) -> Mapping[int, ColumnStatistics]:
    """The statistics of the body at ``position``, by field id; empty if there are none.

    Raises:
        BrokenFrameError: the preamble is cut short or fails its checksum.
    """
    first = min(typed_body.PREAMBLE_BYTES, header.body_length)
    preamble = typed_body.read_preamble(source.read(position, first))
    length = typed_body.PREAMBLE_BYTES + preamble.statistics_length
    if length > header.body_length:
        return {}
    text = typed_body.read_statistics(preamble, source.read(position, length))
    return (None if text is None else statistics.from_json(text)) or {}


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
