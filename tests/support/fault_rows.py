"""The faults of ``docs/faults.md``, by number, and the tests that say they cover them.

A test names its rows with ``@pytest.mark.row(8, 9)``. ``python -m tests.support.fault_rows`` writes
the names of the tests into the table of the document; a test keeps the two the same.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import NamedTuple

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
DOCUMENT = TESTS.parent / "docs" / "faults.md"
COUNT = 51
_LINE = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)


class Row(NamedTuple):
    """A fault, what comes of it, and the tests that show it."""

    fault: str
    behaviour: str
    tests: list[str]


def documented() -> dict[int, Row]:
    """The rows of the document."""
    found = _LINE.findall(DOCUMENT.read_text())
    return {
        int(number): Row(fault, behaviour, re.findall(r"`([^`]+)`", shown))
        for number, fault, behaviour, shown in found
    }


def covered() -> dict[int, list[str]]:
    """The tests of each row, by name, found in their sources."""
    found: dict[int, list[str]] = defaultdict(list)
    for file in sorted(TESTS.rglob("test_*.py")):
        source = file.read_text()
        for node in ast.walk(ast.parse(source)) if ".row(" in source else ():
            if isinstance(node, ast.FunctionDef):
                for row in _rows_of(node):
                    found[row].append(f"{file.stem}::{node.name}")
    return dict(found)


def _rows_of(function: ast.FunctionDef) -> list[int]:
    rows = []
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row":
            rows += [ast.literal_eval(argument) for argument in mark.args]
    return rows


def write() -> None:
    """Put the names of the tests into the document."""
    tests = covered()

    def line(match: re.Match[str]) -> str:
        number, fault, behaviour, _ = match.groups()
        shown = "<br>".join(f"`{name}`" for name in tests.get(int(number), ()))
        return f"| {number} | {fault} | {behaviour} | {shown} |"

    DOCUMENT.write_text(_LINE.sub(line, DOCUMENT.read_text()))


if __name__ == "__main__":
    write()
