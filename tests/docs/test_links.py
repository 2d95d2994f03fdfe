"""The links between the documents lead somewhere, and the files that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DECISIONS = ROOT / "docs" / "decisions"
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("tests/**/*.md"),
    ]
)
FOLDERS = ("storage_core", "cursus_spark", "tests", "benchmarks", "examples", "conf", "docs")
MADE_LATER = {"benchmarks/results/"}


def names(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(document: Path) -> set[str]:
    """The places a link can lead to: GitHub's form of each heading."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text())
    for name, place in links:
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), name
        assert not place or place in anchors(target), f"{name}#{place}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_file_that_a_page_names_is_there(document: Path) -> None:
    named = set(re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+)`", document.read_text()))
    assert sorted(name for name in named - MADE_LATER if not (ROOT / name).exists()) == []


def test_the_readme_leads_to_every_document() -> None:
    text = (ROOT / "README.md").read_text()
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("[A-Z]*.md"), DECISIONS / "README.md"]
    assert [
        names(page) for page in pages if page.name != "README.md" and names(page) not in text
    ] == []
    assert "docs/decisions/" in text


def test_the_landing_page_of_the_site_leads_to_every_page() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    pages = sorted(
        page.relative_to(ROOT / "docs").as_posix()
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent != DECISIONS and page.name != "index.md"
    )
    assert [page for page in pages if f"({page})" not in text] == []


def test_the_index_leads_to_every_decision() -> None:
    text = (DECISIONS / "README.md").read_text()
    pages = [page.name for page in DECISIONS.glob("*.md") if page.name != "README.md"]
    assert [page for page in pages if f"({page})" not in text] == []
