"""The type that Spark compares decimals as, and what it rounds."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from storage_core.predicate.binder import bind
from storage_core.predicate.decimals import (
    Digits,
    common_scale,
    digits_of_column,
    digits_of_literal,
    round_literal,
    round_step,
)
from storage_core.predicate.parser import parse


@pytest.mark.parametrize(
    ("value", "in_list", "digits"),
    [
        (0, False, (1, 0)), (-15, False, (2, 0)), (0, True, (10, 0)), (2**31, True, (20, 0)),
        (-(2**63), True, (20, 0)), (2**63, True, (19, 0)), (Decimal("5.00"), False, (3, 2)),
        (Decimal("-0.005"), True, (3, 3)), (Decimal("1E-38"), False, (38, 38)),
        (Decimal("1E+5"), False, (6, 0)),
    ],
)  # fmt: skip
def test_a_literal_has_the_digits_that_spark_gives_it(
    value: int | Decimal, in_list: bool, digits: tuple[int, int]
) -> None:
    assert digits_of_literal(value, in_list=in_list) == digits


def test_a_column_has_the_digits_of_its_type() -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(9, 2)]
    digits = [(3, 0), (5, 0), (10, 0), (20, 0), (9, 2)]
    assert [digits_of_column(kind) for kind in kinds] == digits


@pytest.mark.parametrize(
    ("digits", "scale"),
    [
        ([(9, 2), (3, 1)], 2), ([(38, 10), (28, 0)], 10), ([(38, 38), (1, 0)], 37),
        ([(38, 10), (11, 11)], 10), ([(38, 0), (38, 38)], 0), ([(20, 0), (38, 30)], 18),
        ([(38, 38), (10, 0), (20, 0)], 18),
    ],
)  # fmt: skip
def test_digits_before_the_point_take_precedence(digits: list[tuple[int, int]], scale: int) -> None:
    assert common_scale([Digits(*each) for each in digits]) == scale


def test_half_is_rounded_away_from_zero() -> None:
    assert [round_step(step, 1) for step in (4, 5, 14, 15, -4, -5, 0)] == [0, 1, 1, 2, 0, -1, 0]
    assert round_step(-(10**38) + 1, 38) == -1
    assert [str(round_literal(Decimal(text), 1)) for text in ("0.05", "-0.05", "0.04", "7")] == [
        "0.1", "-0.1", "0.0", "7",
    ]  # fmt: skip


def test_rows_are_compared_after_rounding() -> None:
    values = [Decimal("-5E-38"), Decimal("-1E-38"), Decimal(0), Decimal("4E-38"), Decimal("5E-38")]
    column = pa.array(values, pa.decimal128(38, 38))

    def found(text: str) -> list[int]:
        mask = bind(parse(text), pa.schema([("n", column.type)])).mask({"n": column}, len(column))
        return [row for row, matches in enumerate(mask.to_pylist()) if matches]

    assert found("n = 0") == [1, 2, 3]
    assert found("n < 0") == [0]
    assert found("n > 0") == [4]
    assert found("n != 0") == [0, 4]
    assert found("n in (0)") == [0, 1, 2, 3, 4]
    assert found("n >= 5E-38BD") == [4]
    assert found("n between -1E-38BD and 4E-38BD") == [1, 2, 3]
