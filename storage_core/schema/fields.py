"""The columns of a typed topic, and the one Arrow type that each kind of value is stored as.

Arrow has several types for one kind of value, such as string, large_string and string_view. A topic
stores the canonical one: bool, int8 to int64, float32, float64, decimal128, string, binary, date32,
timestamp[us] with zone UTC or without, duration[us], list, map, struct, null. A column and every
field inside it has an id that the topic never uses again for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ..errors import InvalidSchemaError, UnsupportedTypeError

MAX_FIELD_ID = 0xFFFFFFFD
"""The ids after it belong to the system columns of a frame."""
MAX_DEPTH = 100
"""Levels of a nested type. Arrow's own files and streams stop at 64."""
RESERVED_NAMES = ("_topic", "_partition", "_offset", "_timestamp")
ELEMENT, KEY, VALUE = "element", "key", "value"

Path = tuple[str, ...]

_SHOWN = 5
_SQL_NAMES = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.duration("us"): "interval day to second",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column, or one field inside a nested one.

    ``children`` are the fields of a struct, the element of a list, or the key and the value of a
    map. ``annotation`` is the writer's own name of the type. The engine stores it and hands it
    back; it never looks into it.
    """

    id: int
    name: str
    type: pa.DataType
    nullable: bool = True
    children: tuple[Field, ...] = ()
    annotation: str = ""

    @property
    def arrow(self) -> pa.Field:
        """The field as Arrow describes it, without id and annotation."""
        return pa.field(self.name, self.type, self.nullable)


@dataclass(frozen=True)
class SchemaVersion:
    """All columns of a typed topic at one time. It never changes."""

    version: int
    fields: tuple[Field, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """Names, types and nullability of the columns."""
        return pa.schema([field.arrow for field in self.fields])

    @cached_property
    def by_id(self) -> Mapping[int, Field]:
        """Every field of every depth by its id."""
        return {field.id: field for field in walk(self.fields)}

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """Where in ``fields`` each column stands, by its id."""
        return {field.id: position for position, field in enumerate(self.fields)}

    @cached_property
    def max_id(self) -> int:
        """The highest id in use, 0 without columns."""
        return max(self.by_id, default=0)

    @cached_property
    def names(self) -> Mapping[str, Field]:
        """The columns by their exact names."""
        return {field.name: field for field in self.fields}

    @cached_property
    def _folded(self) -> Mapping[str, Field]:
        return {fold(field.name): field for field in self.fields}

    def by_name(self, name: str) -> Field | None:
        """The column of this name, in any case as in Spark. The exact case takes precedence."""
        return self.names.get(name) or self._folded.get(fold(name))

    def __hash__(self) -> int:
        return hash((self.version, len(self.fields)))  # quick, also for thousands of columns

    def __getstate__(self) -> tuple[int, tuple[Field, ...]]:
        return self.version, self.fields

    def __setstate__(self, state: tuple[int, tuple[Field, ...]]) -> None:
        self.__dict__.update(version=state[0], fields=state[1])


def fold(name: str) -> str:
    """The form in which two names that differ only in case are equal, as in Spark."""
    return name.lower()


def walk(fields: Iterable[Field]) -> Iterator[Field]:
    """The fields and everything inside them, a parent before its children."""
    for field in fields:
        yield field
        if field.children:
            yield from walk(field.children)


def dotted(path: Path) -> str:
    """A path for people: names joined by dots, in backticks where they are not plain words.

    It is one line: what cannot be printed is escaped.
    """
    return ".".join(name if name.isidentifier() else _in_backticks(name) for name in path)


def _in_backticks(name: str) -> str:
    shown = name if name.isprintable() else name.encode("unicode_escape").decode()
    return f"`{shown.replace('`', '``')}`"


def sql_type(kind: pa.DataType) -> str:
    """A type for people, as Spark names it; one that a topic does not store as Arrow names it."""
    if pa.types.is_struct(kind):
        inner = [f"{dotted((each.name,))}:{sql_type(each.type)}" for each in kind]
        more = ["…"] if len(inner) > _SHOWN else []
        return f"struct<{','.join([*inner[:_SHOWN], *more])}>"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SQL_NAMES.get(kind, str(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether a canonical type has fields inside."""
    return bool(pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind))


def nested_type(kind: pa.DataType, children: Sequence[Field]) -> pa.DataType:
    """The canonical type of the same kind (struct, list or map) with these children."""
    if pa.types.is_struct(kind):
        return pa.struct([child.arrow for child in children])
    if pa.types.is_list(kind):
        return pa.list_(children[0].arrow)
    return pa.map_(children[0].arrow, children[1].arrow)


def from_arrow(
    schema: pa.Schema | Iterable[pa.Field],
    annotations: Mapping[Path, str] | None = None,
    first_id: int = 1,
) -> tuple[Field, ...]:
    """The columns of an Arrow schema with canonical types and ids from ``first_id`` on.

    Args:
        schema: An Arrow schema, or Arrow fields.
        annotations: The writer's own names of types by path. A path is the name of the column,
            then names of struct fields, ``element``, ``key`` or ``value``.
        first_id: The id of the first column. A parent has a lower id than its children.

    Raises:
        UnsupportedTypeError: a type cannot be stored.
        InvalidSchemaError: a name is empty, reserved, or there twice.
    """
    fields = _Builder(annotations or {}, first_id).fields(tuple(schema), ())
    check_columns(fields)
    return fields


