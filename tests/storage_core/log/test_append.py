"""What an append takes and gives back: every column, every Arrow type, and what it refuses."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import OffsetRange
from storage_core.errors import InvalidRecordError
from tests.support.faulty_vfs import faulty
from tests.support.stores import (
    T0,
    TOPIC,
    errors,
    make_store,
    offsets,
    on,
    reopen,
    rows,
    segment,
    values,
)


def test_append_returns_the_range_and_is_visible_everywhere(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    other = reopen(tmp_path)
    assert store.append(TOPIC, 0, [b"a", b"b"]) == OffsetRange(0, 2)
    assert other.append(TOPIC, 0, [b"c"]) == OffsetRange(2, 3)
    assert store.append(TOPIC, 0, [b"d"]) == OffsetRange(3, 4)
    for each in (store, other):
        assert each.offsets(TOPIC, 0) == OffsetRange(0, 4)
        assert values(each) == [b"a", b"b", b"c", b"d"]
    assert errors(store) == []


def test_append_of_no_records_returns_an_empty_range(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    empties: list[Any] = [
        [],
        pa.array([], pa.binary()),
        pa.chunked_array([], type=pa.binary()),
        (),
    ]
    for empty in empties:
        assert store.append(TOPIC, 0, empty) == OffsetRange(0, 0)
    none = pa.chunked_array([], type=pa.timestamp("ms"))
    assert store.append(TOPIC, 0, [], keys=[], timestamps=none, headers=[]) == OffsetRange(0, 0)
    assert not segment(tmp_path).exists()
    store.append(TOPIC, 0, [b"a"])
    assert store.append(TOPIC, 0, []) == OffsetRange(1, 1)
    assert values(store) == [b"a"]


def test_all_columns_come_back(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(
        TOPIC,
        0,
        [b"v", None, b""],
        keys=[None, b"k", b""],
        timestamps=[T0, T0 + 1, T0 - 1],
        headers=[None, {"h": b"1", "i": None}, [("h", b"1"), ("h", b"2")]],
    )
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    us = datetime.timedelta(microseconds=1)
    assert rows(store.read(TOPIC, 0)) == [
        {"offset": 0, "timestamp": moment, "key": None, "value": b"v", "headers": None},
        {
            "offset": 1,
            "timestamp": moment + us,
            "key": b"k",
            "value": None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
        },
        {
            "offset": 2,
            "timestamp": moment - us,
            "key": b"",
            "value": b"",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}],
        },
    ]


WIDE = ["", "a", "ü", "漢字", "👩‍👩‍👧‍👦", "\0", "\ud7ff", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢" * 50]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_wide_text_comes_back_as_its_bytes(tmp_path: Path, compression: str) -> None:
    store = make_store(tmp_path, compression=compression)
    store.append(TOPIC, 0, WIDE, keys=WIDE, headers=[{text: text.encode()} for text in WIDE])
    expected = [text.encode() for text in WIDE]
    read = rows(store.read(TOPIC, 0))
    assert [row["value"] for row in read] == expected
    assert [row["key"] for row in read] == expected
    assert [row["headers"][0]["key"] for row in read] == WIDE


BYTES = [b"a", None, b"", b"ccc" * 50]
KINDS: list[pa.DataType] = [
    pa.binary(),
    pa.string(),
    pa.large_binary(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", ["array", "chunked", "sliced", "one chunk", "dictionary"])
def test_every_arrow_input_is_accepted(tmp_path: Path, kind: pa.DataType, shape: str) -> None:
    array = pa.array(BYTES, pa.binary()).cast(kind)
    given: Any = array
    if shape == "chunked":
        given = pa.chunked_array([array.slice(0, 1), array.slice(1, 0), array.slice(1)])
    elif shape == "one chunk":
        given = pa.chunked_array([array])
    elif shape == "sliced":
        given = pa.concat_arrays([array, array, array]).slice(4, 4)
    elif shape == "dictionary":
        if kind in (pa.binary_view(), pa.string_view()):
            pytest.skip("Arrow has no dictionary of views")
        given = array.dictionary_encode()
    store = make_store(tmp_path)
    store.append(TOPIC, 0, given, keys=given)
    read = rows(store.read(TOPIC, 0))
    assert [row["value"] for row in read] == BYTES
    assert [row["key"] for row in read] == BYTES


def test_sliced_headers_and_timestamps_are_accepted(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[("a", b"1")], None, [], [("b", b"2"), ("c", None)]], kind)
    stamps = pa.array([T0, T0 + 1, T0 + 2, T0 + 3], pa.int64())
    for low in range(4):
        store.append(
            TOPIC, 0, [b"x"] * (4 - low), timestamps=stamps.slice(low), headers=headers.slice(low)
        )
    expected = [row for low in range(4) for row in headers.slice(low).to_pylist()]
    read = rows(store.read(TOPIC, 0))
    assert [row["headers"] for row in read] == expected
    assert [int(row["timestamp"].timestamp() * 1e6) for row in read] == [
        T0 + number for low in range(4) for number in range(low, 4)
    ]


def test_fixed_size_and_null_arrays_are_accepted(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, pa.array([b"ab", b"cd"], pa.binary(2)), keys=pa.nulls(2))
    assert values(store) == [b"ab", b"cd"]


NAIVE = datetime.datetime(2023, 11, 14, 22, 13, 20, 5)
AWARE = NAIVE.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([T0], T0),
        ([-5], -5),
        ([NAIVE], T0 + 5),
        ([AWARE], T0 + 5 - 7_200_000_000),
        (pa.array([T0]), T0),
        (pa.array([T0], pa.uint64()), T0),
        (pa.array([NAIVE], pa.timestamp("us")), T0 + 5),
        (pa.array([T0 + 5], pa.timestamp("us", tz="Europe/Berlin")), T0 + 5),
        (pa.array([T0 * 1000 + 5999], pa.timestamp("ns", tz="UTC")), T0 + 5),
        (pa.array([T0 // 1000], pa.timestamp("ms")), T0),
        (pa.array([T0 // 10**6], pa.timestamp("s")), T0),
        (pa.chunked_array([[T0]], pa.timestamp("us")), T0),
    ],
)
def test_every_timestamp_input_means_the_same_moment(
    tmp_path: Path, given: Any, expected: int
) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"], timestamps=given)
    (batch,) = store.read(TOPIC, 0, columns=("timestamp", "timestamp_type"))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [expected]
    assert batch.column(1).to_pylist() == [0]
    assert store.offset_for_timestamp(TOPIC, 0, expected) == 0
    assert store.offset_for_timestamp(TOPIC, 0, expected + 1) is None


def test_records_without_a_timestamp_get_the_append_time(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.clock_us = T0
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b", b"c"], timestamps=[None, T0 - 5])
    (batch,) = store.read(TOPIC, 0, columns=("timestamp", "timestamp_type"))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [T0, T0, T0 - 5]
    assert batch.column(1).to_pylist() == [1, 0, 0]


@pytest.mark.row(34)
def test_append_time_never_goes_back_although_the_clock_does(tmp_path: Path) -> None:
    make_store(tmp_path).close()

    def append_at(clock: int, boot: bytes | None = None) -> None:
        vfs = faulty(tmp_path)
        vfs.clock_us, vfs.boot = clock, boot
        with on(vfs) as store:
            store.append(TOPIC, 0, [b"a"])

    append_at(T0)
    append_at(T0 - 10**9)
    append_at(0)
    append_at(T0 - 1, boot=b"another boot id.")
    append_at(T0 + 1)
    stamps = [
        int(row["timestamp"].timestamp() * 1e6) for row in rows(reopen(tmp_path).read(TOPIC, 0))
    ]
    assert stamps == [T0, T0, T0, T0, T0 + 1]
    assert offsets(reopen(tmp_path)) == [0, 1, 2, 3, 4]


BAD: list[dict[str, Any]] = [
    {"values": b"one"},
    {"values": "one"},
    {"values": 5},
    {"values": None},
    {"values": [5]},
    {"values": [b"a", object()]},
    {"values": pa.array([1, 2])},
    {"values": pa.array([[b"a"]])},
    {"values": [b"a"], "keys": [b"a", b"b"]},
    {"values": [b"a"], "keys": []},
    {"values": [b"a"], "keys": b"k"},
    {"values": [b"a"], "timestamps": [T0, T0]},
    {"values": [b"a"], "timestamps": ["2023"]},
    {"values": [b"a"], "timestamps": [1.5]},
    {"values": [b"a"], "timestamps": [True]},
    {"values": [b"a"], "timestamps": [2**70]},
    {"values": [b"a"], "timestamps": [2**62]},
    {"values": [b"a"], "timestamps": [-(2**62)]},
    {"values": [b"a"], "timestamps": T0},
    {"values": [b"a"], "timestamps": "now"},
    {"values": [b"a"], "timestamps": pa.array([1.5])},
    {"values": [b"a"], "timestamps": pa.array([2**63], pa.uint64())},
    {"values": [b"a"], "timestamps": pa.array([2**45], pa.timestamp("s"))},
    {"values": [b"a"], "timestamps": pa.array([2**60], pa.timestamp("ms"))},
    {"values": [b"a"], "timestamps": pa.array(["2023"])},
    {"values": [b"a"], "headers": [None, None]},
    {"values": [b"a"], "headers": [{None: b"x"}]},
    {"values": [b"a"], "headers": [[None]]},
    {"values": [b"a"], "headers": [{"h": 5}]},
    {"values": [b"a"], "headers": [5]},
    {"values": [b"a"], "headers": 5},
    {"values": [b"a"], "headers": ["h"]},
    {"values": [b"a"], "headers": pa.array([1])},
]


@pytest.mark.parametrize("arguments", BAD, ids=range(len(BAD)))
def test_bad_records_are_refused_and_nothing_is_written(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidRecordError):
        store.append(TOPIC, 0, **arguments)
    assert store.offsets(TOPIC, 0) == OffsetRange(0, 0)
