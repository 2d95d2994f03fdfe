"""Rows of a typed topic: slices, picks and joins against plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from storage_core.schema.fields import SchemaVersion, from_arrow
from storage_core.schema.rows import TypedRows, concat, row_bounds

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ok", pa.bool_()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("ctx", pa.struct([("a", pa.int32()), ("b", pa.binary())])),
        ("m", pa.map_(pa.string(), pa.list_(pa.int8()))),
        ("none", pa.null()),
        ("empty", pa.float64()),
    ]
)
ROWS: list[dict[str, object]] = [
    {"id": 1, "ok": True, "name": "ab", "tags": ["x", None, "yz"], "ctx": {"a": 1, "b": b"123"}},
    {"id": None, "tags": [], "m": [("k", [1, 2]), ("kk", None)]},
    {"id": 3, "ok": False, "name": "", "tags": None, "ctx": None, "m": []},
    {"id": 4, "name": "x" * 10, "ctx": {"a": None, "b": None}, "m": [("q", [])]},
]


def typed(rows: list[dict[str, object]]) -> TypedRows:
    version = SchemaVersion(1, from_arrow(SCHEMA))
    batch = pa.RecordBatch.from_pylist(rows, schema=version.arrow)
    arrays = [None if c.null_count == len(c) else c for c in batch.columns]
    return TypedRows(version, arrays, len(rows))


def pylist(rows: TypedRows) -> list[dict[str, object]]:
    batch = rows.to_batch()
    batch.validate(full=True)
    assert batch.num_rows == rows.count
    return [dict(row) for row in batch.to_pylist()]


def test_slices_picks_and_joins_are_those_of_the_rows() -> None:
    rows, plain = typed(ROWS), pylist(typed(ROWS))
    assert rows.arrays[7] is None
    assert pylist(rows.slice(1, 3)) == plain[1:3]
    assert pylist(rows.slice(1, 4).slice(1, 2)) == plain[2:3]
    assert pylist(rows.slice(2, 2)) == []
    assert rows.slice(0, 4) is rows
    assert pylist(rows.slice(1, 4).take(np.array([2, 0, 0]))) == [plain[3], plain[1], plain[1]]
    joined = concat([rows.slice(2, 4), rows.slice(0, 0), typed(ROWS[:1])])
    assert pylist(joined) == [*plain[2:], plain[0]]
    assert joined.arrays[7] is None


def test_bounds_count_every_value_of_a_row() -> None:
    rows = typed(ROWS)
    # 9 of id and ok, then each text, list or map 4 and its bytes.
    fixed = 8 + 1 + 4 + 4 + 4 + 4 + 4
    sizes = [
        fixed + 2 + (3 * 4 + 3) + 3,
        fixed + (2 * 4 + 3) + (2 * 4 + 2),
        fixed,
        fixed + 10 + (4 + 1) + 4,
    ]
    assert np.diff(rows.bounds).tolist() == sizes
    assert rows.size == sum(sizes)
    assert np.diff(typed(ROWS).slice(1, 4).bounds).tolist() == sizes[1:]
    assert np.diff(rows.slice(1, 4).bounds).tolist() == sizes[1:]
    assert np.diff(rows.take(np.array([3, 0])).bounds).tolist() == [sizes[3], sizes[0]]
    assert np.diff(concat([rows, rows.slice(3, 4)]).bounds).tolist() == [*sizes, sizes[3]]
    assert np.diff(concat([typed(ROWS), rows]).bounds).tolist() == sizes * 2


def test_rows_without_columns_are_still_counted() -> None:
    rows = TypedRows(SchemaVersion(1, ()), (), 3)
    assert rows.bounds.tolist() == [0, 0, 0, 0]
    assert rows.to_batch().num_rows == 3
    assert rows.slice(1, 3).count == 2


def test_rows_of_two_schemas_are_not_joined() -> None:
    one, two = (SchemaVersion(number, from_arrow(SCHEMA)) for number in (1, 2))
    empty = [None] * len(SCHEMA)
    with pytest.raises(ValueError, match=r"versions \[1, 2\]"):
        concat([TypedRows(one, empty, 1), TypedRows(two, empty, 1)])


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_two_billion_bytes_and_more_are_counted_right(columns: int) -> None:
    """Only the offsets are looked at: nothing touches the zeros, so they take no memory."""
    size = 2**31 - 1 - 8
    offsets = pa.py_buffer(np.array([0, 3, size], dtype=np.int32))
    zeros = pa.py_buffer(np.zeros(size, dtype=np.uint8))
    column = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, zeros])
    found = row_bounds([column] * columns, 2)
    assert found.tolist() == [0, (3 + 4) * columns, (size + 8) * columns]
