"""Random rows and random predicates, with what plain Python says of each row: true, false or null.

Rows hold dates, times and intervals as the integers that they are stored as.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from storage_core.predicate.decimals import common_scale, digits_of_column, digits_of_literal

DAY = 86_400_000_000
_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST = (datetime.datetime(1, 1, 2) - _EPOCH) // datetime.timedelta(microseconds=1)
_LAST = (datetime.datetime(9999, 12, 30) - _EPOCH) // datetime.timedelta(microseconds=1)

SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("number", pa.int32()),
        ("Big", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("exact", pa.decimal128(38, 10)),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local.at", pa.timestamp("us")),
        ("took", pa.duration("us")),
        ("inner", pa.struct([("Number", pa.int64()), ("text", pa.string())])),
    ]
)
Row = Mapping[str, Any]
Truth = bool | None


class Predicate(NamedTuple):
    """A predicate as text, as a function of a row, and for Arrow where Arrow means the same."""

    text: str
    truth: Callable[[Row], Truth]
    arrow: pc.Expression | None = None


class _Literal(NamedTuple):
    text: str
    value: Any
    arrow: pa.Scalar | None = None


# ---------------------------------------------------------------- rows


def _close_to(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from(values).flatmap(lambda value: st.integers(value - 2, value + 2))


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    near = _close_to(0, 5, low + 2, high - 2) if bits < 64 else _close_to(0, 5, 2**53, high - 2)
    return near | st.integers(low, high) | st.sampled_from([low, high])


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    near = st.sampled_from([0, 1, 5, 150, 10**scale, 5 * 10**scale, -(10**scale), limit, -limit])
    return (near | st.integers(-limit, limit)).map(lambda step: _scaled(step, scale))


def _scaled(step: int, scale: int) -> Decimal:
    return Decimal((int(step < 0), tuple(map(int, str(abs(step)))), -scale))


_TENTH = 0.10000000149011612  # the nearest number of 32 bits
_SPECIAL = st.sampled_from([0.0, -0.0, _TENTH, 5.0, 2.0**53, math.nan, math.inf, -math.inf])
_FEW_TEXTS = st.sampled_from(["", "a", "A", "ab", "it's", "\\", "é", "😀", "\uffff", 'x"y', "\0"])
_TEXTS = _FEW_TEXTS | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_BYTES = st.sampled_from([b"", b"a", b"\xff", b"a\0"]) | st.binary(max_size=3)
_MICROS = _close_to(0, DAY, -DAY, 10**15) | st.integers(_FIRST, _LAST)
_DAYS = _MICROS.map(lambda micros: micros // DAY)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": _integers(8),
    "small": _integers(16),
    "number": _integers(32),
    "Big": _integers(64),
    "real": _SPECIAL | st.floats(width=32),
    "double": _SPECIAL | st.floats(),
    "price": _decimals(9, 2),
    "exact": _decimals(38, 10),
    "flag": st.booleans(),
    "text": _TEXTS,
    "raw bytes": _BYTES,
    "day": _DAYS,
    "at": _MICROS,
    "local.at": _MICROS,
    "took": _close_to(0, DAY) | st.integers(-(10**15), 10**15),
    "inner": st.fixed_dictionaries(
        {"Number": st.none() | _integers(64), "text": st.none() | _TEXTS}
    ),
}


@st.composite
def rows(draw: st.DrawFn, max_size: int = 8) -> list[Row]:
    """Rows of ``SCHEMA``. A value comes back more often than chance would have it."""
    count = draw(st.integers(0, max_size))
    columns = {}
    for name, values in VALUES.items():
        few = draw(st.lists(st.none() | values, min_size=1, max_size=3))
        columns[name] = [draw(st.sampled_from(few)) for _ in range(count)]
    return [{name: columns[name][index] for name in columns} for index in range(count)]


def arrays_of(found: list[Row]) -> dict[str, pa.Array]:
    """Rows as the columns of ``SCHEMA``."""
    return {field.name: _array([row[field.name] for row in found], field.type) for field in SCHEMA}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind):
        stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array(values, stored).view(kind)
    return pa.array(values, kind)


# ---------------------------------------------------------------- columns and literals

_COLUMNS = {
    "tiny": "integer", "SMALL": "integer", "`number`": "integer", "big": "integer",
    "Big": "integer", "real": "float", "double": "float", "price": "decimal", "exact": "decimal",
    "flag": "boolean", "Text": "string", "`raw bytes`": "binary", "day": "date", "at": "timestamp",
    "`local.at`": "timestamp_ntz", "took": "interval", "inner.number": "integer",
    "`Inner`.text": "string",
}  # fmt: skip


def _value(row: Row, name: str) -> Any:
    """The value of a column as it is written in a predicate. Dates are in microseconds."""
    parts = [name] if name.startswith("`l") else name.split(".")
    found: Any = row
    for part in parts:
        plain = part.strip("`").lower()
        found = next(value for key, value in found.items() if key.lower() == plain)
        if found is None:
            return None
    return found * DAY if name == "day" else found


def _moment(micros: int, zone: int = 0) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros, minutes=zone)
    text = moment.isoformat(sep=" ")
    return text if not zone else f"{text}{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:00"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\r", "\\r") + "'"


def _interval(micros: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    sign = "-" if micros < 0 else ""
    return f"INTERVAL '{sign}{day} {hour:02}:{minute:02}:{second:02}.{fraction:06}' DAY TO SECOND"


def _number(value: int | Decimal | float) -> _Literal:
    if isinstance(value, float):
        return _Literal(f"{value!r}D", value)
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return _Literal(text if "." in text else f"{text}.", value)
    return _Literal(str(value), value, pa.scalar(value, pa.int64()) if abs(value) < 2**63 else None)


_NUMBERS = st.one_of(
    _integers(64),
    _close_to(2**63, -(2**63), 10**30),
    _decimals(9, 2),
    _decimals(20, 12),
    st.sampled_from([0.0, -0.0, 0.1, Decimal("0.1"), _TENTH, 5.0, 2.0**53, 2.0**63, 1e300]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
).map(_number)
_NOT_NUMBERS = st.sampled_from(
    [
        _Literal("'NaN'", math.nan),
        _Literal("'Infinity'", math.inf),
        _Literal("'-Infinity'", -math.inf),
    ]
)
_DATES = _DAYS.flatmap(
    lambda days: st.sampled_from(
        [
            _Literal(f"DATE'{_moment(days * DAY)[:10]}'", days * DAY),
            _Literal(f"'{_moment(days * DAY)[:10]}'", days * DAY),
        ]
    )
)
_TIMES = st.tuples(_MICROS, st.sampled_from([0, 60, -300])).map(
    lambda each: _Literal(f"TIMESTAMP'{_moment(*each)}'", each[0])
)
_LOCAL_TIMES = _MICROS.map(lambda micros: _Literal(f"TIMESTAMP_NTZ'{_moment(micros)}'", micros))
LITERALS: dict[str, st.SearchStrategy[_Literal]] = {
    "integer": _NUMBERS,
    "decimal": _NUMBERS,
    "float": _NUMBERS | _NOT_NUMBERS,
    "boolean": st.booleans().map(lambda value: _Literal(str(value), value, pa.scalar(value))),
    "string": _TEXTS.map(lambda text: _Literal(_quoted(text), text, pa.scalar(text))),
    "binary": _BYTES.map(lambda value: _Literal(f"X'{value.hex()}'", value, pa.scalar(value))),
    "date": _DATES | _MICROS.map(lambda micros: _Literal(f"TIMESTAMP'{_moment(micros)}'", micros)),
    "timestamp": _DATES
    | _TIMES
    | _MICROS.map(lambda micros: _Literal(f"'{_moment(micros)}'", micros)),
    "timestamp_ntz": _DATES | _LOCAL_TIMES,
    "interval": _close_to(0, DAY, -DAY).map(lambda micros: _Literal(_interval(micros), micros)),
}

# ---------------------------------------------------------------- what SQL says

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _as_compared(left: Any, right: Any) -> tuple[Any, Any]:
    """Two values as Spark compares them: as doubles if one is a double; NaN is the largest."""
    if isinstance(left, float) or isinstance(right, float):
        return _ordered(float(left)), _ordered(float(right))
    return left, right


def _ordered(number: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(number) else (False, number)


def _compare(symbol: str, left: Any, right: Any) -> Truth:
    if symbol == "<=>":
        if left is None or right is None:
            return left is right
        symbol = "="
    if left is None or right is None:
        return None
    return _OPERATORS[symbol](*_as_compared(left, right))


def _rounding(
    name: str, literals: Iterable[_Literal], *, in_list: bool = False
) -> Callable[[Any], Any]:
    """What Spark makes of values of a column and of literals before it compares them."""
    values = [each.value for each in literals if each.value is not None]
    if _COLUMNS[name] not in ("integer", "decimal") or any(type(each) is float for each in values):
        return lambda value: value
    kind = SCHEMA.field(name).type if _COLUMNS[name] == "decimal" else pa.int64()
    digits = [digits_of_literal(value, in_list=in_list) for value in values]
    step = Decimal((0, (1,), -common_scale([digits_of_column(kind), *digits])))
    exact = Context(prec=100, rounding=ROUND_HALF_UP)
    return lambda value: None if value is None else Decimal(value).quantize(step, context=exact)


def _holds(symbol: str, name: str, row: Row, literal: _Literal) -> Truth:
    rounded = _rounding(name, [literal])
    return _compare(symbol, rounded(_value(row, name)), rounded(literal.value))


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: Truth, right: Truth) -> Truth:
    return opposite(both(opposite(left), opposite(right)))


def opposite(truth: Truth) -> Truth:
    return None if truth is None else not truth


# ---------------------------------------------------------------- predicates

_SYMBOLS = st.sampled_from([*_OPERATORS, "<=>"])
_NULL = _Literal("NULL", None)


def _field(name: str) -> pc.Expression | None:
    """A column for Arrow, whose comparisons differ from Spark's for some types."""
    plain = next(
        (field.name for field in SCHEMA if field.name.lower() == name.strip("`").lower()), ""
    )
    kinds = ("integer", "boolean", "string", "binary")
    return pc.field(plain) if plain and _COLUMNS[name] in kinds else None


