"""A schema version as JSON: what a schema file holds.

A field is an object of ``id``, ``name``, ``type`` and ``nullable``, with ``children`` if the type
is nested and ``annotation`` if it has one. Nothing may be missing, and nothing else may be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ..errors import InvalidSchemaError
from ..io.checksum import crc32c
from .fields import (
    ELEMENT,
    KEY,
    MAX_DEPTH,
    MAX_FIELD_ID,
    VALUE,
    Field,
    Path,
    SchemaVersion,
    check_columns,
    dotted,
    nested_type,
)

MAX_VERSION = 0xFFFFFFFF
"""A frame names its schema version in four bytes."""

_TYPES = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[us, UTC]": pa.timestamp("us", tz="UTC"),
    "duration[us]": pa.duration("us"),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
# Only the kind of the type counts; its children stand beside it.
_NESTED = {
    "struct": pa.struct([]),
    "list": pa.list_(pa.null()),
    "map": pa.map_(pa.string(), pa.null()),
}
_CHILDREN = {"list": (ELEMENT,), "map": (KEY, VALUE)}
_DECIMAL = re.compile(r"decimal\(([1-9][0-9]?), (0|[1-9][0-9]?)\)", re.ASCII)
_REQUIRED = {"id", "name", "type", "nullable"}


def to_json(schema: SchemaVersion) -> dict[str, Any]:
    """The schema version as values that JSON has."""
    return {"version": schema.version, "fields": [_field_to_json(item) for item in schema.fields]}


@lru_cache(maxsize=64)
def checksum(
    schema: SchemaVersion, key_columns: tuple[str, ...], timestamp_column: str | None
) -> int:
    """CRC32C of a schema version and of what its topic does by columns.

    A topic that was created again may have other columns in this version. Or it has another key,
    and rows that were staged for the deleted one stand in other partitions than their keys.
    """
    found = [to_json(schema), key_columns, timestamp_column]
    return int(crc32c(json.dumps(found, sort_keys=True).encode()))


def type_name(kind: pa.DataType) -> str:
    """A canonical type as the schema file names it, without what is inside a nested one."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return "list"
    return "map" if pa.types.is_map(kind) else _NAMES[kind]


def _field_to_json(field: Field) -> dict[str, Any]:
    name = type_name(field.type)
    found: dict[str, Any] = {
        "id": field.id,
        "name": field.name,
        "type": name,
        "nullable": field.nullable,
    }
    if name in _NESTED:
        found["children"] = [_field_to_json(child) for child in field.children]
    if field.annotation:
        found["annotation"] = field.annotation
    return found


def from_json(document: object) -> SchemaVersion:
    """The schema version of a JSON document that may come from anyone.

    Raises:
        InvalidSchemaError: something is missing, unknown, of a wrong type or contradicts itself.
    """
    found = _object(document, {"version", "fields"}, set(), "the schema")
    version = _integer(found["version"], "the version of the schema", MAX_VERSION)
    reader = _Reader()
    fields = tuple(reader.field(item, ()) for item in _list(found["fields"], "the schema"))
    check_columns(fields)
    return SchemaVersion(version, fields)


class _Reader:
    def __init__(self) -> None:
        self._ids: set[int] = set()

    def field(self, document: object, parent: Path) -> Field:
        where = f"a field of {dotted(parent)}" if parent else "a column"
        if len(parent) >= MAX_DEPTH:
            raise InvalidSchemaError(
                f"column {dotted(parent[:1])}: nested deeper than {MAX_DEPTH} levels."
            )
        found = _object(document, _REQUIRED, {"children", "annotation"}, where)
        name = _text(found["name"], f"the name of {where}")
        path = (*parent, name)
        place = f"column {dotted(path)}"
        number = _integer(found["id"], f"the id of {place}", MAX_FIELD_ID)
        if number in self._ids:
            raise InvalidSchemaError(f"{place}: its id {number} belongs to another field too.")
        self._ids.add(number)
        if not isinstance(found["nullable"], bool):
            raise _wrong(f"nullable of {place}", "true or false", found["nullable"])
        kind, children = self._type(found, path, place)
        if pa.types.is_null(kind) and not found["nullable"]:
            raise InvalidSchemaError(f"{place}: a column of type null must be nullable.")
        annotation = _text(found.get("annotation", ""), f"the annotation of {place}")
        return Field(number, name, kind, found["nullable"], children, annotation)

    def _type(
        self, found: Mapping[str, Any], path: Path, place: str
    ) -> tuple[pa.DataType, tuple[Field, ...]]:
        name = _text(found["type"], f"the type of {place}")
        if name not in _NESTED:
            if "children" in found:
                raise InvalidSchemaError(f"{place}: type {name!r} has no children.")
            return _primitive(name, place), ()
        inner = _list(found.get("children"), place)
        children = tuple(self.field(child, path) for child in inner)
        names = tuple(child.name for child in children)
        if names != _CHILDREN.get(name, names):
            raise _wrong(f"the children of {place}", f"{_CHILDREN[name]}", names)
        if name == "map" and children[0].nullable:
            raise InvalidSchemaError(f"{place}: the key of a map must not be nullable.")
        return nested_type(_NESTED[name], children), children


def _primitive(name: str, place: str) -> pa.DataType:
    kind = _TYPES.get(name)
    if kind is not None:
        return kind
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if scale <= precision <= 38:
            return pa.decimal128(precision, scale)
    raise _wrong(f"the type of {place}", "a type of this release", name)


def _object(found: object, required: set[str], optional: set[str], what: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _wrong(what, "a JSON object", found)
    missing = required - found.keys()
    if missing:
        raise InvalidSchemaError(f"{what}: field {min(missing)!r} is missing.")
    unknown = found.keys() - required - optional
    if unknown:
        raise InvalidSchemaError(f"{what}: field {min(map(str, unknown))!r} is unknown.")
    return found


def _list(found: object, what: str) -> list[Any]:
    if not isinstance(found, list):
        raise _wrong(f"the fields of {what}", "a list", found)
    return found


def _integer(found: object, what: str, highest: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= highest:
        raise _wrong(what, f"a number from 1 to {highest}", found)
    return found


def _text(found: object, what: str) -> str:
    if not isinstance(found, str):
        raise _wrong(what, "a text", found)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise _wrong(what, "valid Unicode", found) from error
    return found


def _wrong(what: str, wanted: str, found: object) -> InvalidSchemaError:
    shown = ascii(found)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return InvalidSchemaError(f"{what} should be {wanted}, found {shown}.")
