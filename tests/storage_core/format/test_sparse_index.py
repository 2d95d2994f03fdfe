"""Sparse indexes: their bytes, floors, and that nothing unsound is believed."""

from __future__ import annotations

import numpy as np
import pytest

from storage_core.format.frame import FrameHeader
from storage_core.format.sparse_index import (
    IndexBuilder,
    IndexKind,
    SparseIndex,
    TimeIndex,
    encode_entries,
    is_sealed,
    parse_open,
    parse_sealed,
    seal,
)
from storage_core.types import NO_TIMESTAMP, OffsetPosition
from tests.support.stores import T0, flips

SEALED_OFFSETS = bytes.fromhex(
    "00000000000000640000000000001000"
    "00000000000000c80000000000002000"
    "4352534977431d0c0000000000002710"
)
SEALED_TIMES = bytes.fromhex(
    "00060a24181e40000000000000000064"
    "00060a24181e4005000000000000012c"
    "43525358757d5bac0000000000002710"
)
LOG_SIZE = 10_000


def test_sealed_offset_index_has_these_bytes() -> None:
    entries = encode_entries([100, 200], [4096, 8192])
    assert seal("offset", entries, LOG_SIZE).hex() == SEALED_OFFSETS.hex()


def test_sealed_time_index_has_these_bytes() -> None:
    entries = encode_entries([T0, T0 + 5], [100, 300])
    assert seal("time", entries, LOG_SIZE).hex() == SEALED_TIMES.hex()


def test_golden_indexes_parse() -> None:
    offsets = parse_sealed("offset", SEALED_OFFSETS, LOG_SIZE)
    times = parse_sealed("time", SEALED_TIMES, LOG_SIZE)
    assert offsets is not None
    assert times is not None
    assert [column.tolist() for column in offsets] == [[100, 200], [4096, 8192]]
    assert [column.tolist() for column in times] == [[T0, T0 + 5], [100, 300]]


@pytest.mark.parametrize(
    ("kind", "data"), [("offset", SEALED_OFFSETS), ("time", SEALED_TIMES)], ids=["offset", "time"]
)
def test_every_bit_flip_of_a_sealed_index_is_detected(kind: IndexKind, data: bytes) -> None:
    for bit, flipped in flips(data):
        assert parse_sealed(kind, flipped, LOG_SIZE) is None, bit


@pytest.mark.parametrize(
    ("kind", "data"), [("offset", SEALED_OFFSETS), ("time", SEALED_TIMES)], ids=["offset", "time"]
)
def test_sealed_index_that_is_short_or_stale_is_refused(kind: IndexKind, data: bytes) -> None:
    for size in range(len(data)):
        assert parse_sealed(kind, data[:size], LOG_SIZE) is None
    assert parse_sealed(kind, data + bytes(16), LOG_SIZE) is None
    assert parse_sealed(kind, data, LOG_SIZE + 8) is None


def test_index_of_one_kind_is_not_taken_for_the_other() -> None:
    assert parse_sealed("time", SEALED_OFFSETS, LOG_SIZE) is None
    assert is_sealed("offset", SEALED_OFFSETS)
    assert not is_sealed("time", SEALED_OFFSETS)
    assert not is_sealed("offset", SEALED_OFFSETS[:-16])


def sparse(*entries: tuple[int, int]) -> SparseIndex:
    table = np.array(entries, dtype=np.int64).reshape(-1, 2)
    return SparseIndex(table[:, 0], table[:, 1])


def test_lookup_below_first_entry_returns_base() -> None:
    assert sparse((100, 4096)).floor(99, base=50) == OffsetPosition(50, 0)
    assert sparse().floor(10**9, base=50) == OffsetPosition(50, 0)


def test_lookup_returns_the_last_entry_at_or_before() -> None:
    index = sparse((100, 4096), (200, 8192))
    assert index.floor(100, 0) == OffsetPosition(100, 4096)
    assert index.floor(199, 0) == OffsetPosition(100, 4096)
    assert index.floor(10**12, 0) == OffsetPosition(200, 8192)


def test_time_lookup_skips_only_what_is_older() -> None:
    index = TimeIndex(np.array([10, 20]), np.array([100, 200]))
    assert index.floor(10, base=0) == 0
    assert index.floor(11, base=0) == 100
    assert index.floor(21, base=0) == 200
    assert index.largest == 20


def test_time_index_without_entries_has_no_largest() -> None:
    empty = IndexBuilder(0).time_index()
    assert empty.largest == NO_TIMESTAMP
    assert empty.floor(0, base=7) == 7


def test_builder_makes_an_entry_once_the_interval_has_passed() -> None:
    builder = IndexBuilder(100)
    headers = [
        FrameHeader(0, 0, 0, 40, 10, 10 * i, 0, T0 - i, T0 - i, 0, 0, span=10) for i in range(8)
    ]
    due = [builder.add(10 * i, 40 * i, header) for i, header in enumerate(headers)]
    assert due == [False, False, False, True, False, False, True, False]
    assert builder.offset_index().positions.tolist() == [120, 240]
    times = builder.time_index()
    assert times.timestamps.tolist() == [T0 - 7, T0 - 7, T0, T0, T0]
    assert times.offsets.tolist() == [0, 0, 30, 60, 80]
    assert (times.smallest(0), times.in_order(0)) == (T0 - 7, False)


@pytest.mark.parametrize("interval", [0, 40, 10**6])
def test_time_index_of_rising_times_has_its_smallest_once(interval: int) -> None:
    builder = IndexBuilder(interval)
    for i in range(8):
        header = FrameHeader(0, 0, 0, 40, 10, 10 * i, 0, T0 + i, T0 + i, 0, 0, span=10)
        builder.add(50 + 10 * i, 40 * i, header)
    times = builder.time_index()
    assert (times.smallest(50), times.in_order(50), times.largest) == (T0, True, T0 + 7)
    assert times.offsets.tolist().count(50) == 1
    assert np.all(np.diff(times.timestamps) >= 0)


def test_time_index_without_a_first_entry_knows_no_smallest() -> None:
    index = TimeIndex(np.array([10, 20]), np.array([100, 200]))
    assert (index.smallest(0), index.in_order(0)) == (NO_TIMESTAMP, True)


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([(0, 0), (5, 100), (9, 300)], 3),
        ([(0, 0), (5, 100), (5, 300)], 2),
        ([(0, 0), (5, 100), (9, 50)], 2),
        ([(0, 0), (-5, 100), (9, 300)], 1),
        ([(0, 0), (5, -100), (9, 300)], 1),
        ([(0, 0), (5, 1000)], 1),
        ([(0, -1)], 0),
        ([(0, 0), (0, 0), (0, 0)], 1),
    ],
)
def test_open_index_is_cut_at_its_first_implausible_entry(
    entries: list[tuple[int, int]], kept: int
) -> None:
    data = encode_entries([e[0] for e in entries], [e[1] for e in entries])
    assert len(parse_open(data, 1000).offsets) == kept


def test_open_index_that_ends_inside_an_entry_keeps_the_whole_ones() -> None:
    data = encode_entries([0, 5], [0, 100])
    for size in range(16, 32):
        assert parse_open(data[:size], 1000).offsets.tolist() == [0]
    assert len(parse_open(b"", 1000).offsets) == 0
