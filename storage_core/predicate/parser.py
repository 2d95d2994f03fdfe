"""The text of a ``where`` as an expression, by sqlglot's grammar of Spark's SQL.

sqlglot says how the tokens group. It accepts more than a predicate, and it leaves out or rewrites
some of what it reads: it takes ``a between 1 2`` and ``a in (1,)``. So its tree is read together
with the tokens: every token has its place in the tree and none is left over, or the text is refused
where they part. Names and literals are read from the tokens, never from the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError

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
from .tokens import SIGNS, TYPES, Token, not_understood, tokenize

MAX_TEXT = 200_000
"""Characters of a predicate. It goes to every task."""

_COMPARATORS: dict[type[exp.Expr], tuple[TokenType, Comparator]] = {
    exp.EQ: (TokenType.EQ, "="),
    exp.NEQ: (TokenType.NEQ, "!="),
    exp.LT: (TokenType.LT, "<"),
    exp.LTE: (TokenType.LTE, "<="),
    exp.GT: (TokenType.GT, ">"),
    exp.GTE: (TokenType.GTE, ">="),
    exp.NullSafeEQ: (TokenType.NULLSAFE_EQ, "<=>"),
}
_CONDITIONS = (exp.Predicate, exp.Connector, exp.Not)
_CONSTANTS = {TokenType.NULL: None, TokenType.TRUE: True, TokenType.FALSE: False}
# What cannot be the last token: something must follow it.
_AWAITING = {
    *(kind for kind, _ in _COMPARATORS.values()),
    *(TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.BETWEEN, TokenType.IS),
    *(TokenType.DOT, TokenType.COMMA, *SIGNS),
}
_Read = TypeVar("_Read", Operand, Condition)
# What sqlglot sees instead of names and literals, so that none of them has a meaning to it.
_STAND_INS = {
    TokenType.IDENTIFIER: "x",
    TokenType.STRING: "x",
    TokenType.NUMBER: "0",
    TokenType.HEX_STRING: "00",
}


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
    tokens = tokenize(text)
    try:
        return Expression(text, _Reading(text, tokens).run(_tree(text, tokens)))
    except RecursionError as error:
        problem = "too many levels of parentheses for the stack of this call"
        raise refusal(text, Place(0, len(text)), problem) from error


def _tree(text: str, tokens: list[Token]) -> exp.Expr:
    """How sqlglot groups the tokens."""
    parser = Spark().parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=len(text))
    try:
        (found,) = parser.parse_into(exp.Condition, list(map(_stand_in, tokens)), text)
    except ParseError as error:
        raise not_understood(text, tokens, _failed_at(tokens, error)) from error
    except RecursionError:
        raise
    except Exception as error:
        # A grammar of thirty systems meets any text here: what it stumbles over is not understood.
        raise refusal(text, Place(0, len(text)), "this is not understood") from error
    if found is None:
        raise not_understood(text, tokens, 0)
    return found


def _stand_in(token: Token) -> sqlglot.Token:
    kind, text = token.kind, _STAND_INS.get(token.kind, token.text)
    if kind == TokenType.IDENTIFIER and not token.text.startswith("`"):
        kind = TokenType.VAR
        if token.text.upper() == "TO":  # sqlglot knows this word of intervals by its text
            text = "TO"
    return sqlglot.Token(kind, text, start=token.place.start, end=token.place.end - 1)


def _failed_at(tokens: list[Token], error: ParseError) -> int:
    """The index of the token that sqlglot did not expect; their number stands for the end."""
    start = len(error.errors[0]["start_context"])
    index = next((i for i, token in enumerate(tokens) if token.place.start >= start), len(tokens))
    # At the end of the text sqlglot shows the last token.
    is_last = index == len(tokens) - 1
    return index + 1 if is_last and tokens[index].kind in _AWAITING else index


class _Reading:
    """Goes through sqlglot's tree and the tokens side by side."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    def run(self, tree: exp.Expr) -> Condition:
        found = self._condition(tree)
        if self._next < len(self._tokens):
            raise not_understood(self._text, self._tokens, self._next)
        return found

    @property
    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    @property
    def _start(self) -> int:
        return self._peek.place.start if self._peek else len(self._text)

    def _is(self, *kinds: TokenType) -> bool:
        return self._peek is not None and self._peek.kind in kinds

    def _take(self, *kinds: TokenType) -> Token:
        """The next token, which must be of one of these kinds."""
        token = self._peek
        if token is None or token.kind not in kinds:
            raise not_understood(self._text, self._tokens, self._next)
        self._next += 1
        return token

    def _since(self, start: int) -> Place:
        return Place(start, self._tokens[max(self._next - 1, 0)].place.end)

    def _condition(self, node: exp.Expr) -> Condition:
        start = self._start
        match node:
            case exp.Paren():
                return self._in_parentheses(self._condition, node)
            case exp.Or():
                return Some(self._joined(node, exp.Or, TokenType.OR))
            case exp.And():
                return Every(self._joined(node, exp.And, TokenType.AND))
            case exp.Not() if self._is(TokenType.NOT):
                self._take(TokenType.NOT)
                return _negated(self._condition(node.this))
            case exp.Not(this=exp.In() | exp.Between() | exp.Is() as inner):
                return Not(self._test(inner, negated=True))
            case exp.In() | exp.Between() | exp.Is():
                return self._test(node, negated=False)
        if type(node) in _COMPARATORS:
            return self._comparison(node)
        if isinstance(node, _CONDITIONS):
            raise not_understood(self._text, self._tokens, self._next)
        operand = self._operand(node)
        if isinstance(operand, Value) and operand.kind not in ("boolean", "null"):
            raise self._refusal(self._since(start), "expected a condition, found a literal")
        return Truth(operand)

    def _in_parentheses(self, read: Callable[[exp.Expr], _Read], node: exp.Expr) -> _Read:
        self._take(TokenType.L_PAREN)
        found = read(node.this)
        self._take(TokenType.R_PAREN)
        return found

    def _joined(
        self, node: exp.Expr, kind: type[exp.Expr], word: TokenType
    ) -> tuple[Condition, ...]:
        """Conditions with AND or OR between them: a tree as deep as they are many."""
        operands = list[exp.Expr]()
        while isinstance(node, kind):
            operands.append(node.expression)
            node = node.this
        found = [self._condition(node)]
        for operand in reversed(operands):
            self._take(word)
            found.append(self._condition(operand))
        return tuple(found)

    def _comparison(self, node: exp.Expr) -> Comparison:
        start = self._start
        kind, operator = _COMPARATORS[type(node)]
        left = self._operand(node.this)
        self._take(kind)
        right = self._operand(node.expression)
        return Comparison(operator, left, right, self._since(start))

    def _test(self, node: exp.Expr, *, negated: bool) -> Condition:
        """IN, BETWEEN or IS NULL, with NOT inside if it is negated."""
        start = self._start
        operand = self._operand(node.this)
        if not isinstance(node, exp.Is) and negated:
            self._take(TokenType.NOT)
        if isinstance(node, exp.Between):
            return self._between(node, operand)
        token = self._take(TokenType.IS if isinstance(node, exp.Is) else TokenType.IN)
        if not isinstance(operand, Name):
            problem = f"expected a column before {token.text.upper()}"
            raise self._refusal(self._since(start), problem)
        if isinstance(node, exp.In):
            return self._in_list(node, operand)
        if negated:
            self._take(TokenType.NOT)
        if not isinstance(node.expression, exp.Null):
            problem = "expected NULL after IS; for a boolean write <=> true"
            raise self._refusal(Place(self._start, self._start), problem)
        self._take(TokenType.NULL)
        return IsNull(operand)

    def _between(self, node: exp.Between, left: Operand) -> Condition:
        self._take(TokenType.BETWEEN)
        low = self._operand(node.args["low"])
        if not self._is(TokenType.AND):
            problem = "expected AND after the first value of BETWEEN"
            raise self._refusal(Place(self._start, self._start), problem)
        self._take(TokenType.AND)
        high = self._operand(node.args["high"])
        place = self._since(left.place.start)
        return Every((Comparison(">=", left, low, place), Comparison("<=", left, high, place)))

    def _in_list(self, node: exp.In, name: Name) -> InList:
        if not self._is(TokenType.L_PAREN):
            raise self._refusal(Place(self._start, self._start), "expected ( after IN")
        self._take(TokenType.L_PAREN)
        values = list[Value]()
        for item in node.expressions:
            if values:
                self._take(TokenType.COMMA)
            start, value = self._start, self._operand(item)
            if isinstance(value, Name) or isinstance(item, exp.Paren):
                problem = "expected a literal in the list of IN"
                raise self._refusal(self._since(start), problem)
            values.append(value)
        if not values or not self._is(TokenType.R_PAREN):
            place = Place(self._start, self._start)
            raise self._refusal(place, "expected literals in the list of IN, with , between them")
        self._take(TokenType.R_PAREN)
        return InList(name, tuple(values))

    def _operand(self, node: exp.Expr) -> Operand:
        start = self._start
        if isinstance(node.unnest(), _CONDITIONS):
            self._condition(node)
            problem = "expected a column or a literal to compare, found a condition"
            raise self._refusal(self._since(start), problem)
        match node:
            case exp.Paren():
                return self._in_parentheses(self._operand, node)
            case exp.Column() | exp.Dot():
                return self._name(len(node.parts))
            case exp.Literal(is_string=True):
                return self._text_value()
            case exp.Neg(this=exp.Literal(is_string=False)) | exp.Literal():
                return self._number(is_negative=isinstance(node, exp.Neg))
            case exp.Null() | exp.Boolean():
                token = self._take(*_CONSTANTS)
                constant = _CONSTANTS[token.kind]
                return Value("null" if constant is None else "boolean", constant, token.place)
            case exp.HexString():
                return self._bytes()
            case exp.Interval():
                return self._interval(node)
            case exp.Cast(this=exp.Literal(is_string=True)):
                return self._time()
        if isinstance(node, exp.Binary):
            self._operand(node.this)  # so that the error shows the operator
        raise not_understood(self._text, self._tokens, self._next)

    def _name(self, count: int) -> Name:
        """A column: names joined by dots."""
        start, parts = self._start, list[str]()
        for _ in range(count):
            if parts:
                self._take(TokenType.DOT)
            parts.append(_unquoted(self._take(TokenType.IDENTIFIER).text))
        return Name(tuple(parts), self._since(start))

    def _number(self, *, is_negative: bool) -> Value:
        start, sign = self._start, ""
        if is_negative or self._is(*SIGNS):
            sign = self._take(TokenType.DASH if is_negative else TokenType.PLUS).text
        token = self._take(TokenType.NUMBER)
        place, found = self._since(start), literals.read_number(sign, token.text)
        if found is None:
            problem = "expected a number such as 5, 1.25 or 1.25e0, with at most 38 digits"
            raise self._refusal(place, problem)
        return Value(*found, place)

    def _text_value(self) -> Value:
        start = self._start
        return Value("string", self._string(), self._since(start))

    def _string(self) -> str:
        token = self._take(TokenType.STRING)
        found = literals.read_string(token.text)
        if found is None:
            problem = r"expected \\, \', \", \n, \t or \r after a backslash, and valid Unicode"
            raise self._refusal(token.place, problem)
        if self._is(TokenType.STRING):
            raise self._refusal(Place(self._start, self._start), "expected one text, found two")
        return found

    def _bytes(self) -> Value:
        token = self._take(TokenType.HEX_STRING)
        found = literals.read_binary(token.text[2:-1])
        if found is None:
            raise self._refusal(token.place, "expected two hexadecimal digits for each byte")
        return Value("binary", found, token.place)

    def _time(self) -> Value:
        start, kind = self._start, self._take(*TYPES).text.upper()
        text = self._string()
        place = self._since(start)
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

    def _interval(self, node: exp.Interval) -> Value:
        start = self._start
        self._take(TokenType.INTERVAL)
        text, units = self._string(), list[str]()
        if "unit" in node.args:
            units.append(self._take(TokenType.IDENTIFIER).text.upper())
            if isinstance(node.args["unit"], exp.IntervalSpan):
                units.append(self._take(TokenType.IDENTIFIER).text.upper())
                units.append(self._take(TokenType.IDENTIFIER).text.upper())
        found = literals.read_interval(text, units[0], units[-1]) if units else None
        if found is None or units[1:2] not in ([], ["TO"]):
            example = "INTERVAL '1 02:03:04.5' DAY TO SECOND or INTERVAL '90' MINUTE"
            raise self._refusal(self._since(start), f"expected {example}")
        return Value("interval", found, self._since(start))

    def _refusal(self, place: Place, problem: str) -> InvalidPredicateError:
        return refusal(self._text, place, problem)


def _negated(condition: Condition) -> Condition:
    return condition.condition if isinstance(condition, Not) else Not(condition)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
