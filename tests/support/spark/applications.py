"""Starts Spark applications of ``batch_child.py`` and watches the logs they write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from storage_core import LayoutNotFoundError, Store, TopicNotFoundError
from tests.support.paths import ROOT
from tests.support.spark import batch_child
from tests.support.spark.batch_child import PARTITIONS, ROWS, TOPIC

_LIMIT_S = 240
_AT_ONCE = 3


@dataclass(frozen=True)
class Ended:
    """How an application ended."""

    status: int
    output: str
    errors: str

    @property
    def result(self) -> Any:
        """What it found."""
        lines = [line for line in self.output.splitlines() if line.startswith("RESULT ")]
        assert lines, self.output + self.errors
        return json.loads(lines[-1].removeprefix("RESULT "))


class Applications:
    """Runs a few applications at a time, in the order they were asked for."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE)

    def start(self, task: str, *arguments: object) -> Future[Ended]:
        """Run a task as a plain Python program, from the working tree."""
        command = [sys.executable, "-m", batch_child.__name__, task, *map(str, arguments)]
        return self.run(command, {"PYTHONPATH": str(ROOT)}, ROOT)

    def run(self, command: list[str], environment: dict[str, str], cwd: Path) -> Future[Ended]:
        """Run any program with some variables of its own."""
        return self._pool.submit(_run, command, environment, cwd)

    def __enter__(self) -> Applications:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)


def _run(command: list[str], environment: dict[str, str], cwd: Path) -> Ended:
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    # A group of its own: a task may have to kill all of itself, and nothing else.
    done = subprocess.run(
        command,
        env={**kept, **python, **environment},
        cwd=cwd,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Watcher(threading.Thread):
    """Reads logs again and again and notes whatever is not whole commits in all partitions."""

    def __init__(self, *paths: Path) -> None:
        super().__init__(daemon=True)
        self._paths = paths
        self._stopped = threading.Event()
        self.looks: Counter[Path] = Counter()
        self.wrong: list[str] = []

    def run(self) -> None:
        seen: dict[Path, tuple[int, ...]] = {}
        while not self._stopped.wait(0.05):
            for path in self._paths:
                try:
                    with Store.open(path) as store:
                        ends = store.visible_ends(TOPIC)
                        found = {} if seen.get(path) == ends else commits(store)
                except (LayoutNotFoundError, TopicNotFoundError):
                    continue
                seen[path] = ends
                self.looks[path] += 1
                self.wrong += [f"{path.parent.name}: {line}" for line in halves(found)]
                if len(set(ends)) > 1:
                    self.wrong.append(f"{path.parent.name} ends at {ends}")

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)


def commits(store: Store) -> dict[str, Counter[int]]:
    """Rows of each tag by partition, below the ends of one instant."""
    found: dict[str, Counter[int]] = {}
    for partition, end in enumerate(store.visible_ends(TOPIC)):
        for batch in store.read(TOPIC, partition, end=end, columns=("value",)):
            for value in batch.column("value").to_pylist():
                tag = value.decode().rpartition("-")[0]
                found.setdefault(tag, Counter())[partition] += 1
    return found


def halves(found: dict[str, Counter[int]]) -> list[str]:
    """The tags that are not there exactly once in every partition."""
    whole = Counter(dict.fromkeys(range(PARTITIONS), ROWS))
    return [f"{tag} {dict(rows)}" for tag, rows in found.items() if rows != whole]
