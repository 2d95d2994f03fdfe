"""Decimals as Spark compares them: as one type of at most 38 digits, rounded to its scale.

Spark gives two decimals a type that holds both. Where that needs more than 38 digits, it keeps all
digits before the point and rounds what does not fit after it, half away from zero. So
``price < 0.00000000005`` of ``decimal(38,10)`` compares with ``0.0000000001``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple

import pyarrow as pa

from .literals import MAX_DIGITS

_INTEGERS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT = Context(prec=2 * MAX_DIGITS, rounding=ROUND_HALF_UP)


class Digits(NamedTuple):
    """How many digits a decimal has, and how many of them stand after the point."""

    precision: int
    scale: int


def digits_of_column(kind: pa.DataType) -> Digits:
    """The digits of a column of integers or decimals."""
    if pa.types.is_decimal(kind):
        return Digits(kind.precision, kind.scale)
    return Digits(_INTEGERS[kind.bit_width], 0)


def digits_of_literal(value: int | Decimal, *, in_list: bool) -> Digits:
    """The digits of a literal. Spark takes an integer in a list for any one of its type."""
    if isinstance(value, int):
        bits = 32 if -(1 << 31) <= value < 1 << 31 else 64
        if in_list and -(1 << bits - 1) <= value < 1 << bits - 1:
            return Digits(_INTEGERS[bits], 0)
        return Digits(len(str(abs(value))), 0)
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    return Digits(max(len(digits) + int(exponent) + scale, scale, 1), scale)


def common_scale(found: Iterable[Digits]) -> int:
    """How many digits after the point Spark compares, in the order that it meets the values."""
    precision = scale = 0
    for each in found:
        whole = max(precision - scale, each.precision - each.scale)
        scale = max(scale, each.scale)
        scale = max(scale - max(whole + scale - MAX_DIGITS, 0), 0)
        precision = whole + scale
    return scale


def round_literal(value: int | Decimal, scale: int) -> Decimal:
    """A literal with this many digits after the point, half away from zero."""
    if isinstance(value, Decimal) and -int(value.as_tuple().exponent) > scale:
        return value.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    return Decimal(value)


def round_step(step: int, places: int) -> int:
    """A number of last digits without the last ``places`` of them, half away from zero."""
    unit: int = 10**places
    found = (2 * abs(step) + unit) // (2 * unit)
    return found if step >= 0 else -found
