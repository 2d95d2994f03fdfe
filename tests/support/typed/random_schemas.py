"""Random Arrow schemas and rows of every type that a typed topic stores, for property tests."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

UTC = datetime.UTC
_FIRST, _LAST = datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)
_LONGEST = datetime.timedelta(days=100_000_000)
_ANY_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
# Mostly names that meet: in other schemas too, in another case, with dots and spaces.
_NAMES = st.one_of(
    st.sampled_from(["a", "A", "b", "x.y", "x", " z", "größe", "`"]),
    _ANY_NAMES.filter(lambda name: not name.startswith("_")),
)


def _decimals(kind: pa.DataType) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**kind.precision - 1
    return st.integers(-limit, limit).map(
        lambda digits: decimal.Decimal(
            (int(digits < 0), tuple(map(int, str(abs(digits)))), -kind.scale)
        )
    )


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


PRIMITIVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): _integers(8),
    pa.int16(): _integers(16),
    pa.int32(): _integers(32),
    pa.int64(): _integers(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(7, 2): _decimals(pa.decimal128(7, 2)),
    pa.decimal128(38, 10): _decimals(pa.decimal128(38, 10)),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(_FIRST.date(), _LAST.date()),
    pa.timestamp("us"): st.datetimes(_FIRST, _LAST),
    pa.timestamp("us", tz="UTC"): st.datetimes(_FIRST, _LAST, timezones=st.just(UTC)),
    pa.duration("us"): st.timedeltas(-_LONGEST, _LONGEST),
}


def types(depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    """Canonical types, nested up to ``depth`` levels."""
    simple = st.sampled_from(list(PRIMITIVES))
    if depth == 0:
        return simple
    inner = types(depth - 1)
    return st.one_of(
        simple,
        _children(inner).map(lambda child: pa.list_(child.with_name("element"))),
        st.tuples(types(0).filter(lambda kind: kind != pa.null()), _children(inner)).map(
            lambda pair: pa.map_(pair[0], pair[1].with_name("value"))
        ),
        fields(inner, 3).map(pa.struct),
    )


def _children(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.tuples(inner, st.booleans()).map(
        lambda found: pa.field("x", found[0], found[1] or found[0] == pa.null())
    )


def fields(
    inner: st.SearchStrategy[pa.DataType], most: int, least: int = 1
) -> st.SearchStrategy[list[pa.Field]]:
    """Fields with names of their own, also without regard to case."""
    names = st.lists(_NAMES, min_size=least, max_size=most, unique_by=str.lower)
    return names.flatmap(
        lambda found: st.tuples(*[_children(inner).map(_named(name)) for name in found]).map(list)
    )


def _named(name: str) -> Callable[[pa.Field], pa.Field]:
    return lambda field: field.with_name(name)


def schemas(most: int = 4, depth: int = 2) -> st.SearchStrategy[pa.Schema]:
    """Schemas of one column or more, of canonical types."""
    return fields(types(depth), most).map(pa.schema)


def values(field: pa.Field) -> st.SearchStrategy[Any]:
    """Values of a field, None among them where it is nullable."""
    found = _present(field.type)
    return st.one_of(st.none(), found) if field.nullable else found


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({child.name: values(child) for child in kind})
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_field), max_size=3)
    if pa.types.is_map(kind):
        return st.lists(st.tuples(_present(kind.key_type), values(kind.item_field)), max_size=3)
    return PRIMITIVES[kind]


def batches(schema: pa.Schema, most: int = 6) -> st.SearchStrategy[pa.RecordBatch]:
    """Batches of these columns; often a slice of a longer one, so that offsets are not 0."""
    rows = st.lists(
        st.fixed_dictionaries({field.name: values(field) for field in schema}), max_size=most
    )
    whole = rows.map(lambda found: pa.RecordBatch.from_pylist(found, schema=schema))
    return st.tuples(whole, st.integers(0, 2)).map(lambda pair: pair[0].slice(pair[1]))
