"""Stores of objects keep their promises through power cuts and kills at every call."""

from __future__ import annotations

import pytest

from tests.crash.breakers.object_cuts import CUTS
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import SEED


@pytest.mark.parametrize("name", CUTS)
def test_objects_survive(name: str) -> None:
    with quickly(SEED):
        assert CUTS[name]() > 60
