"""Segments: when they roll, what sealing does, and what their state forbids."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage_core import StoreConfig
from storage_core.errors import RecordTooLargeError, SegmentStateError
from storage_core.format.frame import EncodedFrame, unpack_header
from storage_core.format.frame_builder import FramePlace, encode_frames
from storage_core.format.sparse_index import parse_open, parse_sealed
from storage_core.io.byte_source import MappedSource, WindowSource
from storage_core.segments.active import ActiveSegment
from tests.support.faulty_vfs import faulty
from tests.support.stores import (
    TOPIC,
    columns_of,
    errors,
    make_store,
    names,
    offsets,
    on,
    reopen,
    segment,
    values,
)

CONFIG = StoreConfig(index_interval_bytes=0)


def chunk(value: bytes = b"x") -> EncodedFrame:
    columns, place = columns_of([value]), FramePlace(0, 0, 0)
    (made,) = encode_frames(columns, 0, place, room=lambda _: 1 << 30, most=1, config=CONFIG)
    return made


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    return tmp_path


def new_segment(directory: Path) -> ActiveSegment:
    return ActiveSegment.create(faulty(directory), "d", CONFIG, 0)


def test_sealing_makes_indexes_complete_and_the_file_read_only(directory: Path) -> None:
    made = new_segment(directory)
    made.write([chunk()])
    made.seal()
    log = directory / "d/00000000000000000000.log"
    assert log.stat().st_mode & 0o222 == 0
    size = log.stat().st_size
    for kind, suffix in (("offset", ".idx"), ("time", ".timeidx")):
        assert parse_sealed(kind, log.with_suffix(suffix).read_bytes(), size) is not None  # type: ignore[arg-type]


def test_sealing_twice_is_a_typed_error(directory: Path) -> None:
    made = new_segment(directory)
    made.write([chunk()])
    made.seal()
    with pytest.raises(SegmentStateError, match=r"seal .* sealed"):
        made.seal()


def test_appending_to_a_sealed_segment_is_a_typed_error(directory: Path) -> None:
    made = new_segment(directory)
    made.write([chunk()])
    made.seal()
    with pytest.raises(SegmentStateError, match=r"append to .* sealed") as caught:
        made.write([chunk()])
    assert caught.value.path == "d/00000000000000000000.log"
    with pytest.raises(SegmentStateError, match="sync"):
        made.sync()


def test_sealed_segment_takes_no_appends_and_closes_twice(directory: Path) -> None:
    made = new_segment(directory)
    made.close()
    made.close()
    with pytest.raises(SegmentStateError, match="closed"):
        made.write([chunk()])


def test_mapping_an_empty_file_is_a_typed_error(directory: Path) -> None:
    (directory / "empty").touch()
    with pytest.raises(SegmentStateError, match="empty"):
        MappedSource(faulty(directory), "empty")


def test_segment_is_created_once(directory: Path) -> None:
    new_segment(directory)
    with pytest.raises(FileExistsError):
        new_segment(directory)


@pytest.mark.parametrize("kind", ["mapped", "window"])
def test_sources_read_fewer_bytes_at_the_end_and_none_after_it(directory: Path, kind: str) -> None:
    (directory / "f").write_bytes(bytes(range(100)))
    vfs = faulty(directory)
    source: MappedSource | WindowSource
    if kind == "mapped":
        source = MappedSource(vfs, "f")
    else:
        source = WindowSource(vfs, vfs.open("f", "read"), 100, window=16)
    assert source.read(0, 4).tobytes() == b"\0\1\2\3"
    assert source.read(90, 64).tobytes() == bytes(range(90, 100))
    assert source.read(10, 40).tobytes() == bytes(range(10, 50))
    for position in (100, 101, 10_000):
        assert source.read(position, 64).tobytes() == b""


def test_roll_comes_before_the_limit_is_passed(tmp_path: Path) -> None:
    store = make_store(tmp_path, segment_bytes=4096)
    for number in range(40):
        store.append(TOPIC, 0, [b"%d" % number * 300])
    logs = sorted((tmp_path / "topics/t/0/segments").glob("*.log"))
    assert len(logs) > 3
    assert all(log.stat().st_size <= 4096 for log in logs)
    assert offsets(store) == list(range(40))
    assert errors(store) == []


def test_one_append_spreads_over_segments(tmp_path: Path) -> None:
    store = make_store(tmp_path, segment_bytes=4096, frame_bytes=1024)
    written = store.append(TOPIC, 0, [b"%03d" % number * 100 for number in range(60)])
    assert (written.start, written.end) == (0, 60)
    assert len(names(tmp_path, ".log")) > 3
    assert values(store) == [b"%03d" % number * 100 for number in range(60)]
    bases = [info.base for info in store.segments(TOPIC, 0)]
    ends = [info.end for info in store.segments(TOPIC, 0)]
    assert bases == [0, *ends[:-1]]
    assert errors(store) == []


def test_record_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    store = make_store(tmp_path, segment_bytes=4096)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b" * 10_000])
    store.append(TOPIC, 0, [b"c"])
    assert [info.base for info in store.segments(TOPIC, 0)] == [0, 1, 2]
    assert values(store) == [b"a", b"b" * 10_000, b"c"]


def test_segment_rolls_at_the_first_append_after_its_age(tmp_path: Path) -> None:
    make_store(tmp_path, segment_ms=1000).close()
    vfs = faulty(tmp_path)
    vfs.clock_us = 10**15
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    vfs.clock_us += 999_999
    store.append(TOPIC, 0, [b"b"])
    vfs.clock_us += 1
    store.append(TOPIC, 0, [b"c"])
    assert [info.base for info in store.segments(TOPIC, 0)] == [0, 2]


def test_age_survives_another_writer(tmp_path: Path) -> None:
    make_store(tmp_path, segment_ms=1000).close()
    for clock in (0, 600_000, 1_200_000):
        vfs = faulty(tmp_path)
        vfs.clock_us = 10**15 + clock
        with on(vfs) as store:
            store.append(TOPIC, 0, [b"a"])
    assert [info.base for info in reopen(tmp_path).segments(TOPIC, 0)] == [0, 2]


def test_roll_on_request_closes_what_is_there(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert not store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"a"])
    assert store.roll(TOPIC, 0)
    assert not store.roll(TOPIC, 0)
    assert values(store) == [b"a"]
    store.append(TOPIC, 0, [b"b"])
    assert [(info.base, info.sealed) for info in store.segments(TOPIC, 0)] == [
        (0, True),
        (1, False),
    ]
    assert errors(reopen(tmp_path)) == []


def frames(path: Path) -> list[int]:
    """Numbers of records of the frames of the first segment."""
    data = segment(path).read_bytes()
    counts, position = [], 0
    while position < len(data):
        header = unpack_header(data[position:])
        counts.append(header.records)
        position += header.length
    return counts


def test_frames_hold_at_most_frame_records(tmp_path: Path) -> None:
    store = make_store(tmp_path, frame_records=10)
    store.append(TOPIC, 0, [b"x"] * 25)
    assert frames(tmp_path) == [10, 10, 5]


def test_frames_hold_at_most_frame_bytes(tmp_path: Path) -> None:
    store = make_store(tmp_path, frame_bytes=1024)
    store.append(TOPIC, 0, [b"x" * 100] * 25)
    assert frames(tmp_path) == [10, 10, 5]


def test_record_larger_than_frame_bytes_gets_a_frame_of_its_own(tmp_path: Path) -> None:
    store = make_store(tmp_path, frame_bytes=1024)
    store.append(TOPIC, 0, [b"a", b"b" * 5000, b"c", b"d"])
    assert frames(tmp_path) == [1, 1, 2]
    assert values(store) == [b"a", b"b" * 5000, b"c", b"d"]


def test_record_larger_than_max_record_bytes_is_refused_and_nothing_written(tmp_path: Path) -> None:
    store = make_store(tmp_path, max_record_bytes=100)
    store.append(TOPIC, 0, [b"x" * 100])
    with pytest.raises(RecordTooLargeError, match=r"record 1 .* 101 bytes"):
        store.append(TOPIC, 0, [b"a", b"x" * 101])
    with pytest.raises(RecordTooLargeError):
        store.append(TOPIC, 0, [b"x" * 60], keys=[b"k" * 41])
    with pytest.raises(RecordTooLargeError):
        store.append(TOPIC, 0, [b"x" * 60], headers=[{"h" * 20: b"v" * 21}])
    assert store.offsets(TOPIC, 0).end == 1


def test_open_index_follows_the_log_and_is_complete_when_sealed(tmp_path: Path) -> None:
    with make_store(tmp_path, index_interval_bytes=0) as store:
        for _ in range(3):
            store.append(TOPIC, 0, [b"a"])
    with reopen(tmp_path) as store:
        for _ in range(3):
            store.append(TOPIC, 0, [b"b"])
        size = segment(tmp_path).stat().st_size
        index = segment(tmp_path, suffix=".idx")
        assert parse_open(index.read_bytes(), size).offsets.tolist() == list(range(6))
        store.roll(TOPIC, 0)
        parsed = parse_sealed("offset", index.read_bytes(), size)
        assert parsed is not None
        assert parsed[0].tolist() == list(range(6))


def descriptors(path: Path) -> int:
    """How many files below ``path`` this process has open; another test may have left others."""
    targets = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(target.startswith(f"{path}/") for target in targets)


def test_no_descriptor_is_left_open_after_many_rolls(tmp_path: Path) -> None:
    store = make_store(tmp_path, segment_bytes=4096)
    for _ in range(5):
        store.append(TOPIC, 0, [b"x" * 3000])
    before = descriptors(tmp_path)
    for _ in range(20):
        store.append(TOPIC, 0, [b"x" * 3000])
    assert 0 < descriptors(tmp_path) <= before
    store.close()
    assert descriptors(tmp_path) == 0
