"""Binding a predicate to a schema: names become columns, literals become values of their types.

A comparison becomes a range of the column's own values, so that no column is cast to compare it:
``id > 1.5`` with integers is ``id >= 2``. Integers, decimals, dates, times and intervals are all
counted in steps: of 1, of the last decimal place, of days, of microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from ..errors import InvalidPredicateError
from ..schema.fields import RESERVED_NAMES, Path, dotted, fold, sql_type
from . import bound, decimals, expressions, literals
from .bound import Bound, Column
from .expressions import Comparator, Expression, Name, Place, Value, refusal
from .ranges import Range

_MICROS_A_DAY = 86_400_000_000
_STEPS = ("integer", "decimal", "date", "timestamp", "timestamp_ntz", "interval")
_NUMBERS = ("integer", "decimal", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_FLOATS = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_NAMES_SHOWN = 8
_CLOSE = 0.7
_TURNED: dict[Comparator, Comparator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bind(expression: Expression, schema: pa.Schema) -> Bound:
    """Bind a predicate to columns of canonical types.

    Names match in any case as in Spark; the exact case takes precedence.

    Raises:
        InvalidPredicateError: a column is unknown, or cannot be compared with that.
    """
    binder = _Binder(expression.text, schema)
    condition = binder.condition(expression.condition)
    paths, compared = tuple(binder.paths), tuple(binder.compared)
    return Bound(expression.text, tuple(binder.names), condition, paths, compared)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Where a literal is among the steps of a column: those from ``first`` to ``last`` equal it.

    No step equals it if ``last`` is one less than ``first``.
    """

    first: int
    last: int

    def range_of(self, operator: Comparator) -> tuple[int | None, int | None]:
        if operator == "=":
            return self.first, self.last
        if operator in ("<", "<="):
            return None, self.first - 1 if operator == "<" else self.last
        return self.last + 1 if operator == ">" else self.first, None


