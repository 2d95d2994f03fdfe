"""Processor time of a Spark read and a Spark write, by JVM, Python and kernel.

Elapsed seconds do not show which process worked, because two processors share a job. So this reads
the processor time of Spark's processes before and after, for cursus and for the ceiling.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from . import data
from .data import Sizes
from .measure import Row, Samples, interleaved, time_row
from .spark_batch import drain, fill, rows_to_write, session

_RECORDS = {data.FULL: 4_000_000, data.QUICK: 1_000_000, data.TINY: 20_000}
_PROC = Path("/proc")
_PARTITIONS = 4
TICKS = os.sysconf("SC_CLK_TCK")


class Work(NamedTuple):
    """Seconds of processor time."""

    jvm: float
    python: float
    kernel: float


class Used(NamedTuple):
    """Ticks of one process since it began."""

    user: int
    system: int


PARTS = {"jvm": "the JVM's code", "python": "Python's code", "kernel": "sockets and files"}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every part of a read and of two writes, compared with the same part of the ceiling."""
    if not _PROC.is_dir():
        print("! no /proc here: whose processor time a job takes cannot be asked")
        return
    rounds = 5 if sizes is not data.TINY else 1
    with session(directory) as spark:
        jobs = _jobs(spark, _RECORDS[sizes], directory)
        jvm = jvm_of(spark)
        found: dict[str, list[Work]] = defaultdict(list)

        def work_of(name: str) -> float:
            before = used_by(jvm)
            jobs[name]()
            found[name].append(work_between(before, used_by(jvm), jvm))
            return sum(found[name][-1])

        interleaved({name: partial(work_of, name) for name in jobs}, rounds, warmups=2)
    for name in [name for name in jobs if not name.startswith("ceiling")]:
        for part, who in PARTS.items():
            ours, ceiling = (
                Samples(tuple(getattr(work, part) for work in found[side][-rounds:]))
                for side in (name, f"ceiling of {name}")
            )
            yield time_row(f"processor time of {name}: {who}", ours, ceiling, None, name="ceiling")


def _jobs(spark: SparkSession, records: int, directory: Path) -> dict[str, Callable[[], object]]:
    path, target = directory / "log", directory / "written"
    fill(path, "t", records)
    read = spark.read.format("cursus").option("subscribe", "t").load(str(path))
    options = {"rows": records, "tasks": read.rdd.getNumPartitions()}
    ceiling = spark.read.format("ceiling").options(**options).load()
    plain, keyed = rows_to_write(spark, records)
    frames = {"no key": plain, "keyed": keyed}

    def write(frame: DataFrame, source: str) -> None:
        writer = frame.write.format(source).mode("append")
        writer.options(topic="t", numPartitions=_PARTITIONS).save(str(target))
        shutil.rmtree(target)

    jobs: dict[str, Callable[[], object]] = {
        "a read": partial(drain, read),
        "ceiling of a read": partial(drain, ceiling),
    }
    for kind, frame in frames.items():
        jobs[f"a write, {kind}"] = partial(write, frame, "cursus")
        jobs[f"ceiling of a write, {kind}"] = partial(write, frame, "bytes_only")
    return jobs


def work_between(before: dict[int, Used], after: dict[int, Used], jvm: int) -> Work:
    """The work of the processes that still run; Spark keeps its workers."""
    jvm_ticks = python_ticks = kernel_ticks = 0
    for process, (user, system) in after.items():
        earlier = before.get(process, Used(0, 0))
        kernel_ticks += system - earlier.system
        if process == jvm:
            jvm_ticks += user - earlier.user
        else:
            python_ticks += user - earlier.user
    # A tick is the smallest unit; at least one avoids a division by zero for tiny jobs.
    return Work(*(max(ticks, 1) / TICKS for ticks in (jvm_ticks, python_ticks, kernel_ticks)))


def jvm_of(spark: SparkSession) -> int:
    """The process of a session's driver."""
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def used_by(top: int) -> dict[int, Used]:
    """Ticks of a process and all its children until now."""
    parents, used = {}, {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended between the listing and this
            # The name in brackets may contain anything; numbers follow it.
            fields = text.rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = Used(int(fields[11]), int(fields[12]))

    def is_below(process: int) -> bool:
        while process != top and process in parents:
            process = parents[process]
        return process == top

    return {process: ticks for process, ticks in used.items() if is_below(process)}
