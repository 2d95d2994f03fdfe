"""Rows of a typed topic as text: a JSON object for programs, a line for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...schema.fields import SchemaVersion, dotted, from_arrow
from ...schema.json_writer import json_rows
from ...schema.rows import TypedRows
from .formatting import as_iso, printable

PLACE = ("_offset", "_timestamp")
"""What a batch has beside the columns of the topic, to be shown."""


def row_objects(topic: str, partition: int, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as the objects that ``cat --json`` prints."""
    places = zip(batch["_offset"].to_pylist(), batch["_timestamp"].to_pylist(), strict=True)
    return [
        {
            "_topic": topic,
            "_partition": partition,
            "_offset": offset,
            "_timestamp": as_iso(stamp),
            **row,
        }
        for (offset, stamp), row in zip(places, _rows(batch), strict=True)
    ]


def row_lines(partition: int, batch: pa.RecordBatch) -> list[str]:
    """The rows as lines for people: partition and offset, time, then each column and its value."""
    places = zip(batch["_offset"].to_pylist(), batch["_timestamp"].to_pylist(), strict=True)
    return [
        "  ".join([f"{partition}:{offset}", as_iso(stamp), *map(_pair, row.items())])
        for (offset, stamp), row in zip(places, _rows(batch), strict=True)
    ]


def json_line(found: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(found, ensure_ascii=False)


def _pair(item: tuple[str, Any]) -> str:
    name, value = item
    return f"{dotted((name,))}={printable(json_line(value).encode())}"


def _rows(batch: pa.RecordBatch) -> Sequence[dict[str, Any]]:
    own = batch.drop_columns(list(PLACE))
    # The batch says which columns it has: some may have been added since the command began.
    schema = SchemaVersion(1, from_arrow(own.schema))
    return json_rows(TypedRows(schema, own.columns, batch.num_rows))
