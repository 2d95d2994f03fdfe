"""The drivers of a cluster's tests: ``python -m … TASK ARGUMENTS``, to be killed at any moment.

Each prints what it found as one line of JSON after ``RESULT``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from cursus_spark import register
from storage_core import Store

SOURCE, COPY = "orders", "copies"
PARTITIONS = 4


def session(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    register(spark)
    return spark


def write(
    spark: SparkSession, url: str, options: Mapping[str, str], rows: int, version: int
) -> None:
    """Rows of one version: keys, and values that say version and number."""
    frame = spark.range(0, rows, 1, 4).selectExpr(
        "cast(id as string) as key", f"concat('{version}-', id) as value"
    )
    how: dict[str, Any] = {
        "topic": SOURCE,
        "numPartitions": PARTITIONS,
        "txnAppId": "app",
        "txnVersion": version,
    }
    frame.write.format("cursus").options(**how, **options).mode("append").save(url)


def count(spark: SparkSession, url: str, options: Mapping[str, str], topic: str = SOURCE) -> int:
    return spark.read.format("cursus").options(subscribe=topic, **options).load(url).count()


def job(
    settings: dict[str, str],
    url: str,
    storage: dict[str, str],
    rows: int,
    versions: list[int],
    checkpoint: str,
    batch: int,
) -> None:
    """Write some versions, count what is there, and copy the topic until the copy has as much."""
    options = {f"storage.{name}": value for name, value in storage.items()}
    spark = session(settings)
    for version in versions:
        write(spark, url, options, rows, version)
    found = count(spark, url, options)
    print("RESULT", json.dumps({"read": found}), flush=True)
    source = spark.readStream.format("cursus").options(
        subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=batch, **options
    )
    query = (
        source.load(url).select("key", "value", "partition").writeStream.format("cursus")
        .options(topic=COPY, numPartitions=PARTITIONS, checkpointLocation=checkpoint, **options)
        .trigger(processingTime="0 seconds").start(url)
    )  # fmt: skip
    with Store.open(url, storage=storage) as store:
        while not query.awaitTermination(1):
            if COPY in store.topics() and sum(store.visible_ends(COPY)) >= found:
                break
    query.stop()
    hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print("RESULT", json.dumps({"copied": found, "executors": hosts}), flush=True)
    spark.stop()


TASKS: dict[str, Any] = {"job": job}

if __name__ == "__main__":
    TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
