"""Conversions, and logs without syncs that are set aside, through power cuts at every call."""

from __future__ import annotations

import pytest

from tests.crash.breakers.interrupted import conversions, merges, set_aside
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import LONG, SEED


@pytest.mark.row(1, 4)
def test_a_conversion_goes_on_after_a_power_cut_at_any_call() -> None:
    with quickly(SEED):
        assert conversions() > 100


@pytest.mark.row(1, 4)
def test_a_merge_of_which_any_one_change_is_lost_loses_nothing() -> None:
    with quickly(SEED):
        assert merges() > 100


@pytest.mark.row(1, 4)
@pytest.mark.parametrize("bad", [0, 1, 3] if LONG else [1])
def test_what_is_set_aside_takes_no_commit_with_it(bad: int) -> None:
    with quickly(SEED):
        assert set_aside(bad) > 100
