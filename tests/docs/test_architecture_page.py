"""``docs/architecture.md`` shows every folder in the order in which folders may import."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT
from tests.test_architecture import FOLDERS

DOCUMENT = ROOT / "docs" / "architecture.md"
MOST_LINES = 220
MOST_COLUMNS = 120


def listed(package: str) -> list[str]:
    """The folders that the map of a package shows, in its order."""
    rows = re.findall(rf"^\| `{package}/([\w./]+?)/?` \| .+ \|$", DOCUMENT.read_text(), re.M)
    return [row.removesuffix(".py").replace("/", ".") for row in rows]


@pytest.mark.parametrize("package", FOLDERS)
def test_the_map_lists_every_folder_in_order(package: str) -> None:
    assert listed(package) == [name for name in FOLDERS[package] if not name.startswith("_")]


@pytest.mark.parametrize("package", FOLDERS)
def test_the_short_map_of_the_readme_has_every_folder(package: str) -> None:
    lines = (ROOT / "README.md").read_text().partition(f"\n{package}/ ")[2]
    folders = re.findall(r"(\w+)/(?=\s)", lines.partition("\n```")[0])
    known = {name.partition(".")[0] for name in FOLDERS[package]}
    assert {name for name in known if (ROOT / package / name).is_dir()} <= set(folders)


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:storage_core|cursus_spark)/[\w/.]+)`", DOCUMENT.read_text()))
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_page_is_short() -> None:
    assert len(DOCUMENT.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    "page",
    [
        "CONTRIBUTING.md",
        "SECURITY.md",
        "tests/crash/README.md",
        *(f"docs/{name}.md" for name in ("architecture", "objects-internals", "guarantees")),
        *(f"docs/{name}.md" for name in ("faults", "glossary")),
        *sorted(f"docs/decisions/{path.name}" for path in (ROOT / "docs/decisions").iterdir()),
    ],
)
def test_pages_for_contributors_have_lines_that_a_person_can_read(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    prose = [line for line in lines if not line.startswith("|")]
    assert [line for line in prose if len(line) > MOST_COLUMNS] == []
