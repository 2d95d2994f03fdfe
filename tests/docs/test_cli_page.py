"""``docs/cli.md`` describes every command with every option, and nothing else."""

from __future__ import annotations

import re

import click
import pytest

from storage_core.cli.app import cli
from tests.support.paths import ROOT

DOCUMENT = (ROOT / "docs" / "cli.md").read_text()
COMMON = DOCUMENT.partition("## Inspect")[0]
SECTIONS = {
    match[1]: match[0]
    for match in re.finditer(r"^### `cursus (\w+).*?(?=^##|\Z)", DOCUMENT, re.M | re.S)
}


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert list(SECTIONS) == list(cli.commands)


@pytest.mark.parametrize("name", cli.commands)
def test_every_option_is_described(name: str) -> None:
    for parameter in cli.commands[name].params:
        if isinstance(parameter, click.Option):
            (long,) = [word for word in parameter.opts if word.startswith("--")]
            text = SECTIONS[name] + COMMON
            assert re.search(rf"`[^`\n]*{long}\b", text), f"{name} {long}"
        else:
            assert str(parameter.name).upper() in SECTIONS[name].partition("\n")[0], parameter.name


def test_options_that_are_described_exist() -> None:
    for name, section in SECTIONS.items():
        known = {
            word for parameter in cli.commands[name].params for word in parameter.opts
        } | {"--help"}  # fmt: skip
        for line in section.splitlines():
            if line.startswith("| `-"):
                described = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", line.split("|")[1]))
                assert described <= known, (name, described - known)
