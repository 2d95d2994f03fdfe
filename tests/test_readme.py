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
@pytest.mark.slow
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


DOCUMENTS = sorted(
    path
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("examples/*.md")]
)


def anchors(document: Path) -> set[str]:
    """The places a link can lead to: GitHub's form of each heading."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text())
    for name, place in links:
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), name
        assert not place or place in anchors(target), f"{name}#{place}"


def test_the_readme_leads_to_every_document() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [
        path.name for path in (ROOT / "docs").glob("*.md") if f"docs/{path.name}" not in text
    ]
    assert missing == []
