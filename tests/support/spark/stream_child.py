"""Streaming queries in a process of their own, with a JVM of its own: to be killed as a whole.

``python -m tests.support.spark.stream_child ARGUMENTS`` runs until its work is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.paths import ROOT
from tests.support.spark.killing import KillingDataSource
from tests.support.spark.streams import Streams, until


def chain(path: str, deaths: str, records: int) -> None:
    """Copy topic a to b and b to c, at once, until c holds all records."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
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


def start(output: Path, **arguments: Any) -> subprocess.Popen[bytes]:
    """Start the chain as the leader of a process group; what it says goes to a file."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.spark.stream_child", json.dumps(arguments)],
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            stdout=file,
            stderr=file,
        )


if __name__ == "__main__":
    chain(**json.loads(sys.argv[1]))