class _Binder:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self.names: dict[str, None] = {}
        self.paths: dict[Path, None] = {}
        self.compared: dict[Path, None] = {}

    def condition(self, found: expressions.Condition) -> bound.Condition:
        match found:
            case expressions.Every(conditions):
                return bound.Every(tuple(map(self.condition, conditions)))
            case expressions.Some(conditions):
                return bound.Some(tuple(map(self.condition, conditions)))
            case expressions.Not(condition):
                return bound.Not(self.condition(condition))
            case expressions.IsNull(name):
                column = self._column(name)
                is_null = pa.types.is_null(column.type)
                return bound.Constant(True) if is_null else bound.IsNull(column)
            case expressions.InList(name, values):
                return self._in_list(name, values)
            case expressions.Truth(operand):
                return self._truth(operand)
            case expressions.Comparison():
                return self._comparison(found)

    def _truth(self, operand: expressions.Operand) -> bound.Condition:
        if isinstance(operand, Value):
            return bound.Constant(operand.value)
        column = self._column(operand)
        if pa.types.is_null(column.type):
            return bound.Constant(None)
        if not pa.types.is_boolean(column.type):
            raise self._refusal(
                operand.place, f"expected a condition, found column {_shown(column)}"
            )
        return _in_range(column, Range(True, True))

    def _comparison(self, found: expressions.Comparison) -> bound.Condition:
        left, right, operator = found.left, found.right, found.operator
        if isinstance(left, Value):
            if isinstance(right, Value):
                raise self._refusal(found.place, f"expected a column on one side of {operator}")
            left, right, operator = right, left, _TURNED.get(operator, operator)
        if isinstance(right, Name):
            return self._columns(operator, self._column(left), self._column(right), found.place)
        return self._literal(operator, self._column(left), right)

    def _column(self, name: Name) -> Column:
        field = self._field(name, self._schema, name.parts[0], ())
        self.names[field.name] = None
        fields = list[str]()
        kind = field.type
        for position, part in enumerate(name.parts[1:], 1):
            above = dotted(name.parts[:position])
            if not pa.types.is_struct(kind):
                raise self._refusal(
                    name.place,
                    f"{above} is of type {sql_type(kind)} and has no field {dotted((part,))}",
                )
            inner = self._field(name, list(kind), part, name.parts[:position])
            fields.append(inner.name)
            kind = inner.type
        self.paths[field.name, *fields] = None
        return Column(field.name, tuple(fields), kind)

    def _field(
        self, name: Name, fields: Iterable[pa.Field], part: str, parent: tuple[str, ...]
    ) -> pa.Field:
        there = list(fields)
        found = [field for field in there if field.name == part]
        found = found or [field for field in there if fold(field.name) == fold(part)]
        if len(found) == 1:
            return found[0]
        wanted = dotted((*parent, part))
        if found:
            names = " and ".join(dotted((*parent, field.name)) for field in found)
            raise self._refusal(name.place, f"{wanted} may be {names}; write it in their case")
        raise self._refusal(
            name.place, f"there is no column {wanted}; {_alternatives(part, parent, there)}"
        )

    def _literal(self, operator: Comparator, column: Column, value: Value) -> bound.Condition:
        if value.kind == "null":
            return bound.IsNull(column) if operator == "<=>" else bound.Constant(None)
        if pa.types.is_null(column.type):
            return bound.Constant(False if operator == "<=>" else None)
        plain: Comparator = "=" if operator in ("!=", "<=>") else operator
        found = _in_range(column, self._range(plain, column, value))
        if operator == "!=":
            return bound.Not(found)
        if operator == "<=>":
            return bound.Every((bound.Not(bound.IsNull(column)), found))
        return found

    def _range(
        self, operator: Comparator, column: Column, value: Value, scale: int | None = None
    ) -> Range:
        """The values of a column that compare so with a literal, which is not null.

        ``scale``: of the decimals that a list is compared as.
        """
        self.compared[column.name, *column.fields] = None
        kind = _kind(column.type)
        if kind in _STEPS:
            if kind == "integer" and operator != "=":
                scale = literals.MAX_DIGITS  # Spark rounds no literal that it only orders
            low, high = self._steps(column, value, scale).range_of(operator)
            return _range_of_steps(column.type, low, high)
        if kind == "float":
            return _range_of_floats(operator, self._float(column, value))
        if kind == "boolean":
            if value.kind != "boolean":
                raise self._wrong(column, value, "true or false")
            return _range_of_booleans(operator, value.value)
        if kind == "string":
            if value.kind != "string":
                raise self._wrong(column, value, "a text such as 'a'")
            return _range_of_values(operator, value.value)
        if kind == "binary":
            return _range_of_values(operator, self._binary(column, value))
        raise self._refusal(value.place, f"column {_shown(column)} can only be tested with IS NULL")

    def _steps(self, column: Column, value: Value, scale: int | None) -> _Steps:
        kind = _kind(column.type)
        if kind in ("integer", "decimal"):
            if value.kind == "double":
                return _steps_as_double(column.type, value.value)
            if value.kind not in _NUMBERS:
                raise self._wrong(column, value, "a number")
            if scale is None:
                scale = _scale_of(column.type, [value], in_list=False)
            return _steps_as_decimal(column.type, value.value, scale)
        if kind == "interval":
            if value.kind != "interval":
                raise self._wrong(column, value, "INTERVAL '1 02:03:04.5' DAY TO SECOND")
            return _steps_of(Fraction(value.value))
        micros = self._micros(column, value)
        return _steps_of(Fraction(micros, _MICROS_A_DAY if kind == "date" else 1))

    def _micros(self, column: Column, value: Value) -> int:
        """A literal that is compared with a date or a time, in microseconds since 1970 UTC."""
        kind, found = _kind(column.type), value.value
        if value.kind == "string" and kind == "date":
            days = literals.read_date(found)
            found = None if days is None else (days * _MICROS_A_DAY, False)
        elif value.kind == "string":
            found = literals.read_timestamp(found)
        elif value.kind == "date":
            found = (found * _MICROS_A_DAY, False)
        elif value.kind not in _TIMES:
            found = None
        if found is None or (found[1] and kind != "timestamp"):
            without = "" if kind == "timestamp" else ", without a zone"
            example = "a date such as '2026-11-01'"
            if kind != "date":
                example = f"a time such as '2026-11-01 12:30:00'{without}"
            raise self._wrong(column, value, example)
        return int(found[0])

    def _float(self, column: Column, value: Value) -> float:
        if value.kind in _NUMBERS:
            return float(value.value)
        if value.kind == "string" and value.value.lower() in _FLOATS:
            return _FLOATS[value.value.lower()]
        raise self._wrong(column, value, "a number, or 'NaN', 'Infinity' or '-Infinity'")

    def _binary(self, column: Column, value: Value) -> bytes:
        if value.kind == "string":
            return str(value.value).encode()
        if value.kind != "binary":
            raise self._wrong(column, value, "X'00ff', or a text such as 'a' for its UTF-8")
        return bytes(value.value)

    def _in_list(self, name: Name, values: tuple[Value, ...]) -> bound.Condition:
        column = self._column(name)
        if pa.types.is_null(column.type):
            return bound.Constant(None)
        present = [value for value in values if value.kind != "null"]
        if any(value.kind == "double" for value in present):
            # Spark compares all of a list as one type.
            present = [_as_double(value) for value in present]
        scale = _scale_of(column.type, present, in_list=True)
        ranges = [self._range("=", column, value, scale) for value in present]
        found = _in_ranges(column, ranges)
        if len(present) < len(values):
            found.append(bound.Constant(None))
        return found[0] if len(found) == 1 else bound.Some(tuple(found))

    def _columns(
        self, operator: Comparator, left: Column, right: Column, place: Place
    ) -> bound.Condition:
        self.compared.update({(each.name, *each.fields): None for each in (left, right)})
        if pa.null() in (left.type, right.type):
            return self._with_nulls(operator, left, right)
        kind = _common_type(left.type, right.type)
        if kind is None:
            problem = f"columns {_shown(left)} and {_shown(right)} cannot be compared"
            raise self._refusal(place, problem)
        if operator == "<=>":
            return bound.CompareColumns("<=>", left, right, kind)
        if operator in ("=", "!="):
            equal = bound.CompareColumns("=", left, right, kind)
            return bound.Not(equal) if operator == "!=" else equal
        if operator in (">", "<="):
            left, right = right, left
        less = bound.CompareColumns("<", left, right, kind)
        return bound.Not(less) if operator in ("<=", ">=") else less

    def _with_nulls(self, operator: Comparator, left: Column, right: Column) -> bound.Condition:
        """Two columns, at least one of which has nulls only."""
        if operator != "<=>":
            return bound.Constant(None)
        other = right if left.type == pa.null() else left
        return bound.Constant(True) if other.type == pa.null() else bound.IsNull(other)

    def _wrong(self, column: Column, value: Value, expected: str) -> InvalidPredicateError:
        return self._refusal(
            value.place, f"expected {expected} to compare with column {_shown(column)}"
        )

    def _refusal(self, place: Place, problem: str) -> InvalidPredicateError:
        return refusal(self._text, place, problem)


