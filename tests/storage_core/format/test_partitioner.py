"""Murmur2 against Kafka's published vectors and a scalar reference, over every shape of column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.errors import InvalidRecordError
from storage_core.format.partitioner import NO_KEY, murmur2, partition_for_keys
from tests.support.sizes import examples

# From UtilsTest.testMurmur2 of Apache Kafka.
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def reference(key: bytes) -> int:
    """Murmur2 as Kafka's Utils.java spells it, without its sign."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    result = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        result = (result * factor & mask) ^ word
    if len(key) > whole:
        result = (result ^ int.from_bytes(key[whole:], "little")) * factor & mask
    result = (result ^ result >> 13) * factor & mask
    return result ^ result >> 15


def expected(keys: list[bytes | None], partitions: int) -> list[int]:
    return [NO_KEY if k is None else (reference(k) & 0x7FFFFFFF) % partitions for k in keys]


def test_kafka_vectors_hold_one_by_one_and_together() -> None:
    together = murmur2(pa.array(list(KAFKA_VECTORS), type=pa.binary())).view(np.int32)
    assert together.tolist() == list(KAFKA_VECTORS.values())
    for key, value in KAFKA_VECTORS.items():
        assert murmur2(pa.array([key])).view(np.int32).tolist() == [value]
        assert reference(key) == value & 0xFFFFFFFF


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@given(
    keys=st.lists(st.none() | st.text(max_size=12), max_size=60),
    partitions=st.integers(1, 1000),
    cut=st.integers(0, 5),
)
def test_all_types_nulls_and_slices(
    kind: pa.DataType, keys: list[str | None], partitions: int, cut: int
) -> None:
    raw = [None if key is None else key.encode() for key in keys]
    array = pa.array(raw, type=pa.binary()).cast(kind).slice(cut)
    found = partition_for_keys(array, partitions)
    assert found.dtype == np.int32
    assert found.tolist() == expected(raw[cut:], partitions)


@given(
    length=st.integers(0, 40),
    count=st.integers(1, 40),
    skipped=st.integers(0, 3),
    data=st.data(),
)
def test_keys_of_equal_length(length: int, count: int, skipped: int, data: st.DataObject) -> None:
    size = st.binary(min_size=length, max_size=length)
    keys = data.draw(st.lists(size, min_size=count, max_size=count))
    array = pa.array([b"odd", b"", b"ones!", *keys])
    assert murmur2(array.slice(3)).tolist() == [reference(key) for key in keys]
    assert murmur2(array.slice(skipped)).tolist() == [
        reference(key) for key in array.slice(skipped).to_pylist()
    ]


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 1 << 32), count=st.integers(100, 400), longest=st.integers(0, 600))
def test_long_keys_of_mixed_lengths(seed: int, count: int, longest: int) -> None:
    random = np.random.default_rng(seed)
    keys = [random.bytes(int(size)) for size in random.integers(0, longest + 1, count)]
    assert murmur2(pa.array(keys, type=pa.binary())).tolist() == [reference(key) for key in keys]


@pytest.mark.parametrize("count", [1, 3, 127, 128, 200])
@pytest.mark.parametrize("length", [127, 128, 129, 131, 132, 260, 1027])
def test_long_keys_of_equal_length(count: int, length: int) -> None:
    random = np.random.default_rng(count * length)
    keys = [random.bytes(length) for _ in range(count)]
    assert murmur2(pa.array(keys)).tolist() == [reference(key) for key in keys]


def test_one_huge_key_among_small_ones() -> None:
    keys = [b"a", b"x" * 300_001, b"", b"bc" * 40]
    assert murmur2(pa.array(keys)).tolist() == [reference(key) for key in keys]


def test_many_blocks_with_equal_and_mixed_keys() -> None:
    keys = [b"%08d" % i for i in range(70_000)] + [b"%d" % i for i in range(70_000)]
    found = partition_for_keys(pa.array(keys), 7)
    rows = [0, 1, 32_767, 32_768, 65_536, 69_999, 70_000, 70_001, 98_303, 98_304, 139_999]
    assert found[rows].tolist() == expected([keys[row] for row in rows], 7)
    assert set(np.unique(found).tolist()) == set(range(7))


def test_chunked_empty_and_all_null_columns() -> None:
    chunked = pa.chunked_array([pa.array([b"abc"]), pa.array([b"21", None])])
    assert partition_for_keys(chunked, 5).tolist() == expected([b"abc", b"21", None], 5)
    assert partition_for_keys(pa.array([], type=pa.binary()), 5).tolist() == []
    assert partition_for_keys(pa.array([None, None], type=pa.string()), 5).tolist() == [-1, -1]
    assert partition_for_keys(pa.array([b"", b""]), 5).tolist() == expected([b"", b""], 5)


def test_the_column_itself_is_not_changed() -> None:
    keys = pa.array([b"12345678"] * 3)
    partition_for_keys(keys, 3)
    assert keys.to_pylist() == [b"12345678"] * 3


def test_other_types_are_refused() -> None:
    with pytest.raises(InvalidRecordError, match="keys must be binary or string, got int64"):
        partition_for_keys(pa.array([1]), 2)
