"""A predicate bound to the columns of a schema. Tasks get it pickled, without the parser.

Every condition answers twice: ``truth`` of the rows of a batch (true, false or null, as in SQL),
and ``outcomes`` that the rows of a frame can have, by the statistics of its columns.

Arrow's ``pa.array`` and ``pa.scalar`` import pandas where it is installed, and a task would wait
for that: the values to compare with are arrays made on the driver.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..lazy import LazyModule
from .ranges import ALL, FALSE, NULL, TRUE, Range, Span, compare_spans, span_of

if TYPE_CHECKING:
    from pyarrow import compute as pc

    from ..schema.statistics import ColumnStatistics
else:
    pc = LazyModule("pyarrow.compute")


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name, or a field inside of structs by theirs, and its type."""

    name: str
    fields: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows by column. A column that is not there is null."""

    columns: Mapping[str, pa.Array]
    rows: int

    def values(self, column: Column) -> pa.Array | None:
        """The values of a column: dates, times and durations as integers, floats as doubles."""
        found = self.columns.get(column.name)
        if found is None:
            return None
        if column.fields:
            found = pc.struct_field(found, list(column.fields))
        if pa.types.is_float32(found.type):
            return pc.cast(found, pa.float64())  # Arrow would round what it looks for in a list
        return found.view(_stored_type(found.type))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    return kind


@dataclass(frozen=True, slots=True)
class Frame:
    """What statistics tell of rows, by column."""

    statistics: Mapping[str, ColumnStatistics | None]
    rows: int

    def span(self, column: Column) -> Span | None:
        """The values that a column can have, or None if nothing is known."""
        if column.fields:
            return None
        return span_of(self.statistics.get(column.name), self.rows, column.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """True, false or null for every row."""

    value: bool | None

    def truth(self, batch: Batch) -> Any:  # noqa: ARG002 - all conditions are asked alike
        return _constant(self.value)

    def outcomes(self, frame: Frame) -> int:  # noqa: ARG002 - all conditions are asked alike
        return NULL if self.value is None else TRUE if self.value else FALSE


def _constant(value: bool | None) -> Any:
    null = pa.nulls(1, pa.bool_())[0]
    return null if value is None else pc.is_null(null) if value else pc.is_valid(null)


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column

    def truth(self, batch: Batch) -> Any:
        values = batch.values(self.column)
        return _constant(True) if values is None else pc.is_null(values)

    def outcomes(self, frame: Frame) -> int:
        span = frame.span(self.column)
        if span is None:
            return TRUE | FALSE
        return (TRUE if span.has_nulls else 0) | (FALSE if span.has_values else 0)


@dataclass(frozen=True, slots=True)
class InRange:
    """Whether a value is in a range. ``bounds`` has the bounds of the range, as Arrow values."""

    column: Column
    range: Range
    bounds: pa.Array

    def truth(self, batch: Batch) -> Any:
        values = batch.values(self.column)
        if values is None:
            return _constant(None)
        found = self._numbers(values)
        if not pa.types.is_floating(values.type):
            return found
        nan = pc.is_nan(values)  # Arrow finds NaN neither smaller nor larger than a number
        if self.range.has_nan:
            return pc.or_kleene(found, nan)
        return pc.and_kleene(found, pc.invert(nan))

    def _numbers(self, values: pa.Array) -> Any:
        span = self.range
        if span.low is not None and span.low == span.high:
            return pc.equal(values, self.bounds[0])
        found = list[Any]()
        if span.low is not None:
            compare = pc.greater if span.low_open else pc.greater_equal
            found.append(compare(values, self.bounds[0]))
        if span.high is not None:
            compare = pc.less if span.high_open else pc.less_equal
            found.append(compare(values, self.bounds[1]))
        if not found or span.is_empty:
            fixed = _constant(not span.is_empty)
            return pc.if_else(pc.is_valid(values), fixed, _constant(None))
        return found[0] if len(found) == 1 else pc.and_kleene(*found)

    def outcomes(self, frame: Frame) -> int:
        span = frame.span(self.column)
        return ALL if span is None else span.outcomes_of(self.range)


@dataclass(frozen=True, slots=True)
class InSet:
    """Whether a value is one of a list.

    ``values`` are sorted and without NaN; ``array`` has all of the list as Arrow values.
    """

    column: Column
    values: tuple[Any, ...]
    array: pa.Array
    has_nan: bool = False

    def truth(self, batch: Batch) -> Any:
        values = batch.values(self.column)
        if values is None:
            return _constant(None)
        found = pc.is_in(values, value_set=self.array)
        if self.has_nan:
            found = pc.or_(found, pc.is_nan(values))  # of any bits: Arrow's list has one of them
        return pc.if_else(pc.is_valid(values), found, _constant(None))

    def outcomes(self, frame: Frame) -> int:
        span = frame.span(self.column)
        if span is None:
            return ALL
        found = NULL if span.has_nulls else 0
        if span.has_numbers:
            first = 0 if span.low is None else bisect_left(self.values, span.low)
            held = self.values[first : first + 1]
            if held and (span.high is None or held[0] <= span.high):
                found |= TRUE
            if not (held and held[0] == span.low == span.high):
                found |= FALSE
        if span.has_nan:
            found |= TRUE if self.has_nan else FALSE
        return found


ColumnComparator = Literal["=", "<", "<=>"]


@dataclass(frozen=True, slots=True)
class CompareColumns:
    """Two columns, compared as values of one ``type``."""

    operator: ColumnComparator
    left: Column
    right: Column
    type: pa.DataType

    def truth(self, batch: Batch) -> Any:
        left, right = (self._values(batch, column) for column in (self.left, self.right))
        if self.operator == "<":
            found = pc.less(left, right)
            if pa.types.is_floating(self.type):
                least = pc.and_kleene(pc.invert(pc.is_nan(left)), pc.is_nan(right))
                found = pc.or_kleene(found, least)
            return found
        found = pc.equal(left, right)
        if pa.types.is_floating(self.type):
            found = pc.or_kleene(found, pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))
        if self.operator == "=":
            return found
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(pc.coalesce(found, _constant(False)), both)

    def _values(self, batch: Batch, column: Column) -> pa.Array:
        found, kind = batch.values(column), _stored_type(self.type)
        if found is None:
            return pa.nulls(batch.rows, kind)
        return found if found.type == kind else pc.cast(found, kind, safe=False)

    def outcomes(self, frame: Frame) -> int:
        left, right = frame.span(self.left), frame.span(self.right)
        if left is None or right is None:
            return ALL if self.operator != "<=>" else TRUE | FALSE
        as_float = pa.types.is_floating(self.type)
        return compare_spans(self.operator, left, right, as_float=as_float)


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition

    def truth(self, batch: Batch) -> Any:
        return pc.invert(self.condition.truth(batch))

    def outcomes(self, frame: Frame) -> int:
        found = self.condition.outcomes(frame)
        return (found & NULL) | (TRUE if found & FALSE else 0) | (FALSE if found & TRUE else 0)


@dataclass(frozen=True, slots=True)
class Every:
    conditions: tuple[Condition, ...]

    def truth(self, batch: Batch) -> Any:
        found = self.conditions[0].truth(batch)
        for condition in self.conditions[1:]:
            found = pc.and_kleene(found, condition.truth(batch))
        return found

    def outcomes(self, frame: Frame) -> int:
        return _together(self.conditions, frame, TRUE, FALSE)


@dataclass(frozen=True, slots=True)
class Some:
    conditions: tuple[Condition, ...]

    def truth(self, batch: Batch) -> Any:
        found = self.conditions[0].truth(batch)
        for condition in self.conditions[1:]:
            found = pc.or_kleene(found, condition.truth(batch))
        return found

    def outcomes(self, frame: Frame) -> int:
        return _together(self.conditions, frame, FALSE, TRUE)


def _together(conditions: tuple[Condition, ...], frame: Frame, all_of: int, any_of: int) -> int:
    """Outcomes of AND (all must be true, one is false) or OR (all must be false, one is true)."""
    every, either, without = ALL, 0, True
    for condition in conditions:
        found = condition.outcomes(frame)
        every &= found
        either |= found
        without = without and bool(found & (all_of | NULL))
    return (every & all_of) | (either & any_of) | (NULL if without and either & NULL else 0)


Condition = Constant | IsNull | InRange | InSet | CompareColumns | Not | Every | Some


@dataclass(frozen=True, slots=True)
class Bound:
    """A predicate over the columns of a schema. ``columns`` are the names that it needs.

    ``paths`` are these columns and fields inside them: each a name, then names of struct fields.
    ``compared`` are those of them that are compared, and not only tested with IS NULL.
    """

    text: str
    columns: tuple[str, ...]
    condition: Condition
    paths: tuple[tuple[str, ...], ...] = ()
    compared: tuple[tuple[str, ...], ...] = ()

    def mask(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """Which rows match: true or false, where SQL's null is false.

        Args:
            columns: The columns of the schema by name; a column that is not there is null.
            rows: How many rows they have.
        """
        found = pc.coalesce(self.condition.truth(Batch(columns, rows)), _constant(False))
        return found if isinstance(found, pa.Array) else pa.repeat(found, rows)

    def may_match(self, statistics: Mapping[str, ColumnStatistics | None], rows: int) -> bool:
        """Whether one of ``rows`` rows can match. A column without statistics can have any value.

        The bounds of a column must hold for the type that the predicate was bound to.
        """
        return bool(self.condition.outcomes(Frame(statistics, rows)) & TRUE)
