"""One Spark session with given settings: prints the seconds of its best read and best write."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from cursus_spark import register

from ..baselines.ceiling import CeilingSource
from ..measure import clock
from ..spark_batch import drain, rows_to_write

_ROUNDS = 4


def main(path: str, records: str, *settings: str) -> None:
    """Read the topic ``t`` at ``path`` and discard it, and write the same amount, several times."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "3g")
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
    reads = [drain(frame) for _ in range(_ROUNDS)]
    writes = [0.0] if ceiling else _writes(spark, Path(f"{path}-written"), int(records))
    spark.stop()
    print(min(reads), min(writes))


def _writes(spark: SparkSession, target: Path, records: int) -> list[float]:
    plain, _ = rows_to_write(spark, records)
    writer = plain.write.format("cursus").options(topic="t", numPartitions=4).mode("append")
    seconds = []
    for _ in range(_ROUNDS):
        seconds.append(clock(lambda: writer.save(str(target))))
        shutil.rmtree(target)
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
