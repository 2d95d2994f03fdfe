"""Runs examples one after the other in one JVM, for ``tests/test_examples.py``.

Given to spark-submit with the directory for what they print and, as JSON, a list of names and
arguments. Each example begins and stops a session of its own, as it does alone; only the JVM, whose
start costs more than an example, stays.
"""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from pyspark.sql import SparkSession


def run(example: str, arguments: list[str], printed: Path) -> int:
    """Run one example, what it prints going to a file; return what its process would return."""
    sys.argv = [example, *arguments]
    with printed.open("w") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            runpy.run_path(example, run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code)
                return 1
            return end.code or 0
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            if session := SparkSession.getActiveSession():
                session.stop()
    return 0


def main(directory: Path, examples: list[list[str]]) -> None:
    for example, *arguments in examples:
        name = Path(example).name
        code = run(example, arguments, directory / f"{name}.txt")
        (directory / f"{name}.code").write_text(str(code))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
