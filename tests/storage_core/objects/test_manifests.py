"""Manifests: a store whose older slices stand in them reads as any other one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from storage_core import OffsetRange, Store
from storage_core.errors import DamagedMetadataError, OffsetOutOfRangeError, StorageError
from storage_core.objects import commit_log, document
from storage_core.objects.commit_log import CommitLog
from storage_core.objects.manifests.block import (
    BLOCK_SLICES,
    decode_block,
    encode_block,
    encode_manifest,
    joined,
)
from storage_core.objects.manifests.block import (
    columns_of as slice_columns,
)
from storage_core.objects.manifests.table import named, slices_in, table
from storage_core.objects.slices import Slice
from storage_core.objects.state import state_fields
from storage_core.objects.vfs_backend import VfsBackend
from storage_core.types import TimeBounds
from tests.support.counting import count_calls
from tests.support.faulty_vfs import FaultyVfs
from tests.support.objects.object_stores import later, on
from tests.support.objects.objects_world import with_manifests
from tests.support.stores import T0, TOPIC, columns_of, errors

_PARTITIONS = 3


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    with_manifests(monkeypatch)
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 3)


@pytest.fixture
def store(vfs: FaultyVfs) -> Iterator[Store]:
    with on(vfs) as found:
        found.create_topic(TOPIC, _PARTITIONS, segment_bytes=4096)  # a merge takes about ten
        yield found


def log_of(store: Store) -> CommitLog:
    found: CommitLog = store._engine._catalog.log(TOPIC)  # type: ignore[attr-defined]
    return found


def fill(store: Store, commits: int, begin: int = 0) -> None:
    """Commits of two records in each partition, a second apart."""
    for number in range(begin, begin + commits):
        stage = store.stage(f"job{number}")
        for partition in range(_PARTITIONS):
            stamps = [T0 + number * 10**6, T0 + number * 10**6 + 500_000]
            values = [b"%d-%d-%d" % (partition, number, each) for each in range(2)]
            stage.write(TOPIC, partition, columns_of(values, timestamps=stamps))
        store.commit(f"job{number}", stage.finish())


def expected(partition: int, commits: int) -> list[bytes]:
    return [b"%d-%d-%d" % (partition, n, each) for n in range(commits) for each in range(2)]


def read(store: Store, partition: int, start: int = 0, end: int | None = None) -> list[bytes]:
    return [v for b in store.read(TOPIC, partition, start, end) for v in b["value"].to_pylist()]


def test_every_read_and_lookup_is_the_same_with_manifests(store: Store, vfs: FaultyVfs) -> None:
    fill(store, 30)
    assert len(log_of(store).state().manifests) > 2
    for found in (store, on(vfs)):
        for partition in range(_PARTITIONS):
            values = expected(partition, 30)
            assert found.start_offset(TOPIC, partition) == 0
            for start in range(0, 60, 7):
                assert read(found, partition, start, 60) == values[start:]
                assert (
                    read(found, partition, start, min(start + 3, 60)) == values[start : start + 3]
                )
            for number in (0, 1, 13, 29):
                at = T0 + number * 10**6
                assert found.offset_for_timestamp(TOPIC, partition, at) == 2 * number
                assert found.offset_for_timestamp(TOPIC, partition, at + 1) == 2 * number + 1
                assert found.end_of_older(TOPIC, partition, at) == (2 * number or None)
            assert found.offset_for_timestamp(TOPIC, partition, T0 + 30 * 10**6) is None
            segments = found.segments(TOPIC, partition, by_names=True)
            assert [(each.base, each.end) for each in segments] == [
                (at, at + 2) for at in range(0, 60, 2)
            ]
            some = found.segments(TOPIC, partition, by_names=True, offsets=OffsetRange(20, 31))
            assert {each.base for each in some} >= set(range(20, 31, 2))
            bounds = found.time_bounds(TOPIC, partition, segments)
            assert [each and each[0] for each in bounds] == [T0 + n * 10**6 for n in range(30)]
    assert errors(on(vfs)) == []


@pytest.mark.slow
def test_maintenance_sees_all_slices(store: Store, vfs: FaultyVfs) -> None:
    fill(store, 20)
    store.merge(TOPIC)
    fill(store, 12, begin=20)
    store.delete_records(TOPIC, {2: 9})
    fill(store, 12, begin=32)
    store.recompress(TOPIC, compression="zstd")
    fill(store, 12, begin=44)
    for found in (store, on(vfs)):
        for partition in range(_PARTITIONS):
            start = 9 if partition == 2 else 0
            assert found.start_offset(TOPIC, partition) == start
            assert read(found, partition, start) == expected(partition, 56)[start:]
        with pytest.raises(OffsetOutOfRangeError, match="starts at 9"):
            read(found, 2, 0)
    assert errors(on(vfs)) == []
    later(vfs, 3)
    assert on(vfs).collect_garbage()[0] > 0
    assert read(on(vfs), 1) == expected(1, 56)
    assert errors(on(vfs)) == []


def test_a_cold_reader_and_the_table_agree_with_the_writer(store: Store, vfs: FaultyVfs) -> None:
    fill(store, 23)
    store.merge(TOPIC)
    fill(store, 7, begin=23)
    cold = on(vfs)._engine._catalog.get(TOPIC)[1]  # type: ignore[attr-defined]
    warm = log_of(store).state()
    assert state_fields(cold) == state_fields(warm)
    for state in (cold, warm):
        wanted = [(n, each) for n, p in enumerate(state.partitions) for each in p.all()]
        found = sorted(each for part in table(state) for each in slices_in(part))
        assert found == sorted(wanted)
        times = TimeBounds(T0 + 5 * 10**6, T0 + 6 * 10**6)
        some = sorted(each for part in table(state, times) for each in slices_in(part))
        assert some == sorted(
            (n, each)
            for n, each in wanted
            if each.largest >= times.smallest and each.smallest <= times.largest
        )
        keys = {each.key for _, each in wanted} | {each.key for each in state.manifests}
        assert named(state, [*keys, "data/none", "logs/none"]) == keys
        assert named(state, list(keys), most=0) is None


def test_a_reader_whose_manifests_are_gone_takes_the_new_ones(store: Store, vfs: FaultyVfs) -> None:
    fill(store, 12)
    reader = on(vfs)
    assert read(reader, 0, 20) == expected(0, 12)[20:]
    fill(store, 30, begin=12)
    later(vfs, 3)
    store.collect_garbage()
    with reader.reading_once():
        assert read(reader, 0, 0, 24) == expected(0, 12)
        assert len(reader.segments(TOPIC, 1, by_names=True)) == 12 + 30


def test_a_missing_or_damaged_manifest_is_named(store: Store, vfs: FaultyVfs) -> None:
    fill(store, 30)
    first = log_of(store).state().manifests[0].key
    path = Path(vfs.root) / first
    data = bytearray(path.read_bytes())
    path.chmod(0o600)
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedMetadataError, match=first):
        read(on(vfs), _PARTITIONS - 1)
    path.unlink()
    with pytest.raises(DamagedMetadataError, match=first):
        read(on(vfs), 0)
    assert read(on(vfs), 0, 58) == expected(0, 30)[58:], "the newest records need no manifest"
    assert any(first in str(each) for each in errors(on(vfs)))


def test_a_move_that_a_rewrite_overtook_is_given_up(store: Store, vfs: FaultyVfs) -> None:
    """The new manifests hold what was replaced since: they must not become the archive."""
    fill(store, 4)
    backend = log_of(store).backend
    put, met = backend.put, Counter[str]()

    def late(key: str, data: Any) -> None:
        put(key, data)
        if key.endswith(".manifest") and not met[""]:
            met[""] += 1
            store_of_another = on(vfs)
            store_of_another.merge(TOPIC)

    backend.put = late  # type: ignore[method-assign]
    fill(store, 20, begin=4)
    assert met[""]
    later(vfs, 3)
    on(vfs).collect_garbage()
    for partition in range(_PARTITIONS):
        assert read(on(vfs), partition) == expected(partition, 24)


def test_a_crashed_move_leaves_only_garbage(store: Store, vfs: FaultyVfs) -> None:
    backend = log_of(store).backend
    create = backend.create

    def fails(key: str, data: Any) -> None:
        if "manifests" in document.decode("commit", memoryview(b"".join(data)), key).fields:
            raise PermissionError(13, "crashed before the commit")
        create(key, data)

    backend.create = fails  # type: ignore[method-assign]
    fill(store, 12)
    backend.create = create  # type: ignore[method-assign]
    assert log_of(store).state().manifests == ()
    manifests = list(Path(vfs.root).glob("data/*/*.manifest"))
    assert manifests
    later(vfs, 3)
    on(vfs).collect_garbage()
    assert not any(each.exists() for each in manifests)
    assert read(on(vfs), 0) == expected(0, 12)


@pytest.mark.row(45)
def test_a_move_that_slept_commits_no_manifest_that_is_deleted(
    store: Store, vfs: FaultyVfs
) -> None:
    backend = log_of(store).backend
    create, met = backend.create, list[str]()

    def late(key: str, data: Any) -> None:
        fields = document.decode("commit", memoryview(b"".join(data)), key).fields
        if "manifests" in fields and not met:
            met.append(key)
            later(vfs, 3)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(commit_log, "CHECKPOINT_INTERVAL", 1000)
                assert on(vfs).collect_garbage()[0] > 0
        create(key, data)

    backend.create = late  # type: ignore[method-assign]
    fill(store, 4)
    assert met
    for found in (store, on(vfs)):
        assert read(found, 1) == expected(1, 4)
    assert errors(on(vfs)) == []


def test_a_slice_that_reaches_into_the_next_manifest_is_whole(store: Store, vfs: FaultyVfs) -> None:
    """Merged slices begin in one manifest and end in another; then both are written again."""
    fill(store, 9)
    ends = [each.end(0) for each in log_of(store).state().manifests]
    store.merge(TOPIC)
    (merged, *_) = log_of(store).state().partitions[0].loaded()
    assert any(merged.base < end < merged.end for end in ends)
    for number in range(9, 60):
        fill(store, 1, begin=number)
        cold, values = on(vfs), expected(0, number + 1)
        assert read(cold, 0) == values
        for start in range(number % 5, 2 * number, 5):
            assert read(cold, 0, start, start + 1) == values[start : start + 1]
    assert errors(on(vfs)) == []


def random_slices(random: Random, count: int) -> list[tuple[int, Slice]]:
    found = []
    for partition in range(7):
        base = 0
        for _ in range(count // 7):
            end = base + random.randrange(1, 1 << 40)
            numbers = [random.randrange(-(1 << 62), 1 << 62) for _ in range(8)]
            found.append((partition, Slice(base, end, f"data/{random.randrange(9)}", *numbers)))
            base = end
    return found


def test_the_bytes_of_slices_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = random_slices(Random(1), 3 * BLOCK_SLICES)
    buffers, blocks = encode_manifest("log", slice_columns(found))
    data = memoryview(b"".join(bytes(each) for each in buffers))
    parts = [decode_block(data[at : at + size], "m") for at, size in blocks[:, :2].tolist()]
    assert [each for part in parts for each in slices_in(part)] == found
    assert list(slices_in(joined(parts[::-1]))) == found
    assert int(blocks[:, 4].sum()) == len(found)
    assert len(blocks) > 2


def test_no_damaged_byte_of_a_block_is_believed() -> None:
    data = encode_block(slice_columns(random_slices(Random(2), 21)))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(DamagedMetadataError):
            decode_block(memoryview(damaged), "m")
    for size in range(len(data)):
        with pytest.raises(DamagedMetadataError):
            decode_block(memoryview(data)[:size], "m")


def test_a_lookup_ends_although_the_topic_is_deleted_meanwhile(
    store: Store, vfs: FaultyVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 40)
    reading = on(vfs)
    (first, *_), true = log_of(reading).state().manifests, VfsBackend.get_ranges
    deleted = list[str]()

    def late(backend: VfsBackend, key: str, ranges: Any = None) -> Any:
        if key == first.key and not deleted:
            deleted.append(key)
            on(vfs).delete_topic(TOPIC)
            later(vfs, 3)
            assert on(vfs).collect_garbage()[0] > 0
        return true(backend, key, ranges)

    monkeypatch.setattr(VfsBackend, "get_ranges", late)
    with pytest.raises(StorageError, match="manifest"):
        reading.offset_for_timestamp(TOPIC, 0, T0)
    assert deleted == [first.key]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts every read and listing of the seam, as an object store gets them."""
    monkeypatch.setattr(VfsBackend, "lists_whole", False)
    return count_calls(monkeypatch, VfsBackend, ("get_ranges", "list_after"))


