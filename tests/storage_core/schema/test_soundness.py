"""Arrays are sound exactly where Arrow's full validation says so, and their bytes are all seen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage_core.schema.soundness import validate


def is_sound(array: pa.Array) -> bool:
    try:
        validate(array)
    except pa.ArrowInvalid:
        return False
    return True


def is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def texts(starts: list[int], letters: bytes, validity: bytes | None = None) -> pa.Array:
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(np.array(starts, np.int32)),
        pa.py_buffer(letters),
    ]
    return pa.Array.from_buffers(pa.string(), len(starts) - 1, buffers)


def inside(array: pa.Array, kind: str) -> pa.Array:
    """The texts as they are, in a struct, or one in each list."""
    count, field = len(array), pa.field("a", pa.string())
    if kind == "struct":
        return pa.Array.from_buffers(pa.struct([field]), count, [None], children=[array])
    if kind == "list":
        starts = pa.py_buffer(np.arange(count + 1, dtype=np.int32))
        return pa.Array.from_buffers(pa.list_(field), count, [None, starts], children=[array])
    return array


LETTERS = st.binary(max_size=12) | st.text("aé\0€", max_size=5).map(str.encode)


@given(
    st.lists(st.integers(-1, 14), min_size=1, max_size=6), LETTERS,
    st.sampled_from(["plain", "struct", "list"]),
)  # fmt: skip
@example([0, 1, 2], "é".encode(), "plain")  # a cut inside of a character
@example([0, 2, 1, 3], b"abc", "plain")
@example([0, 5], b"abc", "struct")
@example([-1, 3], b"abc", "list")
@example([0, 3], b"ab\xff", "plain")
def test_texts_are_sound_where_arrow_says_so(starts: list[int], letters: bytes, kind: str) -> None:
    try:
        array = inside(texts(starts, letters), kind)
    except pa.ArrowInvalid:
        return  # Arrow does not even make it
    assert is_sound(array) == is_valid(array)


def test_the_bytes_outside_of_a_slice_do_not_count() -> None:
    array = texts([0, 1, 2, 3], b"a\xffb")
    assert not is_sound(array)
    assert is_sound(array.slice(2))
    assert is_sound(array.slice(0, 1))
    assert not is_sound(array.slice(1))


def test_what_is_under_a_null_may_be_anything() -> None:
    array = texts([0, 1, 2], b"a\xff", validity=b"\x01")
    assert is_sound(array)
    assert not is_sound(texts([0, 1, 2], b"a\xff", validity=b"\x03"))


@pytest.mark.parametrize("value", ["", "a" * 5000, "ü" * 3, None])
def test_usual_texts_are_sound(value: str | None) -> None:
    for array in (pa.array([value] * 3, pa.string()), pa.array([], pa.string())):
        assert is_sound(array)
        assert is_sound(pa.array([[value], [], None], pa.list_(pa.string())))
