"""Bodies of typed frames with columns of every kind, for the fuzzer."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa

from storage_core.config import CODECS
from storage_core.format.typed_body import PREAMBLE_BYTES, TIMESTAMP_ID, encode_body
from storage_core.io.checksum import crc32c
from storage_core.schema.fields import SchemaVersion, from_arrow
from storage_core.schema.rows import TypedRows

ROWS = 60
COUNTS = (ROWS, 3)
_COLUMNS = {
    "ids": pa.array(range(10**12, 10**12 + ROWS)),
    "amounts": pa.array([None if n % 7 == 0 else n / 100 for n in range(ROWS)]),
    "flags": pa.array([n % 3 == 0 for n in range(ROWS)]),
    "money": pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(20, 0)),
    "words": pa.array(["", "on", "off"] * (ROWS // 3)),
    "texts": pa.array([None if n % 5 == 0 else f"{n * n:x}" for n in range(ROWS)]),
    "lists": pa.array([[n] * (n % 3) for n in range(ROWS)], pa.list_(pa.int16())),
    "maps": pa.array([[(f"k{n % 4}", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "structs": pa.array([{"a": n, "b": [{"c": None}]} for n in range(ROWS)]),
    "nothings": pa.array([[None] for n in range(ROWS)], pa.list_(pa.null())),
}
SCHEMA = SchemaVersion(1, from_arrow(pa.RecordBatch.from_pydict(_COLUMNS).schema))


def bodies() -> Iterator[bytes]:
    """Bodies of few and of many rows, in every compression."""
    times = pa.array(range(ROWS), pa.timestamp("us", tz="UTC"))
    for compression in CODECS:
        for count in COUNTS:
            arrays = [column.slice(ROWS - count) for column in _COLUMNS.values()]
            body = encode_body(
                TypedRows(SCHEMA, arrays, count),
                {TIMESTAMP_ID: times.slice(ROWS - count)},
                compression=compression,
                level=1,
                statistics=b'{"1":["i",0,false,1,2]}',
            )
            yield b"".join(body.pieces)


def with_right_checksum(body: bytes) -> bytes:
    """The body with a preamble that passes its checksum."""
    head = body[: PREAMBLE_BYTES - 4]
    return head + struct.pack(">I", crc32c(head)) + body[PREAMBLE_BYTES:]
