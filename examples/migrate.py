"""Copy a broker's log directory into a native store, and verify that no record is lost.

    spark-submit --properties-file conf/spark-defaults.conf examples/migrate.py [SOURCE TARGET]

Every record keeps its offset, so consumers can continue at their offsets. The source is not
changed. After an interruption run the same command again to continue. ``cursus convert SOURCE
TARGET`` copies without Spark; here Spark compares both sides, record by record, with all its cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cursus_spark import register
from storage_core import Progress, Store, convert


def main(source: Path, target: Path) -> None:
    """Copy, then compare."""
    for done in convert(source, target, progress=report):
        print(
            f"{done.topic}-{done.partition}: offsets {done.offsets.start} to "
            f"{done.offsets.end - 1}, {done.copied} copied now"
        )
    with Store.open(target) as store:
        topics, problems = store.topics(), store.check()
        print(f"the target is a store of layout {store.layout!r} with {len(problems)} problems")
    compare(source, target, topics)


def report(progress: Progress) -> None:
    """Print the progress, if standard error is a terminal."""
    if sys.stderr.isatty():
        share = 100 * progress.records // max(progress.total_records, 1)
        where = f"{progress.topic}-{progress.partition}"
        print(f"\r{progress.phase} {where}: {share} % ", end="", file=sys.stderr)


def compare(source: Path, target: Path, topics: list[str]) -> None:
    """Compare every record of every topic."""
    spark = SparkSession.builder.appName("migrate").getOrCreate()
    register(spark)

    def records(directory: Path, topic: str) -> list[tuple[int, int, int]]:
        """Number of records and checksum of each partition, computed by the executors."""
        rows = (
            spark.read.format("cursus")
            .option("subscribe", topic)
            .schema("partition int, offset long, key binary, value binary")
            .load(str(directory))
            .groupBy("partition")
            .agg(
                sf.count("*"),
                sf.bit_xor(sf.xxhash64("partition", "offset", "key", "value")),
            )
        )
        return sorted((row[0], row[1], row[2]) for row in rows.collect())

    for topic in topics:
        same = records(source, topic) == records(target, topic)
        print(f"{topic}: {'the same on both sides' if same else 'DIFFERENT'}")
        if not same:
            raise SystemExit(f"{topic} differs: keep the source, and report this as a bug")
    spark.stop()


def make_source(directory: Path) -> Path:
    """Write a small directory in RustLog's layout."""
    with Store.open(directory, layout="rustlog", create=True) as store:
        for topic, partitions in (("orders", 2), ("clicks", 1)):
            store.create_topic(topic, partitions=partitions)
            for partition in range(partitions):
                store.append(topic, partition, [f"{topic} {n}".encode() for n in range(5_000)])
    return directory


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-migrate-") as folder:
            main(make_source(Path(folder) / "rustlog"), Path(folder) / "native")
