"""Another program appends while a commit of ours is interrupted: its records are never cut.

The story of each test: a commit is killed while it is applied, a broker starts, cuts a torn record
and appends whole ones, and then our next writer comes.
"""

from __future__ import annotations

import errno
import shutil
from itertools import count
from pathlib import Path

import pytest

from storage_core import StagedPart, StorageError, Store, StoreConfig
from storage_core.errors import CommitUnknownError, ForeignRecordsError, InvalidCommitError
from tests.support.brokers.broker_directories import foreign_append
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import TOPIC, columns_of, tree, values

CONFIG = StoreConfig(segment_bytes=4096)
BEFORE = [b"before %d" % number for number in range(3)]
OURS = [b"ours %d " % number * 40 for number in range(30)]
THEIRS = [b"theirs %d" % number for number in range(5)]
PARTITIONS = 2


def make(root: Path, layout: str, before: list[bytes]) -> None:
    with Store.open(root, layout=layout, create=True, config=CONFIG) as store:
        store.create_topic(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            if before:
                store.append(TOPIC, partition, before)


def staged(store: Store) -> list[StagedPart]:
    stage = store.stage("job")
    for partition in range(PARTITIONS):
        stage.write(TOPIC, partition, columns_of(OURS))
    return stage.finish()


def killed_commit(root: Path, layout: str, changes: int) -> bool:
    """Commit to all partitions and crash after a number of changes; whether it was killed."""
    vfs = faulty(root)
    store = Store(vfs, CONFIG, layout)
    parts = staged(store)
    vfs.crash_after, vfs.real_syncs = vfs.changes + changes, False
    try:
        store.commit("job", parts, app="app", version=1)
    except (CrashError, CommitUnknownError):
        return True
    return False


def records(root: Path, layout: str, partition: int) -> list[bytes]:
    """All whole records in the files, whatever our intents say."""
    copy = root.parent / f"{root.name}.copy"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".cursus-spark"))
    try:
        with Store.open(copy, layout=layout, config=CONFIG) as store:
            return values(store, partition)
    finally:
        shutil.rmtree(copy)


LAYOUTS = ["cursus", "cursus-broker", "rustlog"]


