"""Call n of a story fails, for every n, in every way; nothing acknowledged is lost."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.crash.breakers.failing_calls import (
    ERRORS,
    STORIES,
    TYPED_STORIES,
    Fault,
    cuts_after_a_failure,
    sweep,
    sweep_pairs,
)
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import FAULT_PAIRS, LONG, PROCESSES, SEED


def sweep_story(name: str) -> tuple[int, list[str]]:
    with quickly(SEED):
        return sweep(name, lambda fault, _: LONG or name not in TYPED_STORIES or _in_turn(fault))


def _in_turn(fault: Fault) -> bool:
    """One error for each call, each another one: stories of typed topics have many calls."""
    return fault.how not in ERRORS or fault.how == list(ERRORS)[fault.nth % len(ERRORS)]


def pairs_of_story(name: str) -> tuple[int, list[str]]:
    with quickly(SEED):
        return sweep_pairs(name, FAULT_PAIRS // len(STORIES), SEED)


@pytest.mark.row(8, 9, 10, 11, 12, 13)
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_any_failed_call_loses_nothing_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        found = dict(zip(STORIES, pool.map(sweep_story, STORIES), strict=True))
        pairs = dict(zip(STORIES, pool.map(pairs_of_story, STORIES), strict=True))
    with capsys.disabled():
        print(
            f"\nfailed calls: {sum(count for count, _ in found.values())}, pairs of them: ", end=""
        )
        print(sum(count for count, _ in pairs.values()))
    assert [text for _, texts in (*found.values(), *pairs.values()) for text in texts] == []
    assert all(count > 200 for count, _ in found.values())


@pytest.mark.row(8, 9)
@pytest.mark.parametrize("name", STORIES if LONG else ["appends", "rolls", "reopens"])
def test_a_power_cut_while_a_failed_append_is_taken_back_loses_and_invents_nothing(
    name: str,
) -> None:
    with quickly(SEED):
        states, violations = cuts_after_a_failure(name)
    assert violations == []
    assert states > 10
