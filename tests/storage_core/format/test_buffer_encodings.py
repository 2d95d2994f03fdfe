"""The encodings of buffers, byte by byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from storage_core.errors import BrokenFrameError
from storage_core.format.buffer_encodings import (
    delta,
    dictionary,
    encoded_length,
    filled,
    split,
    undelta,
    undictionary,
    unsplit,
)


def test_split_stores_equal_places_side_by_side_and_leaves_out_high_zeros() -> None:
    planes, width = split(np.array([0x0102, 0x03, 0x0405], "<i4"))
    assert (planes.tobytes().hex(), width) == ("020305010004", 2)
    assert unsplit(planes.reshape(-1), 3, 2, 4).view("<i4").tolist() == [0x0102, 0x03, 0x0405]


def test_split_of_zeros_keeps_one_byte() -> None:
    for values in (np.zeros(3, "<i8"), np.zeros(3, "V16")):
        planes, width = split(values)
        assert (planes.tobytes(), width) == (bytes(3), 1)


def test_delta_stores_the_first_value_and_folded_steps() -> None:
    data, width = delta(np.array([1000, 1001, 999, 1299], "<i8"))
    # 1000, then 1, -2 and 300 as 2, 3 and 600.
    assert (data.tobytes().hex(), width) == ("e803000000000000020358000002", 2)
    assert encoded_length(2, 4, 2) == len(data)
    assert undelta(data, 4, 2, 8).view("<i8").tolist() == [1000, 1001, 999, 1299]


@pytest.mark.parametrize("form", ["<i4", "<i8", "<u4"])
def test_delta_of_the_farthest_neighbours(form: str) -> None:
    limits = np.iinfo(form)
    values = np.array([limits.max, limits.min, limits.max, 0, limits.min], form)
    data, width = delta(values)
    assert undelta(data, 5, width, values.itemsize).view(form).tolist() == values.tolist()
    data, width = delta(values[:1])
    assert undelta(data, 1, width, values.itemsize).view(form).tolist() == [limits.max]


def texts(*found: bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], pa.Buffer]:
    offsets = np.array([0, *np.cumsum([len(text) for text in found])], "<i4")
    return offsets, pa.py_buffer(b"".join(found))


def test_dictionary_stores_each_text_once() -> None:
    found = dictionary(*texts(b"on", b"", b"on", b"on", b"", b"on"))
    assert found is not None
    assert (found.indices.tobytes().hex(), found.width) == ("000100000100", 1)
    assert found.words.tobytes().hex() == "020000000200000000000000" + b"on".hex()
    words = pa.py_buffer(found.words)
    back = undictionary(found.indices.reshape(-1), 6, 1, words, most=100)
    assert back.to_pylist() == [b"on", b"", b"on", b"on", b"", b"on"]
    with pytest.raises(BrokenFrameError, match="take 8 bytes, at most 7 fit"):
        undictionary(found.indices.reshape(-1), 6, 1, words, most=7)


def test_texts_that_differ_get_no_dictionary() -> None:
    assert dictionary(*texts(b"a", b"b", b"c", b"a")) is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "cannot hold 0 texts"),
        ("02000000 01000000", "cannot hold 2 texts"),
        ("01000000 05000000 61", "has 1 bytes of texts, expected 5"),
        ("01000000 01000000 61", "has no text 1"),
        ("ffffffff 01000000 61", "cannot hold 4294967295 texts"),
    ],
)
def test_dictionaries_that_lie_are_refused(words: str, error: str) -> None:
    indices = np.array([0, 1], np.uint8)
    with pytest.raises(BrokenFrameError, match=error):
        undictionary(indices, 2, 1, pa.py_buffer(bytes.fromhex(words)), most=1000)


def test_nulls_take_the_value_before_them() -> None:
    present = np.array([False, True, False, False, True])
    assert filled(np.array([9, 1, 7, 8, 2]), present).tolist() == [9, 1, 1, 1, 2]