@pytest.mark.slow
@pytest.mark.parametrize("partition", range(PARTITIONS))
@pytest.mark.parametrize("before", [BEFORE, []], ids=["before", "empty"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_records_of_another_program_survive_every_kill(
    tmp_path: Path, layout: str, before: list[bytes], partition: int
) -> None:
    """Killed after every change; the other program appends to one partition."""
    original = tmp_path / "original"
    make(original, layout, before)
    refused = 0
    for changes in count():
        root = tmp_path / str(changes)
        shutil.copytree(original, root)
        crashed = killed_commit(root, layout, changes)
        foreign_append(root, layout, partition, THEIRS)
        kept = records(root, layout, partition)
        assert kept[-len(THEIRS) :] == THEIRS
        refused += next_writer_keeps(root, layout, partition, kept)
        shutil.rmtree(root)
        if not crashed:
            break
    assert refused > 10


def next_writer_keeps(root: Path, layout: str, partition: int, kept: list[bytes]) -> bool:
    """Our next writer keeps every record; whether it refused to finish the commit."""
    with Store.open(root, layout=layout, config=CONFIG) as store:
        refusal: ForeignRecordsError | None = None
        try:
            store.append(TOPIC, partition, [b"next"])
        except ForeignRecordsError as error:
            refusal = error
        if refusal is not None:
            assert (refusal.topic, refusal.partition) == (TOPIC, partition)
            assert "cursus pending" in str(refusal)
            assert records(root, layout, partition) == kept
            assert len(values(store, partition)) <= len(kept)  # reads go on
            return True
    found = records(root, layout, partition)
    assert [value for value in found if value in THEIRS] == THEIRS
    assert found[-1] == b"next"
    return False


def failed_commit(tmp_path: Path, layout: str, before: list[bytes], *, write: int) -> Path:
    """A commit whose nth write to a log fails: it is decided and not finished."""
    root = tmp_path / "log"
    make(root, layout, before)
    vfs = faulty(root)
    store = Store(vfs, CONFIG, layout)
    parts = staged(store)
    vfs.fail("pwritev", errno.EIO, path=".log", nth=write)
    with pytest.raises(CommitUnknownError):
        store.commit("job", parts, app="app", version=1)
    return root


def interrupted(tmp_path: Path, layout: str) -> Path:
    """A commit that was interrupted in its second partition, and a broker that went on there."""
    root = failed_commit(tmp_path, layout, BEFORE, write=5)
    foreign_append(root, layout, 1, THEIRS)
    with Store.open(root, layout=layout, config=CONFIG) as store:
        with pytest.raises(ForeignRecordsError):
            store.append(TOPIC, 1, [b"next"])
        with pytest.raises(ForeignRecordsError):
            store.repair()
    return root


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rest_of_the_commit_is_appended_after_them(tmp_path: Path, layout: str) -> None:
    root = interrupted(tmp_path, layout)
    with Store.open(root, layout=layout, config=CONFIG) as store:
        (pending,) = store.pending_commits()
        assert (pending.app, pending.version) == ("app", 1)
        assert pending.records == {(TOPIC, 0): len(OURS), (TOPIC, 1): len(OURS)}
        store.finish_commit(pending.transaction)
        assert store.pending_commits() == []
        assert values(store, 0) == [*BEFORE, *OURS]
        found = values(store, 1)
        assert [value for value in found if value in OURS] == OURS
        assert [value for value in found if value in THEIRS] == THEIRS
        assert len(found) == len(BEFORE) + len(OURS) + len(THEIRS)
        again = store.stage("again")
        again.write(TOPIC, 0, columns_of(OURS))
        assert store.commit("again", again.finish(), app="app", version=1).skipped
        store.append(TOPIC, 1, [b"next"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_commit_is_given_up(tmp_path: Path, layout: str) -> None:
    root = interrupted(tmp_path, layout)
    kept = [records(root, layout, partition) for partition in range(PARTITIONS)]
    with Store.open(root, layout=layout, config=CONFIG) as store:
        (pending,) = store.pending_commits()
        store.give_up_commit(pending.transaction)
        assert store.pending_commits() == []
        assert [values(store, partition) for partition in range(PARTITIONS)] == kept
        again = store.stage("again")
        again.write(TOPIC, 0, columns_of([b"again"]))
        assert not store.commit("again", again.finish(), app="app", version=1).skipped


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_finishing_after_them_may_be_killed_before_any_change(tmp_path: Path, layout: str) -> None:
    original = interrupted(tmp_path, layout)
    for changes in count():
        root = tmp_path / str(changes)
        shutil.copytree(original, root)
        vfs = faulty(root)
        store = Store(vfs, CONFIG, layout)
        (first,) = store.pending_commits()
        vfs.crash_after, vfs.real_syncs = changes, False
        crashed = False
        try:
            store.finish_commit(first.transaction)
        except (CrashError, CommitUnknownError):
            crashed = True
        with Store.open(root, layout=layout, config=CONFIG) as after:
            for pending in after.pending_commits():
                if pending.transaction == first.transaction:
                    after.finish_commit(pending.transaction)
            after.repair()
            found = values(after, 1)
            assert [value for value in found if value in OURS] == OURS
            assert [value for value in found if value in THEIRS] == THEIRS
            assert values(after, 0) == [*BEFORE, *OURS]
        shutil.rmtree(root)
        if not crashed:
            break
    assert changes > 10


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_than_the_commit_adds_to_an_empty_log_drops_no_commit(
    tmp_path: Path, layout: str
) -> None:
    root = failed_commit(tmp_path, layout, [], write=1)
    theirs = [b"%d" % number * 400 for number in range(50)]
    foreign_append(root, layout, 1, theirs)
    with Store.open(root, layout=layout, config=CONFIG) as after:
        with pytest.raises(ForeignRecordsError):
            after.append(TOPIC, 0, [b"next"])
        (pending,) = after.pending_commits()
        after.finish_commit(pending.transaction)
        assert [values(after, partition) for partition in (0, 1)] == [OURS, [*theirs, *OURS]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_failed_read_of_the_staging_closes_no_partition(tmp_path: Path, layout: str) -> None:
    root = failed_commit(tmp_path, layout, BEFORE, write=5)
    vfs = faulty(root)
    after = Store(vfs, CONFIG, layout)
    vfs.fail("pread", errno.EIO, path="/staging/")
    with pytest.raises(CommitUnknownError):
        after.append(TOPIC, 0, [b"next"])
    after.append(TOPIC, 0, [b"next"])
    assert values(after, 0) == [*BEFORE, *OURS, b"next"]


def test_a_pending_commit_keeps_its_staging_from_a_job_of_its_name(tmp_path: Path) -> None:
    root = interrupted(tmp_path, "rustlog")
    with Store.open(root, config=CONFIG) as store:
        store.create_topic("other")
        stage = store.stage("job")
        stage.write("other", 0, columns_of([b"other"]))
        with pytest.raises(ForeignRecordsError):
            store.commit("job", stage.finish(), app="another")
        (pending,) = store.pending_commits()
        store.finish_commit(pending.transaction)
        assert values(store, 0) == [*BEFORE, *OURS]


def test_a_commit_that_waits_for_a_decision_stops_no_repair_elsewhere(tmp_path: Path) -> None:
    root = interrupted(tmp_path, "rustlog")
    with Store.open(root, config=CONFIG) as store:
        store.create_topic("other")
        store.append("other", 0, [b"whole"])
    (file,) = (path for path in root.rglob("*.log") if "other" in str(path))
    file.write_bytes(file.read_bytes() + b"\0\0\0")
    with Store.open(root, config=CONFIG) as store, pytest.raises(ForeignRecordsError):
        store.repair()
    assert not file.read_bytes().endswith(b"\0\0\0")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unknown_commit_is_named_and_changes_nothing(tmp_path: Path, layout: str) -> None:
    root = interrupted(tmp_path, layout)
    kept = tree(root)
    with Store.open(root, layout=layout, config=CONFIG) as store:
        (pending,) = store.pending_commits()
        for decide in (store.finish_commit, store.give_up_commit):
            with pytest.raises(InvalidCommitError, match=pending.transaction):
                decide("none")
    assert tree(root) == kept


def test_a_native_store_needs_no_decision(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    with store, pytest.raises(StorageError, match="the next writer"):
        store.give_up_commit("any")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torn_bytes_that_were_saved_are_never_replaced(tmp_path: Path, layout: str) -> None:
    """Torn twice at one place, as two programs leave it: both are kept, and each once."""
    make(tmp_path, layout, BEFORE)
    file = min(tmp_path.rglob("*.log"))
    for torn in (b"\0\0\0\x07a", b"\0\0\0\x07b", b"\0\0\0\x07b"):
        file.write_bytes(file.read_bytes() + torn)
        with Store.open(tmp_path, layout=layout, config=CONFIG) as store:
            store.repair()
    saved = sorted(path.read_bytes() for path in (tmp_path / ".cursus-spark/broken").iterdir())
    assert saved == [b"\0\0\0\x07a", b"\0\0\0\x07b"]
