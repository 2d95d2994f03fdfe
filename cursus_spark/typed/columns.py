"""The columns of a read of typed topics: the schema of a query, and its projections.

Columns are found by their names, in any case as in Spark. A query may read a column as a wider or a
narrower type of number than the topic has now, because a topic's type may grow after the query
began. A value that does not fit is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from storage_core import Field, SchemaVersion, StorageError
from storage_core.schema.evolution import common_type, evolve
from storage_core.schema.fields import dotted, fold, is_nested, nested_type, sql_type

from ..errors import CursusError, cursus_error
from ..schema import refuse_duplicates
from .spark_types import Path, arrow_type, struct_type

METADATA: Mapping[str, DataType] = {
    "_topic": StringType(),
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
}
"""What a typed topic has beside its own columns, where a query asks for it."""

_LISTED = 20


def typed_schema(
    versions: Mapping[str, SchemaVersion], *, merge: bool, metadata: bool
) -> StructType:
    """The columns of a read without ``.schema(...)``.

    Args:
        versions: The schema of every topic, at least one.
        merge: Whether topics may have different columns.
        metadata: Whether to add the metadata columns.

    Raises:
        CursusError: the topics have different columns, or columns that do not go together.
    """
    found = struct_type(common_fields(versions, merge=merge))
    added = [StructField(name, kind) for name, kind in METADATA.items()] if metadata else []
    return StructType([*found.fields, *added])


def check_typed_projection(
    schema: StructType, versions: Mapping[str, SchemaVersion], *, merge: bool
) -> None:
    """Refuse a ``.schema(...)`` that is not a projection of the topics' columns.

    Raises:
        CursusError: a column is unknown, named twice, has a type that the values cannot have, or is
            declared NOT NULL although they may be null.
    """
    if not schema.fields:
        raise cursus_error("SCHEMA_EMPTY", ".schema(...) names no column. Name at least one.")
    refuse_duplicates(schema, "in .schema(...)", fold)
    for column in schema.fields:
        if metadata_column(column.name):
            _check_metadata(column)
            continue
        found = [version.by_name(column.name) for version in versions.values()]
        for topic, field in zip(versions, found, strict=True):
            if field is None and (not merge or not any(found)):
                raise _unknown_column(column.name, topic, versions[topic])
            if field is not None:
                wanted_field(field, column, merge=merge)
            elif not column.nullable:
                raise _null_promised((column.name,))


def wanted_field(field: Field, column: StructField, *, merge: bool = False) -> Field:
    """A topic's column as a query wants it: with the query's name, type and inner fields.

    A struct may have fewer fields than the topic's or, with ``merge``, others: those get the id 0.
    A column that is wanted as it is stored is the topic's own field, which costs no conversion.

    Raises:
        CursusError: the query's type is none that the values can have.
    """
    found = _wanted(field, column.name, arrow_type(column.dataType), column.nullable, (), merge)
    return field if replace(found, name=field.name, nullable=field.nullable) == field else found


def metadata_column(name: str) -> str | None:
    """The metadata column of this name, in any case; None if it is not the name of one."""
    return fold(name) if fold(name) in METADATA else None


def read_field(field: Field | None, wanted: pa.Field) -> Field:
    """A topic's column, or None if it has none, as the predicate of a query wants it.

    Raises:
        CursusError: the wanted type is none that the values can have.
    """
    if field is None:
        return _missing(wanted.name, wanted.type, True, 0)
    return _wanted(field, wanted.name, wanted.type, field.nullable, (), merge=True)


def common_fields(versions: Mapping[str, SchemaVersion], *, merge: bool) -> Sequence[Field]:
    """The columns of several topics, at least one; see ``typed_schema``."""
    (first, union), *others = versions.items()
    for topic, version in others:
        if merge:
            union = _merged(union, version, topic)
        elif struct_type(version.fields) != struct_type(union.fields):
            raise cursus_error(
                "SCHEMAS_DIFFER",
                f"Topics '{first}' and '{topic}' have different columns: "
                f"{_difference(union, version)}. Set mergeSchema to true to read all columns of "
                "both, or read them one by one.",
            )
    if not others:
        return union.fields
    owners = versions.values()
    return [_agreed(field, [each.by_name(field.name) for each in owners]) for field in union.fields]


def _agreed(field: Field, own: Sequence[Field | None]) -> Field:
    """A field as it is in all topics: NOT NULL only where it is that in each of them.

    ``own`` has the field of each topic that has what is above it.
    """
    nullable = any(each is None or each.nullable for each in own)
    there = [each for each in own if each is not None and not pa.types.is_null(each.type)]
    if not field.children:
        return replace(field, nullable=nullable)
    by_name = [{fold(child.name): child for child in each.children} for each in there]
    children = tuple(
        _agreed(child, [names.get(fold(child.name)) for names in by_name])
        for child in field.children
    )
    kind = nested_type(field.type, children)
    return replace(field, nullable=nullable, type=kind, children=children)


def _merged(union: SchemaVersion, version: SchemaVersion, topic: str) -> SchemaVersion:
    next_id = max(union.max_id, version.max_id) + 1
    try:
        return evolve(union, version.fields, add=True, widen=True, next_id=next_id, version=1)
    except StorageError as error:
        reason = str(error).split(". ")[0]
        raise cursus_error(
            "SCHEMAS_DIFFER",
            f"Topic '{topic}', {reason}: the topics' types do not go together. Read them one by "
            "one.",
        ) from None


def _difference(one: SchemaVersion, other: SchemaVersion) -> str:
    """The first column in which two schemas differ, with both types."""
    names = dict.fromkeys([*one.names, *other.names])
    for name in names:
        left, right = one.names.get(name), other.names.get(name)
        if left is None or right is None or struct_type([left]) != struct_type([right]):
            return f"{dotted((name,))} is {_described(left)} and {_described(right)}"
    return "their order"


def _described(field: Field | None) -> str:
    if field is None:
        return "missing"
    (column,) = struct_type([field]).fields
    return column.dataType.simpleString() + ("" if column.nullable else " NOT NULL")


def _check_metadata(column: StructField) -> None:
    wanted, found = METADATA[fold(column.name)].simpleString(), column.dataType.simpleString()
    if found != wanted:
        raise cursus_error(
            "COLUMN_TYPE",
            f"Column '{column.name}' in .schema(...): found {found}, wanted {wanted}. Correct it.",
        )


def _unknown_column(name: str, topic: str, version: SchemaVersion) -> CursusError:
    names = [*version.names, *METADATA]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return cursus_error(
        "COLUMN_UNKNOWN",
        f"Column '{name}' in .schema(...) is not a column of topic '{topic}'. Available: "
        f"{', '.join(names[:_LISTED])}{more}.",
    )


def _null_promised(path: Path) -> CursusError:
    return cursus_error(
        "COLUMN_TYPE",
        f"Column '{dotted(path)}' in .schema(...) is declared NOT NULL, but its values may be "
        "null. Remove NOT NULL.",
    )


def _wanted(
    field: Field, name: str, kind: pa.DataType, nullable: bool, parent: Path, merge: bool
) -> Field:
    path = (*parent, name)
    if field.nullable and not nullable:
        raise _null_promised(path)
    children: tuple[Field, ...] = ()
    if pa.types.is_null(field.type):
        return _missing(name, kind, nullable, field.id)
    if is_nested(kind) and _family(kind) == _family(field.type):
        children = tuple(_wanted_children(field, kind, path, merge))
    elif is_nested(kind) or is_nested(field.type) or common_type(kind, field.type) is None:
        raise cursus_error(
            "COLUMN_TYPE",
            f"Column '{dotted(path)}' in .schema(...): found {sql_type(kind)}, wanted "
            f"{sql_type(field.type)}. Use the topic's type, and cast it in the query.",
        )
    return Field(field.id, name, kind, nullable, children, field.annotation)


def _wanted_children(field: Field, kind: pa.DataType, path: Path, merge: bool) -> list[Field]:
    if pa.types.is_struct(kind):
        own = {fold(child.name): child for child in field.children}
        wanted = []
        for inner in kind:
            child = own.get(fold(inner.name))
            if child is not None:
                wanted.append(_wanted(child, inner.name, inner.type, inner.nullable, path, merge))
            elif merge and inner.nullable:
                wanted.append(_missing(inner.name, inner.type, inner.nullable, 0))
            else:
                available = ", ".join(child.name for child in field.children)
                raise cursus_error(
                    "COLUMN_UNKNOWN",
                    f"Column '{dotted((*path, inner.name))}' in .schema(...) is not a field of the "
                    f"topic's column. Available: {available}.",
                )
        return wanted
    inners = [kind.value_field] if pa.types.is_list(kind) else [kind.key_field, kind.item_field]
    return [
        _wanted(child, child.name, inner.type, inner.nullable, path, merge)
        for child, inner in zip(field.children, inners, strict=True)
    ]


def _missing(name: str, kind: pa.DataType, nullable: bool, number: int) -> Field:
    """A field that the topic has no values of; its id is none of the topic's."""
    inners = list(kind) if pa.types.is_struct(kind) else []
    if pa.types.is_list(kind):
        inners = [kind.value_field]
    elif pa.types.is_map(kind):
        inners = [kind.key_field, kind.item_field]
    children = tuple(_missing(each.name, each.type, each.nullable, 0) for each in inners)
    return Field(number, name, kind, nullable, children)


def _family(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct"
    return "list" if pa.types.is_list(kind) else "map" if pa.types.is_map(kind) else ""
