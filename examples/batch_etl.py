"""A nightly job: write yesterday's raw orders to a clean topic, bad ones to another, and a report.

    spark-submit --properties-file conf/spark-defaults.conf examples/batch_etl.py [DIRECTORY] [DAY]

You can run the job again at any time: it reads a fixed range of time, and each topic stores a day
only once.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cursus_spark import register

JOB = "nightly-orders"
SHAPE = "order long, customer string, cents long"


def main(directory: Path, day: date) -> None:
    """Run the job twice, as after a failure; the second run adds nothing."""
    log = str(directory / "log")
    spark = SparkSession.builder.appName(JOB).getOrCreate()
    register(spark)
    write_raw_orders(spark, log)
    for attempt in ("first", "second"):
        run(spark, log, directory / "report", day)
        totals = {topic: count(spark, log, topic) for topic in ("orders", "rejected")}
        print(f"{attempt} run for {day}: {totals['orders']} clean, {totals['rejected']} rejected")
    spark.read.parquet(str(directory / "report")).orderBy("day", "customer").show()
    spark.stop()


def write_raw_orders(spark: SparkSession, log: str) -> None:
    """Write three days of orders; every 50th is not JSON."""
    raw = spark.range(3 * 480).selectExpr(
        "timestamp'2026-01-05 00:00:00Z' + make_dt_interval(0, 0, id * 3) AS timestamp",
        """if(id % 50 = 7, concat('order ', id, ' oops'), to_json(named_struct(
            'order', id, 'customer', element_at(array('ada', 'bob', 'eve'), int(id % 3 + 1)),
            'cents', 100 + id * 7 % 900))) AS value""",
    )
    save(raw, log, "raw", txnAppId="shop", txnVersion=1, numPartitions=2)


def run(spark: SparkSession, log: str, report: Path, day: date) -> None:
    """Process one day. Each day is an application of its own, so days may come in any order."""
    raw = (
        spark.read.format("cursus")
        .option("subscribe", "raw")
        .option("startingTimestamp", f"{day}T00:00:00Z")
        .option("endingTimestamp", f"{day + timedelta(days=1)}T00:00:00Z")
        .schema("value string, partition int, offset long, timestamp timestamp")
        .load(log)
    )
    parsed = raw.withColumn("order", sf.from_json("value", SHAPE)).withColumn(
        "good", sf.expr("order.customer IS NOT NULL AND order.cents > 0")
    )
    once: dict[str, str | int] = {"txnAppId": f"{JOB}-{day}", "txnVersion": 1}
    good = parsed.where("good").select(
        sf.col("order.customer").alias("key"), sf.to_json("order").alias("value"), "timestamp"
    )
    save(good, log, "orders", **once)
    # The header holds the origin of the record, so that a person can find it and write it again.
    bad = parsed.where("NOT good").selectExpr(
        "value",
        "timestamp",
        "array(named_struct('key', 'from', 'value', "
        "cast(concat('raw-', partition, '@', offset) AS binary))) AS headers",
    )
    save(bad, log, "rejected", **once)
    totals = (
        parsed.where("good")
        .groupBy("order.customer")
        .agg(sf.count("*").alias("orders"), sf.sum("order.cents").alias("cents"))
    )
    totals.coalesce(1).write.mode("overwrite").parquet(f"{report}/day={day}")


def save(rows: DataFrame, log: str, topic: str, **options: str | int) -> None:
    """Append rows; a version that the topic already has adds nothing."""
    rows.write.format("cursus").options(topic=topic, **options).mode("append").save(log)


def count(spark: SparkSession, log: str, topic: str) -> int:
    """The number of records in a topic."""
    topics = spark.read.format("cursus").option("subscribe", topic).schema("offset long")
    return topics.load(log).count()


if __name__ == "__main__":
    which = date.fromisoformat(sys.argv[2]) if len(sys.argv) > 2 else date(2026, 1, 6)
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), which)
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-etl-") as folder:
            main(Path(folder), which)
