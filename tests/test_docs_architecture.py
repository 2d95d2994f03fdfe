"""``docs/architecture.md`` names every module of the engine once, in the order of the layers."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.test_architecture import STORAGE_CORE_LAYERS

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
TABLE_HEAD = "| module | what it knows |\n|---|---|\n"
HEIGHT = {name: level for level, names in enumerate(STORAGE_CORE_LAYERS) for name in names}


def described() -> list[tuple[str, str]]:
    """Modules and what the document says of them, in its order."""
    table = DOCUMENT.read_text().partition(TABLE_HEAD)[2].partition("\n\n")[0]
    return [
        (name, text)
        for line in table.splitlines()
        for name, text in re.findall(r"^\| `([\w.]+)` \| (.+) \|$", line)
    ]


def test_every_module_is_described_once() -> None:
    names = [name for name, _ in described()]
    assert sorted(set(HEIGHT) - set(names)) == [], "add a line for it to docs/architecture.md"
    assert sorted(set(names) - set(HEIGHT)) == [], "docs/architecture.md names what is not there"
    assert len(names) == len(set(names))


def test_the_lines_stand_in_the_order_of_the_layers() -> None:
    names = [name for name, _ in described() if name in HEIGHT]
    wrong = [(low, high) for low, high in pairwise(names) if HEIGHT[low] > HEIGHT[high]]
    assert wrong == [], "each pair is in the wrong order: lower layers come first"


def test_what_the_way_of_a_record_names_is_a_module() -> None:
    """The steps name their modules in brackets."""
    named = {
        name
        for group in re.findall(r"\*\* \((`[^)]*`)\)\.", DOCUMENT.read_text())
        for name in re.findall(r"`([\w.]+)`", group)
    }
    assert named
    assert named <= set(HEIGHT)
