"""Spark's types become fields of a topic and come back: equal, nested to any depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from cursus_spark.errors import CursusError
from cursus_spark.typed.spark_types import arrow_fields, arrow_type, struct_type
from storage_core import Field
from storage_core.schema.fields import from_arrow

CHAR = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
SIMPLE: list[t.DataType] = [
    t.BooleanType(),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.FloatType(),
    t.DoubleType(),
    t.DecimalType(38, 38),
    t.DecimalType(1, 0),
    t.StringType(),
    t.StringType("UNICODE_CI"),
    t.BinaryType(),
    t.DateType(),
    t.TimestampType(),
    t.TimestampNTZType(),
    t.DayTimeIntervalType(),
    t.DayTimeIntervalType(0, 0),
    t.DayTimeIntervalType(1, 2),
    t.VariantType(),
    t.NullType(),
]
NESTED: list[t.DataType] = [
    *(t.ArrayType(kind, containsNull=False) for kind in SIMPLE[:-1]),
    *(t.MapType(t.StringType(), kind) for kind in SIMPLE),
    *(t.StructType([t.StructField("a.b", kind, nullable=False)]) for kind in SIMPLE[:-1]),
    t.MapType(t.IntegerType(), t.ArrayType(t.StructType([])), valueContainsNull=False),
]


def there_and_back(schema: t.StructType) -> t.StructType:
    return struct_type(from_arrow(*arrow_fields(schema)))


def one(kind: t.DataType, **more: Any) -> t.StructType:
    return t.StructType([t.StructField("größe (cm)", kind, **more)])


@pytest.mark.parametrize("kind", [*SIMPLE, *NESTED], ids=lambda kind: kind.simpleString())
def test_every_type_comes_back(kind: t.DataType) -> None:
    deep = one(t.ArrayType(t.MapType(t.LongType(), one(kind, nullable=False))), nullable=False)
    for schema in (one(kind), *([] if kind == t.NullType() else [one(kind, nullable=False), deep])):
        assert there_and_back(schema) == schema


@pytest.mark.parametrize("kind", [*SIMPLE, *NESTED], ids=lambda kind: kind.simpleString())
def test_batches_have_the_types_that_spark_expects(kind: t.DataType) -> None:
    expected = to_arrow_schema(one(kind), timezone="UTC").field(0).type
    # With the metadata of fields: Spark knows a variant by it.
    assert pa.schema({"a": arrow_type(kind)}).equals(
        pa.schema({"a": expected}), check_metadata=True
    )


def test_char_and_varchar_come_back_as_spark_shows_them() -> None:
    shown = one(t.StringType(), metadata=CHAR)
    assert there_and_back(shown) == shown
    assert there_and_back(one(t.CharType(5))) == shown
    inside = one(one(t.StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}))
    assert there_and_back(inside) == inside


def test_void_is_always_nullable() -> None:
    # The type of array() in Spark, which Arrow does not have.
    schema = one(t.ArrayType(t.NullType(), containsNull=False))
    assert there_and_back(schema) == one(t.ArrayType(t.NullType()))
    assert there_and_back(one(t.NullType(), nullable=False)) == one(t.NullType())


def test_metadata_of_others_is_not_kept() -> None:
    schema = one(t.StringType(), metadata={"comment": "no type", "cursus": {"path": "/x"}})
    assert there_and_back(schema) == one(t.StringType())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (t.YearMonthIntervalType(), "interval year to month, which a topic can't store. Cast it"),
        (t.TimeType(6), "time(6), which a topic can't store. Cast it to string, or drop the"),
        (t.CalendarIntervalType(), "interval, which a topic can't store. Use a day-time interval"),
    ],
)
def test_unsupported_types_are_refused_by_name_at_any_depth(kind: t.DataType, message: str) -> None:
    nested = t.StructType([t.StructField("a", t.MapType(t.StringType(), t.ArrayType(kind)))])
    for schema, path in (
        (t.StructType([t.StructField("a", kind)]), "a"),
        (nested, "a.value.element"),
    ):
        with pytest.raises(CursusError) as caught:
            arrow_fields(schema)
        start = f"[CURSUS_TYPE_UNSUPPORTED] Column '{path}' has type {message}"
        assert str(caught.value).startswith(start)


@pytest.mark.parametrize(
    ("kind", "annotation", "expected"),
    [
        (pa.string(), "nonsense", t.StringType()),
        (pa.string(), "string collate a b", t.StringType()),
        (pa.string(), "interval day", t.StringType()),
        (pa.string(), "variant", t.StringType()),
        (pa.duration("us"), "interval second to day", t.DayTimeIntervalType()),
        (pa.duration("us"), "interval year to month", t.DayTimeIntervalType()),
        (pa.int32(), "interval day", t.IntegerType()),
    ],
)
def test_an_annotation_that_does_not_fit_counts_as_none(
    kind: pa.DataType, annotation: str, expected: t.DataType
) -> None:
    (field,) = from_arrow([pa.field("a", kind)])
    assert struct_type([replace(field, annotation=annotation)])["a"].dataType == expected


def test_two_thousand_columns_come_back() -> None:
    schema = t.StructType(
        [t.StructField(f"c{number}", SIMPLE[number % len(SIMPLE)]) for number in range(2000)]
    )
    assert there_and_back(schema) == schema
    assert isinstance(from_arrow(*arrow_fields(schema))[-1], Field)
