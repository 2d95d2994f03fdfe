"""Any DataFrame in, the same DataFrame out: a typed topic, what it skips, how it evolves.

spark-submit --properties-file conf/spark-defaults.conf examples/typed_events.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cursus_spark import register
from storage_core import Store

EVENTS = 20_000


def main(directory: Path) -> None:
    """Run five short steps."""
    log = str(directory / "log")
    spark = SparkSession.builder.appName("typed-events").getOrCreate()
    register(spark)  # not needed where the package is installed
    events = some_events(spark)
    write_and_read(events, log)
    find(spark, log)
    add_a_column(events, log)
    copy_in_a_stream(spark, log, str(directory / "checkpoint"))
    spark.stop()
    read_without_spark(log)


def write_and_read(events: DataFrame, log: str) -> None:
    """Write a DataFrame as it is, and get the same one back."""
    writer = events.write.format("cursus").option("topic", "events").option("numPartitions", 2)
    writer = writer.option("keyColumns", "user").option("timestampColumn", "ts")
    writer.mode("append").save(log)
    again = events.sparkSession.read.format("cursus").option("subscribe", "events").load(log)
    changed = again.exceptAll(events).count()
    print(f"1. wrote {EVENTS} events as they are, read {again.count()} back, {changed} changed")
    again.printSchema()


def find(spark: SparkSession, log: str) -> None:
    """Read some rows and some columns."""
    large = (
        spark.read.format("cursus")
        .option("subscribe", "events")
        .option("where", "amount >= 990 and ts >= '2026-11-10'")  # skips what cannot match
        .schema("user string, amount double, _offset long")  # decodes three columns
        .load(log)
    )
    print("2. since 10 November there were", large.count(), "large amounts")


def add_a_column(events: DataFrame, log: str) -> None:
    """Write rows that have one column more."""
    newer = events.where("id < 100").selectExpr("*", "'eu' AS region")
    writer = newer.write.format("cursus").option("topic", "events").option("mergeSchema", "true")
    writer.mode("append").save(log)
    grown = events.sparkSession.read.format("cursus").option("subscribe", "events").load(log)
    with_region = grown.where("region IS NOT NULL").count()
    print(f"3. added a column with {with_region} rows; the others have null there")


def copy_in_a_stream(spark: SparkSession, log: str, checkpoint: str) -> None:
    """Copy some rows to another topic."""
    query = (
        spark.readStream.format("cursus")
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .load(log)
        .where("ctx.ms > 80")
        .writeStream.format("cursus")
        .option("topic", "slow")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(log)
    )
    query.awaitTermination()
    slow = spark.read.format("cursus").option("subscribe", "slow").load(log)
    print("4. a stream copied", slow.count(), "slow events with all their columns, exactly once")


def read_without_spark(log: str) -> None:
    """Read some columns into an Arrow table."""
    with Store.open(log) as store:
        scan = store.scan("events", columns=["user", "amount"], where="amount >= 999")
        rows = scan.to_table().num_rows
        print(f"5. without Spark: {rows} rows by Store.scan")


def some_events(spark: SparkSession) -> DataFrame:
    """One event a minute, with nested columns."""
    return spark.range(EVENTS).selectExpr(
        "id",
        "concat('user-', id % 100) AS user",
        "timestamp'2026-11-01 00:00:00Z' + make_dt_interval(0, 0, id) AS ts",
        "cast(id % 1000 AS double) AS amount",
        "array('web', concat('tag-', id % 7)) AS tags",
        "named_struct('ip', concat('10.0.0.', id % 256), 'ms', int(id % 90)) AS ctx",
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-typed-") as folder:
            main(Path(folder))
