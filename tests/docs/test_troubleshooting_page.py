"""``docs/troubleshooting.md`` has an entry for every code that the code can raise, and no other."""

from __future__ import annotations

import ast
import re

import pytest

from storage_core import StorageError
from storage_core import errors as storage_errors
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "troubleshooting.md").read_text()
ENTRIES = {
    match[1]: match[2]
    for match in re.finditer(r"^### `\[CURSUS_(\w+)\]`\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S)
}


def engine_codes() -> set[str]:
    """The codes of all error classes of the engine."""
    classes = [item for item in vars(storage_errors).values() if isinstance(item, type)]
    return {item.code for item in classes if issubclass(item, StorageError)}


def connector_codes() -> set[str]:
    """Every condition that stands in a call of ``cursus_error``; each must be plain text there."""
    found = set()
    for file in sorted((ROOT / "cursus_spark").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "cursus_error":
                condition = node.args[0]
                if isinstance(condition, ast.Constant):
                    found.add(str(condition.value))
                else:
                    assert file.name == "errors.py", f"{file}: a condition that cannot be read"
    return found


def test_codes_are_found() -> None:
    assert {"OPTION_UNKNOWN", "DATA_LOSS", "QUERY_UNKNOWN"} <= connector_codes()
    assert {"LOG_DAMAGED", "LOCK_TIMEOUT", "STORAGE"} <= engine_codes()


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    assert set(ENTRIES) == engine_codes() | connector_codes()


@pytest.mark.parametrize("code", ENTRIES)
def test_an_entry_says_what_it_means_why_and_what_to_do(code: str) -> None:
    for lead in ("**Means:**", "**Why:**", "**Do:**"):
        text = ENTRIES[code].partition(lead)[2].partition("**")[0].strip()
        assert text, f"{code}: {lead} is empty"


def test_codes_that_other_documents_mention_exist() -> None:
    known = engine_codes() | connector_codes()
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        mentioned = set(re.findall(r"\[CURSUS_([A-Z0-9_]+)\]", document.read_text()))
        assert mentioned <= known, document.name
