"""The text of a predicate as tokens: names, literals, operators and parentheses."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .expressions import Place, refusal

TokenKind = Literal["word", "quoted", "number", "string", "bytes", "symbol", "end"]

_TOKENS = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\w*)
    | (?P<bytes>[xX](?:'[^']*'|"[^"]*"))
    | (?P<word>[^\W\d]\w*)
    | (?P<quoted>`(?:[^`]|``)*+`)
    | (?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | (?P<symbol><=>|<=|>=|<>|!=|==|[=<>(),.+-])
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """One token. ``text`` is as written, with its quotes."""

    kind: TokenKind
    text: str
    place: Place

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, in any case and not in quotes."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind == "symbol" and self.text == symbol


def tokenize(text: str) -> list[Token]:
    """The tokens of a text. The last one is its end.

    Raises:
        InvalidPredicateError: a character begins no token, or a quote is not closed.
    """
    found, start = list[Token](), 0
    while start < len(text):
        match = _TOKENS.match(text, start)
        if match is None:
            place = Place(start, start + 1)
            if text[start] in "'\"`":
                raise refusal(text, place, "this quote is not closed")
            raise refusal(text, place, "this character is not understood here")
        if match.lastgroup != "space":
            kind: TokenKind = match.lastgroup  # type: ignore[assignment]
            found.append(Token(kind, match[0], Place(start, match.end())))
        start = match.end()
    found.append(Token("end", "the end", Place(len(text), len(text))))
    return found
