"""A schema version as JSON: the same again, and nothing else accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.errors import InvalidSchemaError
from storage_core.schema.document import from_json, to_json
from storage_core.schema.fields import MAX_FIELD_ID, SchemaVersion, from_arrow
from tests.support.typed.random_schemas import schemas

EXAMPLE = SchemaVersion(
    7,
    from_arrow(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("price", pa.decimal128(38, 10)),
                ("m", pa.map_(pa.string(), pa.struct([("x", pa.timestamp("us", tz="UTC"))]))),
                ("l", pa.list_(pa.duration("us"))),
                ("nothing", pa.null()),
            ]
        ),
        {("l", "element"): '"interval day to hour"'},
    ),
)


def test_a_version_is_one_json_document() -> None:
    document = to_json(EXAMPLE)
    assert document["fields"][1] == {
        "id": 2,
        "name": "price",
        "type": "decimal(38, 10)",
        "nullable": True,
    }
    assert document["fields"][3]["children"] == [
        {
            "id": 8,
            "name": "element",
            "type": "duration[us]",
            "nullable": True,
            "annotation": '"interval day to hour"',
        }
    ]
    assert from_json(json.loads(json.dumps(document))) == EXAMPLE


@given(schemas(), st.integers(1, 0xFFFFFFFF))
def test_every_schema_comes_back(schema: pa.Schema, version: int) -> None:
    found = SchemaVersion(version, from_arrow(schema))
    again = from_json(json.loads(json.dumps(to_json(found))))
    assert again == found
    assert again.arrow.equals(found.arrow, check_metadata=True)


def _set(*path: str | int, to: object) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = to

    return change


def _drop(*path: str | int) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return change


HOSTILE: dict[str, tuple[Callable[[Any], None], str]] = {
    "version 0": (_set("version", to=0), "from 1 to"),
    "version too high": (_set("version", to=1 << 32), "from 1 to"),
    "version is true": (_set("version", to=True), "version"),
    "version is a float": (_set("version", to=1.0), "version"),
    "no fields": (_drop("fields"), "'fields' is missing"),
    "fields are an object": (_set("fields", to={}), "a list"),
    "unknown at the top": (_set("extra", to=1), "'extra' is unknown"),
    "a field is a text": (_set("fields", 0, to="id"), "a JSON object"),
    "unknown in a field": (_set("fields", 0, "default", to=1), "'default' is unknown"),
    "no id": (_drop("fields", 0, "id"), "'id' is missing"),
    "id twice": (_set("fields", 0, "id", to=5), "id 5 belongs to another"),
    "id of a system column": (_set("fields", 0, "id", to=MAX_FIELD_ID + 1), "from 1 to"),
    "id negative": (_set("fields", 0, "id", to=-1), "from 1 to"),
    "nullable is a number": (_set("fields", 0, "nullable", to=1), "true or false"),
    "name is a number": (_set("fields", 0, "name", to=1), "a text"),
    "name is empty": (_set("fields", 0, "name", to=""), "empty name"),
    "name is no text": (_set("fields", 0, "name", to="\ud800"), "valid Unicode"),
    "name is reserved": (_set("fields", 0, "name", to="_OFFSET"), "reserved"),
    "name is there twice": (_set("fields", 0, "name", to="Price"), "differ only in case"),
    "annotation is no text": (_set("fields", 0, "annotation", to=None), "a text"),
    "type is unknown": (_set("fields", 0, "type", to="int128"), "a type of this release"),
    "type is a list": (_set("fields", 0, "type", to=["int64"]), "a text"),
    "decimal of 39 digits": (_set("fields", 1, "type", to="decimal(39, 0)"), "a type of"),
    "decimal with more scale": (_set("fields", 1, "type", to="decimal(5, 6)"), "a type of"),
    "decimal spelt otherwise": (_set("fields", 1, "type", to="decimal(05,2)"), "a type of"),
    "decimal in other digits": (_set("fields", 1, "type", to="decimal(٣, ٢)"), "a type of"),
    "children of a number": (_set("fields", 0, "children", to=[]), "has no children"),
    "list without children": (_drop("fields", 3, "children"), "a list, found None"),
    "list without element": (_set("fields", 3, "children", to=[]), "element"),
    "element of another name": (_set("fields", 3, "children", 0, "name", to="item"), "element"),
    "nullable map key": (_set("fields", 2, "children", 0, "nullable", to=True), "key of a map"),
    "null that is not null": (_set("fields", 4, "nullable", to=False), "must be nullable"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_anything_else_is_refused(case: str) -> None:
    change, says = HOSTILE[case]
    document = to_json(EXAMPLE)
    change(document)
    with pytest.raises(InvalidSchemaError, match=says) as refused:
        from_json(document)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("document", [None, [], "x", 3, {1: 2}])
def test_what_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidSchemaError):
        from_json(document)


def test_a_deep_document_is_refused() -> None:
    field: dict[str, Any] = {"id": 1, "name": "x", "type": "int8", "nullable": True}
    for number in range(2, 400):
        field = {
            "id": number,
            "name": "x",
            "type": "struct",
            "nullable": True,
            "children": [field],
        }
    with pytest.raises(InvalidSchemaError, match="nested deeper than 100"):
        from_json({"version": 1, "fields": [field]})


def test_a_hostile_value_is_not_shown_whole() -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        from_json({"version": "x" * 1_000_000, "fields": []})
    assert len(str(refused.value)) < 200
