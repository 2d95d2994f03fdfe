"""The README's programs run as they stand; those that want a session get that of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


@pytest.mark.parametrize("program", PROGRAMS, ids=["spark", "engine"])
@pytest.mark.usefixtures("spark")
def test_the_readmes_program_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    names = {"path": str(tmp_path / "log"), "checkpoint": str(tmp_path / "checkpoint")}
    exec(compile(program, "README.md", "exec"), names)
    assert (tmp_path / "log" / "topics").is_dir()
