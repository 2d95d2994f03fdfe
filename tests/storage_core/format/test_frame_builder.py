"""Records that wait for a frame: none is lost or turned round, and few are copied."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_core.format.columns import Columns
from storage_core.format.frame_builder import FrameBuilder
from storage_core.types import TIMESTAMP_APPENDED, TIMESTAMP_SUPPLIED
from tests.support.stores import columns_of


def stamped(values: list[bytes], time: int, kind: int = TIMESTAMP_APPENDED) -> Columns:
    return replace(columns_of(values), timestamps=time, timestamp_type=kind)


def queue_of(*batches: Columns, records: int = 4, size: int = 1024) -> FrameBuilder:
    queue = FrameBuilder(records, size)
    for batch in batches:
        queue.add(batch)
    return queue


def taken(queue: FrameBuilder) -> list[list[bytes]]:
    frames = []
    while queue.rows:
        column = queue.take().value
        assert column is not None
        frames.append(column.to_pylist())
    return frames


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=2000), min_size=1, max_size=9), max_size=9),
    st.integers(1, 6),
)
def test_every_record_comes_out_once_in_its_order_and_no_frame_is_too_large(
    batches: list[list[bytes]], records: int
) -> None:
    queue = queue_of(*map(columns_of, batches), records=records, size=1024)
    frames = taken(queue)
    assert [value for frame in frames for value in frame] == [v for b in batches for v in b]
    assert all(len(frame) <= records for frame in frames)
    assert all(len(frame) == 1 or sum(map(len, frame)) <= 1024 for frame in frames)
    assert (queue.rows, queue.size, queue.is_full) == (0, 0, False)


@pytest.mark.parametrize(
    ("batches", "records", "frames"),
    [([10], 8, [5, 5]), ([10, 10], 10, [10, 10]), ([5, 6, 3], 8, [5, 6, 3]), ([17], 8, [6, 6, 5])],
)
def test_batches_of_half_a_frame_and_more_are_cut_evenly_and_never_copied(
    batches: list[int], records: int, frames: list[int]
) -> None:
    given = [columns_of([b"%d" % number for number in range(rows)]) for rows in batches]
    whole = {address for batch in given for address in addresses(batch.value)}
    queue = queue_of(*given, records=records)
    found = []
    while queue.rows:
        frame = queue.take()
        assert whole >= set(addresses(frame.value))
        found.append(frame.count)
    assert found == frames


def test_a_batch_of_large_records_is_cut_by_its_bytes() -> None:
    queue = queue_of(columns_of([b"x" * 300] * 8), records=100)
    assert [len(frame) for frame in taken(queue)] == [3, 3, 2]


def test_a_frame_within_a_batch_is_no_copy_of_it() -> None:
    batch = columns_of([b"%d" % number for number in range(10)])
    queue = queue_of(columns_of([b"before"]), batch)
    assert batch.value is not None
    at_the_seam, within = queue.take().value, queue.take().value
    assert addresses(at_the_seam) != addresses(batch.value)
    assert addresses(within) == addresses(batch.value)


def addresses(column: pa.Array | None) -> list[int]:
    assert column is not None
    return [buffer.address for buffer in column.buffers() if buffer is not None]


def test_a_whole_frame_is_one_of_enough_records_or_of_enough_bytes() -> None:
    assert not queue_of(columns_of([b"a"] * 3)).is_full
    assert queue_of(columns_of([b"a"] * 4)).is_full
    assert queue_of(columns_of([b"a" * 1024]), size=1024).is_full


def test_records_stamped_on_the_way_share_the_last_stamp_of_their_frame() -> None:
    queue = queue_of(stamped([b"a"], 5), stamped([b"b", b"c"], 7), stamped([b"d", b"e"], 9))
    first, second = queue.take(), queue.take()
    assert (first.timestamps, first.count, first.timestamp_type) == (9, 4, TIMESTAMP_APPENDED)
    assert (second.timestamps, second.count) == (9, 1)


def test_times_that_were_given_are_kept() -> None:
    given_, stamp = stamped([b"a"], 5, TIMESTAMP_SUPPLIED), stamped([b"b"], 7)
    mixed = queue_of(given_, stamp).take()
    assert [int(time) for time in mixed.timestamps] == [5, 7]  # type: ignore[union-attr]
