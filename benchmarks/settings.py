"""Where the time of a Spark read goes, and what Spark's own settings change about it.

Some settings count only when a session starts, so each is measured in a process of its own: the
processes take turns like the sides of any other comparison.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from storage_core import Store

from . import data
from .data import RECORD_BYTES, Sizes
from .measure import Row, clock, interleaved, speed_row, time_row
from .spark_batch import fill

_ROOT = Path(__file__).resolve().parent.parent
_RECORDS = {data.FULL: 4_000_000, data.QUICK: 1_000_000, data.TINY: 20_000}
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
SETTINGS = {
    "unix sockets": {"spark.python.unix.domain.socket.enabled": "true"},
    "1,000 rows a batch": {_BATCH: "1000"},
    "100,000 rows a batch": {_BATCH: "100000"},
}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """The share of our own code in a read, then each setting against the defaults."""
    records = _RECORDS[sizes]
    path = directory / "log"
    fill(path, "t", records)
    rounds = 3 if sizes is not data.TINY else 1
    found = interleaved(
        {
            "engine": lambda: clock(lambda: _read_alone(path, records)),
            "spark": lambda: _in_process(path, records, {}),
            "ceiling": lambda: _in_process(path, records, {"ceiling": "true"}),
            **{name: _side(path, records, conf) for name, conf in SETTINGS.items()},
        },
        rounds,
        warmups=0,
    )
    spark = found["spark"]
    what = "our code in a Spark read, all columns"
    yield time_row(what, found["engine"], spark, None, name="the whole read")
    what = "Python worker, socket and JVM alone"
    yield time_row(what, found["ceiling"], spark, None, name="the whole read")
    for name in SETTINGS:
        size = records * RECORD_BYTES
        yield speed_row(f"read with {name}", found[name], spark, size, None, "defaults")


def _side(path: Path, records: int, conf: dict[str, str]):  # type: ignore[no-untyped-def]
    return lambda: _in_process(path, records, conf)


def _read_alone(path: Path, records: int) -> None:
    """The same records through the engine, one partition after the other, on one core."""
    with Store.open(path) as store:
        rows = sum(
            batch.num_rows
            for partition in range(store.topic("t").partitions)
            for batch in store.read("t", partition)
        )
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")


def _in_process(path: Path, records: int, conf: dict[str, str]) -> float:
    given = [f"{name}={value}" for name, value in conf.items()]
    command = [sys.executable, "-m", "benchmarks.settings_worker", str(path), str(records), *given]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])
