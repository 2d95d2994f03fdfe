"""Seeded bugs of the commit log: the model has to find every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import StorageError
from storage_core.io.io_errors import write_failure
from storage_core.objects import collector, commit_log, document, garbage, names
from storage_core.objects.catalog import ObjectCatalog
from storage_core.objects.commit_log import CommitLog, Draft
from storage_core.objects.manifests import moving
from storage_core.objects.manifests import table as manifest_table
from storage_core.objects.state import Commit, LogState, PartitionState, commit_fields
from storage_core.objects.vfs_backend import TEMPORARY, VfsBackend
from tests.storage_core.objects import test_backends, test_commit_log, test_manifests, test_stalls
from tests.support.faulty_vfs import faulty
from tests.support.objects.objects_world import World, in_small, with_manifests
from tests.support.stores import TOPIC

_NoError = pytest.fail.Exception
Patch = Callable[[pytest.MonkeyPatch], None]
TROUBLE = {
    "others act": 0.07,
    "lost request": 0.03,
    "lost reply": 0.08,
    "delayed": 0.08,
    "delivery": 0.3,
    "overlap": 0.08,
    "repeated": 0.05,
    "read fails": 0.03,
    "hours pass": 0.3,
    "denied": 0.01,
    "collect": 0.25,
    "merge": 0.1,
    "trim": 0.05,
    "read": 0.3,
}


def on_log(name: str, replacement: Callable[..., Any]) -> Patch:
    return lambda patch: patch.setattr(CommitLog, name, replacement)


def create_as(decide: Callable[[CommitLog, str, str, list[Any]], bool | None]) -> Patch:
    """A ``_create`` that decides otherwise: True won, False lost, None try again."""

    def create(log: CommitLog, number: int, draft: Draft, ident: str) -> tuple[Commit | None, int]:
        key = log._key(number, ".commit")
        fields = {**commit_fields(draft.commit), "id": ident, "number": number}
        data = document.encode("commit", fields)
        until = log._patience.deadline()
        while log.clock.monotonic() < until:
            won = decide(log, key, ident, list(data))
            if won is not None:
                return (draft.commit if won else None), 0
            log._patience.wait(3)
        raise log._unknown(number, "mutant")

    return on_log("_create", create)


def exists_means_lost(log: CommitLog, key: str, _: str, data: list[Any]) -> bool | None:
    try:
        log.backend.create(key, data)
    except FileExistsError:
        return False
    except TimeoutError:
        return None
    return True


def exists_means_won(log: CommitLog, key: str, _: str, data: list[Any]) -> bool | None:
    try:
        log.backend.create(key, data)
    except FileExistsError:
        return True
    except TimeoutError:
        return None
    return True


def timeout_means_lost(log: CommitLog, key: str, ident: str, data: list[Any]) -> bool | None:
    try:
        log.backend.create(key, data)
    except FileExistsError:
        return log._id_of(key) == ident
    except TimeoutError:
        return False
    return True


def timeout_means_won(log: CommitLog, key: str, ident: str, data: list[Any]) -> bool | None:
    try:
        log.backend.create(key, data)
    except FileExistsError:
        return log._id_of(key) == ident
    except TimeoutError:
        return True
    return True


def put_instead(log: CommitLog, key: str, _: str, data: list[Any]) -> bool | None:
    log.backend.put(key, data)
    return True


def no_listing(log: CommitLog, *, use_hint: bool) -> tuple[LogState, list[int]]:
    del use_hint
    hint = log.hint()
    return (log._read_checkpoint(hint) if hint >= 0 else LogState()), []


def gaps_are_skipped(log: CommitLog, *, use_hint: bool) -> tuple[LogState, list[int]]:
    del use_hint
    keys = [info.key for info in log.backend.list_after(log.prefix)]
    commits, checkpoints = names.parse_listing(log.prefix, keys)
    base = log._read_checkpoint(checkpoints[-1]) if checkpoints else LogState()
    return base, [number for number in commits if number > base.number]


def delete_one_more(patch: pytest.MonkeyPatch) -> None:
    true = names.parse_listing

    def shifted(prefix: str, keys: Any) -> tuple[list[int], list[int]]:
        commits, checkpoints = true(prefix, keys)
        return commits, [number + 1 for number in checkpoints]

    patch.setattr(garbage, "parse_listing", shifted)
    patch.setattr(garbage, "_last_old", lambda _, numbers, __: numbers[-1] if numbers else None)


def no_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogState, "has_version", lambda *_, **__: False)


def ledger_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogState, "_recorded", lambda state, *_: state.ledger)


def shared_list(patch: pytest.MonkeyPatch) -> None:
    def appended(state: PartitionState, added: Sequence[Any]) -> PartitionState:
        end = state.end
        for each in added:
            state.slices.append(each.moved(end))
            end = state.slices[-1].end
        return PartitionState(state.start, end, state.slices, len(state.slices))

    patch.setattr(PartitionState, "appended", appended)


def stale_live(patch: pytest.MonkeyPatch) -> None:
    def collect(log: CommitLog, ttl_us: int, *, dry_run: bool, **_: Any) -> garbage.Garbage:
        state = log.refresh()
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(log, "refresh", lambda: state)
            return true_collect_log(log, ttl_us, dry_run=dry_run)

    patch.setattr(collector, "collect_log", collect)


def inline_is_garbage(patch: pytest.MonkeyPatch) -> None:
    true = garbage.needed

    def only_data(states: Any, keys: Any, most: int | None = None) -> set[str]:
        return {key for key in true(states, keys, most) if key.startswith("data/")}

    patch.setattr(garbage, "needed", only_data)


def boundary_last(patch: pytest.MonkeyPatch) -> None:
    waiting = list[Any]()
    true_raise, true_delete = garbage._raise_boundary, garbage.delete

    def delete(log: CommitLog, keys: list[str]) -> None:
        true_delete(log, keys)
        while waiting:
            true_raise(*waiting.pop())

    def later(*each: Any) -> bool:
        waiting.append(each)
        return True

    patch.setattr(garbage, "_raise_boundary", later)
    patch.setattr(garbage, "delete", delete)


def live_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    true = collector._fenced

    def fenced(log: CommitLog, hour: str) -> LogState:
        before = log.refresh()
        true(log, hour)
        return before

    patch.setattr(collector, "_fenced", fenced)


def denied_means_failed(log: CommitLog, key: str, ident: str, error: OSError, _: int) -> Any:
    found = log._id_of(key)
    return log._unknown(key, error) if found == ident else write_failure("committing", error)


def manifests_are_garbage(patch: pytest.MonkeyPatch) -> None:
    true = manifest_table.named

    def named(state: LogState, *rest: Any) -> set[str] | None:
        found = true(state, *rest)
        return None if found is None else found - {each.key for each in state.manifests}

    patch.setattr("storage_core.objects.garbage.named", named)


def archived_is_garbage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifest_table, "table", lambda *_, **__: iter(()))


def moved_whatever_happened(patch: pytest.MonkeyPatch) -> None:
    def commit(move: moving.Move, state: LogState, _: object, now: str) -> Commit | None:
        return None if state.deleted else Commit(manifests=move.manifests, written_at=now)

    patch.setattr(moving.Move, "commit", commit)


def nothing_is_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "_hiding", lambda _: 0)


def all_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    true = PartitionState.moved
    patch.setattr(PartitionState, "moved", lambda state, archive, _: true(state, archive, ()))


def old_manifests_are_committed(patch: pytest.MonkeyPatch) -> None:
    true = LogState.require_kept

    def require_kept(state: LogState, commit: Commit) -> None:
        true(state, replace(commit, manifests=None))

    patch.setattr(LogState, "require_kept", require_kept)


def impatient(patch: pytest.MonkeyPatch) -> None:
    """A call that took longer than patience lasts is given up at once."""
    true = CommitLog._create

    def create(log: CommitLog, number: int, draft: Draft, ident: str) -> Any:
        since = log._patience.deadline()

        def once(*_: Any) -> None:
            if log._patience.is_over(since):
                raise log._unknown(number, "given up")

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(log._patience, "wait", once)
            return true(log, number, draft, ident)

    patch.setattr(CommitLog, "_create", create)


def windows_reach_too_far(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving._Mover, "_take_in", lambda *_: None)


def own_clock(patch: pytest.MonkeyPatch) -> None:
    true = VfsBackend._written_ns

    def written(backend: VfsBackend, path: str) -> int:
        is_new = path.startswith(TEMPORARY)
        return backend._vfs.now_us() * 1000 if is_new else true(backend, path)

    patch.setattr(VfsBackend, "_written_ns", written)


# Bugs of manifests; the model finds them in logs that have some.
OF_MANIFESTS: dict[str, Patch] = {
    "manifests are garbage": manifests_are_garbage,
    "slices in manifests are garbage": archived_is_garbage,
    "a move does not look what changed": moved_whatever_happened,
    "a new manifest has slices that were replaced": nothing_is_hidden,
    "a move forgets what is not in its manifests": all_is_forgotten,
    "a manifest is committed that may be deleted": old_manifests_are_committed,
    "a slice across two manifests is cut": windows_reach_too_far,
}
MUTANTS: dict[str, Patch] = {
    **OF_MANIFESTS,
    "what is old this machine's clock says": own_clock,
    "a suspended machine believes its clock": lambda patch: patch.setattr(
        VfsBackend, "_clocks", lambda backend: (backend._vfs.monotonic(), 0.0)
    ),
    "exists means lost": create_as(exists_means_lost),
    "exists means won": create_as(exists_means_won),
    "a timeout means lost": create_as(timeout_means_lost),
    "a timeout means won": create_as(timeout_means_won),
    "put in the place of create": create_as(put_instead),
    "no boundary after the create": on_log("_is_above_boundary", lambda *_: True),
    "a sleeper trusts what it knew": on_log("_is_old", lambda *_: False),
    "no listing when cold": on_log("_listed", no_listing),
    "gaps of a listing are skipped": on_log("_listed", gaps_are_skipped),
    "gaps of a directory are skipped": on_log("_followed_without_gap", lambda _, s, __: s),
    "the number after the next is not looked for": on_log("_is_there", lambda *_: False),
    "the boundary is not read": on_log("boundary", lambda _: 0),
    "garbage collection takes one more": delete_one_more,
    "the ledger is not asked": no_ledger,
    "the ledger is not written": ledger_forgets,
    "states share what they append": shared_list,
    "one commit is not applied": on_log(
        "_follow",
        lambda log, state: state if log.backend is None else _skipping(log, state),
    ),
    "the state is one commit old": on_log("refresh", lambda log: _old(log)),
    "data is deleted without a fence": lambda patch: patch.setattr(
        collector, "_fenced", lambda log, _: log.refresh()
    ),
    "live data is taken from before the fence": live_before_the_fence,
    "the fence is not heeded": lambda patch: patch.setattr(
        LogState, "require_kept", lambda *_: None
    ),
    "the collector knows an old state": stale_live,
    "inline records are garbage": inline_is_garbage,
    "commits are deleted before the boundary is raised": boundary_last,
    "a create that is denied has not happened": on_log("_failed", denied_means_failed),
    "a state is believed however old": lambda patch: patch.setattr(
        commit_log, "_SURE_S", float("inf")
    ),
    "what took long is not asked for again": impatient,
    "a deletion that was begun is believed": lambda patch: patch.setattr(
        ObjectCatalog, "_is_gone", lambda *_: True
    ),
    "a deletion is noted after it only": lambda patch: patch.setattr(
        ObjectCatalog, "_is_gone", lambda *_: False
    ),
    "slices are replaced that are gone": lambda patch: patch.setattr(
        PartitionState, "has", lambda *_: True
    ),
}
true_follow, true_refresh = CommitLog._follow, CommitLog.refresh
true_collect_log = garbage.collect_log


def _skipping(log: CommitLog, state: LogState) -> LogState:
    followed = true_follow(log, state)
    if followed.number - state.number < 2:
        return followed
    return LogState(followed.number, state.topic, state.partitions, state.ledger)


def _old(log: CommitLog) -> LogState:
    known = log._state
    true_refresh(log)
    return log._state if known is None else known  # type: ignore[return-value]


def by_the_model(_: Path) -> None:
    """Worlds until one of them finds the bug."""
    for seed in range(200):
        World(Random(seed), TROUBLE).play(60)


def by_manifests(_: Path) -> None:
    """Worlds with manifests, until one of them finds the bug."""
    with pytest.MonkeyPatch.context() as patch:
        with_manifests(patch)
        for seed in range(60):
            World(Random(seed), {**TROUBLE, "merge": 0.25, "trim": 0.03}).play(90)


def by_a_lost_commit(_: Path) -> None:
    test_commit_log.test_a_lost_commit_is_damage_and_not_the_end()


def by_a_lost_commit_of_a_directory(path: Path) -> None:
    test_commit_log.test_a_lost_commit_is_damage_in_a_directory_too(path, [4, 5])


def by_a_commit_lost_under_a_warm_process(path: Path) -> None:
    test_commit_log.test_a_commit_that_is_lost_under_a_warm_process_is_damage(path)


def by_a_poll_that_fails(_: Path) -> None:
    test_commit_log.test_a_poll_that_fails_half_way_is_repeated_from_where_it_began()


def by_an_idle_reader(_: Path) -> None:
    test_commit_log.test_a_reader_that_is_idle_notices_a_collector_with_a_shorter_time_to_live()


def by_a_lost_reply(_: Path) -> None:
    test_commit_log.test_a_reply_that_is_lost_after_a_long_wait_leaves_no_doubt()


def by_a_deletion_that_was_cut_off(path: Path) -> None:
    Store.open(path, layout="objects", create=True).close()
    vfs = faulty(path)
    with Store(vfs, StoreConfig(), "objects") as store:
        store.create_topic(TOPIC, 1)
        test_stalls.test_a_topic_whose_deletion_was_cut_off_is_gone_for_everybody(store, vfs)


def by_a_deletion_that_did_not_happen(path: Path) -> None:
    Store.open(path, layout="objects", create=True).close()
    vfs = faulty(path)
    with Store(vfs, StoreConfig(), "objects") as store:
        store.create_topic(TOPIC, 1)
        test_stalls.test_a_deletion_that_was_begun_and_did_not_happen_deletes_nothing(store, vfs)


def by_the_fence(path: Path) -> None:
    with Store.open(path, layout="objects", create=True) as store:
        store.create_topic(TOPIC, 1)
        test_stalls.test_a_commit_right_before_the_fence_keeps_its_data(store, path)


def _by_reading(path: Path, test: Callable[[Store, Any], None]) -> None:
    Store.open(path, layout="objects", create=True).close()
    vfs = faulty(path)
    with pytest.MonkeyPatch.context() as patch, Store(vfs, StoreConfig(), "objects") as store:
        with_manifests(patch)
        store.create_topic(TOPIC, 3, segment_bytes=4096)
        test(store, vfs)


def by_a_clock_that_is_ahead(path: Path) -> None:
    path.mkdir()
    test_backends.test_a_replacement_that_others_overtook_is_refused_whatever_the_clock_says(path)


def by_a_suspended_machine(path: Path) -> None:
    path.mkdir()
    test_backends.test_a_replacement_on_a_machine_that_was_suspended_is_not_believed(path)


def by_a_move_that_slept(path: Path) -> None:
    _by_reading(path, test_manifests.test_a_move_that_slept_commits_no_manifest_that_is_deleted)


def by_many_merges(_: Path) -> None:
    """Nothing but merges and appends: slices grow over the ends of manifests."""
    with pytest.MonkeyPatch.context() as patch:
        with_manifests(patch)
        for seed in range(40):
            World(Random(seed), {"merge": 0.5}, writers=1).play(120)


# Those that the model finds only after minutes; their own test finds them at once.
DETECTORS = {
    "what is old this machine's clock says": by_a_clock_that_is_ahead,
    "a suspended machine believes its clock": by_a_suspended_machine,
    "gaps of a listing are skipped": by_a_lost_commit,
    "gaps of a directory are skipped": by_a_lost_commit_of_a_directory,
    "the number after the next is not looked for": by_a_commit_lost_under_a_warm_process,
    "states share what they append": by_a_poll_that_fails,
    "a state is believed however old": by_an_idle_reader,
    "what took long is not asked for again": by_a_lost_reply,
    "a deletion that was begun is believed": by_a_deletion_that_did_not_happen,
    "a deletion is noted after it only": by_a_deletion_that_was_cut_off,
    "live data is taken from before the fence": by_the_fence,
    "a manifest is committed that may be deleted": by_a_move_that_slept,
    "a slice across two manifests is cut": by_many_merges,
}


# Those that the model finds after more worlds than make quick has time for.
LATE = (
    "a create that is denied has not happened",
    "a slice across two manifests is cut",
    "commits are deleted before the boundary is raised",
    "no boundary after the create",
    "slices are replaced that are gone",
    "the collector knows an old state",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LATE)) for name in MUTANTS],
)
@pytest.mark.row(44, 45)
def test_every_seeded_bug_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_small(monkeypatch)
    # Nobody can open a log that is broken: all of them would try it for most of the time.
    monkeypatch.setattr(commit_log, "_OPEN_TRIES", 3)
    detect = DETECTORS.get(name, by_manifests if name in OF_MANIFESTS else by_the_model)
    if name in DETECTORS:
        detect(tmp_path / "sound")
    MUTANTS[name](monkeypatch)
    try:
        detect(tmp_path / "broken")
    except (AssertionError, KeyError, ValueError, IndexError, StorageError, _NoError):
        return
    pytest.fail(f"nothing found: {name}")
