"""Rows of one length: the same records as the scalar walker finds, or no answer at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.brokers.codecs import row_walk
from storage_core.brokers.codecs.row_walk import walk_even, walk_files
from storage_core.brokers.codecs.rows import (
    CURSUS,
    CURSUS_BROKER,
    RUSTLOG,
    Ending,
    RowFormat,
    encode_rows,
    payload_column,
    row_offsets,
    slices_column,
    walk_scalar,
)

FORMATS = pytest.mark.parametrize(
    "fmt", [CURSUS, CURSUS_BROKER, RUSTLOG], ids=["cursus", "broker", "rustlog"]
)


def even(count: int, length: int, fmt: RowFormat) -> bytes:
    """A number of records of one length, the first with offset 7."""
    payloads = pa.array([bytes([i % 251]) * length for i in range(count)], pa.binary())
    return bytes(encode_rows(payloads, fmt, 7))


@FORMATS
@given(
    count=st.integers(60, 90),
    length=st.integers(1, 40),
    tail=st.binary(max_size=60),
    change=st.none() | st.tuples(st.integers(0, 2000), st.integers(0, 255)),
)
def test_what_it_answers_is_what_the_scalar_walker_finds(
    fmt: RowFormat, count: int, length: int, tail: bytes, change: tuple[int, int] | None
) -> None:
    data = bytearray(even(count, length, fmt) + tail)
    if change is not None:
        data[change[0] % len(data)] = change[1]
    found, expected = walk_even(data, 0, len(data), fmt), walk_scalar(data, 0, len(data), fmt)
    if found is None:
        assert count < 64 or change is not None
        return
    assert found.positions.tolist() == expected.positions.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()
    assert (found.end, found.ending, found.problem) == (
        expected.end,
        expected.ending,
        expected.problem,
    )
    if fmt.has_offset:
        assert row_offsets(data, found).tolist() == row_offsets(data, expected).tolist()


@FORMATS
def test_a_header_that_differs_before_the_end_is_no_even_run(fmt: RowFormat) -> None:
    step = fmt.header_bytes + 5
    for row in (0, 1, 63, 64, 135):
        data = bytearray(even(200, 5, fmt))
        data[row * step + 3] = 6
        assert walk_even(data, 0, len(data), fmt) is None, row
    data = bytearray(even(200, 5, fmt))
    data[150 * step + 3] = 6
    found = walk_even(data, 0, len(data), fmt)
    assert found is not None
    assert found.lengths.tolist() == walk_scalar(data, 0, len(data), fmt).lengths.tolist()


@FORMATS
@pytest.mark.parametrize("tail", [b"", b"\0", b"\xff" * 20])
def test_a_file_of_even_records_is_counted_as_by_the_scalar_walker(
    fmt: RowFormat, tail: bytes
) -> None:
    for count in (64, 65, 200):
        data = even(count, 5, fmt) + tail
        expected = walk_scalar(data, 0, len(data), fmt)
        (found,) = walk_files([data], fmt, every=16)
        assert found.entries.tolist() == expected.positions[::16].tolist()
        assert (found.records, found.end) == (expected.count, expected.end)
        assert (found.ending, found.problem) == (expected.ending, expected.problem)


@pytest.mark.parametrize("ending", ["whole", "torn", "damaged"])
def test_guessed_places_change_nothing_that_is_found(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_walk, "_GUESS_BYTES", 64)
    monkeypatch.setattr(row_walk, "_LOOKED_BYTES", 200)
    prefix = b"\0\1t\0\0\0\0"
    for inside in (b"", prefix, b"\0\0\0\x09" + prefix):
        payloads = [prefix + inside + bytes([i % 7]) * (i * 31 % 120) for i in range(2000)]
        data = bytes(encode_rows(pa.array(payloads, pa.binary()), CURSUS_BROKER))
        data = {"whole": data, "torn": data[:-5], "damaged": data + bytes(20)}[ending]
        expected = walk_scalar(data, 0, len(data), CURSUS_BROKER)
        for known in (prefix, b"\0\1u", b""):
            (found,) = walk_files([data], CURSUS_BROKER, every=16, prefix=known)
            assert found.entries.tolist() == expected.positions[::16].tolist()
            assert (found.records, found.end) == (expected.count, expected.end)
            assert (found.ending, found.problem) == (expected.ending, expected.problem)


def test_a_length_that_no_record_may_have_is_left_to_the_other_walkers() -> None:
    zeros = bytes(4 * 100)
    assert walk_even(zeros, 0, len(zeros), CURSUS_BROKER) is None
    found = walk_even(zeros, 0, len(zeros), CURSUS)
    assert found is not None
    assert (found.count, found.ending) == (100, Ending.WHOLE)
    assert walk_even(b"\xff" * 4000, 0, 4000, CURSUS) is None
    assert walk_even(b"", 0, 0, CURSUS) is None


@FORMATS
def test_payloads_of_one_length_are_those_that_are_taken_one_by_one(fmt: RowFormat) -> None:
    data = pa.py_buffer(b"...." + even(80, 9, fmt))
    rows = walk_scalar(data, 4, len(data), fmt)
    for chosen in (rows, rows.slice(3, 70), rows.slice(5, 6)):
        column = payload_column(data, chosen, fmt)
        column.validate(full=True)
        starts = chosen.positions + fmt.header_bytes
        assert column.equals(slices_column(data, starts, chosen.lengths))


def test_payloads_of_several_lengths_and_none_at_all() -> None:
    values = pa.array([b"a", b"", b"ccc"] * 40, pa.binary())
    data = encode_rows(values, CURSUS)
    rows = walk_scalar(data, 0, len(data), CURSUS)
    assert payload_column(data, rows, CURSUS).equals(values)
    assert payload_column(data, rows.slice(0, 0), CURSUS).to_pylist() == []
    empty = encode_rows(pa.array([b""] * 70, pa.binary()), CURSUS)
    rows = walk_scalar(empty, 0, len(empty), CURSUS)
    assert payload_column(empty, rows, CURSUS).to_pylist() == [b""] * 70
    assert np.all(rows.lengths == 0)