def _alternatives(part: str, parent: Path, fields: list[pa.Field]) -> str:
    """What an unknown name may have been meant as, or else the names that there are."""
    import difflib  # only on the way to an error

    by_fold = {fold(field.name): field.name for field in fields}
    close = difflib.get_close_matches(fold(part), by_fold, n=1, cutoff=_CLOSE)
    if close:
        return f"did you mean {dotted((*parent, by_fold[close[0]]))}?"
    # A topic's own columns first: all topics have the others.
    ordered = sorted(fields, key=lambda field: not parent and field.name in RESERVED_NAMES)
    names = ", ".join(dotted((field.name,)) for field in ordered[:_NAMES_SHOWN])
    more = ", …" if len(ordered) > _NAMES_SHOWN else ""
    return f"{f'the fields of {dotted(parent)}' if parent else 'the columns'} are {names}{more}"


def _shown(column: Column) -> str:
    return f"{dotted((column.name, *column.fields))} of type {sql_type(column.type)}"


def _kind(kind: pa.DataType) -> str:
    """The kind of values of a type, or an empty text if they have no order."""
    types = pa.types
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    kinds: list[tuple[Callable[[pa.DataType], bool], str]] = [
        (types.is_boolean, "boolean"),
        (types.is_signed_integer, "integer"),
        (types.is_floating, "float"),
        (types.is_decimal128, "decimal"),
        (types.is_string, "string"),
        (types.is_binary, "binary"),
        (types.is_date32, "date"),
        (types.is_duration, "interval"),
    ]
    return next((name for is_kind, name in kinds if is_kind(kind)), "")


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """The lowest and the highest step that a column can have."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


def _steps_of(exact: Fraction) -> _Steps:
    return _Steps(math.ceil(exact), math.floor(exact))


def _scale_of(kind: pa.DataType, values: Iterable[Value], *, in_list: bool) -> int:
    """The scale of the decimals that Spark compares a column of numbers and literals as."""
    if _kind(kind) not in ("integer", "decimal"):
        return 0
    found = [decimals.digits_of_column(kind)]
    for value in values:
        if value.kind in ("integer", "decimal"):
            found.append(decimals.digits_of_literal(value.value, in_list=in_list))
    return decimals.common_scale(found)


def _steps_as_decimal(kind: pa.DataType, value: int | Decimal, scale: int) -> _Steps:
    """The steps of a column that are this number when both are rounded to a scale, as in Spark."""
    own = kind.scale if pa.types.is_decimal(kind) else 0
    exact = Fraction(decimals.round_literal(value, scale))
    if own <= scale:
        return _steps_of(exact * 10**own)
    wanted = exact * 10**scale
    first = _first_step(kind, lambda step: decimals.round_step(step, own - scale) >= wanted)
    after = _first_step(kind, lambda step: decimals.round_step(step, own - scale) > wanted)
    return _Steps(first, after - 1)


def _steps_as_double(kind: pa.DataType, value: float) -> _Steps:
    """The steps of a column that are this number when they are cast to double, as Spark casts."""
    scale = 10**kind.scale if pa.types.is_decimal(kind) else 1
    first = _first_step(kind, lambda step: step / scale >= value)
    return _Steps(first, _first_step(kind, lambda step: step / scale > value) - 1)


def _first_step(kind: pa.DataType, is_reached: Callable[[int], bool]) -> int:
    low, high = _limits(kind)
    high += 1  # stands for none of them
    while low < high:
        middle = (low + high) // 2
        if is_reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _range_of_steps(kind: pa.DataType, low: int | None, high: int | None) -> Range:
    lowest, highest = _limits(kind)
    low, high = lowest if low is None else low, highest if high is None else high
    if low > high or low > highest or high < lowest:
        return Range(is_empty=True)

    def value(step: int) -> int | Decimal:
        if not pa.types.is_decimal(kind):
            return step
        return Decimal((int(step < 0), tuple(map(int, str(abs(step)))), -kind.scale))

    return Range(
        None if low <= lowest else value(low),
        None if high >= highest else value(high),
    )


def _range_of_floats(operator: Comparator, value: float) -> Range:
    if math.isnan(value):
        return Range(is_empty=operator not in ("<", "<="), has_nan=operator not in ("<", ">"))
    found = _range_of_values(operator, value)
    up = operator in (">", ">=")
    return Range(found.low, found.high, found.low_open, found.high_open, has_nan=up)


def _range_of_values(operator: Comparator, value: Any) -> Range:
    if operator == "=":
        return Range(value, value)
    if operator in ("<", "<="):
        return Range(high=value, high_open=operator == "<")
    return Range(low=value, low_open=operator == ">")


def _range_of_booleans(operator: Comparator, value: bool) -> Range:
    wanted = _range_of_values(operator, value)
    found = [each for each in (False, True) if wanted.holds(each, each)]
    if len(found) == 1:
        return Range(found[0], found[0])
    return Range(is_empty=not found)


def _in_range(column: Column, wanted: Range) -> bound.InRange:
    return bound.InRange(column, wanted, _array(column.type, [wanted.low, wanted.high]))


def _in_ranges(column: Column, ranges: list[Range]) -> list[bound.Condition]:
    """The values of a list: single ones together, and each range of several by itself."""
    single = {each.low for each in ranges if each.low is not None and each.low == each.high}
    has_nan = any(each.has_nan for each in ranges)
    several = [
        each for each in ranges if not each.is_empty and not (each.low == each.high is not None)
    ]
    values = sorted(single)
    listed: list[Any] = [*values, math.nan] if has_nan else list(values)
    if 0.0 in single and pa.types.is_floating(column.type):
        listed += [0.0, -0.0]  # Arrow tells them apart in lists
    found: list[bound.Condition] = [_in_range(column, each) for each in several]
    found.insert(0, bound.InSet(column, tuple(values), _array(column.type, listed), has_nan))
    return found


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Values as Arrow compares them with a column: times as integers, floats as doubles."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    return pa.array(values, pa.float64() if pa.types.is_floating(kind) else kind)


def _as_double(value: Value) -> Value:
    if value.kind not in _NUMBERS:
        return value
    return Value("double", float(value.value), value.place)


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that two columns are compared as, or None if they cannot be compared exactly."""
    kinds = {_kind(left), _kind(right)}
    if "" in kinds:
        return None
    if kinds <= {"integer", "float"}:
        if "float" in kinds:
            return pa.float64()
        return left if left.bit_width >= right.bit_width else right
    if kinds <= {"integer", "decimal"}:
        return _common_decimal(left, right)
    return left if left == right else None


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    sizes = [
        (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else (19, 0)
        for kind in (left, right)
    ]
    whole, scale = (max(each) for each in zip(*sizes, strict=True))
    return pa.decimal128(whole + scale, scale) if whole + scale <= literals.MAX_DIGITS else None
