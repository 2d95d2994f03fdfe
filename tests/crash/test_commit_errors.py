"""A commit in which the nth call fails, for every n: all or nothing, once, and never both.

What Spark does after a failed commit is done here too: it aborts. Then another process opens the
store and writes, the commit is repeated from new staging, and in the end the power is cut: what was
acknowledged must be durable whatever failed before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import CommitUnknownError, StorageError
from tests.crash.explorer.disk import lost
from tests.crash.explorer.invariants import (
    CONFIG,
    History,
    Transaction,
    World,
    check_recovered,
    look,
    new_store,
)
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError, FaultyVfs

Hook = Callable[[str, str], None]
COUNTS = {("t", 0): 5, ("t", 1): 1, ("u", 0): 1}


def prepared() -> tuple[MemoryVfs, History, Transaction]:
    """A store with records and a staged commit: one part becomes segments, two are appended."""
    vfs = new_store({"t": 2, "u": 1}, segment_bytes=4096, frame_bytes=1024)
    world = World(vfs, History(), CONFIG)
    world.append("t", 0, b"first")
    world.append("u", 0, b"second")
    staged = world.stage("app", 1, COUNTS, size=1200)
    assert sum(part.own_file for part in staged.parts) == 2
    return vfs, world.history, staged


def run(vfs: MemoryVfs, hook: Hook | None, staged: Transaction) -> tuple[Exception | None, int]:
    """Commit on failing files; the error, and how many calls were made."""
    faulty = FaultyVfs(vfs, hook=hook)
    store = Store(faulty, CONFIG)
    try:
        store.commit(staged.job, staged.parts, app=staged.app, version=staged.version)
    except StorageError as error:
        return error, len(faulty.calls)
    return None, len(faulty.calls)


def failing(nth: int, number: int, kind: str = "") -> Hook:
    """Fail the ``nth`` call whose kind begins so."""
    seen = 0

    def fail(called: str, path: str) -> None:
        nonlocal seen
        seen += called.startswith(kind)
        if seen == nth and called.startswith(kind):
            seen += 1
            raise OSError(number, os.strerror(number), path)

    return fail


def aftermath(
    vfs: MemoryVfs, history: History, staged: Transaction, error: Exception | None, *, abort: bool
) -> bool:
    """Everything that happens after a commit; return whether its records are there."""
    history = history.copy()
    history.transactions = (staged,)
    if abort:
        Store(vfs, CONFIG).abort(staged.job, app=staged.app)
    left = vfs.kill()
    world = World(left, history, CONFIG)
    for topic, partition in (("u", 0), ("t", 1), ("t", 0)):
        world.append(topic, partition, f"{topic}-{partition} after".encode())
    view = check_recovered(left, world.store, history)
    there = staged.values["t", 1][0] in view["t", 1][1]
    if error is None:
        assert there
    elif not isinstance(error, CommitUnknownError):
        assert not there, f"it was refused, not unknown: {error}"
    again = world.stage(staged.app, staged.version, COUNTS, size=1200)
    result = world.store.commit(again.job, again.parts, app=again.app, version=again.version)
    assert result.skipped == there
    cut = left.power_cut(lost, b"after the cut...")
    last = World(cut, history, CONFIG)
    for topic, partition in COUNTS:
        last.append(topic, partition, f"{topic}-{partition} in the end".encode())
    check_recovered(cut, last.store, history)
    assert [problem for problem in last.store.check() if problem.severity == "error"] == []
    assert left.listdir("staging") == []
    return there


@pytest.mark.long
@pytest.mark.row(8, 9, 40)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_any_failed_call_leaves_all_or_nothing(number: int) -> None:
    base, history, staged = prepared()
    _, total = run(base.kill(), None, staged)
    assert total > 200
    outcomes = {True: 0, False: 0}
    for nth in range(1, total + 1):
        vfs = base.kill()
        error, _ = run(vfs, failing(nth, number), staged)
        there = aftermath(vfs, history, staged, error, abort=nth % 2 == 0)
        outcomes[there] += 1
    assert min(outcomes.values()) > 20, outcomes


@pytest.mark.row(11)
def test_failed_sync_that_drops_the_pages_leaves_all_or_nothing() -> None:
    base, history, staged = prepared()
    counting: list[str] = []
    run(base.kill(), lambda kind, _: counting.append(kind), staged)
    for nth in range(1, counting.count("fsync") + 1):
        for abort in (False, True):
            vfs = base.kill()
            seen = 0

            def drop(kind: str, path: str, vfs: MemoryVfs = vfs, nth: int = nth) -> None:
                nonlocal seen
                seen += kind == "fsync"
                if kind == "fsync" and seen == nth:
                    vfs.top.files()[path].drop_pages()
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)

            error, _ = run(vfs, drop, staged)
            aftermath(vfs, history, staged, error, abort=abort)


def test_failed_sync_of_a_folder_that_forgets_its_names_leaves_all_or_nothing() -> None:
    base, history, staged = prepared()
    counting: list[str] = []
    run(base.kill(), lambda kind, _: counting.append(kind), staged)
    for nth in range(1, counting.count("fsync_dir") + 1):
        vfs = base.kill()
        error, _ = run(vfs, failing(nth, errno.EIO, "fsync_dir"), staged)
        aftermath(vfs, history, staged, error, abort=nth % 2 == 0)


@pytest.mark.parametrize("most", [1, 7, 700])
def test_short_writes_are_continued(most: int) -> None:
    vfs, history, staged = prepared()
    faulty = FaultyVfs(vfs, short_writes=most)
    store = Store(faulty, CONFIG)
    store.commit(staged.job, staged.parts, app=staged.app, version=staged.version)
    assert aftermath(vfs, history, staged, None, abort=True)


def test_any_failed_call_of_who_finishes_a_commit_leaves_all_or_nothing() -> None:
    """The committer dies with its intent durable; the next writer's nth call fails."""
    base, history, staged = prepared()
    dying = FaultyVfs(base, hook=dies_at("pwritev", "topics/t/1"))
    with pytest.raises(CrashError):
        Store(dying, CONFIG).commit(staged.job, staged.parts, app="app", version=1)
    counting = FaultyVfs(base.kill())
    Store(counting, CONFIG).append("u", 0, [])
    for nth in range(1, len(counting.calls) + 1, 2):
        vfs = base.kill()
        faulty = FaultyVfs(vfs, hook=failing(nth, errno.EIO))
        try:
            Store(faulty, CONFIG).append("u", 0, [])
        except StorageError:
            Store(vfs, CONFIG).abort(staged.job, app="app")
        assert aftermath(vfs, history, staged, None, abort=False)


