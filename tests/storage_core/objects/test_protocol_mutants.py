"""Seeded bugs of the commit log: the model has to find every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from storage_core.errors import StorageError
from storage_core.objects import commit_log, document, garbage
from storage_core.objects.commit_log import CommitLog, Draft
from storage_core.objects.state import Commit, LogState, PartitionState, commit_fields
from tests.support.objects_world import World

Patch = Callable[[pytest.MonkeyPatch], None]
TROUBLE = {
    "others act": 0.15,
    "lost request": 0.03,
    "lost reply": 0.08,
    "delayed": 0.08,
    "delivery": 0.3,
    "overlap": 0.08,
    "repeated": 0.05,
    "read fails": 0.03,
    "hours pass": 0.3,
    "collect": 0.25,
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
    commits, _ = commit_log.parse_listing(log.prefix, keys)
    return LogState(), commits


def delete_without_boundary(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "read_boundary", lambda _: (0, None))


def delete_one_more(patch: pytest.MonkeyPatch) -> None:
    true = commit_log.parse_listing

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


MUTANTS: dict[str, Patch] = {
    "exists means lost": create_as(exists_means_lost),
    "exists means won": create_as(exists_means_won),
    "a timeout means lost": create_as(timeout_means_lost),
    "a timeout means won": create_as(timeout_means_won),
    "put in the place of create": create_as(put_instead),
    "no boundary after the create": on_log("_is_above_boundary", lambda *_: True),
    "a sleeper trusts what it knew": on_log("_is_old", lambda *_: False),
    "no listing when cold": on_log("_listed", no_listing),
    "gaps of a listing are skipped": on_log("_listed", gaps_are_skipped),
    "the boundary is not read": delete_without_boundary,
    "garbage collection takes one more": delete_one_more,
    "the ledger is not asked": no_ledger,
    "the ledger is not written": ledger_forgets,
    "states share what they append": shared_list,
    "one commit is not applied": on_log(
        "_follow",
        lambda log, state: state if log.backend is None else _skipping(log, state),
    ),
    "the state is one commit old": on_log("refresh", lambda log: _old(log)),
}
true_follow, true_refresh = CommitLog._follow, CommitLog.refresh


def _skipping(log: CommitLog, state: LogState) -> LogState:
    followed = true_follow(log, state)
    if followed.number - state.number < 2:
        return followed
    return LogState(followed.number, state.topic, state.partitions, state.ledger)


def _old(log: CommitLog) -> LogState:
    known = log._state
    true_refresh(log)
    return log._state if known is None else known  # type: ignore[return-value]


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_finds_every_seeded_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 3)
    MUTANTS[name](monkeypatch)
    for seed in range(200):
        world = World(Random(seed), TROUBLE)
        try:
            for _ in range(60):
                world.act()
            world.check_end()
        except (AssertionError, KeyError, ValueError, IndexError):
            return
        except StorageError:
            return
    pytest.fail(f"the model did not find: {name}")
