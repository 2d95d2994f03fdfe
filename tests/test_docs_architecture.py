"""``docs/architecture.md`` names every module of the engine once, in the order of the layers."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.test_architecture import STORAGE_CORE_LAYERS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
TABLE_HEAD = "| module | what it knows |\n|---|---|\n"
HEIGHT = {name: level for level, names in enumerate(STORAGE_CORE_LAYERS) for name in names}


def tables() -> list[list[str]]:
    """The modules of each table, in its order."""
    _, *found = DOCUMENT.read_text().split(TABLE_HEAD)
    return [
        re.findall(r"^\| `([\w.]+)` \| .+ \|$", text.partition("\n\n")[0], re.M) for text in found
    ]


def exists(module: str) -> bool:
    path = ROOT / "storage_core" / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_every_module_is_described_once() -> None:
    names = [name for table in tables() for name in table]
    missing = [name for name in HEIGHT if name not in names]
    assert missing == [], "describe each in a line of a table in docs/architecture.md"
    gone = [name for name in names if name not in HEIGHT and not exists(name)]
    assert gone == [], "docs/architecture.md describes what is not there"
    assert len(names) == len(set(names))


def test_the_lines_of_a_table_stand_in_the_order_of_the_layers() -> None:
    wrong = [
        (first, second)
        for table in tables()
        for first, second in pairwise(name for name in table if name in HEIGHT)
        if HEIGHT[first] > HEIGHT[second]
    ]
    assert wrong == [], "the second of each pair is lower, and comes first"


def test_what_the_way_of_a_record_names_is_a_module() -> None:
    """The steps name their modules in brackets."""
    named = {
        name
        for group in re.findall(r"\*\* \((`[^)]*`)\)\.", DOCUMENT.read_text())
        for name in re.findall(r"`([\w.]+)`", group)
    }
    assert named
    assert named <= set(HEIGHT)
