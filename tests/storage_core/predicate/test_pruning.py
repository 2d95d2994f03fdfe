"""Which frames a predicate leaves out, by the statistics of their columns."""

from __future__ import annotations

import pickle
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from storage_core.predicate.binder import bind
from storage_core.predicate.parser import parse
from storage_core.schema.statistics import ColumnStatistics

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("other", pa.int32()),
        ("amount", pa.float64()),
        ("user", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ctx", pa.struct([("a", pa.int32())])),
    ]
)
ROWS = 10
STATISTICS = {
    "id": ColumnStatistics(10, 20, 0),
    "other": ColumnStatistics(20, 30, 2),
    "amount": ColumnStatistics(-1.5, 2.5, 0, True),
    "user": ColumnStatistics("b", None, 1),
    "price": ColumnStatistics(Decimal("1.00"), Decimal("1.00"), 0),
    "ok": ColumnStatistics(None, None, ROWS),
    "at": ColumnStatistics(0, 1_000_000, 0),
    "ctx": None,
}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("id = 9", False), ("id = 10", True), ("id < 10", False), ("id <= 10", True),
        ("id > 20", False), ("id >= 20", True), ("id = 15.5", False), ("id > 19.5", True),
        ("id > 20.5e0", False), ("id between 1 and 9", False), ("id between 9 and 10", True),
        ("id in (1, 9, 21)", False), ("id in (1, 12)", True), ("id in (1, null)", False),
        ("id not in (1, null)", False), ("id not in (1, 12)", True), ("id is null", False),
        ("id != 5", True), ("not id >= 10", False), ("not (id > 5 and id < 30)", False),
        ("id < 5 or id > 18", True), ("id < 5 or id > 28", False),
        ("id = 12 and id is null", False),
        ("other is null", True), ("other <=> null", True), ("not other > 5", False),
        ("other <=> 12", False), ("id > other", False), ("id >= other", True), ("id = other", True),
        ("id <=> other", True), ("other < id", False), ("not id <= other", False),
        ("amount > 2.5", True), ("amount = 'NaN'", True), ("amount < -2", False),
        ("amount between 3 and 4", True),
        ("amount between -4 and -3", False),
        ("amount in (5, 6)", False), ("amount in ('NaN')", True),
        ("not amount > -2", False), ("user < 'b'", False), ("user > 'zzzz'", True),
        ("user = 'a'", False), ("user in ('a')", False), ("user in ('a', 'c')", True),
        ("price = 1", True), ("price != 1", False), ("price not in (1.0, 2)", False),
        ("price > 0.99", True), ("price > 1.00e0", False), ("ok", False), ("not ok", False),
        ("ok is null", True), ("ok is not null", False), ("ok <=> true", False),
        ("at >= '1970-01-01 00:00:02'", False), ("at < DATE'1970-01-01'", False),
        ("at >= '1970-01-01'", True), ("ctx.a = 5", True), ("ctx is null", True), ("true", True),
        ("false", False), ("null", False), ("false or id = 12", True), ("null or id = 2", False),
    ],
)  # fmt: skip
def test_a_frame_is_left_out_if_no_row_can_match(text: str, kept: bool) -> None:
    bound = bind(parse(text), SCHEMA)
    assert bound.may_match(STATISTICS, ROWS) is kept


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        ColumnStatistics(10, 20, -1),
        ColumnStatistics(10, 20, ROWS + 1),
        ColumnStatistics(10, 20, ROWS),
        ColumnStatistics(10, 20, 0, True),
        ColumnStatistics(20, 10, 0),
        ColumnStatistics(10, None, 0),
        ColumnStatistics(None, 20, ROWS),
        ColumnStatistics(None, None, ROWS - 1),
        ColumnStatistics("a", "b", 0),
        ColumnStatistics(10.0, 20.0, 0),
        ColumnStatistics(10, Decimal(20), 0),
        ColumnStatistics(True, True, 0),
    ],
)
def test_statistics_that_contradict_themselves_count_as_unknown(
    damaged: ColumnStatistics | None,
) -> None:
    for text in ("id = 5", "id != 5", "id is null", "id is not null", "id in (5)", "id = other"):
        bound = bind(parse(text), SCHEMA)
        assert bound.may_match({"id": damaged, "other": ColumnStatistics(1, 3, 0)}, ROWS)


def test_a_task_filters_without_the_parser_and_without_pandas() -> None:
    """A task's process is new, and it waits for every module."""
    text = "id > 1.5 or user in ('a', 'x') or user is null and not id <=> null or false"
    schema = pa.schema([("id", pa.int64()), ("user", pa.string())])
    state = pickle.dumps(bind(parse(text), schema))
    program = f"""
import pickle, sys
import pyarrow as pa
bound = pickle.loads({state!r})
ids = pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(b"".join(
    number.to_bytes(8, "little") for number in (1, 2, 3)))])
mask = bound.mask({{"id": ids}}, 3)
assert mask.to_pylist() == [True, True, True], mask
assert bound.may_match({{}}, 3)
found = sorted(name for name in sys.modules if name == "pandas" or name.startswith(
    "storage_core.predicate"))
print(" ".join(found))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [
        "storage_core.predicate",
        "storage_core.predicate.bound",
        "storage_core.predicate.ranges",
    ]
