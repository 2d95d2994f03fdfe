"""What a predicate wants of a column (a range), and what a frame can have of it (a span).

Values are plain Python values, as in the statistics of a frame. NaN is larger than every number and
equal to itself, as in Spark, and so it stands beside the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from ..schema.statistics import ColumnStatistics

TRUE, FALSE, NULL = 1, 2, 4
"""Bits: the outcomes that a condition can have."""
ALL = TRUE | FALSE | NULL


@dataclass(frozen=True, slots=True)
class Range:
    """Values from ``low`` to ``high``; None is no bound. ``has_nan`` says whether NaN is in it.

    ``is_empty`` holds for a range without any number, which has no bounds then.
    """

    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    is_empty: bool = False
    has_nan: bool = False

    def meets(self, low: Any, high: Any) -> bool:
        """Whether a value between two bounds can be in it. ``high`` may be None: no bound."""
        if self.is_empty or (self.high is not None and not _below(low, self.high, self.high_open)):
            return False
        return self.low is None or high is None or _below(self.low, high, self.low_open)

    def holds(self, low: Any, high: Any) -> bool:
        """Whether every value between two bounds is in it."""
        if self.is_empty or (self.low is not None and not _below(self.low, low, self.low_open)):
            return False
        return self.high is None or (high is not None and _below(high, self.high, self.high_open))


def _below(left: Any, right: Any, strictly: bool) -> bool:
    return bool(left < right if strictly else left <= right)


@dataclass(frozen=True, slots=True)
class Span:
    """The values that a column of a frame can have. ``low`` and ``high`` bound those but NaN.

    ``high`` is None where there is no upper bound.
    """

    has_nulls: bool
    has_nan: bool = False
    has_numbers: bool = False
    low: Any = None
    high: Any = None

    @property
    def has_values(self) -> bool:
        """Whether a value other than null is there."""
        return self.has_numbers or self.has_nan

    def outcomes_of(self, wanted: Range) -> int:
        """The outcomes of asking whether a value is in a range."""
        found = NULL if self.has_nulls else 0
        if self.has_numbers:
            found |= TRUE if wanted.meets(self.low, self.high) else 0
            found |= 0 if wanted.holds(self.low, self.high) else FALSE
        if self.has_nan:
            found |= TRUE if wanted.has_nan else FALSE
        return found


def span_of(found: ColumnStatistics | None, rows: int, kind: pa.DataType) -> Span | None:
    """What statistics say of a column, or None if they are missing or contradict themselves."""
    if found is None or not 0 <= found.nulls <= rows:
        return None
    has_nulls, has_values = found.nulls > 0, found.nulls < rows
    if found.has_nan and not (has_values and pa.types.is_floating(kind)):
        return None
    if found.minimum is None:
        if found.maximum is not None or has_values != found.has_nan:
            return None
        return Span(has_nulls, found.has_nan)
    wanted = _value_type(kind)
    if not has_values or type(found.minimum) is not wanted:
        return None
    if found.maximum is None:
        if wanted not in (str, bytes):
            return None
    elif type(found.maximum) is not wanted or not found.minimum <= found.maximum:
        return None
    return Span(has_nulls, found.has_nan, True, found.minimum, found.maximum)


def _value_type(kind: pa.DataType) -> type | None:
    types = pa.types
    if types.is_boolean(kind):
        return bool
    if types.is_integer(kind) or types.is_temporal(kind):
        return int
    if types.is_floating(kind):
        return float
    if types.is_decimal(kind):
        return Decimal
    if types.is_string(kind):
        return str
    return bytes if types.is_binary(kind) else None


def compare_spans(operator: str, left: Span, right: Span, *, as_float: bool) -> int:
    """The outcomes of ``=``, ``<`` or ``<=>`` between two columns."""
    found = 0
    if left.has_values and right.has_values:
        low, high = _ends(left, as_float)
        other_low, other_high = _ends(right, as_float)
        if operator == "<":
            found |= TRUE if low < other_high else 0
            found |= FALSE if high >= other_low else 0
        else:
            found |= TRUE if low <= other_high and other_low <= high else 0
            found |= 0 if low == high == other_low == other_high else FALSE
    if operator != "<=>":
        return found | (NULL if left.has_nulls or right.has_nulls else 0)
    found |= TRUE if left.has_nulls and right.has_nulls else 0
    one = (left.has_nulls and right.has_values) or (right.has_nulls and left.has_values)
    return found | (FALSE if one else 0)


def _ends(span: Span, as_float: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The least and the greatest value as tuples that compare: numbers, then NaN, then no bound."""
    nan = (1,)
    if not span.has_numbers:
        return nan, nan
    low, high = span.low, span.high
    if as_float:
        low, high = float(low), float(high)
    greatest: tuple[Any, ...] = (2,) if high is None else (0, high)
    return (0, low), nan if span.has_nan else greatest
