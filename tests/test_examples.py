"""Every example runs to its end, and says what it should."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@cache
def run(example: str) -> str:
    """What the example prints; each one runs once for all tests."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / example)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str) -> None:
    assert run(example)


def test_the_demo_crashes_and_recovers() -> None:
    shown = run("demo.py")
    for words in ("offsets 0 to 99", "kill -9", "no gap", "check() finds nothing wrong"):
        assert words in shown
