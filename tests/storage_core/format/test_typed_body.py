"""Bodies of typed frames: what goes in comes out, a column at a time, and nothing is believed."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.config import CODECS
from storage_core.errors import BrokenFrameError
from storage_core.format import typed_body
from storage_core.format.typed_body import (
    OFFSET_DELTA,
    PREAMBLE_BYTES,
    TIMESTAMP_ID,
    EncodedBody,
    decode_columns,
    encode_body,
    read_preamble,
    read_statistics,
)
from storage_core.schema.fields import Field, SchemaVersion, from_arrow
from storage_core.schema.rows import TypedRows
from tests.fuzz.typed_samples import with_right_checksum
from tests.support.sizes import examples
from tests.support.typed.random_schemas import batches, schemas

MANY = 500


def rows_of(batch: pa.RecordBatch) -> TypedRows:
    schema = SchemaVersion(7, from_arrow(batch.schema))
    arrays = [None if column.null_count == len(column) else column for column in batch.columns]
    return TypedRows(schema, arrays, batch.num_rows)


def encoded(rows: TypedRows, compression: str = "none", **others: Any) -> EncodedBody:
    others.setdefault("system", {})
    return encode_body(rows, compression=compression, level=3, **others)


def joined(body: EncodedBody) -> bytes:
    data = b"".join(body.pieces)
    assert len(data) == body.length
    assert not len(data) % 8
    return data


def decoded(
    body: EncodedBody, rows: TypedRows, wanted: Iterable[int] | None = None
) -> dict[int, pa.Array]:
    found = decode_columns(
        joined(body),
        records=rows.count,
        raw_length=body.raw_length,
        schema=rows.schema,
        wanted=rows.schema.positions if wanted is None else set(wanted),
    )
    for array in found.values():
        array.validate(full=True)
    return found


def check_round_trip(batch: pa.RecordBatch) -> None:
    rows = rows_of(batch)
    for compression in CODECS:
        found = decoded(encoded(rows, compression), rows)
        for field, before in zip(rows.schema.fields, rows.arrays, strict=True):
            after = found.pop(field.id, None)
            if before is None:
                assert after is None
                continue
            assert after is not None
            assert after.type.equals(field.type, check_metadata=True)
            assert len(after) == rows.count
            assert same(after, before), (compression, field)
        assert not found


def same(one: pa.Array, other: pa.Array) -> bool:
    """Equal also in NaN and in the sign of zero, at any depth."""
    if _has_floats(one.type):
        return repr(one.to_pylist()) == repr(other.to_pylist())
    return bool(one.equals(other))


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(
        _has_floats(kind.field(index).type) for index in range(kind.num_fields)
    )


@given(st.data())
def test_every_type_comes_back_from_every_codec(data: st.DataObject) -> None:
    check_round_trip(data.draw(batches(data.draw(schemas(depth=3)))))


@given(st.data(), st.integers(0, 40), st.integers(60, 200))
def test_slices_of_many_rows_come_back(data: st.DataObject, start: int, length: int) -> None:
    """Rows repeated until the encodings of numbers and texts are tried."""
    schema = data.draw(schemas(most=2))
    batch = data.draw(batches(schema).filter(lambda found: found.num_rows > 0))
    index = np.random.default_rng(start).integers(0, batch.num_rows, 300)
    many = pa.RecordBatch.from_arrays(
        [column.take(pa.array(index)) for column in batch.columns], schema=schema
    )
    check_round_trip(many.slice(start, length))


COLUMNS = {
    "ids": pa.array(range(10**15, 10**15 + MANY)),
    "jumps": pa.array([(-1) ** n * (2**63 - 1 - n) for n in range(MANY)]),
    "lowest": pa.array([-(2**63), 2**63 - 1] * (MANY // 2)),
    "int": pa.array([-(2**31), 2**31 - 1] * (MANY // 2), pa.int32()),
    "short": pa.array([n % 300 - 150 for n in range(MANY)], pa.int16()),
    "tiny": pa.array([n % 256 - 128 for n in range(MANY)], pa.int8()),
    "zeros": pa.array([0] * MANY),
    "float": pa.array([-0.0, 0.0, float("nan"), float("inf"), 1e-45] * (MANY // 5), pa.float32()),
    "prices": pa.array([-0.0, 0.01, float("nan"), 19.99, 5e-324] * (MANY // 5)),
    "flags": pa.array([n % 3 == 0 for n in range(MANY)]),
    "money": pa.array([Decimal(10**37 - n) for n in range(MANY)], pa.decimal128(38, 0)),
    "small money": pa.array([Decimal(n) for n in range(MANY)], pa.decimal128(38, 0)),
    "times": pa.array([-(2**62) + n * n for n in range(MANY)], pa.timestamp("us")),
    "days": pa.array(range(-MANY, 0), pa.int32()).cast(pa.date32()),
    "words": pa.array(["", "a", "größe", "a" * 50] * (MANY // 4)),
    "distinct": pa.array([f"{n * 7919:x}" for n in range(MANY)]),
    "bytes": pa.array([b"\0\xff", b""] * (MANY // 2)),
    "lists": pa.array([["x"] * (n % 3) for n in range(MANY)]),
    "maps": pa.array([[(f"k{n % 5}", n)] for n in range(MANY)], pa.map_(pa.string(), pa.int64())),
    "deep": pa.array([{"a": [{"b": n % 7}]} for n in range(MANY)]),
    "nothing": pa.nulls(MANY),
    "nothings": pa.array([[None] * (n % 2) for n in range(MANY)], pa.list_(pa.null())),
    "empty struct": pa.array([{}] * MANY, pa.struct([])),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("start", [0, 1, 13])
@pytest.mark.parametrize("with_nulls", [False, True])
def test_columns_that_encodings_are_made_for(name: str, start: int, with_nulls: bool) -> None:
    array = COLUMNS[name]
    if with_nulls:
        index = [None if n % 3 == 0 else n for n in range(len(array))]
        array = array.take(pa.array(index, pa.int64()))
    batch = pa.RecordBatch.from_arrays([array], [name])
    check_round_trip(batch.slice(start))
    check_round_trip(batch.slice(start, 40))
    check_round_trip(batch.slice(start, 0))


def sample(count: int = MANY) -> TypedRows:
    return rows_of(pa.RecordBatch.from_pydict(COLUMNS).slice(0, count))


@pytest.mark.parametrize("compression", CODECS)
def test_only_wanted_columns_are_decoded(compression: str) -> None:
    rows = sample()
    wanted = rows.schema.fields[3].id, rows.schema.fields[14].id
    body = bytearray(joined(encoded(rows, compression)))
    found = decoded(encoded(rows, compression), rows, wanted)
    assert set(found) == set(wanted)
    # A damaged column that is not wanted does no harm; wanted, it is an error or other values.
    place = body.index(b"a" * 50) if compression == "none" else len(body) // 2
    body[place] ^= 0xFF
    again = decode_columns(
        bytes(body), records=MANY, raw_length=1 << 30, schema=rows.schema, wanted={wanted[0]}
    )
    assert again[wanted[0]].equals(found[wanted[0]])


def test_system_columns_need_no_schema() -> None:
    rows = sample()
    deltas = pa.array(range(0, 2 * MANY, 2), pa.uint32())
    times = pa.array(range(MANY), pa.timestamp("us", tz="UTC"))
    system = {OFFSET_DELTA: deltas, TIMESTAMP_ID: times}
    for compression in CODECS:
        body = encoded(rows, compression, system=system)
        found = decode_columns(
            joined(body),
            records=MANY,
            raw_length=body.raw_length,
            schema=SchemaVersion(7, ()),
            wanted=[OFFSET_DELTA, TIMESTAMP_ID],
        )
        assert found[OFFSET_DELTA].equals(deltas)
        assert found[TIMESTAMP_ID].equals(times)


def test_columns_that_are_null_everywhere_take_no_bytes() -> None:
    schema = SchemaVersion(1, from_arrow([pa.field(f"c{n}", pa.int64()) for n in range(2000)]))
    body = encoded(TypedRows(schema, [None] * 2000, 10))
    assert body.length == body.raw_length == PREAMBLE_BYTES
    assert decoded(body, TypedRows(schema, [None] * 2000, 10)) == {}


def test_buffers_that_are_not_compressed_are_not_copied() -> None:
    rows = rows_of(pa.RecordBatch.from_pydict({"a": pa.array(range(10_000))}))
    body = encoded(rows)
    (column,) = rows.arrays
    assert column is not None
    written = [piece.address for piece in body.pieces if isinstance(piece, pa.Buffer)]
    assert written == [column.buffers()[1].address]
    data = pa.py_buffer(joined(body))
    (array,) = decode_columns(
        data, records=10_000, raw_length=body.raw_length, schema=rows.schema, wanted=[1]
    ).values()
    address = array.buffers()[1].address
    assert data.address < address < data.address + data.size


def test_bytes_outside_of_a_slice_are_not_stored() -> None:
    array = pa.array(["secret" * 1000, "x", "secret" * 1000])
    rows = rows_of(pa.RecordBatch.from_pydict({"a": array, "b": [[1] * 999, [2], []]}).slice(1, 1))
    data = joined(encoded(rows))
    assert b"secret" not in data
    assert len(data) < 300


def test_raw_length_bounds_what_decoding_takes() -> None:
    rows = sample()
    for compression in CODECS:
        body = encoded(rows, compression)
        assert body.raw_length == encoded(rows).length or compression != "none"
        with pytest.raises(BrokenFrameError):
            decode_columns(
                joined(body),
                records=MANY,
                raw_length=body.raw_length // 4,
                schema=rows.schema,
                wanted=rows.schema.positions,
            )


def test_encodings_make_typical_columns_small() -> None:
    for name, most in {"ids": 0.1, "zeros": 0.1, "times": 0.5, "days": 0.2, "words": 0.1}.items():
        rows = rows_of(pa.RecordBatch.from_pydict({name: pa.concat_arrays([COLUMNS[name]] * 8)}))
        small, plain = encoded(rows, "zstd").length, encoded(rows).length
        assert small < most * plain, name


STATISTICS = b'{"1": ["i", 0, false, 1, 2]}'


def test_statistics_are_read_without_the_rest() -> None:
    rows = sample(3)
    data = joined(encoded(rows, statistics=STATISTICS))
    preamble = read_preamble(data[:PREAMBLE_BYTES])
    assert preamble.schema_version == 7
    prefix = data[: preamble.directory_start]
    assert read_statistics(preamble, prefix) == STATISTICS
    assert read_statistics(preamble, prefix[:40]) is None
    damaged = prefix.replace(b"1, 2", b"1, 3")
    assert read_statistics(preamble, damaged) is None
    without = joined(encoded(rows))
    assert read_statistics(read_preamble(without), without) is None


GOLDEN_SCHEMA = SchemaVersion(
    3,
    (
        Field(1, "id", pa.int64(), nullable=False),
        Field(2, "name", pa.string()),
        Field(5, "gone", pa.int8()),
    ),
)
# docs/format.md has the bytes of a body that is not compressed.
# Deltas of ids, compressed; a dictionary of two texts whose indices are compressed.
GOLDEN_ZSTD = """
00000003 00000002 00000002 00000005 00000000 00000000 00000000 d3d3015b
00000001 00000001 00000002 00000002 00000001 00000003 00000040 00000000
00000040 00000000 00000000 00000000 00000000 00000014 00000047 02020100
00000000 00000000 00000000 00000011 00000040 02030100 00000011 00000011
00030000 00000000 28b52ffd 20475d00 00186400 02020003 520c000b 00000000
28b52ffd 20404500 00100001 01004b72 58000000 00000000 02000000 02000000
03000000 6f6e6f66 66000000 00000000
"""
GOLDEN_LZ4 = """
00000003 00000002 00000002 00000005 00000000 00000000 00000000 d3d3015b
00000001 00000001 00000002 00000002 00000001 00000003 00000040 00000000
00000040 00000000 00000000 00000000 00000000 0000001f 00000047 01020100
00000000 00000000 00000000 0000001b 00000040 01030100 00000011 00000011
00030000 00000000 04224d18 60408210 00000022 64000100 1f020100 26500202
02020200 00000000 04224d18 6040820c 0000002f 00010200 26500100 01000100
00000000 00000000 02000000 02000000 03000000 6f6e6f66 66000000 00000000
"""


@pytest.mark.parametrize("golden", [GOLDEN_ZSTD, GOLDEN_LZ4])
def test_golden_bytes_with_compression_are_read(golden: str) -> None:
    found = decode_columns(
        bytes.fromhex(golden), records=64, raw_length=1072, schema=GOLDEN_SCHEMA, wanted=[1, 2, 5]
    )
    assert found == {1: pa.array(range(100, 164)), 2: pa.array(["on", "off"] * 32)}


def test_a_preamble_that_is_cut_or_changed_is_refused() -> None:
    data = joined(encoded(sample(3)))
    with pytest.raises(BrokenFrameError, match="ends inside its preamble: 31 of 32"):
        read_preamble(data[:31])
    for at in range(PREAMBLE_BYTES):
        with pytest.raises(BrokenFrameError, match="fails its checksum"):
            read_preamble(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


def decode_hostile(data: bytes, rows: TypedRows, raw_length: int) -> None:
    """Any bytes are an error or columns of the right length, sound and within bounds."""
    before = pa.total_allocated_bytes()
    try:
        found = decode_columns(
            data,
            records=rows.count,
            raw_length=raw_length,
            schema=rows.schema,
            wanted=rows.schema.positions,
        )
    except BrokenFrameError:
        return
    assert pa.total_allocated_bytes() - before <= 4 * raw_length + 4096
    for number, array in found.items():
        assert len(array) == rows.count
        assert array.type == rows.schema.by_id[number].type
        array.validate(full=True)
        pa.concat_arrays([array, array]).take(pa.array([0, len(array)]))


@pytest.mark.parametrize("compression", CODECS)
def test_flipped_bits_never_crash(compression: str) -> None:
    for count in (3, 100):
        rows = sample(count)
        body = encoded(rows, compression)
        data = joined(body)
        chance = Random(count)
        # Every bit of the head, and bits of the buffers.
        head = read_preamble(data)
        end = head.directory_start + head.directory_length
        places = [*range(8 * end), *(chance.randrange(8 * len(data)) for _ in range(2000))]
        for bit in chance.sample(places, examples(len(places) if count == 3 else 2000)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            decode_hostile(with_right_checksum(bytes(changed)), rows, body.raw_length)


@pytest.mark.parametrize("compression", CODECS)
def test_numbers_of_the_head_may_be_anything(compression: str) -> None:
    rows = sample(50)
    body = encoded(rows, compression)
    data = joined(body)
    head = read_preamble(data)
    end = head.directory_start + head.directory_length
    chance = Random(1)
    for _ in range(examples(4000)):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            value = chance.choice((0, 1, 2, 3, 49, 50, 51, 255, 2**31 - 1, 2**31, 2**32 - 1))
            struct.pack_into(">I", changed, 4 * chance.randrange(end // 4), value)
        decode_hostile(with_right_checksum(bytes(changed)), rows, body.raw_length)


@given(st.binary(max_size=400), st.integers(0, 6), st.integers(0, 6), st.integers(0, 12))
def test_random_bytes_never_crash(noise: bytes, columns: int, nodes: int, buffers: int) -> None:
    rows = sample(5)
    head = struct.pack(">IIIIIII", 7, columns, nodes, buffers, 0, 0, 0)
    noise += bytes(-len(noise) % 8)
    decode_hostile(with_right_checksum(head + bytes(4) + noise), rows, 1 << 20)
    decode_hostile(noise, rows, 1 << 20)


def test_cut_bodies_are_refused() -> None:
    rows = sample(20)
    body = encoded(rows, "zstd")
    data = joined(body)
    for length in range(0, len(data), 8):
        with pytest.raises(BrokenFrameError):
            decode_columns(
                data[:length],
                records=20,
                raw_length=body.raw_length,
                schema=rows.schema,
                wanted=rows.schema.positions,
            )


def test_a_null_key_of_a_map_is_refused_before_arrow_ends_the_process() -> None:
    """Arrow checks the keys of a map when it makes one, and aborts."""
    array = pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64()))
    rows = rows_of(pa.RecordBatch.from_arrays([array], ["m"]))
    body = encoded(rows)
    data = bytearray(joined(body))
    at = read_preamble(bytes(data)).directory_start + 12
    for node in (1, 2):
        changed = data.copy()
        struct.pack_into(">I", changed, at + 8 * node + 4, 1)
        with pytest.raises(BrokenFrameError, match=r"a key of map<string, int64> is null"):
            decode_columns(
                bytes(changed), records=1, raw_length=1 << 20, schema=rows.schema, wanted=[1]
            )


def test_a_null_in_a_not_null_column_is_refused() -> None:
    rows = rows_of(pa.RecordBatch.from_pydict({"a": [1, None]}))
    body = encoded(rows)
    strict = SchemaVersion(7, (Field(1, "a", pa.int64(), nullable=False),))
    with pytest.raises(BrokenFrameError, match="column a is null where it may not be"):
        decode_columns(
            joined(body), records=2, raw_length=body.raw_length, schema=strict, wanted=[1]
        )


STRICT = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("strict", "rows", "absent", "path"),
    [
        (pa.struct([STRICT]), [{"x": 1}, {"x": None}], [{"x": 1}, None], "a.x"),
        (pa.list_(STRICT), [[1], [2, None]], [[1], None, []], "a.element"),
        (
            pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
            [[("k", 1)], [("l", None)]],
            [[("k", 1)], None],
            "a.value",
        ),
        (
            pa.list_(pa.struct([pa.field("s", pa.struct([STRICT]))])),
            [[{"s": {"x": 1}}, {"s": None}], [{"s": {"x": None}}]],
            [None, [None, {"s": None}, {"s": {"x": 1}}]],
            r"a\.element\.s\.x",
        ),
    ],
    ids=["struct", "list", "map", "deep"],
)
@pytest.mark.parametrize("compression", CODECS)
def test_a_null_where_an_inner_field_is_not_null_is_refused(
    strict: pa.DataType, rows: list[Any], absent: list[Any], path: str, compression: str
) -> None:
    """Only a null that a row has: what is inside of a null is no value."""
    schema = SchemaVersion(7, from_arrow(pa.schema([("a", strict)])))
    loose = from_arrow(pa.schema([("a", _loose(strict))]))[0].type
    bad, good = (pa.array(found, loose) for found in (rows, absent))
    body = encoded(TypedRows(schema, [bad], len(bad)), compression)
    with pytest.raises(BrokenFrameError, match=f"column {path} is null where it may not be"):
        decoded(body, TypedRows(schema, [bad], len(bad)))
    sound = TypedRows(schema, [good], len(good))
    assert decoded(encoded(sound, compression), sound)[1].to_pylist() == good.to_pylist()


def _loose(kind: pa.DataType) -> pa.DataType:
    """The same type, with nulls allowed everywhere but in the keys of maps."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _loose(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _loose(kind.value_type)))
    return pa.map_(kind.key_type, _loose(kind.item_type)) if pa.types.is_map(kind) else kind


