"""The links between the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

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
