"""The text of a ``where`` as an expression, by the grammar of Spark's SQL."""

from __future__ import annotations

from typing import NoReturn

from ..errors import InvalidPredicateError
from . import literals
from .expressions import (
    Comparator,
    Comparison,
    Condition,
    Every,
    Expression,
    InList,
    IsNull,
    Name,
    Not,
    Operand,
    Place,
    Some,
    Truth,
    Value,
    refusal,
)
from .tokens import Token, tokenize

MAX_TEXT = 200_000
"""Characters of a predicate. It goes to every task."""
MAX_DEPTH = 50
"""Levels of parentheses."""

_COMPARATORS: dict[str, Comparator] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "<=>",
}
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_RESERVED = {"AND", "OR", "NOT", "IN", "BETWEEN", "IS", *_CONSTANTS}
_UNDERSTOOD = "=, !=, <, <=, >, >=, <=>, IN, BETWEEN, IS NULL, AND, OR and NOT"
_SHOWN = 20


def parse(text: str) -> Expression:
    """Read a predicate in Spark's SQL.

    It understands comparisons of columns and literals, ``AND``, ``OR``, ``NOT``, ``IN``,
    ``BETWEEN`` and ``IS NULL``.

    Raises:
        InvalidPredicateError: shows the place of what is not understood.
    """
    if not isinstance(text, str):
        raise InvalidPredicateError(f"where: expected a text, found {type(text).__name__}")
    if len(text) > MAX_TEXT:
        place = Place(MAX_TEXT, MAX_TEXT)
        raise refusal(text, place, f"expected at most {MAX_TEXT:,} characters, found {len(text):,}")
    if not text.strip():
        raise refusal(text, Place(0, 0), "expected a condition, found nothing")
    return Expression(text, _Parser(text).run())