def test_lz4_that_holds_fewer_bytes_than_claimed_is_refused() -> None:
    """The rest of the buffer would be memory that was used before."""
    rows = rows_of(pa.RecordBatch.from_pydict({"a": pa.array(["ab" * 500])}))
    body = encoded(rows, "lz4")
    data = joined(body)
    short = pa.Codec("lz4").compress(b"ab" * 400, asbytes=True)
    at = data.index(struct.pack("<I", 0x184D2204))
    assert len(short) <= len(data) - at
    changed = data[:at] + short + bytes(len(data) - at - len(short))
    decode_hostile(changed, rows, body.raw_length)
    with pytest.raises(BrokenFrameError):
        decode_columns(
            changed, records=1, raw_length=body.raw_length, schema=rows.schema, wanted=[1]
        )


def test_another_schema_version_is_refused() -> None:
    rows = sample(2)
    body = encoded(rows)
    other = SchemaVersion(8, rows.schema.fields)
    with pytest.raises(BrokenFrameError, match="expected schema version 8 in the frame, found 7"):
        decode_columns(joined(body), records=2, raw_length=1 << 20, schema=other, wanted=[1])


def test_choices_are_forgotten_with_their_schemas() -> None:
    for _ in range(200):
        encoded(sample(2), "zstd")
    assert len(typed_body._choices) <= 64
