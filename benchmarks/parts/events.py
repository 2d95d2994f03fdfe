"""Rows of a typed topic: events of users, about 80 bytes each in memory."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

_USERS, _WORDS = 100_000, 16
_START = 1_790_000_000_000_000
_COUNTRIES = ["at", "br", "ch", "de", "es", "fr", "gb", "in", "it", "jp", "ke", "us"]
_DEVICES = ["phone", "tablet", "laptop", "desktop", "watch"]
DDL = (
    "id BIGINT, user STRING, ts TIMESTAMP, amount DOUBLE, tags ARRAY<STRING>, "
    "ctx STRUCT<country: STRING, device: STRING, clicks: INT>"
)
TWO_COLUMNS = "user STRING, amount DOUBLE"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("user", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("amount", pa.float64()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field(
            "ctx",
            pa.struct([("country", pa.string()), ("device", pa.string()), ("clicks", pa.int32())]),
        ),
    ]
)


@lru_cache(maxsize=4)
def events(rows: int, first: int = 0) -> pa.RecordBatch:
    """Events with the ids from ``first`` on: always the same for the same arguments."""
    chance = np.random.default_rng(first)
    users = pa.array([f"user-{number:05}" for number in range(_USERS)])
    words = pa.array([f"tag{number}" for number in range(_WORDS)])
    counts = chance.integers(0, 4, rows)
    edges = np.zeros(rows + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    tags = pa.ListArray.from_arrays(
        pa.array(edges), words.take(pa.array(chance.integers(0, _WORDS, int(edges[-1]))))
    )
    context = pa.StructArray.from_arrays(
        [
            pa.array(_COUNTRIES).take(pa.array(chance.integers(0, len(_COUNTRIES), rows))),
            pa.array(_DEVICES).take(pa.array(chance.integers(0, len(_DEVICES), rows))),
            pa.array(chance.integers(0, 100, rows).astype(np.int32)),
        ],
        fields=list(SCHEMA.field("ctx").type),
    )
    times = _START + first * 1000 + np.cumsum(chance.integers(0, 2000, rows))
    columns = [
        pa.array(np.arange(first, first + rows)),
        users.take(pa.array(chance.integers(0, _USERS, rows))),
        pa.array(times).cast(SCHEMA.field("ts").type),
        pa.array(chance.integers(0, 100_000, rows) / 100),
        tags.cast(SCHEMA.field("tags").type),
        context,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def projected(schema: StructType, rows: int) -> pa.RecordBatch:
    """The columns of a Spark schema, from the first events."""
    return events(rows).select(schema.fieldNames())
