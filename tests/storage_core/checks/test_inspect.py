"""Frames and index entries in the open, sound or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.checks.inspect import TimeSpan, indexes, time_span
from storage_core.errors import BrokenFrameError
from storage_core.format.frame_scan import segment_frames
from tests.support.stores import T0, TOPIC, make_store, overwrite, segment


def written(path: Path) -> tuple[Store, str]:
    """Three frames in a sealed segment with an index entry for each but the first."""
    store = make_store(path, index_interval_bytes=64, compression="zstd")
    for number in range(3):
        store.append(TOPIC, 0, [b"a", b"b" * 500], timestamps=[T0 + number, T0 + 10 - number])
    store.roll(TOPIC, 0)
    return store, store.segments(TOPIC, 0)[0].path


def test_every_frame_is_shown_with_its_place(tmp_path: Path) -> None:
    store, path = written(tmp_path)
    found = list(segment_frames(store.vfs, path, 0))
    assert [frame.offset for frame in found] == [0, 2, 4]
    assert [frame.header.records for frame in found] == [2, 2, 2]
    ends = [frame.position + frame.header.length for frame in found]
    assert [0, *ends[:-1]] == [frame.position for frame in found]
    assert ends[-1] == segment(tmp_path).stat().st_size
    headers = list(segment_frames(store.vfs, path, 0, bodies=False))
    assert headers == [frame._replace(rest=memoryview(b"")) for frame in found]


def test_frames_after_the_first_bad_byte_are_not_guessed(tmp_path: Path) -> None:
    store, path = written(tmp_path)
    second = list(segment_frames(store.vfs, path, 0))[1]
    overwrite(segment(tmp_path), lambda data: data.__setitem__(second.position + 70, 0xEE))
    seen = segment_frames(store.vfs, path, 0)
    assert next(seen).offset == 0
    with pytest.raises(BrokenFrameError, match="body fails its checksum") as caught:
        next(seen)
    assert (caught.value.position, caught.value.offset) == (second.position, 2)
    assert len(list(segment_frames(store.vfs, path, 0, bodies=False))) == 3


def test_a_file_that_ends_inside_a_frame_is_noticed_without_reading_bodies(tmp_path: Path) -> None:
    store, path = written(tmp_path)
    overwrite(segment(tmp_path), lambda data: data.__delitem__(slice(-1, None)))
    with pytest.raises(BrokenFrameError, match="ends inside the frame"):
        list(segment_frames(store.vfs, path, 0, bodies=False))


def test_index_files_are_sealed_stale_or_missing(tmp_path: Path) -> None:
    store, path = written(tmp_path)
    positions = [frame.position for frame in segment_frames(store.vfs, path, 0)][1:]
    offsets, times = indexes(store.vfs, path)
    assert (offsets.kind, offsets.state) == ("offset", "sealed")
    assert (offsets.first.tolist(), offsets.second.tolist()) == ([2, 4], positions)
    assert (times.kind, times.state, times.second.tolist()) == ("time", "sealed", [0, 0, 2, 4, 6])
    overwrite(segment(tmp_path, suffix=".idx"), lambda data: data.__setitem__(-9, data[-9] ^ 1))
    segment(tmp_path, suffix=".timeidx").unlink()
    offsets, times = indexes(store.vfs, path)
    assert (offsets.state, offsets.first.tolist()) == ("stale", [2, 4])
    assert (times.state, len(times.first)) == ("missing", 0)


def test_an_open_segment_has_an_open_index(tmp_path: Path) -> None:
    store = make_store(tmp_path, index_interval_bytes=64)
    for _ in range(2):
        store.append(TOPIC, 0, [b"x" * 100])
    offsets, times = indexes(store.vfs, store.segments(TOPIC, 0)[0].path)
    assert (offsets.state, offsets.first.tolist(), times.state) == ("open", [1], "missing")


def test_the_span_of_a_segment_comes_from_two_headers(tmp_path: Path) -> None:
    store, path = written(tmp_path)
    assert time_span(store.vfs, path) == TimeSpan(T0, T0 + 10)
    overwrite(segment(tmp_path), lambda data: data.__setitem__(slice(None), b"?" * 100))
    assert time_span(store.vfs, path) is None
    overwrite(segment(tmp_path), lambda data: data.clear())
    assert time_span(store.vfs, path) is None
