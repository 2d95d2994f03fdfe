"""The text of a predicate as tokens. sqlglot cuts the text; this module refuses the rest of SQL.

sqlglot reads the SQL of thirty systems. It skips comments, joins texts that stand side by side and
knows hundreds of words. Its tokenizer gets only the words of a predicate here, and a token that is
not one of a predicate is an error at its place.
"""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

import sqlglot
from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from ..errors import InvalidPredicateError
from .expressions import Place, refusal

MAX_DEPTH = 20
"""Levels of parentheses and of NOT. sqlglot calls itself about twenty times for each."""
SIGNS = (TokenType.PLUS, TokenType.DASH)
WORDS = {
    "AND": TokenType.AND,
    "OR": TokenType.OR,
    "NOT": TokenType.NOT,
    "IN": TokenType.IN,
    "BETWEEN": TokenType.BETWEEN,
    "IS": TokenType.IS,
    "NULL": TokenType.NULL,
    "TRUE": TokenType.TRUE,
    "FALSE": TokenType.FALSE,
}
_TYPES = {
    "DATE": TokenType.DATE,
    "TIMESTAMP": TokenType.TIMESTAMPTZ,
    "TIMESTAMP_LTZ": TokenType.TIMESTAMPLTZ,
    "TIMESTAMP_NTZ": TokenType.TIMESTAMPNTZ,
    "INTERVAL": TokenType.INTERVAL,
}
TYPES = frozenset(_TYPES.values()) - {TokenType.INTERVAL}
_OPERATORS = {
    "=": TokenType.EQ,
    "==": TokenType.EQ,
    "!=": TokenType.NEQ,
    "<>": TokenType.NEQ,
    "<": TokenType.LT,
    "<=": TokenType.LTE,
    ">": TokenType.GT,
    ">=": TokenType.GTE,
    "<=>": TokenType.NULLSAFE_EQ,
}
_LITERALS = {TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING}
_PUNCTUATION = {TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT, *SIGNS}
_OPERAND_ENDS = {
    TokenType.IDENTIFIER,
    TokenType.NULL,
    TokenType.TRUE,
    TokenType.FALSE,
    TokenType.R_PAREN,
    *_LITERALS,
}
_UNDERSTOOD = {
    TokenType.IDENTIFIER,
    *WORDS.values(),
    *_TYPES.values(),
    *_OPERATORS.values(),
    *_LITERALS,
    *_PUNCTUATION,
}
_OPERATIONS = "=, !=, <, <=, >, >=, <=>, IN, BETWEEN, IS NULL, AND, OR and NOT"
_AFTERWARDS = "filter by that after the read"
_SHOWN = 20
_WORD = re.compile(r"[^\W\d]\w*")
_Quotes = list[str | tuple[str, str]]


class _Tokenizer(sqlglot.Tokenizer):
    QUOTES: ClassVar[_Quotes] = ["'", '"']
    IDENTIFIERS: ClassVar[_Quotes] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
    HEX_STRINGS: ClassVar[_Quotes] = [("X'", "'"), ("x'", "'"), ('X"', '"'), ('x"', '"')]
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
        **sqlglot.Tokenizer.SINGLE_TOKENS,
        "!": TokenType.EXCLAMATION,
    }
    KEYWORDS: ClassVar[dict[str, TokenType]] = {**WORDS, **_TYPES, **_OPERATORS}
    COMMENTS: ClassVar[_Quotes] = []
    COMMANDS: ClassVar[set[TokenType]] = set()


class Token(NamedTuple):
    """One token. ``text`` is as written, with its quotes."""

    kind: TokenType
    text: str
    place: Place


def tokenize(text: str) -> list[Token]:
    """The tokens of a text.

    A name is an ``IDENTIFIER``, in backticks or not. A sign is a token of its own.

    Raises:
        InvalidPredicateError: something is not of a predicate, or a quote or a parenthesis is open.
    """
    tokens = list[Token]()
    for found in _cut(text):
        place = Place(found.start, found.end + 1)
        if tokens and _is_fraction(tokens[-1], found):
            place = Place(tokens.pop().place.start, place.end)
        _check_gap(text, tokens, place.start)
        token = Token(found.token_type, text[place.start : place.end], place)
        tokens.append(_classified(text, token))
    _check_gap(text, tokens, len(text))
    _check_nesting(text, tokens)
    return [_in_context(text, tokens, index) for index in range(len(tokens))]


