"""Random directories, broken in random ways, against a plain reader written from the tables."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core import Store
from storage_core.brokers import segment_reader
from storage_core.brokers.codecs import row_walk
from tests.support.brokers.broker_directories import (
    KINDS,
    Kind,
    details,
    message,
    plain_read,
    read,
    row,
    rust_row,
)
from tests.support.brokers.broker_oracle import messages
from tests.support.sizes import examples

payloads = st.one_of(st.just(b""), st.binary(max_size=30), st.just(bytes(20)), st.just(b"\xff" * 9))


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """Small files must have several chunks and walkers too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_reader, "_FIRST_BYTES", 64)
        patch.setattr(segment_reader, "_MOST_BYTES", 256)
        patch.setattr(segment_reader, "_FRAME_ROWS", 3)
        patch.setattr(segment_reader, "_ENTRY_ROWS", 2)
        patch.setattr(row_walk, "_FEW_WALKERS", 1)
        patch.setattr(row_walk, "_BLOCK_WALKERS", 3)
        yield


@st.composite
def partitions(draw: st.DrawFn, kind: Kind) -> list[tuple[int, bytes]]:
    """Files of a partition by base or ordinal; about half of them sound."""
    first = 0 if kind.ordinal else draw(st.sampled_from([0, 1, 1000]))
    files, offset = [], first
    for number in range(draw(st.integers(1, 4))):
        values = draw(st.lists(payloads, max_size=12))
        data = b""
        base = number if kind.ordinal else offset
        for value in values:
            data += record(draw, kind, offset, value)
            offset += 1
        files.append((base, data))
    return files


def record(draw: st.DrawFn, kind: Kind, offset: int, value: bytes) -> bytes:
    if kind.layout == "cursus":
        return row(value)
    if kind.layout == "rustlog":
        return rust_row(offset, value)
    fields = draw(messages)
    for name in ("txn_id", "txn_marker", "txn_state", "offset", "payload"):
        fields.pop(name)
    return message(offset, value, draw(st.sampled_from("BCDE")), **fields)


def mutated(draw: st.DrawFn, files: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """One file cut, changed, lengthened or lost."""
    at = draw(st.integers(0, len(files) - 1))
    base, data = files[at]
    change = bytearray(data)
    place = draw(st.integers(0, len(data)))
    kind = draw(st.sampled_from(["cut", "byte", "tail", "insert"]))
    if kind == "cut":
        del change[place:]
    elif kind == "byte" and place < len(data):
        change[place] = draw(st.sampled_from([0, 1, 4, 127, 255]))
    elif kind == "tail":
        change += draw(st.binary(max_size=20))
    else:
        change[place:place] = draw(st.binary(max_size=5))
    return [*files[:at], (base, bytes(change)), *files[at + 1 :]]


def write(root: Path, kind: Kind, files: list[tuple[int, bytes]]) -> None:
    for base, data in files:
        file = kind.file(root, base)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def unique(files: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """An empty file and the next one would have one name."""
    return sorted(dict(files).items())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_a_store_reads_what_a_plain_reader_reads(kind: Kind, data: st.DataObject) -> None:
    files = unique(data.draw(partitions(kind)))
    damaged = data.draw(st.booleans())
    if damaged:
        files = data.draw(st.composite(lambda draw: mutated(draw, files))())
    root = Path(tempfile.mkdtemp())
    try:
        write(root, kind, files)
        expected = plain_read(kind, files)
        # A changed byte may make a record part of a transaction, of which the plain reader knows
        # nothing.
        store = Store.open(root, isolation="read_uncommitted" if damaged else "read_committed")
        found = read(store)
        assert found.records == [(offset, value) for offset, _, value, _ in expected.records]
        assert (found.error is None) == expected.sound
        if found.error is not None:
            assert found.error.offset == len(expected.records) + (
                0 if kind.ordinal else files[0][0]
            )
        else:
            assert details(store) == expected.records
            check_starts(data, store, expected.records)
    finally:
        shutil.rmtree(root)


def check_starts(data: st.DataObject, store: Store, expected: list[tuple[object, ...]]) -> None:
    bounds = store.offsets("orders", 0)
    start = data.draw(st.integers(bounds.start, bounds.end))
    end = data.draw(st.integers(start, bounds.end + 2))
    at = start - bounds.start
    assert details(store, start=start, end=end) == expected[at : at + end - start]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(KINDS[2:4]),
    st.lists(payloads, min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 2000)), max_size=30),
    st.data(),
)
def test_no_index_can_change_what_is_read(
    kind: Kind, values: list[bytes], entries: list[tuple[int, int]], data: st.DataObject
) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        (file, *_) = kind.write(root, [values, [b"last"]])
        right = np.frombuffer(kind.index_of(values, 0, 4), ">u8").reshape(-1, 2).tolist()
        mixed = data.draw(st.permutations([*map(tuple, right), *entries]))
        if data.draw(st.booleans()):
            mixed.sort()
        file.with_suffix(".index").write_bytes(np.array(mixed, ">u8").tobytes())
        store = Store.open(root)
        start = data.draw(st.integers(0, len(values)))
        assert read(store, start=start).values == [*values, b"last"][start:]
    finally:
        shutil.rmtree(root)
