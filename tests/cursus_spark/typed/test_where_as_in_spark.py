"""A ``where`` finds the rows that ``filter`` of Spark finds, for every operator and type."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from itertools import islice, pairwise, product

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from storage_core.predicate.binder import bind
from storage_core.predicate.parser import parse
from tests.support.sizes import examples
from tests.support.typed import random_predicates
from tests.support.typed.random_predicates import Predicate, Row, arrays_of

UTC = datetime.UTC
NAN = math.nan
COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "tiny": (pa.int8(), [-128, 0, 5, 127]),
    "number": (pa.int32(), [-(2**31), 0, 5, 2**31 - 1]),
    "big": (pa.int64(), [-(2**63), 2**53, 2**53 + 1, 5, 2**63 - 1, 0]),
    "real": (pa.float32(), [0.0, -0.0, 0.1, NAN, math.inf, -math.inf, 5.0, 1.5]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, NAN, math.inf, -math.inf, 5.0, 2.0**53, 2.0**63]),
    "price": (
        pa.decimal128(9, 2),
        [Decimal("0.00"), Decimal("0.10"), Decimal("-5.00"), Decimal(5)],
    ),
    "exact": (pa.decimal128(38, 10), [Decimal("0.1"), Decimal(5), Decimal(2**53 + 1), Decimal(0)]),
    "flag": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "a", "A", "b", "é", "😀", "\uffff", "it's", "a\0"]),
    "raw": (pa.binary(), [b"", b"a", b"b", b"\xff", b"\0"]),
    "day": (
        pa.date32(),
        [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2026, 11, 1)],
    ),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [
            datetime.datetime(1, 1, 1, tzinfo=UTC),
            datetime.datetime(2026, 11, 1, tzinfo=UTC),
            datetime.datetime(2026, 11, 1, 12, 30, 0, 1, tzinfo=UTC),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
    ),
    "local": (
        pa.timestamp("us"),
        [datetime.datetime(1969, 12, 31, 23), datetime.datetime(2026, 11, 1, 12, 30)],
    ),
    "took": (
        pa.duration("us"),
        [datetime.timedelta(0), datetime.timedelta(days=1, microseconds=1), -datetime.timedelta(1)],
    ),
}
NUMBERS = (
    "0 5 -5 127 128 9007199254740993 9223372036854775807 9223372036854775808 0.1 5.00 -0.5 4.99 0D "
    "-0.0D 0.1D 0.1F 5e0 9007199254740992D 9223372036854775807D 1e300"
).split()
BEYOND = "9223372036854775808"  # of 64 bits
INTEGERS = ["tiny", "number", "big"]
LITERALS = {
    **{name: [each for each in NUMBERS if each != BEYOND] for name in INTEGERS},
    "price": NUMBERS,
    "exact": NUMBERS,
    **{name: [*NUMBERS, "'NaN'", "'Infinity'", "'-Infinity'"] for name in ("real", "double")},
    "flag": ["true", "false"],
    "text": ["''", "'a'", "'é'", r"'it\'s'", "'it''s'", '"b"', "'￿'"],
    "raw": ["X''", "X'61'", "X'FF'", "'a'"],
    "day": ["DATE'1969-12-31'", "'2026-11-01'", "TIMESTAMP'2026-11-01 00:00:01'"],
    "at": [
        "DATE'2026-11-01'", "'2026-11-01'", "'2026-11-01 12:30:00.000001'",
        "TIMESTAMP'2026-11-01 13:30:00.000001+01:00'", "TIMESTAMP'9999-12-31 23:59:59.999999'",
        "TIMESTAMP_NTZ'2026-11-01 00:00:00'",
    ],
    "local": ["TIMESTAMP_NTZ'2026-11-01 12:30'", "'2026-11-01 12:30:00'", "DATE'1970-01-01'",
              "TIMESTAMP'2026-11-01 12:30:00'"],
    "took": ["INTERVAL '0' DAY", "INTERVAL '1 00:00:00.000001' DAY TO SECOND",
             "INTERVAL '-24' HOUR", "INTERVAL '1440' MINUTE"],
}  # fmt: skip
OPERATORS = ["=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>"]
AT_ONCE = 60
BEYOND_64_BITS = re.compile(r"\d{19}")


def every_value() -> pa.Table:
    """Every value of every column, the columns beside each other in several ways, and nulls."""
    rows = 24
    columns = {
        name: pa.array([[*values, None][row % (len(values) + 1)] for row in range(rows)], kind)
        for name, (kind, values) in COLUMNS.items()
    }
    columns["nested"] = pa.array(
        [None if row % 5 == 4 else {"N": None if row % 3 == 0 else row} for row in range(rows)],
        pa.struct([("N", pa.int64())]),
    )
    columns["nothing"] = pa.nulls(rows)
    return pa.table(columns)


def conditions_on(name: str) -> list[str]:
    literals = LITERALS[name]
    found = [
        f"{name} {symbol} {literal}" for symbol, literal in product(OPERATORS, [*literals, "NULL"])
    ]
    found += [f"{literal} < {name}" for literal in literals]
    for first, second in zip(literals, reversed(literals), strict=True):
        found += [
            f"{name} BETWEEN {first} AND {second}",
            f"{name} NOT BETWEEN {first} AND {second}",
            f"{name} IN ({first}, {second})",
            f"{name} NOT IN ({first}, NULL)",
            f"NOT {name} IN ({first}, {second}, NULL)",
        ]
    return [*found, f"{name} IS NULL", f"NOT {name} IS NOT NULL", f"{name} <=> {name}"]


def found_by_spark(frame: DataFrame, texts: list[str]) -> list[list[bool]]:
    """Many predicates in one job: which rows each finds."""
    columns = [f"coalesce(({text}), false) AS p{index}" for index, text in enumerate(texts)]
    rows = frame.selectExpr(*columns).collect()
    return [[row[index] for row in rows] for index in range(len(texts))]


def found_by_us(table: pa.Table, text: str) -> list[bool]:
    bound = bind(parse(text), table.schema)
    columns = {name: table[name].combine_chunks() for name in bound.columns}
    found: list[bool] = bound.mask(columns, len(table)).to_pylist()
    return found


def check(spark: SparkSession, table: pa.Table, texts: list[str]) -> None:
    frame, remaining = spark.createDataFrame(table), iter(texts)
    while some := list(islice(remaining, AT_ONCE)):
        for text, wanted in zip(some, found_by_spark(frame, some), strict=True):
            assert found_by_us(table, text) == wanted, text


@pytest.mark.parametrize("name", COLUMNS)
def test_every_operator_finds_what_spark_finds(spark: SparkSession, name: str) -> None:
    check(spark, every_value(), conditions_on(name))


@pytest.mark.parametrize("name", INTEGERS)
def test_a_null_is_not_smaller_than_a_number_beyond_64_bits(spark: SparkSession, name: str) -> None:
    """Spark up to 4.3 finds it smaller: its analyzer puts true for the comparison."""
    table = every_value().filter(pc.field(name).is_valid())
    check(spark, table, [f"{name} {symbol} {BEYOND}" for symbol in OPERATORS])
    assert not any(found_by_us(pa.table({"n": pa.nulls(2, pa.int64())}), f"n < {BEYOND}"))


def test_columns_are_compared_with_columns_as_in_spark(spark: SparkSession) -> None:
    groups = [("tiny", "number", "big", "real", "double", "nested.n"), ("big", "price", "exact")]
    pairs = {pair for group in groups for pair in product(group, group)}
    pairs |= {(name, name) for name in COLUMNS} | {("nothing", "big"), ("text", "nothing")}
    texts = [f"{left} {symbol} {right}" for left, right in sorted(pairs) for symbol in OPERATORS]
    check(spark, every_value(), texts)


DECIMALS: dict[str, tuple[pa.DataType, str]] = {
    "fine": (pa.decimal128(38, 38), f"1E-38 0 0.5 5E-38 4E-38 -5E-38 1E-19 0.{'9' * 38}"),
    "exact": (pa.decimal128(38, 10), f"1E-10 -1E-10 0 0.5 2 5 {'9' * 28}.{'9' * 10}"),
    "whole": (pa.decimal128(38, 0), f"0 1 -1 2 100 {'9' * 38}"),
    "price": (pa.decimal128(9, 2), "0 0.01 -0.01 1 5"),
    "big": (pa.int64(), f"0 1 -1 5 {2**63 - 1}"),
    "tiny": (pa.int8(), "0 1 5 127"),
}
FINE_NUMBERS = (
    "0 1 -1 5 100 0.5 1.00 0.00000000005 -0.00000000005 0.00000000015 1E-38BD -1E-38BD 5E-38BD "
    "0E-30BD 0.00000000000000000000000000001 12345678901234567890.123456789012345678 1E5BD "
    f"0.{'9' * 38} 0.4{'9' * 33} 4.{'9' * 32} 1.{'0' * 35}1 {'9' * 28}.{'9' * 10} {'9' * 38}"
).split()


@pytest.mark.parametrize("name", DECIMALS)
def test_decimals_of_too_many_digits_are_rounded_as_in_spark(
    spark: SparkSession, name: str
) -> None:
    """What the common type of column and literal has no room for is rounded before comparing."""
    (kind, written), numbers = DECIMALS[name], FINE_NUMBERS
    values: list[object]
    if pa.types.is_decimal(kind):
        values = [*map(Decimal, written.split()), None]
    else:  # without a null: see the test of numbers beyond 64 bits
        values = list(map(int, written.split()))
    table = pa.table({name: pa.array(values, kind)})
    texts = [f"{name} {symbol} {number}" for symbol, number in product(OPERATORS, numbers)]
    texts += [f"{one} < {name}" for one in numbers]
    texts += [f"{name} IN ({one})" for one in numbers]
    texts += [f"{name} IN ({one}, {two})" for one, two in product(numbers[::3], numbers[::2])]
    texts += [f"{name} BETWEEN {one} AND {two}" for one, two in pairwise(numbers)]
    check(spark, table, texts)


def test_null_and_words_of_logic_are_as_in_spark(spark: SparkSession) -> None:
    leaves = ["flag", "number > 0", "nested.n = 5", "nothing = 1", "true", "false", "null"]
    texts = [
        text
        for left, right in product(leaves, leaves)
        for text in (
            f"{left} AND {right}",
            f"{left} or not {right}",
            f"not ({left} OR {right} and flag)",
            f"not {left} and {right} or flag",
        )
    ]
    texts += ["nested is null", "NESTED.N is not null", "`nested`.`n` in (1, 2)", "nothing is null"]
    check(spark, every_value(), texts)


def test_filter_finds_the_same_rows(spark: SparkSession) -> None:
    """Spark optimizes a filter in other ways than a column."""
    table = every_value()
    table = table.append_column("row", pa.array(range(len(table))))
    frame = spark.createDataFrame(table).repartition(1).cache()
    for text in (
        "double = 'NaN' or real > 5 and big >= 0.5",
        "number < 2147483648 and tiny in (5, 127, 300)",
        "real in (0, 0.1, 5) or price not in (5, null)",
        "at between '2026-11-01' and '2026-11-02' or day < '1970-01-01'",
        "not (text > 'a' and raw <=> null) and took >= INTERVAL '0' DAY",
        "tiny > 127.5 or tiny < -128.5 or number != 3000000000",
        "double in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 'NaN')",
        "big in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 9007199254740993)",
    ):
        found = [row["row"] for row in frame.filter(text).select("row").collect()]
        mask = found_by_us(table, text)
        assert sorted(found) == [row for row, is_there in enumerate(mask) if is_there], text


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(
    rows=random_predicates.rows(),
    predicates=st.lists(random_predicates.predicates(), min_size=25, max_size=25),
)
def test_random_predicates_find_what_spark_finds(
    spark: SparkSession, rows: list[Row], predicates: list[Predicate]
) -> None:
    table = pa.table(arrays_of(rows), schema=random_predicates.SCHEMA)
    if rows:
        texts = [predicate.text for predicate in predicates]
        check(spark, table, [text for text in texts if not BEYOND_64_BITS.search(text)])
