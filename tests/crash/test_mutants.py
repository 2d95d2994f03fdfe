"""The proof tested: each step of the engine that is taken out must be missed.

A bug that is not noticed fails the build: then the explorer, or the story it plays, is too weak.
"""

from __future__ import annotations

import pytest

from storage_core.errors import StorageError
from tests.crash.breakers.wrong_files import FILES
from tests.crash.bugs.detectors import MISTAKES, FoundError, detector, found_by
from tests.crash.bugs.mutants import MUTANTS
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import SEED


@pytest.mark.row(1, 2, 3, 7, 11, 16, 20, 21, 31)
@pytest.mark.parametrize("name", MUTANTS)
def test_step_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, noticed = MUTANTS[name]
    with quickly(SEED):
        patch(monkeypatch)
        with pytest.raises((FoundError, AssertionError, StorageError)) as caught:
            detector(noticed)()
    assert not any(mistake in str(caught.value) for mistake in MISTAKES), caught.value


@pytest.mark.parametrize(
    "noticed",
    ["two writers", "two column writers", "parts of other columns", "wrong bytes", *FILES],
)
def test_nothing_is_missed_of_the_engine_as_it_is(noticed: str) -> None:
    with quickly(SEED):
        assert found_by(noticed) is None


def test_there_are_enough_bugs() -> None:
    assert len(MUTANTS) >= 25
