"""Columns as Spark's DDL: ``id BIGINT NOT NULL, tags ARRAY<STRING>, at STRUCT<x: INT>``.

Takes what ``StructType.fromDDL`` takes and gives the same columns, if a topic can store them.
DDL does not say whether elements of arrays and values of maps may be null: read from it, they may.
Comments are refused, because a topic would not keep them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, NoReturn

import pyarrow as pa

from ..errors import InvalidSchemaError
from .fields import ELEMENT, KEY, MAX_DEPTH, VALUE, Field, Path, from_arrow, sql_type

_TOKEN = re.compile(r"(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<mark>[<>(),:])")
_SPACE = re.compile(r"\s*")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 30

_UTC = pa.timestamp("us", tz="UTC")
_SIMPLE = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": _UTC,
    "TIMESTAMP_LTZ": _UTC,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "VOID": pa.null(),
}
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_WHOLE_INTERVAL = "interval day to second"
_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False),
    ]
)
# What an annotation may be for to_ddl to show it: the engine hands back any text.
_ANNOTATIONS = {
    pa.string(): re.compile(r"string collate \w{1,64}|(?:var)?char\(\d{1,9}\)"),
    pa.duration("us"): re.compile(r"interval (?:day|hour|minute|second)(?: to \w{4,6})?"),
    _VARIANT: re.compile("variant"),
}


def parse_ddl(text: str) -> tuple[Field, ...]:
    """The columns that the text lists, with ids from 1 on.

    Raises:
        InvalidSchemaError: the text is not DDL, with the place; or a name is not allowed.
        UnsupportedTypeError: a topic cannot store a type.
    """
    parser = _Parser(text)
    columns = parser.columns()
    return from_arrow(columns, parser.annotations)


def to_ddl(fields: Iterable[Field]) -> str:
    """The columns as Spark's DDL, without ids and without what DDL cannot say."""
    return ", ".join(_column(field, " ") for field in fields)


def _column(field: Field, between: str) -> str:
    rest = "" if field.nullable else " NOT NULL"
    return f"{quoted(field.name)}{between}{type_ddl(field)}{rest}"


