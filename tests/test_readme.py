"""The README's programs run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


@pytest.mark.spark
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readmes_program_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    names = f"path = {str(tmp_path / 'log')!r}\ncheckpoint = {str(tmp_path / 'checkpoint')!r}\n"
    program.write_text(names + BLOCKS[number])
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_document_the_readme_names_exists() -> None:
    links = re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