def _cut(text: str) -> list[sqlglot.Token]:
    tokenizer = _Tokenizer(dialect=Spark)
    try:
        return tokenizer.tokenize(text)
    except TokenError as error:
        after = tokenizer.tokens[-1].end + 1 if tokenizer.tokens else 0
        start = after + len(text[after:]) - len(text[after:].lstrip())
        quote = text[start + 1 : start + 2]
        if text[start : start + 1] in ("x", "X") and quote in text[start + 2 :]:
            problem = "expected two hexadecimal digits for each byte"
        else:
            problem = "this quote is not closed"
        raise refusal(text, Place(start, start + 1), problem) from error


def _is_fraction(before: Token, found: sqlglot.Token) -> bool:
    """Whether a dot and digits right after it are a number such as ``.5``."""
    starts = before.kind == TokenType.DOT and before.place.end == found.start
    return starts and found.text[:1].isdigit() and found.token_type != TokenType.HEX_STRING


def _classified(text: str, token: Token) -> Token:
    """A token with its kind in a predicate.

    A number with a suffix is a word that begins with a digit to sqlglot, and 0x5 one of bytes.
    """
    raw, kind = token.text, token.kind
    if raw[0].isdigit() or (raw[0] == "." and len(raw) > 1):
        kind = TokenType.NUMBER
    elif kind == TokenType.VAR:
        kind = TokenType.IDENTIFIER
        if _WORD.fullmatch(raw) is None:
            known = _WORD.match(raw)
            start = token.place.start + (known.end() if known else 0)
            raise refusal(text, Place(start, start + 1), "this character is not understood here")
    if kind not in _UNDERSTOOD:
        raise refusal(text, token.place, f"this is not understood here; {_AFTERWARDS}")
    return token._replace(kind=kind)


def _check_gap(text: str, tokens: list[Token], start: int) -> None:
    """Between tokens is nothing but space. sqlglot drops what it takes for a comment."""
    end = tokens[-1].place.end if tokens else 0
    gap = text[end:start]
    if gap.strip():
        start = end + len(gap) - len(gap.lstrip())
        raise refusal(text, Place(start, start + 1), "this character is not understood here")


def _check_nesting(text: str, tokens: list[Token]) -> None:
    opened, levels, negations = list[tuple[Token, int]](), 0, 0
    for token in tokens:
        if token.kind == TokenType.NOT:
            negations += 1
            levels += 1
        else:
            if token.kind == TokenType.L_PAREN:
                opened.append((token, negations))
                levels += 1
            elif token.kind == TokenType.R_PAREN:
                if not opened:
                    raise refusal(text, token.place, ") is not understood here")
                levels -= opened.pop()[1] + 1 + negations
            else:
                levels -= negations
            negations = 0
        if levels > MAX_DEPTH:
            raise refusal(text, token.place, f"more than {MAX_DEPTH} levels of parentheses or NOT")
    if opened:
        raise refusal(text, opened[-1][0].place, "this parenthesis is not closed")


def _in_context(text: str, tokens: list[Token], index: int) -> Token:
    """A token by what follows it: DATE is a type before a text and a name elsewhere."""
    token = tokens[index]
    after = tokens[index + 1].kind if index + 1 < len(tokens) else None
    is_type = token.kind in _TYPES.values()
    if is_type and after != TokenType.STRING:
        token = token._replace(kind=TokenType.IDENTIFIER)
    if token.kind == TokenType.IDENTIFIER and after == TokenType.L_PAREN:
        raise refusal(text, token.place, f"functions are not understood; {_AFTERWARDS}")
    if token.kind == TokenType.IDENTIFIER and token.text == "``":
        raise refusal(text, token.place, "expected a name in these backticks")
    return token


def not_understood(text: str, tokens: list[Token], index: int) -> InvalidPredicateError:
    """The error for a token that cannot stand where it is, or for the end of the text."""
    after_operand = index > 0 and tokens[index - 1].kind in _OPERAND_ENDS
    if index == len(tokens):
        operator = "" if not after_operand else "an operator, "
        problem = f"expected {operator}a column or a literal, found the end"
        return refusal(text, Place(len(text), len(text)), problem)
    token = tokens[index]
    if after_operand:
        problem = f"{_shown(token.text)} is not understood here; {_OPERATIONS} are; {_AFTERWARDS}"
        return refusal(text, token.place, problem)
    problem = f"expected a column or a literal, found {_shown(token.text)}"
    if token.kind in WORDS.values():
        problem += f"; a column of this name is `{token.text}`"
    return refusal(text, token.place, problem)


def _shown(text: str) -> str:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return shown if shown.isprintable() else ascii(shown)
