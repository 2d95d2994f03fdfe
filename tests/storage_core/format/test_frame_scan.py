"""The one walk over frames: what it yields, and where it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import BrokenFrameError
from storage_core.format.frame_scan import (
    StoredFrame,
    frames_at,
    last_end_offset,
    last_header,
    read_frames,
    recovery_point_after,
    segment_frames,
    walk_frames,
)
from storage_core.format.selection import Selection
from storage_core.io.byte_source import open_source
from storage_core.types import OffsetPosition
from storage_core.vfs import PosixVfs
from tests.support.stores import TOPIC, make_store, overwrite, segment

START = OffsetPosition(0, 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three frames of two records."""
    store = make_store(tmp_path)
    for _ in range(3):
        store.append(TOPIC, 0, [b"a", b"b" * 500])
    return store


def frames(store: Store) -> list[StoredFrame]:
    return list(segment_frames(store.vfs, path(store), 0))


def path(store: Store) -> str:
    return store.segments(TOPIC, 0)[0].path


def test_walk_may_begin_at_any_frame(store: Store) -> None:
    first, second, third = frames(store)
    at = OffsetPosition(first.end_offset, first.end_position)
    with open_source(store.vfs, path(store), 100) as source:
        assert list(walk_frames(source, 0, at=at, bodies=True)) == [second, third]


def test_known_frames_are_read_in_any_order(store: Store) -> None:
    first, _, third = frames(store)
    places = [(frame.position, frame.header.length) for frame in (third, first)]
    found = list(frames_at(store.vfs, path(store), places))
    assert [frame.rest for frame in found] == [third.rest, first.rest]
    assert [frame.header for frame in found] == [third.header, first.header]


def test_frame_of_another_size_than_expected_is_refused(store: Store) -> None:
    length = frames(store)[0].header.length
    with pytest.raises(BrokenFrameError, match=f"of {length + 8} bytes, found one of {length}"):
        list(frames_at(store.vfs, path(store), [(0, length + 8)]))


def test_reading_past_the_end_of_the_file_is_an_error_after_the_records(store: Store) -> None:
    with open_source(store.vfs, path(store), 1 << 20) as source:
        found = read_frames(source, 0, START, start=0, end=7, selection=Selection(("offset",)))
        assert [next(found).first_offset for _ in range(3)] == [0, 2, 4]
        with pytest.raises(BrokenFrameError, match="ends at offset 6") as caught:
            next(found)
    assert (caught.value.position, caught.value.offset) == (source.size, 6)


def test_end_offset_needs_no_walk_unless_the_last_length_is_wrong(
    store: Store, tmp_path: Path
) -> None:
    *_, last = frames(store)
    with open_source(store.vfs, path(store), 64) as source:
        assert (last_header(source), last_end_offset(source, 0)) == (last.header, 6)
    overwrite(segment(tmp_path), lambda data: data.__setitem__(-1, 1))
    with open_source(store.vfs, path(store), 64) as source:
        assert (last_header(source), last_end_offset(source, 0)) == (None, 6)


def test_sound_frames_after_damage_say_what_was_durable(store: Store, tmp_path: Path) -> None:
    first, second, _ = frames(store)
    overwrite(segment(tmp_path), lambda data: data.__setitem__(second.position + 70, 0xEE))
    vfs = PosixVfs(tmp_path)
    with open_source(vfs, path(store), 1 << 20) as source:
        assert recovery_point_after(source, 0, first.end_position) == 4
        assert recovery_point_after(source, 0, source.size) == 0
