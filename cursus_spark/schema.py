"""The columns of a topic as Spark and Arrow see them, and the checks of a user's schema.

A read returns the columns of Spark's Kafka source. A ``.schema(...)`` is a projection of them: any
subset in any order, with ``key`` and ``value`` as string or binary. Spark does not push ``select``
down to a Python source, so only ``.schema(...)`` makes a task read fewer columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .errors import CursusError, cursus_error

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""Every column of a topic, with its type in Spark. ``headers`` is only read on request."""

_TEXT_OR_BINARY = ("key", "value")
_NEVER_NULL = ("topic", "partition", "offset", "timestampType")
_WRITABLE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "key": ("string or binary", ("string", "binary")),
    "value": ("string or binary", ("string", "binary")),
    "topic": ("string", ("string",)),
    "partition": ("int", ("int",)),
    "timestamp": ("timestamp", ("timestamp",)),
    "headers": (HEADERS.simpleString(), (HEADERS.simpleString(),)),
}
_ORIGIN = "cursus"
_WHOLE_ROWS = (
    'Use selectExpr("to_json(struct(*)) AS value"), or write the columns as they are to a new, '
    "typed topic."
)


class SinkColumns(NamedTuple):
    """Positions of the writable columns in the rows to write; None for an absent column."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: int | None = None


def read_schema(*, include_headers: bool) -> StructType:
    """The schema of a read without ``.schema(...)``."""
    return StructType(
        [
            StructField(name, kind)
            for name, kind in COLUMNS.items()
            if include_headers or name != "headers"
        ]
    )


def check_projection(schema: StructType) -> None:
    """Refuse a ``.schema(...)`` that is not a projection of the columns.

    Raises:
        CursusError: a column is unknown, named twice, has another type, or is declared NOT NULL
            although its values may be null (Spark would fail with a bare Java exception).
    """
    if not schema.fields:
        raise cursus_error("SCHEMA_EMPTY", f".schema(...) names no column. {_available()}")
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise cursus_error(
                "COLUMN_UNKNOWN",
                f"Column '{field.name}' in .schema(...) is not a cursus column. {_available()}",
            )
        _check_read_type(field)
    refuse_duplicates(schema, "in .schema(...)")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema Spark expects of the batches of a checked projection.

    It equals ``to_arrow_schema(schema, timezone="UTC")`` without the metadata of the columns, which
    every batch would carry. The signature of that function differs between releases of PySpark.
    """
    return pa.schema(
        [
            pa.field(field.name, _arrow_type(field.dataType), field.nullable)
            for field in schema.fields
        ]
    )


def sink_columns(schema: StructType, *, topic: str | None) -> SinkColumns:
    """Check the schema of the rows to write and find their columns.

    ``offset`` and ``timestampType`` are ignored, so that rows of a read can be written.

    Args:
        schema: The schema of the rows.
        topic: The ``topic`` option; None if not given.
    """
    names = schema.fieldNames()
    if "value" not in names:
        raise cursus_error(
            "VALUE_MISSING",
            f"Required attribute 'value' not found. Columns: {', '.join(names)}. {_WHOLE_ROWS}",
        )
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise cursus_error(
                "COLUMN_UNKNOWN",
                f"Column '{field.name}' can't be written to a records topic. Writable: "
                f"{', '.join(_WRITABLE)}. {_WHOLE_ROWS}",
            )
        _check_sink_type(field)
    refuse_duplicates(schema, "in the rows to write")
    if topic is None and "topic" not in names:
        raise topic_required()
    return SinkColumns(**{name: names.index(name) for name in _WRITABLE if name in names})


def are_records(schema: StructType) -> bool:
    """Whether rows have a value of string or binary, and only columns that Kafka's sink knows."""
    values = [field.dataType for field in schema.fields if field.name == "value"]
    return any(isinstance(kind, (StringType, BinaryType)) for kind in values) and all(
        name in COLUMNS for name in schema.fieldNames()
    )


def topic_required() -> CursusError:
    """The error for rows without a topic, neither as an option nor as a column."""
    return cursus_error(
        "TOPIC_REQUIRED",
        "topic option required when no 'topic' attribute is present. Use .option(\"topic\", "
        '"..."). (Options given in CREATE TABLE do not reach INSERT; use INSERT INTO t WITH '
        "(path = '...', topic = '...').)",
    )


