"""How a schema changes: what is added, what grows, what is refused."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.errors import InvalidSchemaError, SchemaMismatchError
from storage_core.schema.document import from_json, to_json
from storage_core.schema.evolution import FOR_JOBS, covers, evolve, merge_versions
from storage_core.schema.fields import MAX_FIELD_ID, SchemaVersion, from_arrow
from tests.support.typed.random_schemas import schemas


def version(schema: pa.Schema, number: int = 1) -> SchemaVersion:
    return SchemaVersion(number, from_arrow(schema))


def grown(
    current: SchemaVersion,
    schema: pa.Schema,
    *others: SchemaVersion,
    add: bool = True,
    widen: bool = True,
) -> SchemaVersion:
    registered = [current, *others]
    return evolve(
        current,
        from_arrow(schema),
        add=add,
        widen=widen,
        next_id=1 + max(other.max_id for other in registered),
        version=1 + max(other.version for other in registered),
        registered=registered,
        advice=FOR_JOBS,
    )


def test_columns_and_struct_fields_are_added_at_the_end() -> None:
    inner = pa.field("s", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False)
    first = version(pa.schema([inner, ("b", pa.string())]))
    more = pa.struct([("y", pa.int8()), pa.field("X", pa.int8(), nullable=False)])
    wanted = pa.schema([pa.field("new", pa.list_(pa.int8()), nullable=False), ("S", more)])
    second = grown(first, wanted)
    assert second.version == 2
    assert second.arrow.names == ["s", "b", "new"]
    assert second.fields[0].type == pa.struct(
        [pa.field("x", pa.int8(), nullable=False), ("y", pa.int8())]
    )
    assert not second.fields[0].nullable
    assert second.fields[2].nullable
    assert list(second.by_id) == [1, 2, 6, 3, 4, 5]
    assert covers(second, first)
    assert not covers(first, second)
    assert from_json(to_json(second)) == second


def test_nothing_new_is_the_very_same_schema() -> None:
    first = version(pa.schema([("a", pa.int64()), ("d", pa.decimal128(10, 2)), ("v", pa.null())]))
    for wanted in (
        pa.schema([("a", pa.int64())]),
        pa.schema([("A", pa.int8()), ("d", pa.decimal128(8, 1))]),
        pa.schema([("a", pa.null())]),
        pa.schema([]),
    ):
        assert grown(first, wanted, add=False, widen=False) is first


WIDER = [
    (pa.int8(), pa.int16()),
    (pa.int8(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(12, 2)),
    (pa.decimal128(10, 2), pa.decimal128(12, 4)),
]


@pytest.mark.parametrize(("narrow", "wide"), WIDER, ids=str)
def test_types_grow_when_asked_to(narrow: pa.DataType, wide: pa.DataType) -> None:
    def nested(kind: pa.DataType) -> pa.Schema:
        return pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.struct([("x", kind)]))))])

    first = version(nested(narrow))
    second = grown(first, nested(wide), add=False)
    assert second.arrow == from_arrow_schema(nested(wide))
    assert [field.id for field in second.by_id.values()] == list(first.by_id)
    assert covers(second, first)
    assert grown(second, nested(narrow), add=False, widen=False) is second
    with pytest.raises(SchemaMismatchError, match=r"m\.value\.element\.x: .*typeWidening"):
        grown(first, nested(wide), widen=False)


def from_arrow_schema(schema: pa.Schema) -> pa.Schema:
    return version(schema).arrow


def test_two_decimals_meet_in_one_that_holds_both() -> None:
    first = version(pa.schema([("d", pa.decimal128(10, 2))]))
    second = grown(first, pa.schema([("d", pa.decimal128(8, 4))]))
    assert second.fields[0].type == pa.decimal128(12, 4)
    with pytest.raises(SchemaMismatchError, match=r"decimal\(38,38\), wanted decimal\(10,2\)"):
        grown(first, pa.schema([("d", pa.decimal128(38, 38))]))


def test_a_column_of_nulls_becomes_anything() -> None:
    first = version(pa.schema([("v", pa.null()), ("a", pa.int8())]))
    second = grown(first, pa.schema([("V", pa.list_(pa.int8()))]), widen=False)
    assert second.fields[0].name == "v"
    assert second.fields[0].id == 1
    assert second.fields[0].children[0].id == 3
    assert covers(second, first)
    with pytest.raises(SchemaMismatchError, match="v: found array<tinyint>, wanted void"):
        grown(first, pa.schema([("v", pa.list_(pa.int8()))]), add=False, widen=False)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.string(), pa.int32()),
        (pa.int32(), pa.string()),
        (pa.int32(), pa.float64()),
        (pa.int64(), pa.decimal128(38, 0)),
        (pa.float64(), pa.decimal128(38, 0)),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.list_(pa.int8()), pa.struct([("a", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.int8()),
        (pa.binary(), pa.string()),
        (pa.bool_(), pa.int8()),
    ],
    ids=str,
)
def test_other_types_are_refused_in_one_line(found: pa.DataType, wanted: pa.DataType) -> None:
    first = version(pa.schema([("a b", wanted)]))
    with pytest.raises(SchemaMismatchError, match=r"column `a b`: found .*, wanted ") as refused:
        grown(first, pa.schema([("a b", found)]))
    assert "\n" not in str(refused.value)


def test_an_unknown_column_is_refused_with_its_path() -> None:
    first = version(pa.schema([("s", pa.list_(pa.struct([("x", pa.int8())])))]))
    wanted = pa.schema([("s", pa.list_(pa.struct([("y.z", pa.int8())])))])
    with pytest.raises(
        SchemaMismatchError, match=r"s\.element\.`y\.z`: found tinyint, .*mergeSchema"
    ):
        grown(first, wanted, add=False)
    with pytest.raises(InvalidSchemaError, match="reserved"):
        grown(first, pa.schema([("_offset", pa.int8())]))


def test_an_annotated_struct_gets_no_new_fields() -> None:
    parts = [pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")]
    first = SchemaVersion(1, from_arrow(pa.schema([("v", pa.struct(parts))]), {("v",): "variant"}))
    assert grown(first, pa.schema([("v", pa.struct(parts))])) is first
    with pytest.raises(SchemaMismatchError, match="Its type is variant"):
        grown(first, pa.schema([("v", pa.struct([*parts, ("more", pa.int8())]))]))


def test_ids_end() -> None:
    first = version(pa.schema([("a", pa.int8())]))
    wanted = from_arrow(pa.schema([("b", pa.int8())]))
    with pytest.raises(ValueError, match="next_id must be higher than 1"):
        evolve(first, wanted, add=True, widen=True, next_id=1, version=2)
    with pytest.raises(InvalidSchemaError, match="all 4294967293 field ids"):
        evolve(first, wanted, add=True, widen=True, next_id=MAX_FIELD_ID + 1, version=2)


def test_two_writers_who_add_different_columns_lose_nothing() -> None:
    first = version(pa.schema([("a", pa.int32())]))
    second = grown(first, pa.schema([("x", pa.list_(pa.int8()))]))
    third = grown(first, pa.schema([("y", pa.int8()), ("a", pa.int64())]), second)
    merged = merge_versions(second, third, version=4)
    assert merged.arrow.names == ["a", "x", "y"]
    assert merged.fields[0].type == pa.int64()
    assert covers(merged, second)
    assert covers(merged, third)
    assert merge_versions(merged, third, version=5) is merged
    assert merge_versions(third, first, version=5) is third


def test_two_writers_who_add_the_same_column_agree_on_its_ids() -> None:
    first = version(pa.schema([("a", pa.int32())]))
    kind = pa.map_(pa.string(), pa.list_(pa.int8()))
    second = grown(first, pa.schema([("x", kind)]))
    third = grown(first, pa.schema([("y", pa.int8()), ("x", kind)]), second)
    assert third.by_name("x") == second.by_name("x")
    merged = merge_versions(second, third, version=4)
    assert merged.arrow.names == ["a", "x", "y"]
    assert covers(merged, third)


def test_two_writers_who_give_one_name_two_types_conflict() -> None:
    first = version(pa.schema([("a", pa.int32())]))
    second = grown(first, pa.schema([("x", pa.int8())]))
    third = grown(first, pa.schema([("x", pa.string())]), second)
    with pytest.raises(
        SchemaMismatchError, match=r"x: found string, but another writer .* tinyint"
    ):
        merge_versions(second, third, version=4)


@given(schemas(), schemas())
def test_evolution_is_monotone(one: pa.Schema, other: pa.Schema) -> None:
    first = version(one)
    try:
        second = grown(first, other)
    except SchemaMismatchError:
        return
    assert covers(second, first)
    assert grown(second, other, add=False, widen=False) is second
    assert grown(second, one, add=False, widen=False) is second
    assert from_json(to_json(second)) == second
    assert merge_versions(second, first, version=9) is second
    merged = merge_versions(first, second, version=9)
    assert covers(merged, second)
    assert covers(second, merged)


@given(schemas(2), st.lists(schemas(2), min_size=2, max_size=3))
def test_writers_at_the_same_time_merge_or_conflict(
    base: pa.Schema, additions: list[pa.Schema]
) -> None:
    registered = [version(base)]
    try:
        for addition in additions:
            new = grown(registered[0], addition, *registered[1:])
            if new is not registered[0]:
                registered.append(new)
        published = registered[0]
        for other in registered[1:]:
            published = merge_versions(published, other, version=published.version + 100)
    except SchemaMismatchError:
        return
    assert all(covers(published, other) for other in registered)
    assert from_json(to_json(published)) == published


def test_two_thousand_columns_are_quick() -> None:
    wide = pa.schema([(f"column {number}", pa.list_(pa.int32())) for number in range(2000)])
    more = pa.schema([*wide, *((f"new {number}", pa.int8()) for number in range(2000))])
    started = time.perf_counter()
    first = version(wide)
    second = grown(first, more)
    assert covers(second, first)
    assert grown(second, more, add=False, widen=False) is second
    assert from_json(to_json(second)) == second
    assert time.perf_counter() - started < 5
