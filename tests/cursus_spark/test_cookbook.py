"""The programs of ``docs/cookbook.md`` run in their order, on one log, as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


TEXT = (ROOT / "docs" / "cookbook.md").read_text()
RECIPES = [
    "Backfill a topic",
    "Ingest files in the order of time",
    "Tail a broker's directory",
    "Exactly once, from topic to topic",
    "Time travel",
    "Join two topics",
    "Replay from a timestamp",
    "Migrate a cursus or RustLog directory",
    "Take typed rows to a broker",
    "Monitor lag",
    "Recover a damaged store",
]


def programs(data: Path) -> list[tuple[str, str, str]]:
    """Recipe, language and text of every program, with ``/data`` where the test wants it.

    In shell programs it is quoted: the path may have a space.
    """
    found, recipe = [], ""
    for match in re.finditer(r"^## ([^\n]+)$|^```(python|sh)\n(.*?)^```", TEXT, re.M | re.S):
        if match[1]:
            recipe = match[1]
        else:
            root = shlex.quote(str(data)) if match[2] == "sh" else str(data)
            found.append((recipe, match[2], match[3].replace("/data/", f"{root}/")))
    return found


class Kitchen:
    """Runs the programs; what one defines the next ones see."""

    def __init__(self, spark: SparkSession, commands: Path) -> None:
        command = commands / "cursus"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m storage_core "$@"\n')
        command.chmod(0o755)
        self._commands = commands
        self._names: dict[str, Any] = {"spark": spark}
        self._variables = ""
        self.printed: dict[str, str] = {}

    def run(self, recipe: str, language: str, text: str) -> None:
        if language == "python":
            exec(compile(text, f"docs/cookbook.md: {recipe}", "exec"), self._names)
        else:
            self.printed[recipe] = self.printed.get(recipe, "") + self._shell(text)

    def _shell(self, text: str) -> str:
        path = f"{self._commands}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-euc", self._variables + text],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        self._variables += "".join(re.findall(r"^\w+=\S+\n", text, re.M))
        return done.stdout


def test_the_cookbook_holds_the_promised_recipes() -> None:
    assert re.findall(r"^## (.+)$", TEXT, re.M) == RECIPES
    assert re.findall(r"^\* \[(.+?)\]", TEXT, re.M) == RECIPES


def test_every_program_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    kitchen = Kitchen(spark, tmp_path)
    for recipe, language, text in programs(tmp_path):
        kitchen.run(recipe, language, text)
    assert kitchen.printed["Monitor lag"].splitlines()[-1] == "0"
    practice = kitchen.printed["Recover a damaged store"]
    assert "damage found" in practice
    assert "not repaired by itself" in practice
    for name in ("practice", "native", "log"):
        with Store.open(tmp_path / name) as store:
            assert store.check() == []