@st.composite
def _comparisons(draw: st.DrawFn, name: str, kind: str) -> Predicate:
    symbol, literal = draw(_SYMBOLS), draw(LITERALS[kind] | st.just(_NULL))
    arrow, field = None, _field(name)
    if field is not None and literal.arrow is not None and symbol in _OPERATORS:
        arrow = _OPERATORS[symbol](field, literal.arrow)
    rounded = _rounding(name, [literal])
    if draw(st.booleans()):
        return Predicate(
            f"{name} {symbol} {literal.text}",
            lambda row: _holds(symbol, name, row, literal),
            arrow,
        )
    return Predicate(
        f"{literal.text}{' ' if draw(st.booleans()) else chr(10)}{symbol}({name})",
        lambda row: _compare(symbol, rounded(literal.value), rounded(_value(row, name))),
    )


@st.composite
def _lists(draw: st.DrawFn, name: str, kind: str) -> Predicate:
    literals = draw(st.lists(LITERALS[kind] | st.just(_NULL), min_size=1, max_size=4))
    negated, as_float = draw(st.booleans()), any(type(each.value) is float for each in literals)
    rounded = _rounding(name, literals, in_list=True)

    def truth(row: Row) -> Truth:
        value, found = rounded(_value(row, name)), False if literals else None
        for literal in literals:
            wanted = rounded(literal.value)
            if as_float and wanted is not None:
                wanted = float(wanted)
            found = either(found, _compare("=", value, wanted))
        return opposite(found) if negated else found

    texts = ", ".join(each.text for each in literals)
    return Predicate(f"{name} {'not in' if negated else 'IN'}({texts})", truth)


