"""The file ``times``: lookups by time cost the same for many segments, and it is never believed
where it could be wrong."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from storage_core.errors import StorageError
from storage_core.segments.segment_times import SegmentTimes, add_times, read_times
from storage_core.types import TimeBounds
from storage_core.vfs import PosixVfs
from tests.support.faulty_vfs import faulty
from tests.support.sizes import examples
from tests.support.stores import T0, TOPIC, columns_of, errors, make_store, on, reopen

SEGMENTS = f"topics/{TOPIC}/0/segments"
SMALL: dict[str, Any] = {"segment_bytes": 4096, "frame_records": 2}


def file_of(path: Path) -> Path:
    return path / f"topics/{TOPIC}/0/times"


def known(path: Path) -> dict[tuple[int, int], TimeBounds]:
    return read_times(PosixVfs(path), SEGMENTS)


def fill(store: Store, stamps: list[int]) -> None:
    """One segment for each few records."""
    store.append(TOPIC, 0, [bytes(800)] * len(stamps), timestamps=[T0 + at for at in stamps])


def answers(store: Store, moments: range) -> list[tuple[int | None, int | None]]:
    return [
        (store.offset_for_timestamp(TOPIC, 0, T0 + at), store.end_of_older(TOPIC, 0, T0 + at))
        for at in moments
    ]


def right(stamps: list[int], moments: range) -> list[tuple[int | None, int | None]]:
    return [
        (
            next((at for at, stamp in enumerate(stamps) if stamp >= moment), None),
            next((at + 1 for at in reversed(range(len(stamps))) if stamps[at] < moment), None),
        )
        for moment in moments
    ]


def test_the_first_lookup_opens_as_many_files_in_many_segments_as_in_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(vfs: PosixVfs, path: str, *arguments: Any) -> Any:
            counted[path.rpartition(".")[2] if "/segments/" in path else "other"] += 1
            return method(vfs, path, *arguments)

        return call

    costs = []
    for count in (20, 400):
        path = tmp_path / str(count)
        with make_store(path, **SMALL) as store:
            fill(store, list(range(4 * count)))
        assert len(known(path)) == count - 1
        for method in ("open", "stat"):
            monkeypatch.setattr(PosixVfs, method, counting(getattr(PosixVfs, method)))
        for lookup in (Store.offset_for_timestamp, Store.end_of_older):
            with reopen(path) as store:
                counted.clear()
                assert lookup(store, TOPIC, 0, T0 + 2 * count + 1) is not None
                costs.append(dict(counted))
        monkeypatch.undo()
    assert costs[:2] == costs[2:]
    assert all(sum(cost.values()) <= 16 for cost in costs), costs


@pytest.mark.parametrize("seed", range(examples(10)))
def test_answers_do_not_depend_on_the_file(tmp_path: Path, seed: int) -> None:
    chance, moments = random.Random(seed), range(0, 130, 3)
    stamps = [at + chance.randrange(9) for at in range(120)]
    with make_store(tmp_path, **SMALL) as store:
        fill(store, stamps)
        expected = right(stamps, moments)
        assert answers(store, moments) == expected
    assert answers(reopen(tmp_path), moments) == expected
    whole = file_of(tmp_path).read_bytes()
    for damaged in (
        whole[: chance.randrange(len(whole))],
        bytes(each ^ (chance.random() < 0.01) for each in whole),
        whole[40:],
    ):
        file_of(tmp_path).write_bytes(damaged)
        assert answers(reopen(tmp_path), moments) == expected
    file_of(tmp_path).unlink()
    assert answers(reopen(tmp_path), moments) == expected


def test_every_row_says_what_the_segment_has(tmp_path: Path) -> None:
    with make_store(tmp_path, **SMALL) as store:
        fill(store, [5, 3, 9, 1, 7, 7, 2, 8, 6, 4])
        stage = store.stage("job", compression="none")
        stage.write(TOPIC, 0, columns_of([bytes(5 << 20)]))
        store.commit("job", stage.finish())
        fill(store, [30])
        sealed = [each for each in store.segments(TOPIC, 0) if each.sealed]
        found = store.time_bounds(TOPIC, 0, sealed)
    rows = known(tmp_path)
    assert len(sealed) >= 3
    file_of(tmp_path).unlink()
    again = reopen(tmp_path)
    by_index = again.time_bounds(TOPIC, 0, again.segments(TOPIC, 0)[:-1])
    assert found == by_index
    assert [rows[each.base, each.end] for each in sealed] == found


def test_what_a_failed_append_had_sealed_is_not_believed(tmp_path: Path) -> None:
    make_store(tmp_path, **SMALL).close()
    vfs = faulty(tmp_path)
    vfs.fail("pwritev", errno.ENOSPC, nth=7, path=".log")
    store = on(vfs)
    with pytest.raises(StorageError):
        fill(store, list(range(100, 140)))
    assert known(tmp_path) == {}
    stamps = list(range(40))
    fill(store, stamps)
    moments = range(0, 150, 7)
    assert answers(reopen(tmp_path), moments) == right(stamps, moments)
    assert all(bounds.largest < T0 + 40 for bounds in known(tmp_path).values())


def test_a_topic_without_syncs_has_none_and_reads_none(tmp_path: Path) -> None:
    stamps, moments = list(range(40)), range(0, 50, 7)
    with make_store(tmp_path, fsync="none", **SMALL) as store:
        fill(store, stamps)
    assert not file_of(tmp_path).exists()
    bases = [each.base for each in reopen(tmp_path).segments(TOPIC, 0)]
    wrong = [SegmentTimes(base, following, TimeBounds(0, 1)) for base, following in pairwise(bases)]
    add_times(PosixVfs(tmp_path), SEGMENTS, wrong)
    assert answers(reopen(tmp_path), moments) == right(stamps, moments)


def test_rows_wait_until_their_records_are_published(tmp_path: Path) -> None:
    with make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000, **SMALL) as store:
        fill(store, [0])
        fill(store, list(range(40)))
        assert known(tmp_path) == {}
        store.flush()
        assert len(known(tmp_path)) == len(store.segments(TOPIC, 0)) - 1


def test_merged_segments_are_found_by_their_own_index(tmp_path: Path) -> None:
    stamps, moments = list(range(60)), range(0, 70, 5)
    with make_store(tmp_path, merge_below_bytes=8000, **SMALL) as store:
        fill(store, stamps)
        store.alter_topic(TOPIC, segment_bytes=100_000)
        store.merge(TOPIC)
        assert answers(store, moments) == right(stamps, moments)
    again = reopen(tmp_path)
    assert len(again.segments(TOPIC, 0)) < len(known(tmp_path))
    assert answers(again, moments) == right(stamps, moments)
    assert errors(again) == []


def test_rows_of_segments_that_are_gone_do_not_pile_up(tmp_path: Path) -> None:
    with make_store(tmp_path, **SMALL) as store:
        fill(store, list(range(40)))
    live = known(tmp_path)
    gone = [SegmentTimes(10**6 + at, 10**6 + at + 1, TimeBounds(0, 1)) for at in range(3000)]
    add_times(PosixVfs(tmp_path), SEGMENTS, gone)
    assert known(tmp_path) == live


def test_what_is_no_file_does_not_fail_the_append(tmp_path: Path) -> None:
    with make_store(tmp_path, **SMALL) as store:
        file_of(tmp_path).symlink_to(tmp_path / "elsewhere")
        fill(store, list(range(40)))
        assert store.offsets(TOPIC, 0).end == 40
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_does_not_fail_the_append(tmp_path: Path) -> None:
    make_store(tmp_path, **SMALL).close()
    vfs = faulty(tmp_path)
    vfs.fail("open:create", errno.ENOSPC, times=100, path="/times")
    store = on(vfs)
    fill(store, list(range(40)))
    assert known(tmp_path) == {}
    assert answers(store, range(3, 6)) == right(list(range(40)), range(3, 6))
