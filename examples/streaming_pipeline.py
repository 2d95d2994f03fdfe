"""Orders in, totals of ten minutes out, each total exactly once, also if the program is killed.

    spark-submit --properties-file conf/spark-defaults.conf \\
        examples/streaming_pipeline.py DIRECTORY [--crash-in-batch N]

With ``--crash-in-batch`` the driver kills itself (SIGKILL) while that micro-batch runs. Start the
program again without it: it goes on from its checkpoint, and the totals are the same as if nothing
had happened. It proves that at the end, against a batch query over the same orders.
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
    """Write orders once, run the stream to its end, compare."""
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
    """Orders of ten hours, one every six seconds. A second run adds none: its version is known."""
    orders = spark.range(ORDERS).selectExpr(
        "concat('shop-', id % 3) AS key",
        "string(100 + id * 7 % 900) AS value",
        "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, 0, id * 6) AS timestamp",
    )
    once: dict[str, Any] = {"txnAppId": "shops", "txnVersion": 1}
    writer = orders.write.format("cursus").options(topic="orders", numPartitions=3, **once)
    writer.mode("append").save(log)


def totals(orders: DataFrame) -> DataFrame:
    """Orders and cents of each shop in each ten minutes; the same for a stream and a batch."""
    return (
        orders.withWatermark("timestamp", LATENESS)
        .groupBy(sf.window("timestamp", "10 minutes").alias("time"), "key")
        .agg(sf.count("*").alias("orders"), sf.sum(sf.col("value").cast("long")).alias("cents"))
    )


def start(
    spark: SparkSession, log: str, checkpoint: str, crash_in_batch: int | None
) -> StreamingQuery:
    """The stream: the window that is over, and late orders waited for, becomes one record."""
    orders = (
        spark.readStream.format("cursus")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .option("consumerGroup", "totals")  # `cursus groups` then shows how far it is
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
    """A filter that lets every row pass, and in one micro-batch kills the driver."""
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
    """The stream's records against a batch query: the same totals, none missing, none twice."""
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
        # The last windows are still open: an order for them could come. They wait in the state.
        .where(f"end <= timestamp'2026-01-05 18:59:54Z' - interval {LATENESS}")
        .drop("end")
    )
    found = written.count()
    missing = expected.exceptAll(written).count()
    surplus = written.exceptAll(expected).count()
    print(f"{found} totals written; {missing} missing, {surplus} too many")
    if missing or surplus or not found:
        raise SystemExit("the totals are not what a batch query over the same orders gives")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Orders in, totals out, exactly once.")
    parser.add_argument("directory", type=Path, help="where log and checkpoint are kept")
    parser.add_argument("--crash-in-batch", type=int, metavar="N", help="kill the driver there")
    given = parser.parse_args()
    main(given.directory, given.crash_in_batch)
