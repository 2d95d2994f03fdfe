"""The tour: write, read, stream, inspect, crash, recover. Run it with ``make demo``.

Everything happens in a temporary directory that is removed at the end. Spark logs to a file there;
the demo prints that file if something fails.
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
    """Walk through the steps, each in its own function."""
    began = time.monotonic()
    print(
        "cursus-spark keeps a log of records in a plain directory, and Spark reads and writes it."
    )
    with tempfile.TemporaryDirectory(prefix="cursus-demo-") as directory:
        path = Path(directory) / "log"
        with started_spark(Path(directory)) as spark:
            write(spark, path)
            read_back(spark, path)
            stream(spark, path, Path(directory) / "checkpoint")
        describe(path)
        acknowledged = crash_a_writer(path)
        look_after_the_crash(path, acknowledged)
        recover(path, acknowledged)
    took = time.monotonic() - began
    print(f"\nDone in {took:.0f} seconds. The directory of this demo is gone again.")
    print("Next: the quickstart in README.md, programs to copy from in examples/README.md.")


@contextmanager
def started_spark(directory: Path) -> Iterator[SparkSession]:
    """A session with two cores whose own messages go to a file."""
    say("Starting Spark on this machine; this takes some seconds ...", indent=0)
    messages = directory / "spark.log"
    terminal = os.dup(2)
    with messages.open("wb") as file:
        os.dup2(file.fileno(), 2)  # inherited by Spark's own process, which keeps it
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
    say(f"{ORDERS:,} orders are in the topic 'orders'. It has 4 partitions; the key chooses one.")
    say("All of them appeared at once, and only after the disk had them (fsync).")


def read_back(spark: SparkSession, path: Path) -> None:
    title("2. Read it back, by offset and by time")
    columns = "partition int, offset long, timestamp timestamp, value string"
    reader = spark.read.format("cursus").schema(columns)
    say("Inside a partition every record has a number, its offset. Three records from offset 40:")
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
    say(f"{count:,} orders came at noon or later. Only those were read: an index leads there.")
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
    say(f"{copied:,} were copied. A batch that is run again after a crash adds nothing.")
    require(copied > 0)


def describe(path: Path) -> None:
    title("4. Inspect it without Spark")
    show("cursus describe log")
    command = [sys.executable, "-m", "storage_core", "describe", str(path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print("     " + shown.replace(str(path), "log").rstrip().replace("\n", "\n     "))


def crash_a_writer(path: Path) -> int:
    """Kill a process in the middle of an append; return how many records it had acknowledged."""
    title("5. Crash: kill a writer in the middle of an append")
    command = [sys.executable, __file__, "--writer", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        say(f"Another process appended. Its offsets up to {acknowledged - 1} are acknowledged.")
        size = log_bytes(path)
        while log_bytes(path) == size and writer.poll() is None:
            time.sleep(0.0005)
        writer.kill()
        writer.wait()
    if writer.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended by itself, with {writer.returncode}")
    grown = log_bytes(path) - size
    say(f"Then it began a large append. We killed it (kill -9) when {grown:,} bytes were written.")
    oldest, newest = min(segments(path)), max(segments(path))
    with newest.open("ab") as log:
        log.write(oldest.read_bytes()[:1000])
    say("To make it worse, we left half a frame at the end of the log, as a power cut may do.")
    return acknowledged


def look_after_the_crash(path: Path, acknowledged: int) -> None:
    title("6. Readers are not affected")
    with Store.open(path) as store:
        end = store.offsets(TOPIC, 0).end
        rows = sum(batch.num_rows for batch in store.read(TOPIC, 0))
        say(f"Reading still works: {rows} records, exactly the {acknowledged} acknowledged ones.")
        require(end == rows == acknowledged)
        for problem in store.check():
            say(f"check() reports ({problem.severity}): {problem.message}")


def recover(path: Path, acknowledged: int) -> None:
    title("7. Recover")
    with Store.open(path) as store:
        report = next(done for done in store.repair() if (done.topic, done.partition) == (TOPIC, 0))
        say("The next writer recovers by itself. repair() does it now and reports what it did:")
        say(f"it cut {report.cut_bytes} torn bytes and saved them as {report.saved_as};")
        extra = report.end_offset - acknowledged
        say(f"it kept {extra} records that were whole, though not yet acknowledged.")
        written = store.append(TOPIC, 0, [b"life goes on"])
        say(f"The next append got offset {written.start}: no gap, no offset used twice.")
        offsets = [
            offset for batch in store.read(TOPIC, 0) for offset in batch["offset"].to_pylist()
        ]
        require(offsets == list(range(written.end)) and extra >= 0 and report.cut_bytes > 0)
        require(store.check() == [])
        say(f"All {len(offsets)} offsets are there, in order, and check() finds nothing wrong.")


def write_until_killed(path: str) -> None:
    """The other process: one append that is acknowledged, then one that takes long to finish."""
    with Store.open(path) as store:
        done = store.append(TOPIC, 0, [b"a quick one"] * 50)
        print(done.end, flush=True)
        store.append(TOPIC, 0, [os.urandom(1000)] * 200_000)


def segments(path: Path) -> list[Path]:
    """The log files of partition 0."""
    return list((path / "topics" / TOPIC / "0" / "segments").glob("*.log"))


def log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in segments(path))


def require(condition: bool) -> None:
    if not condition:
        raise RuntimeError("the demo did not find what it promised: please report this as a bug")


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str, indent: int = 3) -> None:
    print(" " * indent + text, flush=True)


def show(code: str) -> None:
    """A line that the reader could type."""
    print(f"   > {code}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--writer"]:
        write_until_killed(sys.argv[2])
    else:
        main()