def quoted(name: str) -> str:
    """The name as DDL has it: in backticks unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def type_ddl(field: Field) -> str:
    """The type of a column as DDL."""
    kind, types = field.type, pa.types
    known = _ANNOTATIONS.get(kind)
    if known and known.fullmatch(field.annotation):
        name, collate, collation = field.annotation.partition(" collate ")
        return name.upper() + collate.upper() + collation
    if types.is_struct(kind):
        return f"STRUCT<{', '.join(_column(child, ': ') for child in field.children)}>"
    if types.is_list(kind):
        return f"ARRAY<{type_ddl(field.children[0])}>"
    if types.is_map(kind):
        return f"MAP<{', '.join(map(type_ddl, field.children))}>"
    return sql_type(kind).upper()


class _Token(NamedTuple):
    at: int
    text: str
    """A word, a mark, or the name inside backticks; empty at the end."""
    is_quoted: bool = False

    @property
    def word(self) -> str:
        return "" if self.is_quoted else self.text.upper()


class _Parser:
    """Reads the text from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self.annotations: dict[Path, str] = {}
        self._text = text
        self._end = 0
        self._next = self._scan()

    def columns(self) -> list[pa.Field]:
        found = [self._column(())]
        while self._accept(","):
            found.append(self._column(()))
        if self._next.text:
            self._refuse("a comma, NOT NULL or the end")
        return found

    def _column(self, parent: Path) -> pa.Field:
        name = self._name()
        self._accept(":")
        path = (*parent, name)
        kind = self._type(path)
        nullable = not self._accept("NOT")
        if not nullable:
            self._expect("NULL")
            if pa.types.is_null(kind):
                raise InvalidSchemaError(f"column {quoted(name)}: VOID cannot be NOT NULL.")
        return pa.field(name, kind, nullable)

    def _name(self) -> str:
        token = self._next
        if not token.is_quoted and not (
            token.text and (token.text[0].isalpha() or token.text[0] == "_")
        ):
            self._refuse("the name of a column; put unusual names in `backticks`")
        return self._take().text

    def _type(self, path: Path) -> pa.DataType:
        if len(path) > MAX_DEPTH:
            self._refuse(f"at most {MAX_DEPTH} levels of nesting")
        word = self._next.word
        special = self._SPECIAL.get(word)
        if special is not None:
            self._take()
            return special(self, path)
        kind = _SIMPLE.get(word)
        if kind is None:
            self._refuse(
                "a type, such as BIGINT, STRING, TIMESTAMP or ARRAY<INT>; put unusual names in "
                "`backticks`"
            )
        self._take()
        if word == "STRING" and self._accept("COLLATE"):
            self._collation(path)
        return kind

    def _collation(self, path: Path) -> None:
        name = self._name()
        if name.upper().startswith(("UTF8_", "UNICODE")):
            name = name.upper()
        if name != "UTF8_BINARY":
            self.annotations[path] = f"string collate {name}"

    def _array(self, path: Path) -> pa.DataType:
        self._expect("<")
        element = self._type((*path, ELEMENT))
        self._expect(">")
        return pa.list_(pa.field(ELEMENT, element))

    def _map(self, path: Path) -> pa.DataType:
        self._expect("<")
        if self._next.word == "VOID":
            self._refuse("the type of a map's keys, which cannot be VOID")
        key = self._type((*path, KEY))
        self._expect(",")
        value = self._type((*path, VALUE))
        self._expect(">")
        return pa.map_(pa.field(KEY, key, nullable=False), pa.field(VALUE, value))

    def _struct(self, path: Path) -> pa.DataType:
        self._expect("<")
        found: list[pa.Field] = []
        while not self._accept(">"):
            if found:
                self._expect(",")
            found.append(self._column(path))
        return pa.struct(found)

    def _decimal(self, _path: Path) -> pa.DataType:
        if not self._accept("("):
            return pa.decimal128(10, 0)
        precision = self._number("a number of digits from 1 to 38", 1, 38)
        scale = 0
        if self._accept(","):
            scale = self._number(f"a scale from 0 to {precision}", 0, precision)
        self._expect(")")
        return pa.decimal128(precision, scale)

    def _char(self, path: Path) -> pa.DataType:
        return self._text_of("char", path)

    def _varchar(self, path: Path) -> pa.DataType:
        return self._text_of("varchar", path)

    def _text_of(self, name: str, path: Path) -> pa.DataType:
        self._expect("(")
        length = self._number("a length of 1 or more", 1, 999_999_999)
        self._expect(")")
        self.annotations[path] = f"{name}({length})"
        return pa.string()

    def _interval(self, path: Path) -> pa.DataType:
        first = self._unit(_UNITS, "DAY, HOUR, MINUTE or SECOND: other intervals cannot be stored")
        last = first
        if self._accept("TO"):
            later = _UNITS[_UNITS.index(first) + 1 :]
            last = self._unit(later, f"a unit smaller than {first}")
        name = f"interval {first}" if first == last else f"interval {first} to {last}"
        if name.lower() != _WHOLE_INTERVAL:
            self.annotations[path] = name.lower()
        return pa.duration("us")

    def _unit(self, units: Sequence[str], wanted: str) -> str:
        if self._next.word not in units:
            self._refuse(wanted)
        return self._take().word

    def _variant(self, path: Path) -> pa.DataType:
        self.annotations[path] = "variant"
        return _VARIANT

    _SPECIAL: ClassVar[Mapping[str, Callable[[_Parser, Path], pa.DataType]]] = {
        "ARRAY": _array,
        "MAP": _map,
        "STRUCT": _struct,
        "DECIMAL": _decimal,
        "DEC": _decimal,
        "NUMERIC": _decimal,
        "CHAR": _char,
        "CHARACTER": _char,
        "VARCHAR": _varchar,
        "INTERVAL": _interval,
        "VARIANT": _variant,
    }

    def _number(self, wanted: str, least: int, most: int) -> int:
        text = self._next.word
        if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
            self._refuse(wanted)
        self._take()
        return int(text)

    def _scan(self) -> _Token:
        space = _SPACE.match(self._text, self._end)
        at = space.end() if space else self._end
        found = _TOKEN.match(self._text, at)
        if found is None:
            self._end = at
            # Nothing that can be in DDL: never equal to what is expected, so it is refused.
            return _Token(at, self._text[at : at + 1])
        self._end = found.end()
        name = found["quoted"]
        if name is not None:
            return _Token(at, name.replace("``", "`"), is_quoted=True)
        return _Token(at, found[0])

    def _take(self) -> _Token:
        taken, self._next = self._next, self._scan()
        return taken

    def _accept(self, word: str) -> bool:
        if self._next.word != word:
            return False
        self._take()
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            self._refuse(word)

    def _refuse(self, wanted: str) -> NoReturn:
        at = self._next.at
        rest = self._text[at:]
        shown = repr(rest if len(rest) <= _SHOWN else f"{rest[:_SHOWN]}…") if rest else "the end"
        raise InvalidSchemaError(
            f"the schema cannot be read at character {at + 1}: found {shown}, expected {wanted}."
        )
