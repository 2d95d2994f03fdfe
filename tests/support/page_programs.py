"""Runs the programs of a page of the documents: in their order, as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from tests.support.paths import ROOT

_MAKE = "make prepares environments and runs whole test suites, this test among them"
_FENCE = re.compile(r"^## ([^\n]+)$|^```(python|sh|bash|sql)\n(.*?)^```", re.M | re.S)

NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "make demo": _MAKE,
        "python3 -m venv": "it makes an environment; test_installing checks its words",
    },
    "CONTRIBUTING.md": {"make quick": _MAKE},
    "docs/deployment.md": {
        "make zip": "it needs a cluster: test_deployment starts one and runs these lines on it"
    },
    "docs/format.md": {"store = ": "test_format_page compares every byte of the store it makes"},
    "examples/README.md": {
        "make demo": _MAKE,
        ".venv/bin/spark-submit --properties": "test_examples runs every example so",
        ".venv/bin/spark-submit --packages": "it needs a Kafka broker and a download",
    },
    "tests/crash/README.md": {
        '"the staging goes': "lines from the middle of a list of mutants",
        "make test": _MAKE,
    },
}
"""By page: how a program begins that no test runs as it stands, and why."""


class Program(NamedTuple):
    """One program of a page, under the heading of its section."""

    section: str
    language: str
    text: str


def all_programs(text: str) -> Iterator[Program]:
    """The programs of a page, as they stand."""
    section = ""
    for match in _FENCE.finditer(text):
        if match[1]:
            section = match[1]
        else:
            yield Program(section, match[2], match[3])


def why_not_run(page: str, program: Program) -> str | None:
    """The reason why no test runs a program as it stands; None if it has to run."""
    for beginning, reason in NOT_RUN.get(page, {}).items():
        if program.text.startswith(beginning):
            return reason
    return None


def programs(page: str, text: str, data: Path) -> Iterator[Program]:
    """The programs that run, with ``/data`` where the test wants it.

    In shell programs it is quoted: the path may have a space.
    """
    for program in all_programs(text):
        if why_not_run(page, program) is None:
            in_shell = program.language in ("sh", "bash")
            root = shlex.quote(str(data)) if in_shell else str(data)
            yield program._replace(text=program.text.replace("/data/", f"{root}/"))


class Kitchen:
    """Runs the programs of one page; what one defines the next ones see.

    Args:
        page: The path of the page in the repository.
        spark: The session of its Python and SQL programs.
        commands: Where ``/data`` and the command ``cursus`` are to be.
        names: What the page takes for granted.
        after_each: Called after each program.
    """

    def __init__(
        self,
        page: str,
        spark: SparkSession | None,
        commands: Path,
        names: dict[str, Any] | None = None,
        after_each: Callable[[], object] | None = None,
    ) -> None:
        command = commands / "cursus"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m storage_core "$@"\n')
        command.chmod(0o755)
        self._page = page
        self._spark = spark
        self._commands = commands
        self._after_each = after_each
        self._names: dict[str, Any] = {"spark": spark, **(names or {})}
        self._variables = ""
        self.printed: dict[str, str] = {}

    def run_all(self, text: str) -> int:
        """Run every program of the page's text, with its data beside the commands; how many."""
        count = 0
        for section, language, program in programs(self._page, text, self._commands):
            if language == "python":
                exec(compile(program, f"{self._page}: {section}", "exec"), self._names)
            elif language == "sql":
                assert self._spark is not None
                for statement in filter(None, map(str.strip, program.split(";"))):
                    self._spark.sql(statement).collect()
            else:
                said = self._run_shell(language, program)
                self.printed[section] = self.printed.get(section, "") + said
            if self._after_each is not None:
                self._after_each()
            count += 1
        return count

    def _run_shell(self, shell: str, text: str) -> str:
        path, home = f"{self._commands}:{os.environ['PATH']}", str(self._commands)
        done = subprocess.run(
            [shell, "-euc", self._variables + text],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": home},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        self._variables += "".join(re.findall(r"^\w+=\S+\n", text, re.M))
        return done.stdout
