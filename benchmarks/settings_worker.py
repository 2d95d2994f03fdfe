"""One Spark session with given settings: prints the seconds of its best read."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from cursus_spark import register

from .ceiling import CeilingSource
from .spark_batch import drain

_ROUNDS = 4


def main(path: str, records: str, *settings: str) -> None:
    """Read the topic ``t`` at ``path`` into nothing, several times."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    chosen = dict(setting.split("=", 1) for setting in settings)
    ceiling = chosen.pop("ceiling", None)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(CeilingSource)
    frame = spark.read.format("cursus").option("subscribe", "t").load(path)
    if ceiling:
        tasks = frame.rdd.getNumPartitions()
        frame = spark.read.format("ceiling").options(rows=records, tasks=tasks).load()
    seconds = [drain(frame) for _ in range(_ROUNDS)]
    spark.stop()
    print(min(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
