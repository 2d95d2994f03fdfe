"""Keep the latest state of a topic in a database table, and write an audit topic, exactly once.

    spark-submit --properties-file conf/spark-defaults.conf \\
        examples/foreach_batch_upsert.py [DIRECTORY]

``foreachBatch`` runs a micro-batch again after a crash, so both targets must store it only once.
The database stores the number of the batch in the same transaction as its rows. The topic gets it
as ``txnVersion``. The database is SQLite, which is part of Python; the statements also work in
PostgreSQL.
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
    """Write changes, process them in small batches, repeat one batch, print both targets."""
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
        if number == 1:  # Spark runs the batch again, as after a crash
            upsert(batch, number, database)
            audit(batch, number, log)

    query = (
        changes.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    show(spark, log, database)
    spark.stop()


def upsert(batch: DataFrame, number: int, database: str) -> None:
    """Write the last change of each customer, unless the table already has this batch."""
    last = batch.groupBy("key").agg(sf.max(sf.struct("offset", "value", "timestamp")))
    rows = [(row[0], row[1]["value"], str(row[1]["timestamp"])) for row in last.collect()]
    with closing(sqlite3.connect(database)) as tables, tables:  # one transaction
        if tables.execute(NOTE_BATCH, (number,)).rowcount:
            tables.executemany(UPSERT, rows)
        else:
            print(f"batch {number} is already in the table")


def audit(batch: DataFrame, number: int, log: str) -> None:
    """Write the number of changes of each customer in this batch to the audit topic."""
    lines = batch.groupBy("key").count().selectExpr("key", "concat(count, ' changes') AS value")
    once: dict[str, str | int] = {"txnAppId": "customers-audit", "txnVersion": number}
    lines.write.format("cursus").options(topic="audit", **once).mode("append").save(log)


def write_changes(spark: SparkSession, log: str) -> None:
    """Write a thousand moves of ten customers; the key keeps each customer's moves in order."""
    changes = spark.range(1000).selectExpr(
        "concat('customer-', id % 10) AS key",
        "concat('city-', id) AS value",
        "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, id) AS timestamp",
    )
    writer = changes.coalesce(1).write.format("cursus").options(topic="changes", numPartitions=2)
    writer.mode("append").save(log)


def show(spark: SparkSession, log: str, database: str) -> None:
    """Print both targets after a thousand changes in three batches."""
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
