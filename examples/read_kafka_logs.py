"""Read the log directory of a Kafka broker. No broker runs, and its files do not change.

    spark-submit --properties-file conf/spark-defaults.conf examples/read_kafka_logs.py \\
        /var/lib/kafka/data [NATIVE]

With NATIVE the topics are also copied into a native store, with offsets, times and headers. Run it
again after an interruption, and it continues.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cursus_spark import register
from storage_core import Store, convert


def main(directory: Path, native: Path | None) -> None:
    """Print what is in the directory, then copy it if there is a place for it."""
    with Store.open(directory, layout="kafka") as store:
        topics = store.topics()
        for topic in topics:
            ends = store.visible_ends(topic)
            print(f"{topic}: {len(ends)} partitions, high watermarks {list(ends)}")
    spark = SparkSession.builder.appName("read_kafka_logs").getOrCreate()
    register(spark)
    show(spark, directory, topics)
    if native is not None:
        copied = sum(it.copied for it in convert(directory, native))
        print(f"copied {copied} records into {native.name}")
    spark.stop()


def show(spark: SparkSession, directory: Path, topics: list[str]) -> None:
    """One row for each partition. Offsets may have holes: markers and compacted records."""
    rows = (
        spark.read.format("cursus")
        .option("subscribe", ",".join(topics))
        .option("includeHeaders", "true")
        .load(str(directory))
    )
    rows.groupBy("topic", "partition").agg(
        sf.count("*").alias("records"),
        sf.min("offset").alias("first"),
        sf.max("offset").alias("last"),
        sf.min("timestamp").alias("oldest"),
        sf.sum(sf.expr("coalesce(size(headers), 0)")).alias("headers"),
    ).orderBy("topic", "partition").show(truncate=False)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: read_kafka_logs.py DIRECTORY [NATIVE]")
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else None)
