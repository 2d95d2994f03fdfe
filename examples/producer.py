"""Append 100,000 single records from two processes beside a running stream; none is lost.

    spark-submit --properties-file conf/spark-defaults.conf examples/producer.py [DIRECTORY]

The producers are plain Python: ``python examples/producer.py --produce LOG NAME`` starts one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

from storage_core import DiskManager, Store, StoreConfig

PRODUCERS = ("ada", "grace")
RECORDS = 50_000


def produce(log: str, name: str) -> None:
    """Append records one by one, and end when all are acknowledged."""
    acknowledged, failed = 0, []

    def count(future: Future[int]) -> None:
        nonlocal acknowledged
        if (error := future.exception()) is not None:
            failed.append(error)
        else:
            acknowledged += 1

    start = time.perf_counter()
    with DiskManager(StoreConfig(log_dir=log)) as manager:
        for number in range(RECORDS):
            record = manager.append("taps", f"{name} {number}", key=f"{name}-{number % 100}")
            record.add_done_callback(count)
    took = time.perf_counter() - start
    print(f"{name}: {acknowledged} acknowledged, {len(failed)} failed, in {took:.1f} s", flush=True)
    if failed:
        raise SystemExit(f"first error: {failed[0]}")


def main(directory: Path) -> None:
    """Start a stream, then two producers; stop the stream when it has read everything."""
    from pyspark.sql import SparkSession

    from cursus_spark import register

    log = str(directory / "log")
    with Store.open(log, create=True) as store:
        store.create_topic("taps", partitions=4, exist_ok=True)
    spark = SparkSession.builder.appName("producer").getOrCreate()
    register(spark)
    copy = (
        spark.readStream.format("cursus")
        .option("subscribe", "taps")
        .option("startingOffsets", "earliest")
        .option("consumerGroup", "copy")  # `cursus groups` and `cursus metrics` show its lag
        .load(log)
        .select("key", "value")
        .writeStream.format("cursus")
        .option("topic", "copy")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start(log)
    )
    command = [sys.executable, __file__, "--produce", log]
    children = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in PRODUCERS
    ]
    for child in children:
        print(child.communicate()[0], end="")
    copy.processAllAvailable()
    batches = sum(progress.numInputRows > 0 for progress in copy.recentProgress)
    copy.stop()
    with Store.open(log) as store:
        wanted = {f"{name} {number}" for name in PRODUCERS for number in range(RECORDS)}
        found = store.scan("copy", columns=["value"]).to_table()["value"].to_pylist()
        missing = len(wanted - {value.decode() for value in found})
    print(f"the stream copied {len(found)} records in {batches} batches while they were written")
    print(f"{missing} missing, {len(found) - len(wanted) + missing} too many")
    spark.stop()
    if any(child.returncode for child in children) or missing or len(found) != len(wanted):
        raise SystemExit("records are missing or there twice")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--produce"]:
        produce(*sys.argv[2:])
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
