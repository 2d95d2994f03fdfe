"""Readers and planners that never stop while a log is written, merged, compacted and cut."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DataLossError, OffsetOutOfRangeError
from tests.support.stores import TOPIC, reopen

ROUNDS = 12
KEYS = 4


class Watcher:
    """Reads again and again, through a store of its own, until it is asked to stop."""

    def __init__(self, path: Path, look: Callable[[Store], None]) -> None:
        self.looks = 0
        self.error: BaseException | None = None
        self._store, self._look = reopen(path, map_cache_segments=2, index_cache_segments=2), look
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set() and self.error is None:
            try:
                self._look(self._store)
                self.looks += 1
            except BaseException as error:
                self.error = error

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def check_records(found: list[tuple[int, bytes | None, bytes]], end: int) -> None:
    """Offsets rise, each value is the one of its offset, and no key lacks its last record."""
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert all(value == b"%d" % offset for offset, _, value in found)
    last = {offset % KEYS: offset for offset in range(end)}
    missing = set(last.values()) - set(offsets)
    assert not missing, f"{missing} of {end} are missing"


def read_all(store: Store) -> None:
    end = store.offsets(TOPIC, 0).end
    found = []
    for batch in store.read(TOPIC, 0, end=end):
        columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
        found += list(zip(*columns, strict=True))
    check_records(found, end)


def read_planned(store: Store) -> None:
    """As Spark does: plan once, read every piece later, from another place perhaps.

    What was appended since the end was asked for is not planned.
    """
    end = store.offsets(TOPIC, 0).end
    listed = [info for info in store.segments(TOPIC, 0) if info.base < end]
    plan = [(info, info.base, min(info.end, end)) for info in listed]
    assert plan[-1][2] == end
    assert all(one[2] == two[1] for one, two in itertools.pairwise(plan))
    for info, _, _ in plan:
        store.index_entries(TOPIC, 0, info)
    found = []
    for batch in store.read_slices(TOPIC, 0, plan):
        columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
        found += list(zip(*columns, strict=True))
    check_records(found, end)


def look_up(store: Store) -> None:
    """The time index and single offsets."""
    end = store.offsets(TOPIC, 0).end
    if not end:
        return
    found = store.offset_for_timestamp(TOPIC, 0, 1_000_000 + end - 1)
    assert found is None or found >= end - 1, (found, end)
    batch = next(iter(store.read(TOPIC, 0, start=end - 1, end=end)))
    assert batch.column("value").to_pylist() == [b"%d" % (end - 1)]


def append(store: Store, count: int) -> None:
    first = store.offsets(TOPIC, 0).end
    numbers = range(first, first + count)
    store.append(
        TOPIC,
        0,
        [b"%d" % number for number in numbers],
        keys=[b"k%d" % (number % KEYS) for number in numbers],
        timestamps=[1_000_000 + number for number in numbers],
    )
    store.roll(TOPIC, 0)


@pytest.mark.slow
def test_nobody_misses_or_sees_twice_what_stays(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, cleanup_policy="compact", frame_records=3, index_interval_bytes=0)
    append(store, 7)
    watchers = [Watcher(tmp_path, look) for look in (read_all, read_planned, look_up)]
    for number in range(ROUNDS):
        append(store, 1 + number % 9)
        append(store, 2)
        if number % 3 == 0:
            store.recompress(TOPIC, compression="lz4" if number % 2 else "none")
        if number % 2 == 0:
            store.merge(TOPIC)
        if number % 5 == 0:
            store.compact(TOPIC, min_dirty_ratio=0)
    for watcher in watchers:
        watcher.finish()
        assert watcher.looks > 3
    read_all(store)
    assert store.check() == []


def test_a_reader_that_a_deletion_overtakes_learns_where_to_go_on(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, frame_records=2)
    append(store, 40)
    messages: list[str] = []

    def follow(reader: Store) -> None:
        start = reader.offsets(TOPIC, 0).start
        try:
            offsets = [
                offset
                for batch in reader.read(TOPIC, 0, start=start)
                for offset in batch.column("offset").to_pylist()
            ]
            assert offsets == list(range(start, start + len(offsets)))
        except (DataLossError, OffsetOutOfRangeError) as error:
            messages.append(str(error))

    watcher = Watcher(tmp_path, follow)
    for number in range(ROUNDS):
        append(store, 5)
        store.delete_records(TOPIC, {0: 3 * number + 1})
    watcher.finish()
    assert all("Continue from" in text or "Start in this range" in text for text in messages)
    assert store.offsets(TOPIC, 0).start == 3 * ROUNDS - 2
