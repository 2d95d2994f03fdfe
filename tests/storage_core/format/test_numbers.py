"""Numbers between Arrow and numpy: what Arrow itself would give, for slices, nulls and no rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.format.numbers import (
    is_present,
    joined_starts,
    lengths_of,
    number_column,
    numbers_of,
    starts_of,
)
from tests.support.paths import ROOT

TIMES = pa.timestamp("us", tz="UTC")
INTEGERS = st.lists(st.none() | st.integers(0, 2**31 - 1), max_size=40)
CUTS = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(INTEGERS, CUTS, st.sampled_from([pa.int32(), pa.uint32(), pa.int64(), TIMES]))
def test_numbers_of_slices_with_and_without_nulls(
    items: list[int | None], cut: tuple[int, int], kind: pa.DataType
) -> None:
    column = pa.array(items, type=kind).slice(*cut)
    expected = items[cut[0] : cut[0] + cut[1]]
    assert numbers_of(column, null=7).tolist() == [7 if n is None else n for n in expected]
    assert is_present(column).tolist() == [n is not None for n in expected]


@given(st.lists(st.none() | st.binary(max_size=5), max_size=40), CUTS)
def test_lengths_and_starts_of_slices(items: list[bytes | None], cut: tuple[int, int]) -> None:
    column = pa.array(items, type=pa.binary()).slice(*cut)
    expected = items[cut[0] : cut[0] + cut[1]]
    assert lengths_of(column).tolist() == [len(item or b"") for item in expected]
    assert len(starts_of(column)) == len(expected) + 1
    lists = pa.array([None if item is None else list(item) for item in items], pa.list_(pa.int64()))
    assert lengths_of(lists.slice(*cut)).tolist() == [len(item or b"") for item in expected]


def test_null_rows_that_cover_bytes_have_no_length() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 5], dtype=np.int32))
    column = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"abcde")]
    )
    assert column.to_pylist() == [None, b"de"]
    assert lengths_of(column).tolist() == [0, 2]


def test_buffers_that_end_inside_a_number() -> None:
    column = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(b"\1" + bytes(12))])
    assert numbers_of(column).tolist() == [1]


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64])
def test_columns_of_numbers(kind: Any) -> None:
    numbers = np.arange(10, dtype=kind)
    column = number_column(numbers[::2])
    assert column.equals(pa.array([0, 2, 4, 6, 8], pa.from_numpy_dtype(np.dtype(kind))))
    assert number_column(numbers[:0]).to_pylist() == []


def test_times_of_numbers() -> None:
    column = number_column(np.array([1, 2], dtype=np.int64), TIMES)
    assert column.equals(pa.array([1, 2], TIMES))


def test_pandas_is_not_imported() -> None:
    program = """
import sys
import numpy as np
from storage_core.format.numbers import is_present, lengths_of, number_column, numbers_of
column = number_column(np.arange(3))
assert numbers_of(column).tolist() == [0, 1, 2] and is_present(column).all()
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@given(st.lists(st.lists(st.binary(max_size=9), max_size=9), min_size=1, max_size=6), CUTS)
def test_starts_of_several_parts_one_after_another(
    parts: list[list[bytes]], cut: tuple[int, int]
) -> None:
    arrays = [pa.array(part, pa.binary()).slice(cut[0] % 3) for part in parts]
    together = [value for array in arrays for value in array.to_pylist()]
    found = joined_starts([starts_of(array) for array in arrays], np.int64)
    assert found.dtype == np.int64
    assert found.tolist() == [sum(map(len, together[:row])) for row in range(len(together) + 1)]


def test_starts_that_pass_two_billion() -> None:
    part = np.array([5, 2**31 - 1], dtype=np.int32)
    assert joined_starts([part, part], np.int64)[-1] == 2 * (2**31 - 6)