class _Builder:
    def __init__(self, annotations: Mapping[Path, str], first_id: int) -> None:
        self._annotations = annotations
        self._next_id = first_id

    def fields(self, found: Iterable[pa.Field], parent: Path) -> tuple[Field, ...]:
        return tuple(self._field(field.name, field.type, field.nullable, parent) for field in found)

    def _field(self, name: str, found: pa.DataType, nullable: bool, parent: Path) -> Field:
        path = (*parent, name)
        if len(path) > MAX_DEPTH:
            raise UnsupportedTypeError(
                f"column {dotted(path[:1])}: nested deeper than {MAX_DEPTH} levels. Flatten it."
            )
        number, self._next_id = self._next_id, self._next_id + 1
        kind, inner = canonical(found, path)
        children = tuple(
            self._field(child.name, child.type, child.nullable, path) for child in inner
        )
        if is_nested(kind):
            kind = nested_type(kind, children)
        # Spark sends the empty array() as elements of type null that are never null.
        nullable = nullable or pa.types.is_null(kind)
        return Field(number, name, kind, nullable, children, self._annotations.get(path, ""))


_SAME: Mapping[pa.DataType, pa.DataType] = {
    kind: stored
    for stored, kinds in {
        pa.null(): [],
        pa.bool_(): [],
        pa.int8(): [],
        pa.int16(): [pa.uint8()],
        pa.int32(): [pa.uint16()],
        pa.int64(): [pa.uint32()],
        pa.float32(): [pa.float16()],
        pa.float64(): [],
        pa.string(): [pa.large_string(), pa.string_view()],
        pa.binary(): [pa.large_binary(), pa.binary_view()],
        pa.date32(): [pa.date64()],
        pa.duration("us"): [pa.duration(unit) for unit in ("s", "ms", "ns")],
    }.items()
    for kind in [stored, *kinds]
}
_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def canonical(found: pa.DataType, path: Path) -> tuple[pa.DataType, tuple[pa.Field, ...]]:
    """The type that a column of any type is stored as, and the fields inside as they were found.

    A nested type still has its old children: the caller makes them canonical too.

    Raises:
        UnsupportedTypeError: values of this type cannot be stored.
    """
    stored = _SAME.get(found)
    if stored is not None:
        return stored, ()
    types = pa.types
    if types.is_timestamp(found):
        return pa.timestamp("us", tz="UTC" if found.tz else None), ()
    if types.is_decimal(found):
        return _decimal(found, path), ()
    if types.is_fixed_size_binary(found):
        return pa.binary(), ()
    if types.is_dictionary(found) or types.is_run_end_encoded(found):
        return canonical(found.value_type, path)
    if types.is_struct(found):
        return found, tuple(found.field(index) for index in range(found.num_fields))
    if any(is_list(found) for is_list in _LISTS):
        element = found.value_field.with_name(ELEMENT)
        return pa.list_(element), (element,)
    if types.is_map(found) and not types.is_null(found.key_type):
        return found, (
            pa.field(KEY, found.key_type, nullable=False),
            pa.field(VALUE, found.item_type, found.item_field.nullable),
        )
    raise UnsupportedTypeError(
        f"column {dotted(path)}: found type {found}, which a topic cannot store. {_advice(found)}"
    )


def _decimal(found: pa.DataType, path: Path) -> pa.DataType:
    if 1 <= found.precision <= 38 and 0 <= found.scale <= found.precision:
        return pa.decimal128(found.precision, found.scale)
    raise UnsupportedTypeError(
        f"column {dotted(path)}: found type {found}, which a topic cannot store. A decimal has 1 "
        "to 38 digits, and a scale from 0 to their number; cast it to one that has."
    )


def _advice(found: pa.DataType) -> str:
    types = pa.types
    if types.is_time(found):
        return "Cast it to an integer or to a string."
    if types.is_uint64(found):
        return "Cast it to int64, or to decimal128(20, 0)."
    if types.is_interval(found):
        return "Use a day-time interval (duration), or store months and days as integers."
    if isinstance(found, pa.BaseExtensionType):
        return f"Cast it to its storage type, {found.storage_type}."
    return "Cast it to a type that can be stored, or drop the column."


def check_columns(fields: Sequence[Field]) -> None:
    """Refuse columns that a topic cannot have: reserved names, and names that clash at any depth.

    Raises:
        InvalidSchemaError: with the name.
    """
    for field in fields:
        if fold(field.name) in RESERVED_NAMES:
            raise InvalidSchemaError(
                f"column {dotted((field.name,))}: the names {', '.join(RESERVED_NAMES)} are "
                "reserved, in any case. Rename the column."
            )
    _check_names(fields, ())


def _check_names(fields: Sequence[Field], parent: Path) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        path, folded = (*parent, field.name), fold(field.name)
        _check_name(field.name, parent)
        if folded in seen:
            _refuse_twice(seen[folded], path)
        seen[folded] = field.name
        if field.children:
            _check_names(field.children, path)


def _check_name(name: str, parent: Path) -> None:
    where = f" in {dotted(parent)}" if parent else ""
    if not name:
        raise InvalidSchemaError(f"a column{where} has an empty name. Name it.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchemaError(
            f"a column{where} has the name {name!r}, which is not valid Unicode. Rename it."
        ) from error


def _refuse_twice(other: str, path: Path) -> None:
    name = dotted(path)
    if other == path[-1]:
        raise InvalidSchemaError(f"column {name} is there twice. Rename or drop one.")
    raise InvalidSchemaError(
        f"columns {dotted((*path[:-1], other))} and {name} differ only in case. They are one name "
        "to a topic, as to Spark unless spark.sql.caseSensitive is true. Rename one."
    )