class _Parser:
    """Goes through the tokens once; a method for each level of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._next = 0
        self._depth = 0

    def run(self) -> Condition:
        found = self._condition(self._any())
        if self._peek.kind != "end":
            self._refuse_operator(self._peek)
        return found

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek
        if token.kind != "end":
            self._next += 1
        return token

    def _skip_word(self, word: str) -> bool:
        found = self._peek.is_word(word)
        self._next += found
        return found

    def _any(self) -> Operand | Condition:
        """Conditions with OR between them, or a single operand."""
        first = self._all()
        if not self._peek.is_word("OR"):
            return first
        found = [self._condition(first)]
        while self._skip_word("OR"):
            found.append(self._condition(self._all()))
        return Some(tuple(found))

    def _all(self) -> Operand | Condition:
        """Conditions with AND between them, or a single operand."""
        first = self._negated()
        if not self._peek.is_word("AND"):
            return first
        found = [self._condition(first)]
        while self._skip_word("AND"):
            found.append(self._condition(self._negated()))
        return Every(tuple(found))

    def _negated(self) -> Operand | Condition:
        count = 0
        while self._skip_word("NOT"):
            count += 1
        found = self._predicate()
        if count == 0:
            return found
        condition = self._condition(found)
        return Not(condition) if count % 2 else condition

    def _predicate(self) -> Operand | Condition:
        """An operand and what may follow it: a comparison, IN, BETWEEN or IS NULL."""
        start = self._peek.place.start
        left, token = self._operand_or_group(), self._peek
        if token.kind == "symbol" and token.text in _COMPARATORS:
            operand = self._operand(left, start)
            self._take()
            return self._compare(_COMPARATORS[token.text], operand)
        negated = token.is_word("NOT")
        if negated:
            self._take()
        token = self._peek
        if token.is_word("BETWEEN"):
            found = self._between(self._operand(left, start))
        elif token.is_word("IN"):
            found = self._in_list(self._column(left, start, token))
        elif negated:
            self._refuse_operator(token)
        elif token.is_word("IS"):
            return self._is_null(self._column(left, start, token))
        else:
            return left
        return Not(found) if negated else found

    def _compare(self, operator: Comparator, left: Operand) -> Comparison:
        right = self._right()
        return Comparison(operator, left, right, Place(left.place.start, right.place.end))

    def _right(self) -> Operand:
        start = self._peek.place.start
        return self._operand(self._operand_or_group(), start)

    def _between(self, left: Operand) -> Condition:
        self._take()
        low = self._compare(">=", left)
        if not self._skip_word("AND"):
            raise self._refusal(self._peek.place, "expected AND after the first value of BETWEEN")
        return Every((low, self._compare("<=", left)))

    def _in_list(self, name: Name) -> InList:
        self._take()
        if not self._peek.is_symbol("("):
            raise self._refusal(self._peek.place, "expected ( after IN")
        values = list[Value]()
        while True:
            self._take()
            token = self._peek
            value = self._value()
            if value is None:
                raise self._refusal(token.place, "expected a literal in the list of IN")
            values.append(value)
            if self._peek.is_symbol(")"):
                self._take()
                return InList(name, tuple(values))
            if not self._peek.is_symbol(","):
                raise self._refusal(self._peek.place, "expected , or ) in the list of IN")

    def _is_null(self, name: Name) -> Condition:
        self._take()
        negated = self._skip_word("NOT")
        if not self._skip_word("NULL"):
            problem = "expected NULL after IS; for a boolean write <=> true"
            raise self._refusal(self._peek.place, problem)
        return Not(IsNull(name)) if negated else IsNull(name)

    def _operand_or_group(self) -> Operand | Condition:
        """A literal, a column, or anything in parentheses."""
        token = self._peek
        if not token.is_symbol("("):
            return self._value() or self._name()
        if self._depth == MAX_DEPTH:
            raise self._refusal(token.place, f"more than {MAX_DEPTH} levels of parentheses")
        self._take()
        self._depth += 1
        found = self._any()
        self._depth -= 1
        if self._peek.kind == "end":
            raise self._refusal(token.place, "this parenthesis is not closed")
        if not self._peek.is_symbol(")"):
            self._refuse_operator(self._peek)
        self._take()
        return found

    def _condition(self, found: Operand | Condition) -> Condition:
        """What stands where a condition must stand: a column or a literal is one by itself."""
        if isinstance(found, Value) and found.kind not in ("boolean", "null"):
            raise self._refusal(found.place, "expected a condition, found a literal")
        return Truth(found) if isinstance(found, Name | Value) else found

    def _operand(self, found: Operand | Condition, start: int) -> Operand:
        if isinstance(found, Name | Value):
            return found
        place = Place(start, self._tokens[self._next - 1].place.end)
        raise self._refusal(place, "expected a column or a literal to compare, found a condition")

    def _column(self, found: Operand | Condition, start: int, operator: Token) -> Name:
        if isinstance(found, Name):
            return found
        place = Place(start, operator.place.end)
        raise self._refusal(place, f"expected a column before {operator.text.upper()}")

    def _name(self) -> Name:
        """A column: names joined by dots."""
        start, parts = self._peek.place.start, [self._part()]
        while self._peek.is_symbol("."):
            self._take()
            parts.append(self._part())
        if self._peek.is_symbol("("):
            raise self._refusal(self._tokens[self._next - 1].place, "functions are not understood")
        return Name(tuple(parts), Place(start, self._tokens[self._next - 1].place.end))

    def _part(self) -> str:
        token = self._take()
        if token.kind == "quoted" and len(token.text) > 2:
            return token.text[1:-1].replace("``", "`")
        expected = f"expected a column or a literal, found {_shown(token)}"
        if token.kind != "word":
            raise self._refusal(token.place, expected)
        if token.text.upper() in _RESERVED:
            raise self._refusal(token.place, f"{expected}; a column of this name is `{token.text}`")
        return token.text

    def _value(self) -> Value | None:
        """The literal that begins here, or None if there is none."""
        token, after = self._peek, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        place = token.place
        if token.kind == "number" or (token.text in ("+", "-") and after.kind == "number"):
            return self._number()
        if token.is_word(*_CONSTANTS):
            constant = _CONSTANTS[self._take().text.upper()]
            return Value("null" if constant is None else "boolean", constant, place)
        if token.kind == "string":
            return Value("string", self._string(), place)
        if token.kind == "bytes":
            return self._bytes()
        if after.kind == "string":
            if token.is_word("INTERVAL"):
                return self._interval()
            if token.is_word("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
                return self._time()
        return None

    def _number(self) -> Value:
        start, sign = self._peek.place.start, ""
        if self._peek.kind == "symbol":
            sign = self._take().text
        token = self._take()
        place, found = Place(start, token.place.end), literals.read_number(sign, token.text)
        if found is None:
            problem = "expected a number such as 5, 1.25 or 1.25e0, with at most 38 digits"
            raise self._refusal(place, problem)
        return Value(*found, place)

    def _string(self) -> str:
        token = self._take()
        found = literals.read_string(token.text)
        if found is None:
            problem = r"expected \\, \', \", \n, \t or \r after a backslash, and valid Unicode"
            raise self._refusal(token.place, problem)
        if self._peek.kind == "string":
            raise self._refusal(self._peek.place, "expected one text, found two")
        return found

    def _bytes(self) -> Value:
        token = self._take()
        found = literals.read_binary(token.text[2:-1])
        if found is None:
            raise self._refusal(token.place, "expected two hexadecimal digits for each byte")
        return Value("binary", found, token.place)

    def _time(self) -> Value:
        token = self._take()
        kind, place = token.text.upper(), Place(token.place.start, self._peek.place.end)
        text = self._string()
        if kind == "DATE":
            days = literals.read_date(text)
            if days is None:
                raise self._refusal(place, "expected DATE'2026-11-01'")
            return Value("date", days, place)
        time = literals.read_timestamp(text)
        if time is None or (kind == "TIMESTAMP_NTZ" and time[1]):
            zone = "" if kind == "TIMESTAMP_NTZ" else ", with Z or +01:00 after it if not UTC"
            raise self._refusal(place, f"expected {kind}'2026-11-01 12:30:00.5'{zone}")
        return Value("timestamp_ntz" if kind == "TIMESTAMP_NTZ" else "timestamp", time, place)

    def _interval(self) -> Value:
        start = self._take().place.start
        text = self._string()
        first = last = self._take()
        if self._skip_word("TO"):
            last = self._take()
        place = Place(start, last.place.end)
        found = literals.read_interval(text, first.text.upper(), last.text.upper())
        if found is None:
            example = "INTERVAL '1 02:03:04.5' DAY TO SECOND or INTERVAL '90' MINUTE"
            raise self._refusal(place, f"expected {example}")
        return Value("interval", found, place)

    def _refuse_operator(self, token: Token) -> NoReturn:
        raise self._refusal(
            token.place, f"{_shown(token)} is not understood here; {_UNDERSTOOD} are"
        )

    def _refusal(self, place: Place, problem: str) -> InvalidPredicateError:
        return refusal(self._text, place, problem)


def _shown(token: Token) -> str:
    return token.text if len(token.text) <= _SHOWN else token.text[:_SHOWN] + "…"
