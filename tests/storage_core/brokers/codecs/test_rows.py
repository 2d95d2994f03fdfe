"""Length-prefixed rows: both walkers and both directions, against each other and the seeds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.brokers.codecs import row_walk
from storage_core.brokers.codecs.row_walk import walk_files, walk_indexed
from storage_core.brokers.codecs.rows import (
    CURSUS,
    CURSUS_BROKER,
    RUSTLOG,
    Ending,
    RowFormat,
    Rows,
    Stretch,
    encode_rows,
    payload_column,
    row_offsets,
    scan,
    slices_column,
    walk_scalar,
)
from storage_core.errors import InvalidRecordError, RecordTooLargeError
from tests.support.sizes import examples

SMALL = RowFormat(header_bytes=4, has_offset=False, max_payload=300, min_payload=1)
SMALL_WITH_OFFSET = RowFormat(header_bytes=12, has_offset=True, max_payload=300)
FORMATS = [CURSUS, CURSUS_BROKER, RUSTLOG, SMALL, SMALL_WITH_OFFSET]

Walker = Callable[[bytes, int, int, RowFormat], Rows]


def walk_from_entries(data: bytes, start: int, limit: int, fmt: RowFormat) -> Rows:
    """The indexed walk with perfect entries: every record it could start from."""
    return walk_indexed(data, start, limit, fmt, walk_scalar(data, start, limit, fmt).positions)


@pytest.fixture(params=[walk_scalar, walk_from_entries], ids=["scalar", "indexed"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Walker:
    monkeypatch.setattr(row_walk, "_FEW_WALKERS", 0)
    walker: Walker = request.param
    return walker


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Small data must reach the indexed walk too, and several blocks of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_walk, "_FEW_WALKERS", 1)
        patch.setattr(row_walk, "_BLOCK_WALKERS", 5)
        yield


def frame(payload: bytes, fmt: RowFormat, offset: int = 0) -> bytes:
    head = struct.pack(">I", len(payload))
    return head + (struct.pack(">Q", offset) if fmt.has_offset else b"") + payload


def facts(rows: Rows) -> tuple[object, ...]:
    """All that a walk found out, so that two can be compared."""
    found = rows.positions.tolist(), rows.lengths.tolist()
    return (*found, rows.end, rows.ending, rows.problem)


def payloads(data: bytes, rows: Rows, fmt: RowFormat) -> list[bytes]:
    column = payload_column(pa.py_buffer(data), rows, fmt)
    column.validate(full=True)
    assert column.type == pa.binary()
    values: list[bytes] = column.to_pylist()
    return values


def test_examples_of_the_first_seed_byte_for_byte(walk: Walker) -> None:
    expected = bytes.fromhex("00000005 48656C6C6F 00000006 576F726C6421")
    assert encode_rows(pa.array([b"Hello", b"World!"]), CURSUS).to_pybytes() == expected
    rows = walk(expected, 0, len(expected), CURSUS)
    assert rows.positions.tolist() == [0, 9]
    assert payloads(expected, rows, CURSUS) == [b"Hello", b"World!"]
    assert rows.ending is Ending.WHOLE


def test_examples_of_the_third_seed_byte_for_byte(walk: Walker) -> None:
    assert encode_rows(pa.array([b"hello"]), CURSUS).to_pybytes() == bytes(
        [0x00, 0x00, 0x00, 0x05, 0x68, 0x65, 0x6C, 0x6C, 0x6F]
    )
    # The seed gives the second message 12 bytes; it has 11, and stands at 15 as the seed says.
    expected = bytes.fromhex("0000000B 68656C6C6F20776F726C64 0000000B 616E6F74686572206D7367")
    assert encode_rows(pa.array([b"hello world", b"another msg"]), CURSUS) == expected
    assert walk(expected, 0, len(expected), CURSUS).positions.tolist() == [0, 15]


def test_rustlog_record_carries_its_offset(walk: Walker) -> None:
    data = encode_rows(pa.array([b"Hello", b""]), RUSTLOG, first_offset=7)
    assert data == bytes.fromhex("00000005 0000000000000007 48656C6C6F 00000000 0000000000000008")
    rows = walk(data.to_pybytes(), 0, len(data), RUSTLOG)
    assert row_offsets(data, rows).tolist() == [7, 8]
    assert payloads(data.to_pybytes(), rows, RUSTLOG) == [b"Hello", b""]


@pytest.mark.parametrize("fmt", [CURSUS, RUSTLOG])
def test_torn_header_and_torn_payload_are_simply_the_end(walk: Walker, fmt: RowFormat) -> None:
    whole = frame(b"one", fmt) + frame(b"two", fmt)
    last = len(frame(b"two", fmt))
    for cut in range(1, last):
        rows = walk(whole[:-cut], 0, len(whole) - cut, fmt)
        assert rows.count == 1
        assert rows.end == len(whole) - last
        assert rows.ending is Ending.TORN
        assert rows.problem is not None


@pytest.mark.parametrize("fmt", FORMATS)
def test_length_over_the_limit_is_damage_even_at_the_end(walk: Walker, fmt: RowFormat) -> None:
    good = frame(b"good", fmt)
    data = good + struct.pack(">I", fmt.max_payload + 1) + bytes(fmt.header_bytes)
    rows = walk(data, 0, len(data), fmt)
    assert (rows.count, rows.end, rows.ending) == (1, len(good), Ending.DAMAGED)
    assert str(fmt.max_payload + 1) in str(rows.problem)


def test_largest_record_is_no_damage(walk: Walker) -> None:
    value = b"x" * SMALL.max_payload
    data = encode_rows(pa.array([value, b"y"]), SMALL).to_pybytes()
    assert payloads(data, walk(data, 0, len(data), SMALL), SMALL) == [value, b"y"]
    with pytest.raises(RecordTooLargeError, match=r"record 0 .* 301 bytes"):
        encode_rows(pa.array([value + b"x"]), SMALL)


def test_zero_bytes_are_empty_records_or_damage(walk: Walker) -> None:
    data = frame(b"a", CURSUS) + bytes(12)
    rows = walk(data, 0, len(data), CURSUS)
    assert payloads(data, rows, CURSUS) == [b"a", b"", b"", b""]
    rows = walk(data, 0, len(data), CURSUS_BROKER)
    assert (rows.count, rows.end, rows.ending) == (1, 5, Ending.DAMAGED)


def test_nothing_and_only_empty_payloads(walk: Walker) -> None:
    assert payloads(b"", walk(b"", 0, 0, CURSUS), CURSUS) == []
    data = bytes(8)
    assert payloads(data, walk(data, 0, 8, CURSUS), CURSUS) == [b"", b""]
    assert encode_rows(pa.array([], pa.binary()), RUSTLOG) == b""
    assert encode_rows(pa.array([b"", b""]), CURSUS) == bytes(8)


def test_unicode_survives(walk: Walker) -> None:
    texts = ["żółć", "日本語", "🎉", "e\u0301"]
    data = encode_rows(pa.array([text.encode() for text in texts]), CURSUS).to_pybytes()
    found = payloads(data, walk(data, 0, len(data), CURSUS), CURSUS)
    assert [value.decode() for value in found] == texts


def test_slice_keeps_the_ending_with_the_last_record(walk: Walker) -> None:
    data = frame(b"a", CURSUS) + frame(b"bb", CURSUS) + b"\0"
    rows = walk(data, 0, len(data), CURSUS)
    first, rest = rows.slice(0, 1), rows.slice(1, 9)
    assert (first.end, first.ending) == (5, Ending.WHOLE)
    assert (rest.end, rest.ending) == (11, Ending.TORN)
    assert payloads(data, rest, CURSUS) == [b"bb"]


def test_null_value_cannot_be_stored() -> None:
    with pytest.raises(InvalidRecordError, match=r"value 1 .* null"):
        encode_rows(pa.array([b"a", None]), CURSUS)
    with pytest.raises(InvalidRecordError, match="empty"):
        encode_rows(pa.array([b""]), CURSUS_BROKER)


def test_encoding_a_slice_encodes_only_the_slice() -> None:
    values = pa.array([b"a", b"bb", b"ccc", b"d"]).slice(1, 2)
    assert encode_rows(values, CURSUS) == frame(b"bb", CURSUS) + frame(b"ccc", CURSUS)


def test_long_stretches_are_cut_where_arrow_offsets_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_core.brokers.codecs.rows._INT32_MAX", 10)
    data = pa.py_buffer(b"..aaaa....bbb.c......dd")
    starts, lengths = np.array([2, 10, 14, 21]), np.array([4, 3, 1, 2])
    assert slices_column(data, starts, lengths).to_pylist() == [b"aaaa", b"bbb", b"c", b"dd"]


@pytest.mark.parametrize("length", [0, 301])
def test_walkers_follow_no_illegal_length(length: int) -> None:
    data = b"".join(frame(b"x" * n, SMALL) for n in [9] * 8 + [length] + [9] * 8)
    entries = walk_scalar(data, 0, len(data), CURSUS).positions
    found = walk_indexed(data, 0, len(data), SMALL, entries)
    assert facts(found) == facts(walk_scalar(data, 0, len(data), SMALL))
    assert (found.count, found.ending) == (8, Ending.DAMAGED)


def test_good_entries_leave_only_the_tail_to_the_scalar_walker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"".join(frame(b"x" * (i % 7), CURSUS) for i in range(200))
    true = walk_scalar(data, 0, len(data), CURSUS)
    seen: list[int] = []

    def spy(view: memoryview, start: int, *rest: Any) -> Stretch:
        found = scan(view, start, *rest)
        seen.extend(found.positions)
        return found

    monkeypatch.setattr(row_walk, "scan", spy)
    found = walk_indexed(data, 0, len(data), CURSUS, true.positions[::8])
    assert facts(found) == facts(true)
    assert seen == true.positions[192:].tolist()
    # One wrong entry costs its own stretch and no more.
    seen.clear()
    wrong = np.append(true.positions[::8], true.positions[50] + 1)
    assert facts(walk_indexed(data, 0, len(data), CURSUS, wrong)) == facts(true)
    assert seen == true.positions[48:56].tolist() + true.positions[192:].tolist()


sample_payloads = st.lists(st.binary(min_size=1, max_size=40), max_size=60)


@settings(max_examples=examples(300))
@given(st.binary(max_size=400), st.lists(st.integers(-5, 420), max_size=40), st.data())
def test_walkers_agree_on_arbitrary_bytes_and_entries(
    noise: bytes, entries: list[int], draw: st.DataObject
) -> None:
    fmt = draw.draw(st.sampled_from(FORMATS))
    data = draw.draw(st.sampled_from([noise, bytes(len(noise)), noise.replace(b"\1", b"\0\0\0")]))
    start = draw.draw(st.integers(0, len(data)))
    limit = draw.draw(st.integers(start, len(data)))
    found = walk_indexed(data, start, limit, fmt, np.array(entries, dtype=np.int64))
    assert facts(found) == facts(walk_scalar(data, start, limit, fmt))


@settings(max_examples=examples(300))
@given(sample_payloads, st.data())
def test_walkers_agree_on_mutated_logs(values: list[bytes], draw: st.DataObject) -> None:
    fmt = draw.draw(st.sampled_from(FORMATS))
    data = bytearray(b"".join(frame(value, fmt, i) for i, value in enumerate(values)))
    true = walk_scalar(data, 0, len(data), fmt)
    assert payloads(bytes(data), true, fmt) == values
    entries = [p for p in true.positions.tolist() if draw.draw(st.booleans())]
    entries += draw.draw(st.lists(st.integers(0, len(data) + 9), max_size=4))
    if data:
        for at in draw.draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
            data[at] = draw.draw(st.sampled_from([0, 1, 2, 7, 255]))
    found = walk_indexed(data, 0, len(data), fmt, np.array(entries, dtype=np.int64))
    plain = walk_scalar(data, 0, len(data), fmt)
    assert facts(found) == facts(plain)
    if fmt.has_offset:
        assert row_offsets(data, found).tolist() == row_offsets(data, plain).tolist()


@settings(max_examples=examples(100))
@given(st.lists(sample_payloads, max_size=8), st.binary(max_size=30), st.integers(1, 7))
def test_many_files_are_counted_as_each_one_is(
    files: list[list[bytes]], noise: bytes, every: int
) -> None:
    datas = [b"".join(frame(value, CURSUS) for value in values) for values in files]
    datas += [noise, b"", datas[0][:-1] if datas else b"", bytes(9)]
    for fmt in (CURSUS, SMALL, RUSTLOG):
        for data, count in zip(datas, walk_files(datas, fmt, every=every), strict=True):
            rows = walk_scalar(data, 0, len(data), fmt)
            assert (count.records, count.end) == (rows.count, rows.end)
            assert (count.ending, count.problem) == (rows.ending, rows.problem)
            assert count.entries.tolist() == rows.positions[::every].tolist()


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(0, 2**40))
def test_encoded_rows_come_back(values: list[bytes], first: int) -> None:
    for fmt in (CURSUS, RUSTLOG):
        data = encode_rows(pa.array(values, pa.binary()), fmt, first)
        expected = b"".join(frame(value, fmt, first + i) for i, value in enumerate(values))
        assert data == expected
        rows = walk_scalar(data, 0, len(data), fmt)
        assert payloads(expected, rows, fmt) == values
        if fmt.has_offset:
            assert row_offsets(data, rows).tolist() == [first + i for i in range(len(values))]
