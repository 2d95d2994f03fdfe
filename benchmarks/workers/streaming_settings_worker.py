"""One session with given settings: prints the seconds of a micro-batch, and of its checkpoint."""

from __future__ import annotations

import os
import statistics
import sys
import uuid

from pyspark.sql import SparkSession

from ..baselines.trivial import TrivialSource

_ROWS, _FIRST, _PATIENCE_S = 100, 3, 300


def main(directory: str, batches: str, *settings: str) -> None:
    """Run a trivial query and take the medians, without the first batches."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TrivialSource)
    count = int(batches) + _FIRST
    rows = spark.readStream.format("trivial").options(rows=_ROWS, batches=count).load()
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{directory}/{uuid.uuid4()}").start()
    if not query.awaitTermination(_PATIENCE_S):
        raise AssertionError("the query did not end in time")
    progress = [each for each in query.recentProgress if each.numInputRows][_FIRST:]
    spark.stop()
    whole = statistics.median(each.durationMs["triggerExecution"] for each in progress)
    files = statistics.median(
        each.durationMs["walCommit"] + each.durationMs["commitOffsets"] for each in progress
    )
    print(whole / 1e3, files / 1e3)


if __name__ == "__main__":
    main(*sys.argv[1:])
