"""What appends accept: a caller's Arrow arrays may hold anything, readers only sound ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage_core.errors import InvalidCommitError, InvalidRecordError
from storage_core.format.columns import HEADERS, Columns, make_columns
from tests.support.stores import TOPIC, columns_of, errors, make_store, rows, values

GOOD, BAD = b"name", b"\xff\xfe"


def text(*entries: bytes) -> pa.Array:
    """A text column of any bytes, as a foreign buffer may hold them."""
    found = pa.array(entries, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(found), found.buffers())


def headers_of(names: pa.Array, starts: list[int], *, nulls: list[bool] | None = None) -> pa.Array:
    entries = pa.StructArray.from_arrays(
        [names, pa.array([b"v"] * len(names), pa.binary())], names=["key", "value"]
    )
    mask = None if nulls is None else pa.array(nulls)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), entries, mask=mask).cast(HEADERS)


def with_starts(kind: pa.DataType, starts: list[int], data: bytes) -> pa.Array:
    numbers = pa.py_buffer(np.array(starts, np.int32))
    return pa.Array.from_buffers(kind, len(starts) - 1, [None, numbers, pa.py_buffer(data)])


UNSOUND: dict[str, dict[str, Any]] = {
    "header name": {"headers": headers_of(text(GOOD, BAD), [0, 1, 2])},
    "header name under a null": {
        "headers": headers_of(text(GOOD, BAD), [0, 1, 2], nulls=[False, True])
    },
    "map": {"headers": pa.MapArray.from_arrays([0, 1, 2], text(GOOD, BAD), text(GOOD, BAD))},
    "chunked": {"headers": pa.chunked_array([headers_of(text(BAD, GOOD), [0, 1, 2])])},
    "lone surrogate": {"headers": [{"\ud800": b"v"}, {}]},
    "headers backwards": {
        "values": [b"a", b"b", b"c"],
        "headers": headers_of(text(GOOD, GOOD), [0, 2, 1, 2]),
    },
    "values backwards": {"values": with_starts(pa.binary(), [0, 3, 1], b"abc")},
    "values past their end": {"values": with_starts(pa.binary(), [0, 999, 3], b"abc")},
    "keys backwards": {"keys": with_starts(pa.string(), [0, 3, 1], b"abc")},
}


@pytest.mark.parametrize("arguments", UNSOUND.values(), ids=UNSOUND)
def test_unsound_arrow_data_is_refused_before_it_is_acknowledged(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidRecordError):
        store.append(TOPIC, 0, **{"values": [b"a", b"b"], **arguments})
    assert store.offsets(TOPIC, 0).end == 0


def view_of_nothing() -> pa.Array:
    view = pa.py_buffer(np.array([100, 0, 0, 1_000_000_000], np.int32))
    return pa.Array.from_buffers(pa.binary_view(), 1, [None, view, pa.py_buffer(b"abcdefgh")])


def large_starts() -> pa.Array:
    starts = pa.py_buffer(np.array([0, 1 << 33, 4], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 2, [None, starts, pa.py_buffer(b"abcdefgh")])


def headers_without_starts() -> pa.Array:
    entries = pa.array([], HEADERS.value_type)
    return pa.Array.from_buffers(HEADERS, 0, [None, None], children=[entries])


def _refuse(make: Callable[[], pa.Array]) -> None:
    with pytest.raises(InvalidRecordError):
        columns_of(make())


def _take_no_headers(make: Callable[[], pa.Array]) -> None:
    assert columns_of([], headers=make()).count == 0


@pytest.mark.parametrize(
    ("look", "make"),
    [
        (_refuse, view_of_nothing),
        pytest.param(_refuse, large_starts, marks=pytest.mark.slow),
        pytest.param(_take_no_headers, headers_without_starts, marks=pytest.mark.slow),
    ],
)
def test_arrays_that_kill_who_copies_them_are_refused(
    look: Callable[..., None], make: Callable[[], pa.Array]
) -> None:
    child = get_context("spawn").Process(target=look, args=(make,))
    child.start()
    child.join()
    assert child.exitcode == 0


def test_the_error_names_the_column() -> None:
    with pytest.raises(InvalidRecordError, match=r"a header name cannot be stored: .*UTF8"):
        columns_of([b"a"], headers=headers_of(text(BAD), [0, 1]))


def test_text_is_stored_as_the_bytes_it_has(tmp_path: Path) -> None:
    """Keys and values are bytes: what a caller took for text need not be any."""
    store = make_store(tmp_path)
    store.append(TOPIC, 0, text(BAD), keys=text(BAD))
    (row,) = rows(store.read(TOPIC, 0))
    assert (row["key"], row["value"]) == (BAD, BAD)


def test_a_slice_is_judged_by_its_own_rows(tmp_path: Path) -> None:
    headers = headers_of(text(BAD, GOOD, GOOD, BAD), [0, 1, 2, 3, 4]).slice(1, 2)
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a", b"b"], headers=headers)
    assert [row["headers"][0]["key"] for row in rows(store.read(TOPIC, 0))] == ["name", "name"]


@pytest.mark.parametrize("count", [0, 1])
def test_no_headers_are_sound(count: int) -> None:
    nothing = make_columns(
        [b"a"] * count, None, None, pa.nulls(count, HEADERS), now_us=1, max_record_bytes=None
    )
    assert nothing.headers is None
    empty = headers_of(text(), [0] * (count + 1))
    assert columns_of([b"a"] * count, headers=empty).size == count


def test_a_staged_frame_that_nobody_could_apply_is_refused_before_the_commit_point(
    tmp_path: Path,
) -> None:
    """Decided, it would close the partition to every writer for good."""
    unsound: Columns = dataclasses.replace(
        columns_of([b"x"], headers=[{"name": b"v"}]), headers=headers_of(text(BAD), [0, 1])
    )
    store = make_store(tmp_path)
    stage = store.stage("job")
    stage.write(TOPIC, 0, unsound)
    with pytest.raises(InvalidCommitError, match="not a sound record batch"):
        store.commit("job", stage.finish())
    store.append(TOPIC, 0, [b"later"])
    assert values(store) == [b"later"]
    assert errors(store) == []