def refuse_overwrite(overwrite: bool) -> None:
    """Refuse mode overwrite and INSERT OVERWRITE: Spark sets this flag."""
    if overwrite:
        raise cursus_error(
            "APPEND_ONLY",
            'Overwrite is not supported: a cursus topic is append-only. Use .mode("append").',
        )


def refuse_complete_mode(overwrite: bool) -> None:
    """Refuse output mode complete: Spark sets this flag. It refuses update before it asks us."""
    if overwrite:
        raise cursus_error(
            "APPEND_ONLY",
            "Output mode complete is not supported: every batch would replace all records, and a "
            'cursus topic is append-only. Use outputMode("append"), with withWatermark(...) if you '
            "aggregate, or append each result in foreachBatch.",
        )


def with_origin(schema: StructType, options: Mapping[str, str]) -> StructType:
    """A copy of the schema with the options of a CREATE TABLE in the metadata of its first column.

    The catalog keeps the metadata of columns and drops the options. One column is enough.
    """
    first, *rest = schema.fields
    metadata = {**first.metadata, _ORIGIN: dict(sorted(options.items()))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *rest])


def origin(schema: StructType) -> dict[str, str]:
    """The options a catalog table was created with; empty for any other schema.

    Only for reads: ``INSERT INTO a SELECT * FROM b`` passes the metadata of *b* to the writer.
    """
    for field in schema.fields:
        found = (field.metadata or {}).get(_ORIGIN)
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}


def _available() -> str:
    return f"Available: {', '.join(COLUMNS)}."


def refuse_duplicates(
    schema: StructType, where: str, same: Callable[[str], str] = lambda name: name
) -> None:
    """Refuse a schema that names a column twice; ``same`` makes equal what is the same name."""
    seen: dict[str, str] = {}
    for name in schema.fieldNames():
        other = seen.setdefault(same(name), name)
        if other != name:
            raise cursus_error(
                "COLUMN_DUPLICATE",
                f"Columns '{other}' and '{name}' {where} differ only in case. They are one "
                "name to a topic, whatever spark.sql.caseSensitive is. Rename or drop one.",
            )
    for name, count in Counter(schema.fieldNames()).items():
        if count > 1:
            raise cursus_error(
                "COLUMN_DUPLICATE", f"Column '{name}' is named {count} times {where}. Name it once."
            )


def _check_read_type(field: StructField) -> None:
    name, found = field.name, field.dataType.simpleString()
    expected = COLUMNS[name].simpleString()
    if found != expected and not (name in _TEXT_OR_BINARY and found == "string"):
        wanted = "string or binary" if name in _TEXT_OR_BINARY else expected
        raise _type_error("Column", name, found, wanted)
    if not (field.nullable or name in _NEVER_NULL) or _promises_header_values(field.dataType):
        raise cursus_error(
            "COLUMN_TYPE",
            f"Column '{name}' in .schema(...) is declared NOT NULL, but its values may be null. "
            "Remove NOT NULL.",
        )


def _promises_header_values(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return not kind.elementType["value"].nullable


def _check_sink_type(field: StructField) -> None:
    if field.name not in _WRITABLE:
        return
    words, accepted = _WRITABLE[field.name]
    kind = field.dataType
    # A collation changes how strings compare, not their bytes.
    found = "string" if isinstance(kind, StringType) else kind.simpleString()
    if found not in accepted:
        raise _type_error("attribute", field.name, found, words)


def _type_error(noun: str, name: str, found: str, wanted: str) -> CursusError:
    subject = f"{name} attribute" if noun == "attribute" else f"Column '{name}' in .schema(...):"
    article = "an" if wanted[0] in "ai" else "a"
    return cursus_error(
        "COLUMN_TYPE", f"{subject} unsupported type {found}. {name} must be {article} {wanted}."
    )


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, ArrayType):
        item = pa.field("element", _arrow_type(kind.elementType), kind.containsNull)
        return pa.list_(item)
    if isinstance(kind, StructType):
        return pa.struct(
            [pa.field(field.name, _arrow_type(field.dataType), field.nullable) for field in kind]
        )
    return _ARROW_TYPES[kind.typeName()]


_ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
