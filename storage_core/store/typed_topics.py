"""The columns that users give for typed topics: as Arrow schema or fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa

from .. import arguments
from ..errors import InvalidSchemaError
from ..metadata.schema_files import NewSchema
from ..schema.document import from_json, to_json
from ..schema.fields import Field, SchemaVersion, dotted, from_arrow
from ..schema.keys import check_key_columns

ColumnsLike: TypeAlias = pa.Schema | Sequence[Field]
"""Columns as users give them."""
_WANTED = "an Arrow schema or a list of Field"


def columns_of(name: str, given: ColumnsLike) -> tuple[Field, ...]:
    """The columns that a user gave, checked. Their ids count from 1 or are the user's.

    Raises:
        ConfigError: it is none of the kinds that are accepted.
        InvalidSchemaError, UnsupportedTypeError: a column is not allowed.
    """
    if isinstance(given, pa.Schema):
        return from_arrow(given)
    arguments.instance(name, given, Iterable, _WANTED)
    fields = tuple(given)
    for field in fields:
        arguments.instance(name, field, Field, _WANTED)
    return from_json(to_json(SchemaVersion(1, fields))).fields


def new_schema(
    schema: ColumnsLike, key_columns: Sequence[str], timestamp_column: str | None
) -> NewSchema:
    """What makes a new topic a typed one, checked.

    Raises:
        InvalidSchemaError: the schema has no column of that name, or of another type.
    """
    version = SchemaVersion(1, columns_of("schema", schema))
    if not version.fields:
        raise InvalidSchemaError("a typed topic needs at least one column, found none.")
    keys = tuple(_named(version, "key_columns", name).name for name in key_columns)
    check_key_columns(version.fields, keys)
    if timestamp_column is None:
        return NewSchema(version.fields, keys)
    arguments.instance("timestamp_column", timestamp_column, str, "the name of a column or None")
    found = _named(version, "timestamp_column", timestamp_column)
    if not pa.types.is_timestamp(found.type):
        raise InvalidSchemaError(
            f"timestamp_column {dotted((found.name,))} has type {found.type}, it must be a "
            "timestamp."
        )
    return NewSchema(version.fields, keys, found.name)


def _named(version: SchemaVersion, argument: str, name: str) -> Field:
    found = version.by_name(name)
    if found is None:
        known = ", ".join(field.name for field in version.fields[:20])
        raise InvalidSchemaError(
            f"{argument} names {name!r}, which is no column. Columns: {known}."
        )
    return found
