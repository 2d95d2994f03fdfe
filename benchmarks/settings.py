"""Where the time of a Spark read goes, and how Spark's settings change reads and writes.

Some settings apply only when a session starts, so each is measured in a separate process. The
processes alternate like the sides of any other comparison.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from storage_core import Store

from . import data
from .data import RECORD_BYTES, Sizes
from .measure import Row, Samples, clock, interleaved, speed_row, time_row
from .spark_batch import fill

_ROOT = Path(__file__).resolve().parent.parent
_RECORDS = {data.FULL: 2_000_000, data.QUICK: 1_000_000, data.TINY: 20_000}
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Spark's setting changes the batches of a write; the reader chooses those of a read.
SETTINGS = {
    "unix sockets": {"spark.python.unix.domain.socket.enabled": "true"},
    "1,000 rows a batch": {_BATCH: "1000"},
    "50,000 rows a batch": {_BATCH: "50000"},
    "buffers of 1 MiB": {"spark.sql.execution.python.udf.buffer.size": "1048576"},
    "lz4 in the socket": {"spark.sql.execution.arrow.compression.codec": "lz4"},
}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """The share of our own code in a read, then each setting compared with the defaults."""
    records = _RECORDS[sizes]
    path = directory / "log"
    fill(path, "t", records)
    rounds = 2 if sizes is not data.TINY else 1
    written: dict[str, list[float]] = defaultdict(list)

    def session(name: str, conf: dict[str, str]) -> float:
        read, write = _in_process(path, records, conf)
        written[name].append(write)
        return read

    sides: dict[str, Callable[[], float]] = {
        "engine": lambda: clock(lambda: _read_alone(path, records)),
        "spark": partial(session, "spark", {}),
        "ceiling": partial(session, "ceiling", {"ceiling": "true"}),
    }
    sides |= {name: partial(session, name, conf) for name, conf in SETTINGS.items()}
    found = interleaved(sides, rounds, warmups=0)
    spark = found["spark"]
    writes = {name: Samples(tuple(seconds)) for name, seconds in written.items()}
    size = records * RECORD_BYTES
    what = "our code in a Spark read, all columns"
    yield time_row(what, found["engine"], spark, None, name="the whole read")
    what = "Python worker, socket and JVM alone"
    yield time_row(what, found["ceiling"], spark, None, name="the whole read")
    for name, conf in SETTINGS.items():
        if _BATCH not in conf:
            yield speed_row(f"read with {name}", found[name], spark, size, None, "defaults")
        what = f"write with {name}"
        yield speed_row(what, writes[name], writes["spark"], size, None, "defaults")


def _read_alone(path: Path, records: int) -> None:
    """The same records through the engine, one partition after another, on one core."""
    with Store.open(path) as store:
        rows = sum(
            batch.num_rows
            for partition in range(store.topic("t").partitions)
            for batch in store.read("t", partition)
        )
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")


def _in_process(path: Path, records: int, conf: dict[str, str]) -> tuple[float, float]:
    """Seconds of the best read and of the best write in a session with these settings."""
    given = [f"{name}={value}" for name, value in conf.items()]
    command = [
        sys.executable,
        "-m",
        "benchmarks.workers.settings_worker",
        str(path),
        str(records),
        *given,
    ]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    read, write = done.stdout.split()[-2:]
    return float(read), float(write)
