"""Settings, partitions, offsets of groups and a store's identity through power cuts."""

from __future__ import annotations

import pytest

from tests.crash.breakers.promises import PROMISES, keep
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import SEED


@pytest.mark.row(1, 2)
@pytest.mark.parametrize("name", PROMISES)
def test_what_is_said_to_be_done_outlives_a_power_cut(name: str) -> None:
    with quickly(SEED):
        assert keep(name) > 10


@pytest.mark.row(3)
@pytest.mark.parametrize("name", PROMISES)
def test_what_is_done_after_a_killed_process_outlives_a_power_cut(name: str) -> None:
    with quickly(SEED):
        assert keep(name, killed=True) > 100
