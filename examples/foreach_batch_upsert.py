"""Keep a database table at the latest state of a topic, and an audit topic beside it, exactly once.

    spark-submit --properties-file conf/spark-defaults.conf \\
        examples/foreach_batch_upsert.py [DIRECTORY]

``foreachBatch`` runs a micro-batch again after a crash, so both targets must take it once: the
table notes the number of the batch in the same transaction as its rows, the topic by
``txnVersion``. The database is SQLite, since Python brings it along; PostgreSQL takes the same
statements.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cursus_spark import register

TABLES = """
CREATE TABLE IF NOT EXISTS customers (name TEXT PRIMARY KEY, city TEXT, changed_at TEXT);
CREATE TABLE IF NOT EXISTS progress (query TEXT PRIMARY KEY, batch INTEGER);
"""
UPSERT = """
INSERT INTO customers VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE
SET city = excluded.city, changed_at = excluded.changed_at
"""
NOTE_BATCH = """
INSERT INTO progress VALUES ('customers', ?)
ON CONFLICT (query) DO UPDATE SET batch = excluded.batch WHERE excluded.batch > progress.batch
"""


def main(directory: Path) -> None:
    """Write changes, follow them in small batches, repeat one batch, look at both targets."""
    log, database = str(directory / "log"), str(directory / "customers.db")
    spark = SparkSession.builder.appName("foreach_batch_upsert").getOrCreate()
    register(spark)
    write_changes(spark, log)
    with closing(sqlite3.connect(database)) as tables:
        tables.executescript(TABLES)
    changes = (
        spark.readStream.format("cursus")
        .option("subscribe", "changes")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .schema("key string, value string, offset long, timestamp timestamp")
        .load(log)
    )

    def take(batch: DataFrame, number: int) -> None:
        upsert(batch, number, database)
        audit(batch, number, log)
        if number == 1:  # as after a crash that follows both writes: Spark runs the batch again
            upsert(batch, number, database)
            audit(batch, number, log)

    query = (
        changes.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    look(spark, log, database)
    spark.stop()


def upsert(batch: DataFrame, number: int, database: str) -> None:
    """The last change of each customer in this batch, unless the table has the batch already."""
    last = batch.groupBy("key").agg(sf.max(sf.struct("offset", "value", "timestamp")))
    rows = [(row[0], row[1]["value"], str(row[1]["timestamp"])) for row in last.collect()]
    with closing(sqlite3.connect(database)) as tables, tables:  # one transaction
        if tables.execute(NOTE_BATCH, (number,)).rowcount:
            tables.executemany(UPSERT, rows)
        else:
            print(f"batch {number} is in the table already")


def audit(batch: DataFrame, number: int, log: str) -> None:
    """Who changed in this batch, into a topic of the same log."""
    lines = batch.groupBy("key").count().selectExpr("key", "concat(count, ' changes') AS value")
    once: dict[str, str | int] = {"txnAppId": "customers-audit", "txnVersion": number}
    lines.write.format("cursus").options(topic="audit", **once).mode("append").save(log)


def write_changes(spark: SparkSession, log: str) -> None:
    """A thousand moves of ten customers; the order within a customer is the order of its key."""
    changes = spark.range(1000).selectExpr(
        "concat('customer-', id % 10) AS key",
        "concat('city-', id) AS value",
        "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, id) AS timestamp",
    )
    writer = changes.coalesce(1).write.format("cursus").options(topic="changes", numPartitions=2)
    writer.mode("append").save(log)


def look(spark: SparkSession, log: str, database: str) -> None:
    """Both targets, as they should be after a thousand changes in three batches."""
    with closing(sqlite3.connect(database)) as tables:
        customers = tables.execute("SELECT name, city FROM customers ORDER BY name").fetchall()
    lines = spark.read.format("cursus").option("subscribe", "audit").load(log)
    total = lines.selectExpr("sum(int(split(string(value), ' ')[0]))").collect()[0][0]
    for name, city in customers:
        print(f"{name} lives in {city}")
    print(f"{len(customers)} customers in the table, {total} changes in the audit topic")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-upsert-") as folder:
            main(Path(folder))
