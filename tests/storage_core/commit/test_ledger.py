"""The ledger: committed versions as ranges, exact mode, files of earlier releases."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.commit.ledger import MAX_RANGES, VersionRanges, with_version
from storage_core.errors import DamagedMetadataError, StorageError
from storage_core.io import json_files
from storage_core.vfs import PosixVfs
from tests.support.cli_runner import done
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import columns_of, make_store, on, values

DAY = 20261116


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make_store(tmp_path / "log") as made:
        yield made


def commit(
    store: Store, version: int, *, exact: bool = False, app: str = "job"
) -> tuple[bool, int | None]:
    """Commit one record that says its version; whether it was skipped, and for which later one."""
    stage = store.stage(f"job-{version}-{exact}")
    stage.write("t", 0, columns_of([str(version).encode()]))
    parts = stage.finish()
    done = store.commit(f"job-{version}-{exact}", parts, app=app, version=version, exact=exact)
    return done.skipped, done.recorded


def entry_file(store: Store) -> Path:
    (found,) = Path(store.path).glob("meta/ledger/*.json")
    return found


def as_an_earlier_release(store: Store) -> None:
    """Write the entry without the field that is new."""
    path, vfs = entry_file(store), PosixVfs(store.path)
    name = str(path.relative_to(store.path))
    fields = json_files.read(vfs, name)
    assert fields is not None
    del fields["committed"]
    json_files.replace(vfs, name, fields)


def test_ranges_join_and_stay_apart() -> None:
    ranges: VersionRanges = ()
    for version in (5, 7, 6, 1, 9, 5):
        ranges = with_version(ranges, version)
    assert ranges == ((1, 1), (5, 7), (9, 9))


def test_the_number_of_ranges_is_bounded_and_no_version_is_forgotten() -> None:
    ranges: VersionRanges = ()
    for version in range(0, 4 * MAX_RANGES, 2):
        ranges = with_version(ranges, version)
    assert len(ranges) == MAX_RANGES
    assert ranges[0][0] == 0
    assert all(
        any(low <= version <= high for low, high in ranges)
        for version in range(0, 4 * MAX_RANGES, 2)
    )


def test_an_older_version_is_skipped_with_the_reason(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    assert commit(store, DAY) == (False, None)
    with caplog.at_level(logging.WARNING):
        assert commit(store, DAY - 1) == (True, DAY)
        assert commit(store, DAY) == (True, None)
    older, again = caplog.messages
    assert f"version {DAY - 1} of 'job' is not above the recorded {DAY} in t" in older
    assert f"version {DAY} of 'job' is already committed in t" in again
    assert values(store) == [str(DAY).encode()]


def test_exact_skips_only_what_was_committed(store: Store) -> None:
    for version in (DAY, DAY - 1, DAY + 3, DAY - 5):
        assert commit(store, version, exact=True) == (False, None)
        assert commit(store, version, exact=True) == (True, None)
    assert commit(store, DAY + 1) == (True, DAY + 3)
    assert [int(value) for value in values(store)] == [DAY, DAY - 1, DAY + 3, DAY - 5]
    (entry,) = store.ledger()
    assert (entry.version, entry.committed) == (
        DAY + 3,
        ((DAY - 5, DAY - 5), (DAY - 1, DAY), (DAY + 3, DAY + 3)),
    )


def test_versions_of_both_modes_count_for_exact(store: Store) -> None:
    for version in (1, 2, 5):
        commit(store, version)
    assert [commit(store, version, exact=True)[0] for version in range(7)] == [
        False, True, True, False, False, True, False,
    ]  # fmt: skip


def test_an_entry_of_an_earlier_release_counts_every_version_up_to_its_last(store: Store) -> None:
    commit(store, DAY)
    as_an_earlier_release(store)
    (entry,) = store.ledger()
    assert entry.committed is None
    assert commit(store, DAY - 1, exact=True)[0]
    assert commit(store, DAY + 2, exact=True) == (False, None)
    assert commit(store, DAY - 1, exact=True)[0]
    assert commit(store, DAY + 1, exact=True) == (False, None)


@pytest.mark.parametrize("bad", ["x", [], [[2, 1]], [[1, 2], [3, 4]], [[1]], [["1", 2]], [1]])
def test_damaged_ranges_are_refused(store: Store, bad: object) -> None:
    commit(store, 1)
    vfs, name = PosixVfs(store.path), str(entry_file(store).relative_to(store.path))
    fields = json_files.read(vfs, name)
    assert fields is not None
    json_files.replace(vfs, name, {**fields, "committed": bad})
    with pytest.raises(DamagedMetadataError):
        store.ledger()
    with pytest.raises(DamagedMetadataError):
        commit(store, 2)


@pytest.mark.slow
def test_an_exact_commit_of_an_older_version_survives_a_crash_at_every_call(
    tmp_path: Path,
) -> None:
    at, finished = 0, False
    while not finished:
        path = tmp_path / str(at)
        with make_store(path) as store:
            commit(store, 9)
        vfs = faulty(path)
        vfs.real_syncs, vfs.crash_after = False, at
        store = on(vfs)
        try:
            commit(store, 4, exact=True)
            finished = True
        except CrashError:
            pass
        with Store.open(path) as after:
            commit(after, 4, exact=True)
            assert sorted(map(int, values(after))) == [4, 9], at
            (entry,) = after.ledger()
            assert entry.committed == ((4, 4), (9, 9))
        at += 1
    assert at > 10


def test_an_earlier_release_refuses_the_intent_of_an_exact_commit(tmp_path: Path) -> None:
    """It would take the older version for committed, and drop the records."""
    with make_store(tmp_path) as store:
        commit(store, 9)
    vfs = faulty(tmp_path)
    vfs.fail("pwritev", 5, path="watermark")
    with pytest.raises(StorageError):
        commit(on(vfs), 4, exact=True)
    (intent,) = (tmp_path / "meta" / "intents").glob("*.json")
    assert '"format": 2' in intent.read_text()
    with Store.open(tmp_path, config=StoreConfig()) as store:
        store.repair()
        assert sorted(map(int, values(store))) == [4, 9]


def test_the_command_shows_what_is_recorded(store: Store) -> None:
    for version in (1, 2, 5):
        commit(store, version, app="daily")
    commit(store, 7, app="other")
    store.append("t", 0, [b"x"])
    daily, other = done("ledger", store.path, "--json").json
    assert (daily["app"], daily["topic"], daily["version"]) == ("daily", "t", 5)
    assert (daily["committed"], daily["deleted"]) == ([[1, 2], [5, 5]], False)
    assert other["app"] == "other"
    shown = done("ledger", store.path, "--app", "daily").out
    assert "1 to 2, 5" in shown
    assert "other" not in shown
    store.delete_topic("t")
    assert "t (deleted)" in done("ledger", store.path).out
    assert done("ledger", store.path, "--topic", "u", "--json").json == []
