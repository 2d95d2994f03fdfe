"""``docs/connector.md`` shows every option with the default and the words of the code."""

from __future__ import annotations

import pytest

from cursus_spark.options.table import Use, options_for
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "connector.md"
HEADINGS: dict[Use, str] = {
    "read": "## Reading a batch",
    "write": "## Writing a batch",
    "stream read": "## Reading a stream",
    "stream write": "## Writing a stream",
}


@pytest.mark.parametrize("use", list(HEADINGS))
def test_the_table_of_options_says_what_the_code_says(use: Use) -> None:
    section = DOCUMENT.read_text().split(HEADINGS[use] + "\n")[1].split("\n## ")[0]
    shown = [line for line in section.splitlines() if line.startswith("| `")]
    expected = [
        f"| `{option.name}` | {option.default} | {option.doc} |" for option in options_for(use)
    ]
    assert shown == expected
