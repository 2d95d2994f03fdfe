"""``python -m benchmarks``: run all benchmarks and print one table.

A benchmark is a module of this package with a function ``measure(sizes, directory)`` that yields
rows. Results are also saved as JSON in ``benchmarks/results/``, which git ignores.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import os
import pkgutil
import platform
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage_core.vfs import PosixVfs

from . import data
from .measure import NOISY_VARIATION, Row, table

Measure = Callable[[data.Sizes, Path], Iterator[Row]]
RESULTS = Path(__file__).resolve().parent / "results"


def benchmarks(*, on_request: bool = True) -> dict[str, Measure]:
    """Every benchmark of this package by the name of its module.

    Benchmarks that download something set ``ON_REQUEST`` and run only by name.
    """
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).resolve().parent)]):
        if module.name != "__main__":
            imported = importlib.import_module(f"{__package__}.{module.name}")
            if hasattr(imported, "measure") and (on_request or not hasattr(imported, "ON_REQUEST")):
                found[module.name] = imported.measure
    return found


def environment(directory: Path, size: str) -> dict[str, object]:
    """What the figures depend on besides the code: machine and versions."""
    return {
        "size": size,
        "date": f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}",
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "pyspark": importlib.metadata.version("pyspark"),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "file_system": PosixVfs(directory).filesystem(),
    }


def save(
    rows: Sequence[Row], around: dict[str, object], results: Path, name: str | None = None
) -> Path:
    """Save the rows of this run; without a name, the name is the time."""
    now = datetime.datetime.now(tz=datetime.UTC)
    results.mkdir(parents=True, exist_ok=True)
    path = results / (name or f"{now:%Y-%m-%dT%H-%M-%SZ}.json")
    lines = [
        {**dataclasses.asdict(row), "verdict": row.verdict, "noisy": row.noisy} for row in rows
    ]
    path.write_text(json.dumps({"environment": around, "rows": lines}, indent=2) + "\n")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that the command line names."""
    known = benchmarks()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(known)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    size.add_argument("--tiny", action="store_true", help="only to see that everything runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the JSON goes")
    chosen = parser.parse_args(arguments)
    if unknown := sorted(set(chosen.names) - set(known)):
        parser.error(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(known)}")
    size_name = "tiny" if chosen.tiny else "quick" if chosen.quick else "full"
    sizes = {"tiny": data.TINY, "quick": data.QUICK, "full": data.FULL}[size_name]
    rows: list[Row] = []
    failed: list[str] = []
    with data.workspace() as directory:
        around = environment(directory, size_name)
        _warn_of_surroundings(around)
        kept = save(rows, around, chosen.results)
        for name in chosen.names or benchmarks(on_request=False):
            print(f"· {name}", file=sys.stderr)
            (directory / name).mkdir()
            try:
                for row in known[name](sizes, directory / name):
                    print(f"  {row.what}: {row.ratio:.2f} {row.verdict}", file=sys.stderr)
                    rows.append(row)
                    save(rows, around, chosen.results, kept.name)  # kept if it is interrupted
            except Exception:
                traceback.print_exc()
                failed.append(name)
    print(table(rows))
    if sizes is not data.FULL:
        print("The bars are meant for the full size; this run was smaller.")
    if any(row.noisy for row in rows):
        print(f"noisy: the median was more than {NOISY_VARIATION:.0%} slower than the best round.")
    print(f"Kept in {kept}")
    if failed:
        print(f"Failed: {', '.join(failed)}. The rows of the others are complete.")
    return 1 if failed else 0


def _warn_of_surroundings(around: dict[str, object]) -> None:
    if os.getloadavg()[0] > 0.5:
        print(f"! the machine is busy (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
    if around["file_system"] in ("tmpfs", "ramfs"):
        print("! the data is not on a disk: figures with fsync mean nothing", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
