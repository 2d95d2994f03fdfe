"""The memory of Spark's Python workers: record sizes, partitions and frame sizes in turn.

Each line is a process that does the work of one task and looks at its own memory. What it uses
beyond an idle worker counts, in memory that no other process has: pages of mapped files belong to
the page cache. The resident size, which has them, is shown too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import data
from .data import MIB, Sizes
from .measure import Bar, Row
from .workers.sized_worker import Work, build

_ROOT = Path(__file__).resolve().parent.parent
_BYTES = {data.FULL: 200 * MIB, data.QUICK: 100 * MIB, data.TINY: MIB}
_USUAL_FRAME = MIB
_AT_MOST = Bar("at most", 300)


class _Shape(NamedTuple):
    record_bytes: int = 100
    partitions: int = 4
    frame_bytes: int = _USUAL_FRAME

    def __str__(self) -> str:
        return (
            f"records of {self.record_bytes:,} B, {self.partitions:,} "
            f"partition{'s' if self.partitions > 1 else ''}, frames of {self.frame_bytes >> 10} KiB"
        )


SHAPES = (
    *(_Shape(record_bytes=size) for size in (10, 100, 10_000, 1_000_000)),
    *(_Shape(partitions=count) for count in (1, 64, 1000)),
    *(_Shape(frame_bytes=size) for size in (64 << 10, 16 * MIB)),
)


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """A row for each shape, of a reading and of a writing worker."""
    for shape in SHAPES if sizes is not data.TINY else SHAPES[:2]:
        for task in ("read", "write"):
            path = directory / task
            work = Work(task, str(path), *shape, _BYTES[sizes])
            build(work)
            yield _row(work, shape)
            shutil.rmtree(path)


def _row(work: Work, shape: _Shape) -> Row:
    command = [sys.executable, "-m", "benchmarks.workers.sized_worker", *map(str, work)]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    used, idle, resident = (int(number) / 1e6 for number in done.stdout.split()[-3:])
    return Row(
        f"worker memory, {work.task}, {shape}",
        f"{used:.0f} MB more",
        f"{idle:.0f} MB idle, {resident:.0f} MB resident",
        used,
        _AT_MOST,
        None,
    )