def dies_at(kind: str, path: str) -> Hook:
    def die(called: str, at: str) -> None:
        if called == kind and path in at and at.endswith(".log"):
            raise CrashError(at)

    return die


@pytest.mark.row(8)
def test_full_disk_before_the_commit_point_says_that_nothing_was_added() -> None:
    base, _, staged = prepared()

    def full(kind: str, path: str) -> None:
        if kind == "pwritev" and "intents" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    error, _ = run(base, full, staged)
    assert type(error).__name__ == "DiskFullError"
    assert "no record was added" in str(error)
    before = look(base)
    result = Store(base, CONFIG).commit(staged.job, staged.parts, app="app", version=1)
    assert not result.skipped
    assert before[("t", 0)] == (0, [b"first"])


@pytest.mark.row(9)
def test_full_disk_after_the_commit_point_is_finished_when_there_is_space() -> None:
    base, history, staged = prepared()
    full = True

    def fill(kind: str, path: str) -> None:
        if full and kind == "pwritev" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    store = Store(FaultyVfs(base, hook=fill), StoreConfig(lock_timeout_ms=50))
    with pytest.raises(CommitUnknownError, match="No space"):
        store.commit(staged.job, staged.parts, app="app", version=1)
    with pytest.raises(CommitUnknownError, match="No space"):
        store.append("t", 1, [b"waits for the commit"])
    assert look(base)["t", 1] == (0, [])
    full = False
    store.append("t", 1, [b"t-1 again"])
    history.tried.add(b"t-1 again")
    assert aftermath(base, history, staged, None, abort=False)
