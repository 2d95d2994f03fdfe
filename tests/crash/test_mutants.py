"""The proof tested: each step of the engine that is taken out must be missed.

A bug that is not noticed fails the build: then the explorer, or the story it plays, is too weak.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from storage_core.errors import StorageError
from tests.crash.exploration import quickly
from tests.crash.explorer import Explorer
from tests.crash.failing_calls import failing_syncs
from tests.crash.mutants import MUTANTS
from tests.crash.scenarios import STORIES, explore, explore_successor
from tests.crash.two_writers import two_writers
from tests.crash.wrong_bytes import flipped_bytes, wrong_bytes
from tests.sizes import SEED

# A bug of the bug itself, not one that was noticed.
_MISTAKES = ("TypeError", "AttributeError", "NameError", "ImportError")


class FoundError(Exception):
    """A violation: enough."""


class FirstOnly(Explorer):
    """Ends at the first violation."""

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        super()._guarded(where, check)
        if self.report.violations:
            raise FoundError(self.report.violations[0])


def look_for_failing_syncs() -> None:
    found = failing_syncs()
    if found:
        raise FoundError(found[0])


def detector(noticed: str) -> Callable[[], object]:
    """What must notice a bug."""
    # Killed before every call, so that no change of the engine hides a bug by moving the calls.
    explorer = FirstOnly(Random(SEED), samples=10, kill_every=1)
    if noticed == "two writers":
        return two_writers
    if noticed == "failing syncs":
        return look_for_failing_syncs
    if noticed == "wrong bytes":
        return partial(wrong_bytes, SEED)
    if noticed.startswith("wrong bytes of "):
        return partial(flipped_bytes, Random(SEED), (noticed.removeprefix("wrong bytes of "),))
    if noticed in STORIES:
        # What retention does comes late in its story.
        explorer.likely = 0.4 if noticed == "retention" else 1.0
        return partial(explore, noticed, explorer)
    # Else it is the call before which a committer is killed.
    where = partial(_is_call, noticed)
    return partial(explore_successor, explorer, where)


def _is_call(wanted: str, kind: str, path: str) -> bool:
    return f"{kind} {path}" == wanted


@pytest.mark.row(1, 2, 3, 7, 11, 16, 20, 21, 31)
@pytest.mark.parametrize("name", MUTANTS)
def test_step_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, noticed = MUTANTS[name]
    with quickly(SEED):
        patch(monkeypatch)
        with pytest.raises((FoundError, AssertionError, StorageError)) as caught:
            detector(noticed)()
    assert not any(mistake in str(caught.value) for mistake in _MISTAKES), caught.value


@pytest.mark.parametrize("noticed", ["two writers", "failing syncs", "wrong bytes"])
def test_nothing_is_missed_of_the_engine_as_it_is(noticed: str) -> None:
    with quickly(SEED):
        detector(noticed)()


def test_there_are_enough_bugs() -> None:
    assert len(MUTANTS) >= 25
