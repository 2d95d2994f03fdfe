"""A plain parser of the cursus broker's bodies, written from the table of forms, field by field."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from storage_core.brokers.codecs.headers import NAMES, headers_column
from storage_core.brokers.codecs.records import Bodies
from storage_core.brokers.codecs.rows import CURSUS, Rows, walk_scalar
from storage_core.format.columns import HEADERS

TOPIC, PARTITION = "orders", 3
NUMBERS = ("seq", "epoch", "schema_version", "aggregate_version")
CUTS = (7, 11, 12, 15, 18, 20)

Fields = dict[str, Any]

# Name and struct code of every field of form E, in order; s and S are texts of u16 and u32 length.
LAYOUT = [
    ("topic", "s"), ("partition", "I"), ("offset", "Q"), ("producer", "s"), ("seq", "Q"),
    ("epoch", "q"), ("payload", "S"),
    ("event_type", "s"), ("schema_version", "I"), ("aggregate_version", "Q"), ("metadata", "s"),
    ("key", "s"),
    ("txn_id", "s"), ("txn_state", "s"), ("txn_marker", "s"),
    ("control_type", "s"), ("control_version", "h"), ("control_epoch", "q"),
    ("control_key", "s"), ("control_value", "s"),
]  # fmt: skip
ORDINAL = [("producer", "s"), ("seq", "Q"), ("payload", "S"), ("key", "s"), ("epoch", "q")]


class Plain(NamedTuple):
    """What the plain parser made of a body: its fields in order, and how many bytes they took."""

    fields: Fields
    used: int


def plain_parse(
    body: bytes, layout: Sequence[tuple[str, str]], cuts: Iterable[int]
) -> Plain | None:
    fields: Fields = {}
    at = 0
    for done, (name, code) in enumerate(layout):
        if done in cuts and at == len(body):
            return Plain(fields, at)
        try:
            if code in "sS":
                kind = ">H" if code == "s" else ">I"
                (length,) = struct.unpack_from(kind, body, at)
                at += struct.calcsize(kind)
                if at + length > len(body):
                    return None
                fields[name] = body[at : at + length]
                at += length
            else:
                (fields[name],) = struct.unpack_from(">" + code, body, at)
                at += struct.calcsize(">" + code)
        except struct.error:
            return None
    return Plain(fields, at)


def build(fields: Fields, layout: Sequence[tuple[str, str]]) -> bytes:
    parts = []
    for name, code in layout:
        value = fields.get(name, b"" if code in "sS" else 0)
        if code in "sS":
            parts.append(struct.pack(">H" if code == "s" else ">I", len(value)) + value)
        else:
            parts.append(struct.pack(">" + code, value))
    return b"".join(parts)


def framed(bodies: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def rows_of(bodies: Sequence[bytes]) -> tuple[pa.Buffer, Rows]:
    data = framed(bodies)
    return pa.py_buffer(data), walk_scalar(data, 0, len(data), CURSUS)


def plain_headers(fields: Fields) -> list[tuple[str, bytes]] | None:
    found = []
    for name in NAMES:
        value = fields.get(name)
        if value:
            found.append((name, str(value).encode() if name in NUMBERS else value))
    return found or None


def check_columns(data: pa.Buffer, bodies: Bodies, expected: Sequence[Fields]) -> None:
    keys, values = bodies.key_column(data), bodies.value_column(data)
    headers = headers_column(data, bodies)
    for column, kind in ((keys, pa.binary()), (values, pa.binary()), (headers, HEADERS)):
        column.validate(full=True)
        assert column.type == kind
    assert keys.to_pylist() == [fields.get("key") or None for fields in expected]
    assert values.to_pylist() == [fields["payload"] for fields in expected]
    found = [
        row and [(entry["key"], entry["value"]) for entry in row] for row in headers.to_pylist()
    ]
    assert found == [plain_headers(fields) for fields in expected]


texts = st.one_of(st.just(b""), st.binary(max_size=9), st.just("zażółć🎉".encode()))


def values_of(code: str) -> st.SearchStrategy[Any]:
    if code in "sS":
        return texts
    bits = 8 * struct.calcsize(">" + code)
    low, high = (0, 2**bits - 1) if code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.one_of(st.sampled_from([0, 1, high, low]), st.integers(low, high))


messages = st.fixed_dictionaries(
    {name: values_of(code) for name, code in LAYOUT if name != "offset"}
    | {"offset": st.integers(0, 2**63 - 1)}
)
