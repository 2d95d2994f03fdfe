"""A tour: write, read, stream, inspect, crash, recover. Run it with ``make demo``.

The demo works in a temporary directory and removes it at the end. Spark logs to a file there; the
demo prints that file if something fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from cursus_spark import register
from storage_core import Store

TOPIC = "orders"
ORDERS = 10_000


def main() -> None:
    """Run the steps, each in its own function."""
    began = time.monotonic()
    print("cursus-spark stores a log of records in a plain directory. Spark reads and writes it.")
    with tempfile.TemporaryDirectory(prefix="cursus-demo-") as directory:
        path = Path(directory) / "log"
        with started_spark(Path(directory)) as spark:
            write(spark, path)
            read_back(spark, path)
            stream(spark, path, Path(directory) / "checkpoint")
        describe(path)
        acknowledged = crash_a_writer(path)
        read_after_the_crash(path, acknowledged)
        recover(path, acknowledged)
    took = time.monotonic() - began
    print(f"\nDone in {took:.0f} seconds. The directory of this demo is removed.")
    print("Next: the quickstart in README.md, and the programs in examples/README.md.")


@contextmanager
def started_spark(directory: Path) -> Iterator[SparkSession]:
    """A Spark session with two cores; Spark's own messages go to a file."""
    say("Starting Spark on this machine. This takes some seconds ...", indent=0)
    messages = directory / "spark.log"
    terminal = os.dup(2)
    with messages.open("wb") as file:
        os.dup2(file.fileno(), 2)  # Spark's process inherits it
    try:
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("demo")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        register(spark)
        yield spark
        spark.stop()
    except BaseException:
        os.write(terminal, messages.read_bytes())
        raise
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def write(spark: SparkSession, path: Path) -> None:
    title("1. Write a topic with Spark")
    orders = spark.range(ORDERS).selectExpr(
        "concat('customer-', id % 1000) AS key",
        "concat('order ', id) AS value",
        "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, 0, id * 3) AS timestamp",
    )
    show('orders.write.format("cursus").option("topic", "orders").mode("append").save(path)')
    writer = orders.write.format("cursus").option("topic", TOPIC).option("numPartitions", 4)
    writer.mode("append").save(str(path))
    say(f"{ORDERS:,} orders are in the topic 'orders'. It has 4 partitions; the key selects one.")
    say("They became visible all at once, after they were on disk (fsync).")


def read_back(spark: SparkSession, path: Path) -> None:
    title("2. Read it back, by offset and by time")
    columns = "partition int, offset long, timestamp timestamp, value string"
    reader = spark.read.format("cursus").schema(columns)
    say("Each record of a partition has a number, its offset. Three records from offset 40:")
    options = {
        "assign": '{"orders":[0]}',
        "startingOffsets": '{"orders":{"0":40}}',
        "endingOffsets": '{"orders":{"0":43}}',
    }
    show(f"spark.read.format('cursus').options(**{options}).load(path)")
    for row in reader.options(**options).load(str(path)).collect():
        place = f"partition {row.partition} offset {row.offset}"
        print(f"     {place}  {row.timestamp:%H:%M:%S}  {row.value}")
    noon = "2026-01-05T12:00:00Z"
    show(f'.option("startingTimestamp", "{noon}")')
    late = spark.read.format("cursus").options(subscribe=TOPIC, startingTimestamp=noon)
    count = late.load(str(path)).count()
    say(f"{count:,} orders are from noon or later. Spark read only these: it used the time index.")
    require(count == ORDERS - 3600)


def stream(spark: SparkSession, path: Path, checkpoint: Path) -> None:
    title("3. Follow it with a stream, exactly once")
    say("A stream copies about one order in ten to another topic, in batches of 2,500 records:")
    query = (
        spark.readStream.format("cursus")
        .options(subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=2500)
        .option("consumerGroup", "demo")
        .load(str(path))
        .where("crc32(value) % 10 = 0")
        .select("key", "value")
        .writeStream.format("cursus")
        .option("topic", "sample")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(path))
    )
    shown = 0
    while shown < len(query.recentProgress) or query.isActive:
        for progress in query.recentProgress[shown:]:
            print(f"     batch {progress.batchId}: {progress.numInputRows:,} orders read")
            shown += 1
        time.sleep(0.1)
    query.awaitTermination()
    copied = spark.read.format("cursus").option("subscribe", "sample").load(str(path)).count()
    say(f"{copied:,} orders were copied. A batch that runs again after a crash adds nothing.")
    require(copied > 0)


