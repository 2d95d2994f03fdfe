"""Read the log directory of a broker. The broker need not run, and its files do not change.

    spark-submit --properties-file conf/spark-defaults.conf examples/read_broker_logs.py [DIRECTORY]

DIRECTORY may belong to a cursus broker or to RustLog; the files show which one. Without
DIRECTORY the program writes a small directory of each kind and reads it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from cursus_spark import register
from storage_core import Store


def main(directories: list[Path]) -> None:
    """Print the topics of each directory, then read each as a batch and as a stream."""
    spark = SparkSession.builder.appName("read_broker_logs").getOrCreate()
    register(spark)
    for directory in directories:
        with Store.open(directory) as store:
            topics = store.topics()
            print(f"{directory.name}: a directory of layout {store.layout!r}, topics {topics}")
        for topic in topics:
            show(spark, directory, topic)
            follow(spark, directory, topic)
    spark.stop()


def show(spark: SparkSession, directory: Path, topic: str) -> None:
    """Read a batch. Brokers store no timestamps, so ``timestamp`` is null."""
    reader = spark.read.format("cursus").option("subscribe", topic).option("includeHeaders", "true")
    rows = reader.load(str(directory))
    print(f"{topic}: {rows.count()} records; the first of each partition:")
    rows.where("offset < 1").selectExpr(
        "partition",
        "offset",
        "string(key) AS key",
        "string(value) AS value",
        "transform(headers, h -> concat(h.key, '=', string(h.value))) AS headers",
    ).orderBy("partition").show(truncate=False)


def follow(spark: SparkSession, directory: Path, topic: str) -> None:
    """Read a stream. Without ``availableNow`` it would continue with new records."""
    counts: list[int] = []
    rows = (
        spark.readStream.format("cursus")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .schema("value string")
        .load(str(directory))
    )
    with tempfile.TemporaryDirectory(prefix="cursus-checkpoint-") as checkpoint:
        query = (
            rows.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    print(f"{topic}: a stream read {sum(counts)} records\n")


def make_directories(parent: Path) -> list[Path]:
    """Write small directories in the layouts of both brokers."""
    made = []
    for layout in ("cursus-broker", "rustlog"):
        directory = parent / layout
        with Store.open(directory, layout=layout, create=True) as store:
            store.create_topic("orders", partitions=2)
            for partition in range(2):
                values = [f"order {partition}.{number}".encode() for number in range(100)]
                if layout == "cursus-broker":
                    facts = [{"producer": b"shop-1", "seq": b"%d" % (n + 1)} for n in range(100)]
                    store.append("orders", partition, values, keys=[b"ada"] * 100, headers=facts)
                else:
                    store.append("orders", partition, values)
        made.append(directory)
    return made


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main([Path(sys.argv[1])])
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-brokers-") as folder:
            main(make_directories(Path(folder)))