def test_lookups_in_a_log_with_manifests_cost_few_requests(
    store: Store, vfs: FaultyVfs, requests: Counter[str]
) -> None:
    fill(store, 40)
    cold = on(vfs)
    assert cold.visible_ends(TOPIC) == (80,) * _PARTITIONS
    requests.clear()
    with cold.reading_once():
        assert cold.offset_for_timestamp(TOPIC, 1, T0 + 20 * 10**6) == 40
        # The poll of the step, the block of the manifest, the frames.
        assert requests == {"get_ranges": 3}
        requests.clear()
        assert cold.offset_for_timestamp(TOPIC, 1, T0 + 20 * 10**6 + 1) == 41
        assert requests == {"get_ranges": 1}, "warm"
        requests.clear()
        assert read(cold, 1, 41, 42) == [b"1-20-1"]
        assert requests == {"get_ranges": 1}
    requests.clear()
    assert cold.start_offset(TOPIC, 2) == 0
    assert read(cold, 2, 79, 80) == [b"2-39-1"], "the newest records need no manifest"
    assert requests["get_ranges"] <= 3


def test_opening_costs_the_same_however_long_the_log_is(
    store: Store, vfs: FaultyVfs, requests: Counter[str]
) -> None:
    counts = []
    for number in range(3):
        fill(store, 30, begin=30 * number)
        requests.clear()
        size = 60 * (number + 1)
        cold = on(vfs)
        assert read(cold, 0, size - 1, size) == [b"0-%d-1" % (size // 2 - 1)]
        counts.append(sum(requests.values()))
    assert max(counts) - min(counts) <= 3
    loaded = sum(each.count for each in log_of(store).state().partitions)
    assert loaded < 30
    assert np.all(np.diff([each.end(0) for each in log_of(store).state().manifests]) > 0)
