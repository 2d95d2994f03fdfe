"""Streaming queries in a process of their own, with a JVM of its own: to be killed as a whole.

``python -m tests.cursus_spark.stream_child TASK ARGUMENTS`` runs until its work is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cursus_spark import register
from tests.cursus_spark.killing import KillingDataSource
from tests.cursus_spark.streams import Streams, finish, until

ROOT = Path(__file__).resolve().parent.parent.parent


def chain(path: str, deaths: str, records: int) -> None:
    """Copy topic a to b and b to c, at once, until c holds all records."""
    spark = _session(SparkSession.builder.master("local[2]"))
    spark.dataSource.register(KillingDataSource)
    streams = Streams(spark, Path(path), "cursus-killing")
    queries = []
    for source, sink in (("a", "b"), ("b", "c")):
        streams.options = {"deaths": f"{deaths}/{sink}"}
        rows = streams.read(source, maxOffsetsPerTrigger=8).select("value", "partition")
        always = {"processingTime": "0 seconds"}
        queries.append(streams.write(rows, sink, trigger=always, numPartitions=2))
    with streams.store() as store:
        until(lambda: sum(store.visible_ends("c")) >= records, queries[-1])
    streams.stop()


def connect(path: str) -> None:
    """The same source and sink through Spark Connect."""
    spark = _session(SparkSession.builder.remote("local[2]"))
    streams = Streams(spark, Path(path))
    for most in (10, 1000):
        rows = streams.read("a", maxOffsetsPerTrigger=most).select("value", "partition")
        finish(streams.write(rows, "b"))
    spark.stop()


TASKS: dict[str, Callable[..., None]] = {"chain": chain, "connect": connect}


def _session(builder: Any) -> SparkSession:
    session: SparkSession = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    register(session)
    return session


def start(task: str, output: Path, **arguments: Any) -> subprocess.Popen[bytes]:
    """Start a task as the leader of a process group; what it says goes to a file."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("SPARK_CONNECT_MODE_ENABLED", None)
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cursus_spark.stream_child", task, json.dumps(arguments)],
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            stdout=file,
            stderr=file,
        )


if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
