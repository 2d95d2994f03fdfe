"""Runs the programs of a page of the documents: in their order, as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.paths import ROOT


def programs(text: str, data: Path) -> list[tuple[str, str, str]]:
    """Section, language and text of every program, with ``/data`` where the test wants it.

    In shell programs it is quoted: the path may have a space.
    """
    found, section = [], ""
    for match in re.finditer(r"^## ([^\n]+)$|^```(python|sh)\n(.*?)^```", text, re.M | re.S):
        if match[1]:
            section = match[1]
        else:
            root = shlex.quote(str(data)) if match[2] == "sh" else str(data)
            found.append((section, match[2], match[3].replace("/data/", f"{root}/")))
    return found


class Kitchen:
    """Runs the programs of one page; what one defines the next ones see."""

    def __init__(self, page: str, spark: SparkSession | None, commands: Path) -> None:
        command = commands / "cursus"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m storage_core "$@"\n')
        command.chmod(0o755)
        self._page = page
        self._commands = commands
        self._names: dict[str, Any] = {"spark": spark}
        self._variables = ""
        self.printed: dict[str, str] = {}

    def run_all(self, text: str) -> None:
        """Run every program of the page's text, with its data beside the commands."""
        for section, language, program in programs(text, self._commands):
            if language == "python":
                exec(compile(program, f"{self._page}: {section}", "exec"), self._names)
            else:
                self.printed[section] = self.printed.get(section, "") + self._shell(program)

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
