"""Spark's data types and the fields of a typed topic, in both directions.

Several types of Spark are one type of Arrow: strings with a collation, char and varchar, intervals
with their units. A field keeps the name of such a type, as Spark's JSON has it, in its annotation.
A store is not trusted: an annotation that is not one of these names counts as none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from storage_core import Field
from storage_core.schema.fields import dotted, fold, nested_type

from ..errors import CursusError, cursus_error

Path = tuple[str, ...]

# Spark gives a column of char or varchar the type string, and its own type as this metadata.
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_UNITS = ("day", "hour", "minute", "second")
_UTC = pa.timestamp("us", tz="UTC")
_SIMPLE: Mapping[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    CharType: pa.string(),
    VarcharType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: _UTC,
    TimestampNTZType: pa.timestamp("us"),
    DayTimeIntervalType: pa.duration("us"),
    NullType: pa.null(),
}
_BACK: Mapping[pa.DataType, DataType] = {
    arrow: kind() for kind, arrow in _SIMPLE.items() if kind not in (CharType, VarcharType)
}
_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # Spark knows a variant by this mark.
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
_ADVICE = {
    "YearMonthIntervalType": "Cast it to int, a number of months",
    "TimeType": "Cast it to string",
    "CalendarIntervalType": "Use a day-time interval",
}


def arrow_fields(schema: StructType) -> tuple[list[pa.Field], dict[Path, str]]:
    """The rows of a DataFrame as Arrow fields, and the annotations that make them exact again.

    Raises:
        CursusError: a topic cannot store a type.
    """
    annotations: dict[Path, str] = {}
    return [_arrow_field(field, (), annotations) for field in schema.fields], annotations


def arrow_type(kind: DataType) -> pa.DataType:
    """The type of Arrow that Spark expects for its own type in a batch."""
    return _arrow_type(kind, (), {})


def struct_type(fields: Sequence[Field]) -> StructType:
    """The schema that a DataFrame of these columns has in Spark."""
    return StructType([_struct_field(field) for field in fields])


def as_nullable(fields: Sequence[Field]) -> tuple[Field, ...]:
    """The same fields without NOT NULL at any depth, except for what the type itself demands.

    Spark derives NOT NULL from the query, from a literal for instance. A topic that kept this could
    never take a null from another query, so new columns are nullable, as in Spark's own tables.
    """
    return tuple(_as_nullable(field) for field in fields)


def _as_nullable(field: Field) -> Field:
    children = field.children
    if children and field.annotation != "variant":
        children = as_nullable(children)
        if pa.types.is_map(field.type):
            children = (replace(children[0], nullable=False), children[1])
        field = replace(field, type=nested_type(field.type, children), children=children)
    return replace(field, nullable=True)


def check_exact_types(
    found: Sequence[Field], wanted: Sequence[Field], topic: str, parent: Path = ()
) -> None:
    """Refuse rows that only Arrow takes for values of the topic's columns.

    A variant is a struct for Arrow, and all intervals are one type. Columns are found by name, and
    their types of Arrow fit already.

    Raises:
        CursusError: a variant meets a struct, or an interval one of coarser units.
    """
    by_name = {fold(field.name): field for field in wanted}
    for field in found:
        column, path = by_name.get(fold(field.name)), (*parent, field.name)
        if column is None or pa.types.is_null(field.type):
            continue
        kind, other = _data_type(field), _data_type(column)
        if isinstance(kind, DayTimeIntervalType) and isinstance(other, DayTimeIntervalType):
            fits = kind.endField <= other.endField
        else:
            fits = isinstance(kind, VariantType) == isinstance(other, VariantType)
        if not fits:
            raise cursus_error(
                "SCHEMA_MISMATCH",
                f"topic '{topic}', column {dotted(path)}: found {kind.simpleString()}, wanted "
                f"{other.simpleString()}. Cast it.",
            )
        check_exact_types(field.children, column.children, topic, path)


def _arrow_field(field: StructField, parent: Path, annotations: dict[Path, str]) -> pa.Field:
    path = (*parent, field.name)
    arrow = _arrow_type(field.dataType, path, annotations)
    declared = (field.metadata or {}).get(_CHAR_VARCHAR)
    if arrow == pa.string() and isinstance(declared, str) and _is_char(declared):
        annotations[path] = declared
    return _named(field.name, arrow, field.nullable)


def _arrow_type(kind: DataType, path: Path, annotations: dict[Path, str]) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field, path, annotations) for field in kind.fields])
    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType, (*path, "element"), annotations)
        return pa.list_(_named("element", element, kind.containsNull))
    if isinstance(kind, MapType):
        keys = _arrow_type(kind.keyType, (*path, "key"), annotations)
        values = _arrow_type(kind.valueType, (*path, "value"), annotations)
        return pa.map_(
            pa.field("key", keys, nullable=False), _named("value", values, kind.valueContainsNull)
        )
    name = kind.jsonValue()
    if isinstance(kind, VariantType):
        annotations[path] = str(name)
        return _VARIANT
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _SIMPLE.get(type(kind))
    if found is None:
        raise _unsupported(kind, path)
    if kind != _BACK[found]:
        annotations[path] = str(name)
    return found


def _named(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    # An empty array() in Spark has elements of type void that are never null. Arrow has no such.
    return pa.field(name, kind, nullable or kind == pa.null())


def _unsupported(kind: DataType, path: Path) -> CursusError:
    name = type(kind).__name__
    advice = _ADVICE.get(name, "Cast it to a type that can be stored")
    return cursus_error(
        "TYPE_UNSUPPORTED",
        f"Column '{'.'.join(path)}' has type {kind.simpleString()}, which a topic can't store. "
        f"{advice}, or drop the column.",
    )


def _struct_field(field: Field) -> StructField:
    metadata = {_CHAR_VARCHAR: field.annotation} if _is_char(field.annotation) else None
    return StructField(field.name, _data_type(field), field.nullable, metadata)


def _data_type(field: Field) -> DataType:
    kind, children = field.type, field.children
    if field.annotation == "variant" and _is_variant(kind):
        return VariantType()
    if pa.types.is_struct(kind):
        return struct_type(children)
    if pa.types.is_list(kind):
        return ArrayType(_data_type(children[0]), children[0].nullable)
    if pa.types.is_map(kind):
        return MapType(_data_type(children[0]), _data_type(children[1]), children[1].nullable)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _annotated(field) or _BACK[kind]


def _annotated(field: Field) -> DataType | None:
    """The type that the annotation names, if it is a type of such values."""
    if field.type == pa.string():
        found = re.fullmatch(r"string collate (\w{1,64})", field.annotation)
        return StringType(found[1]) if found else None
    if field.type == pa.duration("us"):
        found = re.fullmatch(r"interval (\w+)(?: to (\w+))?", field.annotation)
        units = [_UNITS.index(unit) for unit in (found.groups() if found else ()) if unit in _UNITS]
        if units and units == sorted(units):
            return DayTimeIntervalType(units[0], units[-1])
    return None


def _is_char(text: str) -> bool:
    return re.fullmatch(r"(?:var)?char\(\d{1,9}\)", text) is not None


def _is_variant(kind: pa.DataType) -> bool:
    return bool(kind == _VARIANT)
