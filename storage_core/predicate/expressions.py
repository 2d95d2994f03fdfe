"""A parsed predicate: names, literals and conditions, not yet compared with a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InvalidPredicateError

Comparator = Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]
LiteralKind = Literal[
    "null",
    "boolean",
    "integer",
    "decimal",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "interval",
]
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the text something stands: from ``start`` up to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Name:
    """A column, or a field inside one: ``ctx.a`` has two parts."""

    parts: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Value:
    """A literal.

    ``value`` is None, a bool, int, Decimal, float, str or bytes. A date is its days, an interval
    its microseconds, and a timestamp its microseconds and whether the text names a time zone.
    """

    kind: LiteralKind
    value: Any
    place: Place


Operand = Name | Value


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: Comparator
    left: Operand
    right: Operand
    place: Place


@dataclass(frozen=True, slots=True)
class InList:
    name: Name
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    name: Name


@dataclass(frozen=True, slots=True)
class Truth:
    """A column or a literal that is a condition by itself."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class Every:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    conditions: tuple[Condition, ...]


Condition = Comparison | InList | IsNull | Truth | Not | Every | Some


@dataclass(frozen=True, slots=True)
class Expression:
    """A whole predicate with its text, which errors show."""

    text: str
    condition: Condition


def refusal(text: str, place: Place, problem: str) -> InvalidPredicateError:
    """An error of one line that shows the place in the text between ``»`` and ``«``."""
    end = max(place.end, place.start)
    found = text[place.start : end]
    if len(found) > _SHOWN:
        found = found[:_SHOWN] + "…"
    before = text[max(0, place.start - _SHOWN) : place.start]
    after = text[end : end + _SHOWN]
    if place.start > _SHOWN:
        before = "…" + before
    if end + _SHOWN < len(text):
        after += "…"
    message = f"where: {problem}, at character {place.start + 1}: {before}»{found}«{after}"
    # The problem may quote the text too: a token or a name with a line break in it.
    return InvalidPredicateError(
        "".join(each if each.isprintable() else " " if each.isspace() else "?" for each in message)
    )
