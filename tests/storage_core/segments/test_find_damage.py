"""Where damage ends: what is intact after it is found, and nothing else is taken for a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.format.frame_scan import StoredFrame, segment_frames
from tests.support.stores import TOPIC, make_store, overwrite, segment

HEADER, BODY = 20, 100
"""A byte of each."""


def five_frames(store: Store) -> None:
    """Ten records in each."""
    for _ in range(5):
        store.append(TOPIC, 0, [b"x" * 20] * 10)


def two_segments(path: Path, **settings: Any) -> Store:
    """Offsets 0 to 49 in a sealed one, 50 to 99 in the active one; five frames in each."""
    store = make_store(path, **settings)
    five_frames(store)
    store.roll(TOPIC, 0)
    five_frames(store)
    return store


def frames(store: Store, base: int) -> list[StoredFrame]:
    (found,) = [each for each in store.segments(TOPIC, 0) if each.base == base]
    return list(segment_frames(store.vfs, found.path, base))


def damage(path: Path, store: Store, base: int, *places: tuple[int, int]) -> None:
    """Change one byte of each of the frames with these numbers."""
    stored = frames(store, base)
    for number, byte in places:
        at = stored[number].position + byte
        overwrite(segment(path, base), lambda data, at=at: data.__setitem__(at, data[at] ^ 1))  # type: ignore[misc]


def ranges(store: Store) -> list[tuple[int, int]]:
    return [(found.start, found.end) for found in store.damage(TOPIC, 0)]


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("base", [0, 50], ids=["sealed", "active"])
@pytest.mark.parametrize("byte", [0, HEADER, BODY, -1], ids=["magic", "header", "body", "trailer"])
def test_one_frame_is_found_alone(tmp_path: Path, base: int, byte: int, compression: str) -> None:
    store = two_segments(tmp_path, compression=compression)
    stored = frames(store, base)[2]
    place = (2, byte if byte >= 0 else stored.header.length - 2)
    damage(tmp_path, store, base, place)
    (found,) = store.damage(TOPIC, 0)
    assert (found.start, found.end) == (base + 20, base + 30)
    assert (found.position, found.size) == (stored.position, stored.header.length)
    assert not found.at_end


def test_nothing_is_found_in_a_sound_log_or_in_a_torn_tail(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    assert ranges(store) == []
    overwrite(segment(tmp_path, 50), lambda data: data.extend(b"CRSF torn"))
    assert ranges(store) == []


def test_neighbours_are_one_range_and_others_are_not(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    damage(tmp_path, store, 0, (0, BODY), (2, HEADER), (3, HEADER))
    damage(tmp_path, store, 50, (1, HEADER), (3, BODY))
    assert ranges(store) == [(0, 10), (20, 40), (60, 70), (80, 90)]


def test_the_last_frame_of_a_segment_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    damage(tmp_path, store, 0, (4, HEADER))
    damage(tmp_path, store, 50, (4, HEADER))
    first, second = store.damage(TOPIC, 0)
    assert (first.start, first.end, first.at_end) == (40, 50, False)
    assert (second.start, second.end, second.at_end) == (90, 100, True)


def test_a_file_that_is_cut_short_or_missing_lacks_a_range(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.roll(TOPIC, 0)
    five_frames(store)
    cut = frames(store, 0)[3].position + 30
    overwrite(segment(tmp_path, 0), lambda data: data.__delitem__(slice(cut, None)))
    segment(tmp_path, 50).unlink()
    assert ranges(store) == [(30, 100)]


def test_a_copy_of_a_frame_in_a_value_is_not_taken_for_a_frame(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    five_frames(store)
    copies = segment(tmp_path, 0).read_bytes()
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC)
    store.append(TOPIC, 0, [b"first"])
    # Aligned as frames are, with offsets that would do.
    store.append(TOPIC, 0, [bytes(shift) + copies for shift in range(8)])
    store.append(TOPIC, 0, [b"last"])
    damage(tmp_path, store, 0, (1, HEADER))
    assert ranges(store) == [(1, 9)]


def test_rows_of_a_typed_topic_are_found_too(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, schema=pa.schema([("id", pa.int64())]))
    for number in range(3):
        store.append_table(TOPIC, pa.table({"id": [number] * 10}))
    damage(tmp_path, store, 0, (1, BODY))
    assert ranges(store) == [(10, 20)]