def describe(path: Path) -> None:
    title("4. Inspect it without Spark")
    show("cursus describe log")
    command = [sys.executable, "-m", "storage_core", "describe", str(path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print("     " + shown.replace(str(path), "log").rstrip().replace("\n", "\n     "))


def crash_a_writer(path: Path) -> int:
    """Kill a process during an append; return the number of acknowledged records."""
    title("5. Crash: kill a writer during an append")
    command = [sys.executable, __file__, "--writer", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        say(f"Another process appends. Records up to offset {acknowledged - 1} are acknowledged.")
        size = log_bytes(path)
        while log_bytes(path) == size and writer.poll() is None:
            time.sleep(0.0005)
        writer.kill()
        writer.wait()
    if writer.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer was not killed; it ended with code {writer.returncode}")
    grown = log_bytes(path) - size
    say(f"Then it starts a large append. We kill it (kill -9) after {grown:,} bytes are written.")
    oldest, newest = min(segments(path)), max(segments(path))
    with newest.open("ab") as log:
        log.write(oldest.read_bytes()[:1000])
    say("We also add half a frame to the end of the log, as a power failure may leave it.")
    return acknowledged


def read_after_the_crash(path: Path, acknowledged: int) -> None:
    title("6. Readers are not affected")
    with Store.open(path) as store:
        end = store.offsets(TOPIC, 0).end
        rows = sum(batch.num_rows for batch in store.read(TOPIC, 0))
        say(f"A reader gets {rows} records: exactly the {acknowledged} acknowledged ones.")
        require(end == rows == acknowledged)
        for problem in store.check():
            say(f"check() reports ({problem.severity}): {problem.message}")


def recover(path: Path, acknowledged: int) -> None:
    title("7. Recover")
    with Store.open(path) as store:
        report = next(done for done in store.repair() if (done.topic, done.partition) == (TOPIC, 0))
        say("The next writer recovers the log. repair() does it now and reports what it did:")
        say(f"it truncated {report.cut_bytes} torn bytes and saved them as {report.saved_as};")
        extra = report.end_offset - acknowledged
        say(f"it kept {extra} records that were complete but not yet acknowledged.")
        written = store.append(TOPIC, 0, [b"after the crash"])
        say(f"The next append gets offset {written.start}: no gap, and no offset twice.")
        offsets = [
            offset for batch in store.read(TOPIC, 0) for offset in batch["offset"].to_pylist()
        ]
        require(offsets == list(range(written.end)) and extra >= 0 and report.cut_bytes > 0)
        require(store.check() == [])
        say(f"All {len(offsets)} offsets are there, in order, and check() finds nothing wrong.")


def write_until_killed(path: str) -> None:
    """The other process: one append that is acknowledged, then one that takes long."""
    with Store.open(path) as store:
        done = store.append(TOPIC, 0, [b"acknowledged"] * 50)
        print(done.end, flush=True)
        store.append(TOPIC, 0, [os.urandom(1000)] * 200_000)


def segments(path: Path) -> list[Path]:
    """The log files of partition 0."""
    return list((path / "topics" / TOPIC / "0" / "segments").glob("*.log"))


def log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in segments(path))


def require(condition: bool) -> None:
    if not condition:
        raise RuntimeError("the demo did not find what it expected: please report this as a bug")


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str, indent: int = 3) -> None:
    print(" " * indent + text, flush=True)


def show(code: str) -> None:
    """Print a line that a user could type."""
    print(f"   > {code}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--writer"]:
        write_until_killed(sys.argv[2])
    else:
        main()
