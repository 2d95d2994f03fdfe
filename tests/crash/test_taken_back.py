"""Readers beside an append that is taken back see the old records or all, and live on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.taken_back import LOOKS
from tests.sizes import LONG

AT_ONCE = 1 << 30
STEPS = [1, 3, AT_ONCE] if LONG else [1, AT_ONCE]
"""How many calls the append makes between two of the reader."""


@pytest.mark.row(8, 36)
@pytest.mark.slow
@pytest.mark.parametrize("then", ["gives up", "again"] if LONG else ["again"])
@pytest.mark.parametrize("look", LOOKS)
def test_no_reader_is_killed_or_misled_by_an_append_that_is_taken_back(
    look: str, then: str
) -> None:
    command = [sys.executable, "-m", "tests.crash.taken_back", look, then, *map(str, STEPS)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-3000:]}"
    looks = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert min(looks) > 10
