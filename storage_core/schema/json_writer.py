"""Typed rows as values that JSON has, in the forms that Spark's ``from_json`` reads.

Decimals, dates, times and intervals are texts, binary is base64, NaN and the infinities are texts.
A map by text is an object. Another one, or one with a key twice, is a list of ``key``, ``value``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ..format.numbers import is_present, raw_values, starts_of
from .fields import KEY, VALUE, Field
from .nesting import children_of
from .rows import TypedRows
from .time_text import dates_as_text, interval_as_text, times_as_text


def json_rows(rows: TypedRows) -> list[dict[str, Any]]:
    """Each row as an object with all columns in their order, null ones too."""
    names = [field.name for field in rows.schema.fields]
    columns = [
        json_values(rows.column(position), field)
        for position, field in enumerate(rows.schema.fields)
    ]
    if not columns:
        return [{} for _ in range(rows.count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_values(array: pa.Array, field: Field) -> list[Any]:
    """The values of a column, each as JSON has it."""
    if array.null_count == len(array):
        return [None] * len(array)
    found = _values(array, field)
    if array.null_count == 0:
        return found
    present = is_present(array).tolist()
    return [value if there else None for value, there in zip(found, present, strict=True)]


def _values(array: pa.Array, field: Field) -> list[Any]:
    """The values, with anything in the place of nulls."""
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        return _structs(array, field.children)
    if types.is_list(kind):
        (elements,) = (json_values(child, field.children[0]) for child in children_of(array))
        return [elements[start:end] for start, end in _spans(array)]
    if types.is_map(kind):
        return _maps(array, field)
    if types.is_binary(kind):
        return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
    if types.is_floating(kind):
        return [_float(value) for value in _floats(array)]
    if types.is_decimal(kind):
        return [None if v is None else f"{v:f}" for v in array.to_pylist()]
    if types.is_date(kind):
        return dates_as_text(raw_values(array, "<i4"))
    if types.is_timestamp(kind):
        return times_as_text(raw_values(array, "<i8"), "Z" if kind.tz else "")
    if types.is_duration(kind):
        return [interval_as_text(value) for value in raw_values(array, "<i8").tolist()]
    return list(array.to_pylist())


def _structs(array: pa.Array, children: Sequence[Field]) -> list[Any]:
    if not children:
        return [{} for _ in range(len(array))]
    names = [child.name for child in children]
    columns = [
        json_values(values, child)
        for values, child in zip(children_of(array), children, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _maps(array: pa.Array, field: Field) -> list[Any]:
    keys, values = (
        json_values(child, inner)
        for child, inner in zip(children_of(array), field.children, strict=True)
    )
    by_text = pa.types.is_string(field.children[0].type)
    found: list[Any] = []
    for start, end in _spans(array):
        pairs = list(zip(keys[start:end], values[start:end], strict=True))
        as_object = dict(pairs) if by_text else {}
        is_exact = by_text and len(as_object) == len(pairs)
        found.append(as_object if is_exact else [{KEY: k, VALUE: v} for k, v in pairs])
    return found


def _spans(array: pa.Array) -> list[tuple[int, int]]:
    starts = starts_of(array)
    bounds = (starts - starts[0]).tolist()
    return list(pairwise(bounds))


def _floats(array: pa.Array) -> list[float]:
    values = raw_values(array, f"<f{array.type.bit_width // 8}")
    if array.type.bit_width == 64:
        return list(values.tolist())
    # The shortest text that gives the same float32 again, not the digits of a double.
    return [float(str(value)) for value in values]


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
