"""The columns of a typed topic: canonical types, ids, names."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from storage_core.errors import InvalidSchemaError, UnsupportedTypeError
from storage_core.schema.fields import MAX_DEPTH, SchemaVersion, dotted, from_arrow

CANONICAL = [
    (pa.null(), pa.null()),
    (pa.bool_(), pa.bool_()),
    (pa.int8(), pa.int8()),
    (pa.uint8(), pa.int16()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.float64(), pa.float64()),
    (pa.decimal32(9, 2), pa.decimal128(9, 2)),
    (pa.decimal64(18, 0), pa.decimal128(18, 0)),
    (pa.decimal128(38, 38), pa.decimal128(38, 38)),
    (pa.decimal256(38, 5), pa.decimal128(38, 5)),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.binary(16), pa.binary()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.timestamp("s", tz="Asia/Seoul"), pa.timestamp("us", tz="UTC")),
    (pa.duration("ns"), pa.duration("us")),
    (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.uint8()), pa.int16()),
    (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
    (pa.list_(pa.int8(), 3), pa.list_(pa.field("element", pa.int8()))),
    (pa.list_view(pa.int8()), pa.list_(pa.field("element", pa.int8()))),
    (
        pa.map_(pa.large_string(), pa.field("value", pa.date64(), nullable=False)),
        pa.map_(pa.string(), pa.field("value", pa.date32(), nullable=False)),
    ),
    (
        pa.struct([pa.field("a", pa.list_(pa.string_view()), nullable=False)]),
        pa.struct([pa.field("a", pa.list_(pa.field("element", pa.string())), nullable=False)]),
    ),
]


@pytest.mark.parametrize(("found", "stored"), CANONICAL, ids=lambda kind: str(kind))
def test_a_type_is_stored_as_its_canonical_one(found: pa.DataType, stored: pa.DataType) -> None:
    nullable = pa.types.is_null(found)  # Arrow has no other
    (field,) = from_arrow(pa.schema([pa.field("c", found, nullable)]))
    assert field.type.equals(stored, check_metadata=True)
    assert field.nullable == nullable
    again = from_arrow([field.arrow])
    assert again == (field,)


@pytest.mark.parametrize(
    "kind",
    [
        pa.time32("s"),
        pa.time64("us"),
        pa.month_day_nano_interval(),
        pa.uint64(),
        pa.decimal256(50, 0),
        pa.decimal128(5, -2),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.uuid(),
    ],
    ids=lambda kind: str(kind),
)
def test_other_types_are_refused_by_name(kind: pa.DataType) -> None:
    nested = pa.schema([pa.field("a b", pa.list_(pa.struct([pa.field("x", kind)])))])
    with pytest.raises(UnsupportedTypeError) as refused:
        from_arrow(nested)
    assert "`a b`.element.x" in str(refused.value)
    assert str(kind) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ids_count_every_depth_a_parent_before_its_children() -> None:
    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("m", pa.map_(pa.string(), pa.struct([("x", pa.int8()), ("y", pa.int8())]))),
            ("l", pa.list_(pa.string())),
        ]
    )
    version = SchemaVersion(1, from_arrow(schema, {("m", "value", "x"): "tinyint"}, first_id=5))
    assert {number: field.name for number, field in version.by_id.items()} == {
        5: "a",
        6: "m",
        7: "key",
        8: "value",
        9: "x",
        10: "y",
        11: "l",
        12: "element",
    }
    assert version.max_id == 12
    assert version.by_id[9].annotation == "tinyint"
    assert version.positions == {5: 0, 6: 1, 11: 2}


def test_a_name_is_found_in_any_case() -> None:
    version = SchemaVersion(1, from_arrow(pa.schema([("Größe", pa.int8()), ("a.b c", pa.int8())])))
    assert version.by_name("GRÖSSE") is None
    assert version.by_name("größe") == version.fields[0]
    assert version.by_name("A.B C") == version.fields[1]
    assert version.by_name("a") is None


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "A"], "a and A differ only in case"),
        (["a b", "a b"], "`a b` is there twice"),
        ([""], "empty name"),
    ],
)
def test_names_that_clash_are_refused_at_every_depth(names: list[str], says: str) -> None:
    columns = [(name, pa.int8()) for name in names]
    with pytest.raises(InvalidSchemaError, match=says):
        from_arrow(pa.schema(columns))
    with pytest.raises(InvalidSchemaError, match=r"s\.element"):
        from_arrow(pa.schema([("s", pa.list_(pa.struct(columns)))]))


def test_reserved_names_are_refused_for_columns_only() -> None:
    with pytest.raises(InvalidSchemaError, match=r"column _Offset: .* reserved"):
        from_arrow(pa.schema([("_Offset", pa.int8())]))
    (field,) = from_arrow(pa.schema([("s", pa.struct([("_offset", pa.int8())]))]))
    assert field.children[0].name == "_offset"


def test_a_type_can_be_nested_to_the_limit() -> None:
    kind = pa.int32()
    for _ in range(MAX_DEPTH - 1):
        kind = pa.list_(kind)
    (field,) = from_arrow(pa.schema([("deep", kind)]))
    assert pickle.loads(pickle.dumps(field)) == field
    with pytest.raises(UnsupportedTypeError, match="deep: nested deeper than 100 levels"):
        from_arrow(pa.schema([("deep", pa.list_(kind))]))


def test_a_version_can_be_pickled_without_what_it_cached() -> None:
    version = SchemaVersion(3, from_arrow(pa.schema([("a", pa.int8())])))
    fresh = pickle.dumps(version)
    assert version.arrow.names == ["a"]
    assert pickle.dumps(version) == fresh
    assert pickle.loads(fresh) == version
    assert hash(pickle.loads(fresh)) == hash(version)


def test_a_path_is_shown_on_one_line() -> None:
    assert dotted(("a", "x.y", "`", "größe")) == "a.`x.y`.````.größe"
    assert dotted(("a\nb\x1b", "\ud800")) == "`a\\nb\\x1b`.`\\ud800`"
