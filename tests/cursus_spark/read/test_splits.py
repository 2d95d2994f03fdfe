"""Tasks hold every record once, in order, and are as many and as large as asked for."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursus_spark.read.log_slice import SegmentSplit
from cursus_spark.read.splits import MIB, CutPoints, plan_tasks

RECORD = 100


def split(topic: str, partition: int, start: int, records: int, size: int = RECORD) -> SegmentSplit:
    path = f"{topic}/{partition}/{start:020}.log"
    return SegmentSplit(topic, partition, path, start, start + records, 0, records * size)


def index(every: int, size: int = RECORD) -> Callable[[SegmentSplit], CutPoints]:
    """An index with an entry for every ``every`` records, of whole segments."""

    def cuts(whole: SegmentSplit) -> CutPoints:
        offsets = np.arange(whole.start_offset, whole.end_offset, every, dtype=np.int64)
        return CutPoints(offsets, (offsets - whole.start_offset) * size)

    return cuts


def no_index(_: SegmentSplit) -> CutPoints:
    nothing = np.empty(0, dtype=np.int64)
    return CutPoints(nothing, nothing)


def sizes(tasks: list[list[SegmentSplit]]) -> list[int]:
    return [sum(p.end_position - p.start_position for p in task) for task in tasks]


def counts(tasks: list[list[SegmentSplit]]) -> list[int]:
    return [sum(p.end_offset - p.start_offset for p in task) for task in tasks]


def covered(splits: list[SegmentSplit]) -> list[tuple[str, int, int, int]]:
    """Ranges by topic and partition, neighbours joined."""
    joined: list[tuple[str, int, int, int]] = []
    for p in splits:
        if joined and joined[-1][:2] == (p.topic, p.partition) and joined[-1][3] == p.start_offset:
            joined[-1] = (*joined[-1][:3], p.end_offset)
        else:
            joined.append((p.topic, p.partition, p.start_offset, p.end_offset))
    return joined


def test_nothing_to_read_is_no_task() -> None:
    assert plan_tasks([], cuts=no_index) == []
    assert plan_tasks([split("t", 0, 5, 0)], cuts=no_index, min_partitions=4) == []


def test_small_pieces_share_one_task() -> None:
    splits = [split("t", p, start, 10) for p in range(4) for start in range(0, 100, 10)]
    assert plan_tasks(list(reversed(splits)), cuts=no_index, parallelism=8) == [splits]


@pytest.mark.parametrize("max_bytes", [1, 128, 1023, 1024])
def test_pieces_without_a_byte_are_planned_too(max_bytes: int) -> None:
    splits = [split("t", 0, 0, 100), split("t", 1, 0, 3, size=0), split("t", 2, 0, 2, size=0)]
    tasks = plan_tasks(splits, cuts=index(10), max_bytes=max_bytes)
    assert covered([p for task in tasks for p in task]) == covered(splits)


def test_order_is_by_topic_partition_and_number() -> None:
    splits = [split("b", 0, 0, 5), split("a", 10, 0, 5), split("a", 2, 10, 5), split("a", 2, 0, 5)]
    [task] = plan_tasks(splits, cuts=no_index)
    assert [(p.topic, p.partition, p.start_offset) for p in task] == [
        ("a", 2, 0), ("a", 2, 10), ("a", 10, 0), ("b", 0, 0),
    ]  # fmt: skip


def test_a_large_piece_is_cut_at_index_entries() -> None:
    whole = split("t", 0, 1000, 10_000)
    tasks = plan_tasks([whole], cuts=index(50), max_bytes=100_000)
    assert len(tasks) == 10
    assert all(len(task) == 1 for task in tasks)
    for [part] in tasks:
        assert (part.start_offset - 1000) % 50 == 0
        assert part.start_position == (part.start_offset - 1000) * RECORD
    assert max(sizes(tasks)) <= 100_000 * 1.1
    assert covered([part for task in tasks for part in task]) == [("t", 0, 1000, 11_000)]


def test_without_an_index_a_piece_stays_whole() -> None:
    splits = [split("t", 0, 0, 10_000), split("t", 0, 10_000, 10_000)]
    assert plan_tasks(splits, cuts=no_index, max_bytes=1000) == [[splits[0]], [splits[1]]]


def test_cuts_prefer_the_edges_of_pieces() -> None:
    splits = [split("t", 0, at * 1000, 1000 + at % 3, size=64 * 1024) for at in range(10)]
    tasks = plan_tasks(splits, cuts=index(1, 64 * 1024), max_bytes=128 * MIB)
    assert [len(task) for task in tasks] == [2] * 5
    assert [p for task in tasks for p in task] == splits


def test_indexes_of_whole_pieces_are_not_loaded() -> None:
    def never(_: SegmentSplit) -> CutPoints:
        raise AssertionError("loaded")

    splits = [split("t", 0, at * 1000, 700 + at % 600, size=64 * 1024) for at in range(1000)]
    tasks = plan_tasks(splits, cuts=never, max_bytes=128 * MIB)
    assert max(sizes(tasks)) <= 137 * MIB
    assert min(sizes(tasks)[:-1]) >= 64 * MIB


def test_each_index_is_loaded_once() -> None:
    loaded: list[SegmentSplit] = []

    def cuts(whole: SegmentSplit) -> CutPoints:
        loaded.append(whole)
        return index(10)(whole)

    whole = split("t", 0, 0, 10_000)
    plan_tasks([whole], cuts=cuts, max_bytes=10_000, max_records=7, min_partitions=300)
    assert loaded == [whole]


@pytest.mark.parametrize(("mib", "cores", "tasks"), [(16, 4, 1), (32, 4, 2), (100, 4, 4)])
def test_medium_reads_use_the_cores(mib: int, cores: int, tasks: int) -> None:
    records = mib * MIB // 1024
    whole = split("t", 0, 0, records, size=1024)
    found = plan_tasks([whole], cuts=index(4, 1024), parallelism=cores)
    assert len(found) == tasks
    assert max(sizes(found)) - min(sizes(found)) <= 64 * 1024


@pytest.mark.parametrize(("records", "tasks"), [(400_000, 1), (500_000, 2), (2_000_000, 4)])
def test_compressed_reads_use_the_cores_for_their_records(records: int, tasks: int) -> None:
    """Two million records of 100 bytes that a codec has made 5 MB take as long as 200 MB."""
    splits = [split("t", p, 0, records // 4, size=2) for p in range(4)]
    assert len(plan_tasks(splits, cuts=index(200, 2), parallelism=4)) == tasks


def test_large_reads_leave_no_core_idle_in_the_last_round() -> None:
    whole = split("t", 0, 0, 9 * 128 * 1024, size=1024)
    assert len(plan_tasks([whole], cuts=index(4, 1024))) == 9
    assert len(plan_tasks([whole], cuts=index(4, 1024), parallelism=8)) == 16


def test_many_tiny_files_are_shared_by_the_tasks() -> None:
    splits = [split("t", 0, at * 10, 10) for at in range(20_000)]
    tasks = plan_tasks(splits, cuts=no_index, parallelism=4)
    assert 8 <= len(tasks) <= 16
    assert max(map(len, tasks)) <= 2 * min(map(len, tasks))


def test_max_records_holds_inside_index_intervals() -> None:
    splits = [split("t", 0, 0, 1000), split("t", 0, 1000, 5)]
    tasks = plan_tasks(splits, cuts=index(64), max_records=30)
    assert max(counts(tasks)) <= 30
    assert covered([p for task in tasks for p in task]) == [("t", 0, 0, 1005)]


def test_a_cut_between_entries_starts_at_the_entry_before() -> None:
    tasks = plan_tasks([split("t", 0, 0, 200)], cuts=index(64), max_records=100)
    [[left], [right]] = tasks
    assert (left.end_offset, left.end_position) == (100, 128 * RECORD)
    assert (right.start_offset, right.start_position) == (100, 64 * RECORD)


@pytest.mark.parametrize("wanted", [1, 2, 3, 7, 10])
def test_min_partitions_divides_even_a_single_frame(wanted: int) -> None:
    tasks = plan_tasks([split("t", 0, 0, 10)], cuts=no_index, min_partitions=wanted)
    assert len(tasks) == wanted
    assert max(counts(tasks)) - min(counts(tasks)) <= 1


def test_min_partitions_is_proportional() -> None:
    splits = [split("t", 0, 0, 9000, size=4096), split("t", 1, 0, 1000, size=4096)]
    tasks = plan_tasks(splits, cuts=index(10, 4096), min_partitions=10)
    assert len(tasks) == 10
    assert [task[0].partition for task in tasks].count(1) == 1


def test_min_partitions_beyond_the_records_gives_one_each() -> None:
    assert counts(plan_tasks([split("t", 0, 0, 3)], cuts=no_index, min_partitions=9)) == [1, 1, 1]


def test_a_limit_of_one_byte_does_not_explode() -> None:
    tasks = plan_tasks([split("t", 0, 0, 10_000_000)], cuts=no_index, max_bytes=1)
    assert len(tasks) == 1


shapes = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 300), st.integers(0, 9)),
    max_size=12,
)


@given(
    shape=shapes,
    every=st.integers(1, 400),
    max_bytes=st.integers(1, 60_000),
    wanted=st.none() | st.integers(1, 40),
    most=st.none() | st.integers(1, 100),
    cores=st.integers(1, 9),
)
def test_every_record_is_in_one_task_in_order(
    shape: list[tuple[str, int, int, int]],
    every: int,
    max_bytes: int,
    wanted: int | None,
    most: int | None,
    cores: int,
) -> None:
    splits, ends = [], dict.fromkeys(((t, p) for t in "ab" for p in range(3)), 0)
    for topic, partition, records, gap in shape:
        start = ends[topic, partition] + gap
        splits.append(split(topic, partition, start, records))
        ends[topic, partition] = start + records
    tasks = plan_tasks(
        splits,
        cuts=index(every),
        max_bytes=max_bytes, min_partitions=wanted, max_records=most, parallelism=cores,
    )  # fmt: skip
    whole = sorted(
        (p for p in splits if p.end_offset > p.start_offset), key=lambda p: p[:2] + p[3:]
    )
    parts = [part for task in tasks for part in task]
    assert covered(parts) == covered(whole)
    assert all(task for task in tasks)
    by_path = {p.path: p for p in whole}
    for part in parts:
        base = by_path[part.path].start_offset
        entry, within = divmod(part.start_position, RECORD)
        assert within == 0
        assert base + entry <= part.start_offset < part.end_offset
        assert part.end_position >= (part.end_offset - base) * RECORD
    total = sum(counts(tasks))
    assert len(tasks) >= min(wanted or 0, total)
    assert max(counts(tasks), default=0) <= (most or total)


def test_a_hundred_thousand_pieces_take_a_moment() -> None:
    splits = [split("t", at % 8, at // 8 * 1000, 1000, size=64 * 1024) for at in range(100_000)]
    best = 9.0
    for _ in range(3):
        begun = time.perf_counter()
        tasks = plan_tasks(splits, cuts=no_index)
        best = min(best, time.perf_counter() - begun)
    assert sum(map(len, tasks)) == 100_000
    assert best < 1.5, "0.2 s when the machine is quiet"


def test_pieces_are_picklable() -> None:
    whole = split("t", 0, 0, 10)
    assert pickle.loads(pickle.dumps([[whole]])) == [[whole]]