@st.composite
def _betweens(draw: st.DrawFn, name: str, kind: str) -> Predicate:
    low, high = draw(LITERALS[kind]), draw(LITERALS[kind])
    negated = draw(st.booleans())

    def truth(row: Row) -> Truth:
        found = both(_holds(">=", name, row, low), _holds("<=", name, row, high))
        return opposite(found) if negated else found

    word = "NOT BETWEEN" if negated else "between"
    return Predicate(f"{name} {word} {low.text} AND {high.text}", truth)


def _nulls(name: str, _: str) -> st.SearchStrategy[Predicate]:
    return st.sampled_from(
        [
            Predicate(f"{name} is null", lambda row: _value(row, name) is None),
            Predicate(f"{name} IS NOT NULL", lambda row: _value(row, name) is not None),
        ]
    )


@st.composite
def _columns(draw: st.DrawFn, name: str, kind: str) -> Predicate:
    kinds = {"integer": ("integer", "float", "decimal"), "decimal": ("integer", "decimal"),
             "float": ("integer", "float")}.get(kind, (kind,))  # fmt: skip
    other = draw(st.sampled_from([each for each, found in _COLUMNS.items() if found in kinds]))
    symbol = draw(_SYMBOLS)
    return Predicate(
        f"{name} {symbol} {other}",
        lambda row: _compare(symbol, _value(row, name), _value(row, other)),
    )


_FLAGS = st.sampled_from(
    [
        Predicate("flag", lambda row: row["flag"], pc.field("flag")),
        Predicate("(true)", lambda _: True),
        Predicate("False", lambda _: False),
        Predicate("null", lambda _: None),
    ]
)


@st.composite
def conditions(draw: st.DrawFn) -> Predicate:
    """One condition on one column, or on two."""
    name, kind = draw(st.sampled_from(list(_COLUMNS.items())))
    make = draw(st.sampled_from([_comparisons, _comparisons, _lists, _betweens, _nulls, _columns]))
    chosen: Predicate = draw(make(name, kind) if draw(st.integers(0, 9)) else _FLAGS)
    return chosen


def _negate(found: Predicate) -> Predicate:
    arrow = None if found.arrow is None else ~found.arrow
    return Predicate(f"NOT ({found.text})", lambda row: opposite(found.truth(row)), arrow)


def _join(word: str, left: Predicate, right: Predicate) -> Predicate:
    combine = both if word == "and" else either
    arrow = None
    if left.arrow is not None and right.arrow is not None:
        arrow = left.arrow & right.arrow if word == "and" else left.arrow | right.arrow
    return Predicate(
        f"({left.text}) {word} ({right.text})",
        lambda row: combine(left.truth(row), right.truth(row)),
        arrow,
    )


def predicates() -> st.SearchStrategy[Predicate]:
    """Conditions with NOT, AND and OR around them."""
    return st.recursive(
        conditions(),
        lambda inner: (
            inner.map(_negate) | st.builds(_join, st.sampled_from(["and", "or"]), inner, inner)
        ),
        max_leaves=5,
    )
