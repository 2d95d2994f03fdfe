"""Compute totals of orders every ten minutes, each exactly once, even if the program is killed.

    spark-submit --properties-file conf/spark-defaults.conf \\
        examples/streaming_pipeline.py DIRECTORY [--crash-in-batch N]

With ``--crash-in-batch`` the driver kills itself (SIGKILL) while that micro-batch runs. Start the
program again without it: it continues from its checkpoint, and the totals are the same as without
the crash. At the end the program compares them with a batch query over the same orders.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from cursus_spark import register

ORDERS = 6_000
PER_BATCH = 1_500
LATENESS = "5 minutes"


def main(directory: Path, crash_in_batch: int | None) -> None:
    """Write orders once, run the stream, compare the totals."""
    log = str(directory / "log")
    spark = SparkSession.builder.appName("streaming_pipeline").getOrCreate()
    register(spark)
    write_orders(spark, log)
    query = start(spark, log, str(directory / "checkpoint"), crash_in_batch)
    query.awaitTermination()
    for progress in query.recentProgress:
        print(f"batch {progress.batchId}: {progress.numInputRows} orders in")
    compare(spark, log)
    spark.stop()


def write_orders(spark: SparkSession, log: str) -> None:
    """Write ten hours of orders. A second run adds none, because the version is the same."""
    orders = spark.range(ORDERS).selectExpr(
        "concat('shop-', id % 3) AS key",
        "string(100 + id * 7 % 900) AS value",
        "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, 0, id * 6) AS timestamp",
    )
    once: dict[str, Any] = {"txnAppId": "shops", "txnVersion": 1}
    writer = orders.write.format("cursus").options(topic="orders", numPartitions=3, **once)
    writer.mode("append").save(log)


def totals(orders: DataFrame) -> DataFrame:
    """Orders and cents of each shop in each ten minutes, for a stream or a batch."""
    return (
        orders.withWatermark("timestamp", LATENESS)
        .groupBy(sf.window("timestamp", "10 minutes").alias("time"), "key")
        .agg(sf.count("*").alias("orders"), sf.sum(sf.col("value").cast("long")).alias("cents"))
    )


def start(
    spark: SparkSession, log: str, checkpoint: str, crash_in_batch: int | None
) -> StreamingQuery:
    """Start the stream: each window becomes one record when no late order can arrive."""
    orders = (
        spark.readStream.format("cursus")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .option("consumerGroup", "totals")  # `cursus groups` shows its lag
        .load(log)
        .selectExpr("string(key) AS key", "string(value) AS value", "timestamp")
    )
    if crash_in_batch is not None:
        orders = orders.where(crash_when_batch_runs(spark, crash_in_batch)(sf.col("key")))
    records = totals(orders).selectExpr(
        "key",
        "to_json(named_struct('from', time.start, 'orders', orders, 'cents', cents)) AS value",
        "time.end AS timestamp",
    )
    return (
        records.writeStream.format("cursus")
        .option("topic", "totals")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(log)
    )


def crash_when_batch_runs(spark: SparkSession, batch: int) -> Any:
    """A filter that passes every row, and kills the driver in one micro-batch."""
    jvm: Any = spark.sparkContext._jvm
    driver = jvm.java.lang.ProcessHandle.current().pid()

    def survive(_: str) -> bool:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if task.getLocalProperty("streaming.sql.batchId") == str(batch):
            os.kill(driver, signal.SIGKILL)
        return True

    return sf.udf(survive, "boolean", useArrow=False)


def compare(spark: SparkSession, log: str) -> None:
    """Compare the stream's totals with those of a batch query."""
    shape = "from timestamp, orders long, cents long"
    written = (
        spark.read.format("cursus")
        .option("subscribe", "totals")
        .schema("key string, value string")
        .load(log)
        .select("key", sf.from_json("value", shape).alias("total"))
        .select("key", "total.*")
    )
    orders = spark.read.format("cursus").option("subscribe", "orders")
    expected = (
        totals(orders.schema("key string, value string, timestamp timestamp").load(log))
        .selectExpr("key", "time.start AS from", "orders", "cents", "time.end AS end")
        # The last windows are still open, because a late order could arrive for them.
        .where(f"end <= timestamp'2026-01-05 18:59:54Z' - interval {LATENESS}")
        .drop("end")
    )
    found = written.count()
    missing = expected.exceptAll(written).count()
    surplus = written.exceptAll(expected).count()
    print(f"{found} totals written; {missing} missing, {surplus} too many")
    if missing or surplus or not found:
        raise SystemExit("the totals differ from those of a batch query over the same orders")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compute totals of orders, exactly once.")
    parser.add_argument("directory", type=Path, help="directory for log and checkpoint")
    parser.add_argument(
        "--crash-in-batch", type=int, metavar="N", help="kill the driver in batch N"
    )
    given = parser.parse_args()
    main(given.directory, given.crash_in_batch)
