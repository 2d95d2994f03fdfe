"""Reading: bounds, limits, projections, time, and what a reader sees while others write."""

from __future__ import annotations

import datetime
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import OffsetRange, Store
from storage_core.errors import (
    DataLossError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    StorageError,
)
from storage_core.format.columns import READ_SCHEMA
from tests.support.stores import T0, TOPIC, make_store, offsets, reopen, rows, segment, values


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Ten records of ten bytes: 0 to 3 closed, 4 to 6 closed, 7 to 9 open; two per frame."""
    made = make_store(tmp_path, frame_records=2, index_interval_bytes=0)
    for low, high in ((0, 4), (4, 7), (7, 10)):
        made.append(
            TOPIC,
            0,
            [b"%010d" % number for number in range(low, high)],
            keys=[b"k%d" % number for number in range(low, high)],
            timestamps=[T0 + number * 10 for number in range(low, high)],
        )
        if high < 10:
            made.roll(TOPIC, 0)
    return made


def test_read_has_the_documented_schema(store: Store) -> None:
    for batch in store.read(TOPIC, 0):
        assert batch.schema == READ_SCHEMA
        batch.validate(full=True)


def test_read_returns_exactly_the_range(store: Store) -> None:
    for start in (None, *range(11)):
        for end in (None, *range(11), 99):
            first, stop = start or 0, 10 if end is None else min(end, 10)
            assert offsets(store, start=start, end=end) == list(range(first, stop))


@pytest.mark.row(35)
def test_start_outside_the_log_names_both_bounds(store: Store) -> None:
    for start in (11, 12, 10**18):
        with pytest.raises(
            OffsetOutOfRangeError, match=r"starts at 0 and its high watermark is 10\."
        ) as caught:
            store.read(TOPIC, 0, start=start)
        error = caught.value
        assert (error.topic, error.partition, error.offset) == (TOPIC, 0, start)
        assert (error.start, error.end) == (0, 10)


@pytest.mark.row(35)
def test_start_before_the_log_names_both_bounds(store: Store) -> None:
    store.alter_topic(TOPIC, retention_bytes=0)
    store.retain()
    with pytest.raises(
        OffsetOutOfRangeError, match=r"starts at 7 and its high watermark is 10\."
    ) as caught:
        store.read(TOPIC, 0, start=6)
    assert (caught.value.start, caught.value.end) == (7, 10)
    assert offsets(store) == [7, 8, 9]


def test_bounds_are_checked_before_the_first_batch_is_asked_for(store: Store) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        store.read(TOPIC, 0, start=99)
    with pytest.raises(InvalidRecordError):
        store.read(TOPIC, 0, columns=("nope",))


def test_max_records_is_exact(store: Store) -> None:
    for limit in range(12):
        assert offsets(store, max_records=limit) == list(range(min(limit, 10)))
        assert offsets(store, start=3, max_records=limit) == list(range(3, min(3 + limit, 10)))


def test_max_bytes_stops_with_the_record_that_reaches_it(store: Store) -> None:
    counts = {0: 1, 1: 1, 12: 1, 13: 2, 24: 2, 25: 3, 120: 10, 10**9: 10}
    for limit, count in counts.items():
        assert offsets(store, max_bytes=limit) == list(range(count))


def test_max_bytes_counts_what_is_not_projected(store: Store) -> None:
    for columns in (("offset",), ("offset", "value"), ("key", "offset")):
        batches = list(store.read(TOPIC, 0, max_bytes=25, columns=columns))
        assert [batch.schema.names for batch in batches] == [list(columns)] * len(batches)
        assert sum(batch.num_rows for batch in batches) == 3


def test_limits_together_take_the_smaller(store: Store) -> None:
    assert len(offsets(store, max_bytes=25, max_records=2)) == 2
    assert len(offsets(store, max_bytes=25, max_records=5)) == 3
    assert len(offsets(store, max_bytes=10**9, max_records=5, end=4)) == 4


def test_null_records_count_no_bytes_but_are_not_lost(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [None] * 5)
    assert offsets(store, max_bytes=1) == [0, 1, 2, 3, 4]
    assert values(store) == [None] * 5


PROJECTIONS: list[tuple[str, ...]] = [
    ("offset",),
    ("value",),
    ("headers", "key"),
    ("timestamp_type",),
    ("value", "offset", "timestamp"),
]


def test_projection_returns_those_columns_in_that_order(store: Store) -> None:
    whole = rows(store.read(TOPIC, 0, columns=(*READ_SCHEMA.names, "timestamp_type")))
    for columns in PROJECTIONS:
        read = rows(store.read(TOPIC, 0, columns=columns))
        assert read == [{name: row[name] for name in columns} for row in whole]


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": -1},
        {"end": -1},
        {"max_records": -1},
        {"max_bytes": -1},
        {"start": "0"},
        {"end": 1.5},
        {"columns": ("offset", "valu")},
    ],
)
def test_impossible_arguments_are_refused(store: Store, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        store.read(TOPIC, 0, **arguments)


def test_empty_partition_reads_as_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path, 2)
    store.append(TOPIC, 1, [b"a"])
    assert store.offsets(TOPIC, 0) == OffsetRange(0, 0)
    assert list(store.read(TOPIC, 0)) == []
    assert list(store.read(TOPIC, 0, start=0, end=10, max_records=5, max_bytes=5)) == []
    assert store.offset_for_timestamp(TOPIC, 0, 0) is None
    assert store.segments(TOPIC, 0) == []
    with pytest.raises(OffsetOutOfRangeError, match=r"starts at 0 and its high watermark is 0\."):
        store.read(TOPIC, 0, start=1)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compressed_partitions_read_the_same(tmp_path: Path, compression: str) -> None:
    store = make_store(tmp_path, compression=compression, frame_records=7)
    expected = [os.urandom(20) if number % 3 else b"same" * 50 for number in range(100)]
    store.append(TOPIC, 0, expected)
    assert values(store) == expected
    for start in (0, 6, 7, 50, 99):
        assert values(store, start=start) == expected[start:]


def test_compression_may_change_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for compression in ("none", "zstd", "lz4", "none"):
        store.alter_topic(TOPIC, compression=compression)
        store.append(TOPIC, 0, [compression.encode() * 100])
    assert [value[:4] for value in values(store)] == [b"none", b"zstd", b"lz4l", b"none"]


def test_time_lookup_finds_the_first_record_not_older(store: Store) -> None:
    for number in range(10):
        assert store.offset_for_timestamp(TOPIC, 0, T0 + number * 10) == number
        assert store.offset_for_timestamp(TOPIC, 0, T0 + number * 10 - 9) == number


def test_time_lookup_before_and_after_everything(store: Store) -> None:
    assert store.offset_for_timestamp(TOPIC, 0, -(2**62)) == 0
    assert store.offset_for_timestamp(TOPIC, 0, -(2**70)) == 0
    assert store.offset_for_timestamp(TOPIC, 0, T0 + 91) is None
    assert store.offset_for_timestamp(TOPIC, 0, 2**62) is None
    assert store.offset_for_timestamp(TOPIC, 0, 2**70) is None


def test_time_lookup_takes_datetimes(store: Store) -> None:
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, 50)
    assert store.offset_for_timestamp(TOPIC, 0, moment) == 5
    zone = datetime.timezone(datetime.timedelta(hours=5))
    assert store.offset_for_timestamp(TOPIC, 0, moment.replace(tzinfo=zone)) == 0
    for wrong in (None, "2023", 1.5, True):
        with pytest.raises(InvalidRecordError):
            store.offset_for_timestamp(TOPIC, 0, wrong)  # type: ignore[arg-type]


def test_time_lookup_of_unordered_timestamps_finds_the_first_in_offset_order(
    tmp_path: Path,
) -> None:
    stamps = [5, 3, 9, 1, 7, 2, 8, 0, 6, 4, 11, 1]
    store = make_store(tmp_path, index_interval_bytes=0, frame_records=2)
    for low in range(0, 12, 3):
        store.append(
            TOPIC, 0, [b"x"] * 3, timestamps=[T0 + stamp for stamp in stamps[low : low + 3]]
        )
        if low < 9:
            store.roll(TOPIC, 0)
    for wanted in range(13):
        expected = next((at for at, stamp in enumerate(stamps) if stamp >= wanted), None)
        assert store.offset_for_timestamp(TOPIC, 0, T0 + wanted) == expected
        assert reopen(Path(store.path)).offset_for_timestamp(TOPIC, 0, T0 + wanted) == expected


def test_another_store_sees_new_records_rolls_and_topics_without_reopening(tmp_path: Path) -> None:
    writer = make_store(tmp_path)
    reader = reopen(tmp_path)
    for number in range(20):
        writer.append(TOPIC, 0, [b"%d" % number], timestamps=[T0 + number])
        if number % 4 == 3:
            writer.roll(TOPIC, 0)
        assert reader.offsets(TOPIC, 0).end == number + 1
        assert values(reader, start=number) == [b"%d" % number]
        assert reader.offset_for_timestamp(TOPIC, 0, T0 + number) == number


def test_read_stops_at_the_end_it_saw_at_first(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    batches = store.read(TOPIC, 0)
    store.append(TOPIC, 0, [b"b"])
    assert [row["value"] for row in rows(batches)] == [b"a"]


@pytest.mark.row(36)
def test_read_in_a_segment_that_retention_removes_finishes_on_its_map(tmp_path: Path) -> None:
    store = make_store(tmp_path, frame_records=5000, retention_bytes=0)
    store.append(TOPIC, 0, [b"x"] * 10_000)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"y"])
    batches = reopen(tmp_path).read(TOPIC, 0, end=10_000)
    first = next(batches)
    assert store.retain() == {(TOPIC, 0): [0]}
    assert not segment(tmp_path).exists()
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 10_000


@pytest.mark.row(36)
def test_read_that_retention_overtakes_learns_what_is_lost(tmp_path: Path) -> None:
    writer = make_store(tmp_path, frame_records=5000, retention_bytes=0)
    for _ in range(3):
        writer.append(TOPIC, 0, [b"x"] * 5000)
        writer.roll(TOPIC, 0)
    writer.append(TOPIC, 0, [b"y"])
    batches = reopen(tmp_path).read(TOPIC, 0)
    assert next(batches).column("offset")[0].as_py() == 0
    writer.retain()
    with pytest.raises(DataLossError, match="Continue from 15000") as caught:
        list(batches)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (TOPIC, 0, 5000)


@pytest.mark.row(36)
def test_readers_beside_retention_and_appends_read_right_or_get_an_error(tmp_path: Path) -> None:
    writer = make_store(tmp_path, segment_bytes=4096, retention_bytes=8192, fsync="none")
    writer.append(TOPIC, 0, [b"%08d" % number * 50 for number in range(40)])
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        reader = reopen(tmp_path)
        while not stop.is_set():
            try:
                read = rows(reader.read(TOPIC, 0, columns=("offset", "value")))
                numbers = [row["offset"] for row in read]
                if numbers != list(range(numbers[0], numbers[-1] + 1)):
                    wrong.append(numbers)
                wrong.extend(row for row in read if int(row["value"][:8]) != row["offset"])
                reader.offset_for_timestamp(TOPIC, 0, 0)
            except (DataLossError, OffsetOutOfRangeError):
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(40, 200):
        writer.append(TOPIC, 0, [b"%08d" % number * 50])
        writer.retain()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_batches_outlive_the_store_and_its_files(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a" * 100] * 10)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"b"])
    batches = list(store.read(TOPIC, 0))
    store.delete_topic(TOPIC)
    store.close()
    assert pa.Table.from_batches(batches).column("value").to_pylist() == [b"a" * 100] * 10 + [b"b"]


def test_bounded_caches_change_no_answer(tmp_path: Path) -> None:
    with make_store(tmp_path, segment_bytes=4096) as store:
        for number in range(30):
            store.append(TOPIC, 0, [b"%d" % number * 1000], timestamps=[T0 + number])
    small = reopen(tmp_path, index_cache_segments=1, map_cache_segments=1)
    for number in (29, 0, 15, 3, 28, 7):
        assert offsets(small, start=number) == list(range(number, 30))
        assert small.offset_for_timestamp(TOPIC, 0, T0 + number) == number


def test_torn_tail_after_the_high_watermark_does_not_concern_readers(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a", b"b"], timestamps=[T0, T0 + 1])
    with segment(tmp_path).open("ab") as file:
        file.write(b"half a frame")
    reader = reopen(tmp_path)
    assert values(reader) == [b"a", b"b"]
    assert reader.offset_for_timestamp(TOPIC, 0, T0 + 1) == 1
    assert reader.offset_for_timestamp(TOPIC, 0, T0 + 2) is None
    assert [problem.severity for problem in reader.check()] == ["warning"]


def test_reading_never_raises_anything_untyped(store: Store) -> None:
    """Whatever happens to the files of a store, errors stay in the family."""
    root = Path(store.path)
    store.close()
    for file in sorted(root.rglob("*")):
        if not file.is_file():
            continue
        data, mode = file.read_bytes(), file.stat().st_mode
        file.chmod(0o644)
        for contents in (b"", data[: len(data) // 2], b"\xff" * len(data), bytes(len(data))):
            file.write_bytes(contents)
            reader = reopen(root)
            try:
                assert offsets(reader) == list(range(10))
                reader.offset_for_timestamp(TOPIC, 0, T0 + 50)
                reader.committed_offsets("g")
            except StorageError:
                pass
            reader.check()
        file.write_bytes(data)
        file.chmod(mode)
