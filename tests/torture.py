"""``make torture``: the tests of ``docs/faults.md``, longer, and the table of what they showed.

Runs the tests that carry a row's number, and all that kill, cut, fail and fuzz, with the sizes of
``tests/support/sizes.py`` for ``TORTURE``; prints seed, figures and how the tests of a row ended.
The engine's run in two halves side by side, because one alone leaves processors idle for hours.
Whatever fails, the rest is run and the table is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.fault_rows import documented
from tests.support.sizes import EVERY_FIGURE, SEED, SPARK_ROUNDS

PARTS = ["tests/crash", "tests/fuzz", "tests/properties", "tests/security"]
BESIDE = ["tests/fuzz", "tests/properties"]
# Spark's tests have a process of their own: its Py4J takes no descriptor above 1023. And their own
# time, because its workers give up when they do not get a processor soon.
SPARK = ["tests/cursus_spark", "-m", "row or chaos"]


class Rows:
    """Notes how the tests of each row ended."""

    def __init__(self) -> None:
        self.outcomes: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._rows: dict[str, tuple[int, ...]] = {}

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Only the parts above, and what has a number or kills processes wherever it stands."""
        chosen, others = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            rows = [number for mark in item.iter_markers("row") for number in mark.args]
            self._rows[item.nodeid] = tuple(rows)
            is_ours = item.nodeid.startswith(tuple(PARTS)) or "chaos" in item.keywords
            (chosen if rows or is_ours else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for row in self._rows.get(report.nodeid, ()):
                self.outcomes[row][report.outcome] += 1

    def describe(self) -> str:
        lines = [f"{'row':>3}  {'fault':<76}{'passed':>7}{'failed':>7}{'skipped':>8}"]
        for number, row in documented().items():
            counts = self.outcomes[number]
            numbers = [counts[name] for name in ("passed", "failed", "skipped")]
            passed, failed, skipped = numbers
            lines.append(f"{number:>3}  {row.fault[:75]:<76}{passed:>7}{failed:>7}{skipped:>8}")
        covered = sum(1 for counts in self.outcomes.values() if counts["passed"])
        return "\n".join([*lines, f"{covered} of {len(documented())} rows covered"])


def run_part(arguments: list[str], outcomes: Path) -> int:
    """Run some tests in this process, and leave what came of their rows in a file."""
    rows = Rows()
    status = int(pytest.main(["-q", *arguments], plugins=[rows]))
    outcomes.write_text(json.dumps(rows.outcomes))
    return status


def run_side_by_side(halves: list[list[str]], rows: Rows) -> bool:
    """Run each half in a process of its own, add up its rows, and say whether all of them passed.

    The first shows its progress; what another printed is shown when it has ended.
    """
    with tempfile.TemporaryDirectory() as directory:
        started = []
        for number, half in enumerate(halves):
            outcomes, printed = Path(directory, f"{number}.json"), Path(directory, f"{number}.txt")
            command = [sys.executable, "-m", "tests.torture", f"--part={outcomes}", *half]
            with printed.open("wb") as output:
                process = subprocess.Popen(command, stdout=output if number else None)
            started.append((process, outcomes, printed))
        passed = True
        for process, outcomes, printed in started:
            passed &= process.wait() == 0
            print(printed.read_text(errors="replace"), end="", flush=True)
            found: dict[str, dict[str, int]] = {}
            # One that was killed leaves none; what the other half found is still worth showing.
            with suppress(OSError, ValueError):
                found = json.loads(outcomes.read_text())
            for row, counts in found.items():
                for outcome, count in counts.items():
                    rows.outcomes[int(row)][outcome] += count
    return passed


def main() -> int:
    """Run everything once; arguments are pytest's, instead of all tests."""
    size = os.environ.get("TORTURE", "test")
    figures = ", ".join(f"{name} {figure}" for name, figure in EVERY_FIGURE.items())
    print(f"{size}: seed {SEED}; {figures}", flush=True)
    rows = Rows()
    if sys.argv[1:]:
        passed = run_side_by_side([sys.argv[1:]], rows)
    else:
        others = [f"--ignore={path}" for path in (SPARK[0], *BESIDE)]
        passed = run_side_by_side([["tests", *others], BESIDE], rows)
        for _ in range(SPARK_ROUNDS):
            passed &= run_side_by_side([SPARK], rows)
    print(rows.describe())
    return int(not passed)


if __name__ == "__main__":
    first = sys.argv[1] if sys.argv[1:] else ""
    if first.startswith("--part="):
        sys.exit(run_part(sys.argv[2:], Path(first.removeprefix("--part="))))
    sys.exit(main())
