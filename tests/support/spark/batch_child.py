"""Spark applications of the tests, each a process of its own: ``python -m … <task> <log> …``.

They print what they found as one line of JSON after ``RESULT``. Every write is tagged and puts the
same number of rows in every partition, so that a reader can tell half a commit from a whole one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"
PARTITIONS = 4
ROWS = 50
"""Rows of one write in each partition."""


def session(master: str, **settings: str) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.memory", "1g")
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return builder.getOrCreate()


def tagged(spark: SparkSession, tag: str) -> DataFrame:
    """Rows of one write: two tasks, and every partition gets as many."""
    rows = spark.range(0, PARTITIONS * ROWS, 1, 2)
    return rows.selectExpr(
        f"concat('{tag}-', id) value", f"cast(id % {PARTITIONS} as int) partition"
    )


def write(rows: DataFrame, log: str, source: str = "cursus", **options: object) -> None:
    given = {"topic": TOPIC, "numPartitions": PARTITIONS, **options}
    rows.write.format(source).options(**given).mode("append").save(log)  # type: ignore[arg-type]


def count(spark: SparkSession, log: str) -> int:
    return spark.read.format("cursus").option("subscribe", TOPIC).load(log).count()


def faults(log: str) -> object:
    """A task that fails twice, a worker that is killed, a version that is written again."""
    from cursus_spark import register
    from tests.support.spark.faulty_source import SOURCES

    spark = session("local[2,3]")
    register(spark)
    for source in SOURCES:
        spark.dataSource.register(source)
    # Small batches: a fault strikes when some rows are staged and more would come.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    write(tagged(spark, "twice"), log, "fails_twice")
    write(tagged(spark, "killed"), log, "worker_killed")
    for _ in range(2):
        write(tagged(spark, "version"), log, txnAppId="app", txnVersion=7)
    return count(spark, log)


def killed_driver(log: str, fault: str, layout: str) -> object:
    """Writes once, and dies in the commit of the second."""
    from cursus_spark import register
    from tests.support.spark.faulty_source import DRIVER_GROUP, SOURCES

    os.environ[DRIVER_GROUP] = str(os.getpgid(0))
    spark = session("local[2]")
    register(spark)
    for source in SOURCES:
        spark.dataSource.register(source)
    write(tagged(spark, "before"), log, layout=layout)
    write(tagged(spark, "killed"), log, fault, layout=layout)
    return "survived"


def writes(log: str, name: str, others: str, times: str) -> object:
    """Writes again and again, from the moment that all others are ready to do the same."""
    from cursus_spark import register

    spark = session("local[2]")
    register(spark)
    ready = Path(log).with_name("ready")
    ready.mkdir(exist_ok=True)
    (ready / name).touch()
    deadline = time.monotonic() + 120
    while len(list(ready.iterdir())) < int(others) and time.monotonic() < deadline:
        time.sleep(0.05)
    for number in range(int(times)):
        write(tagged(spark, f"{name}.{number}"), log)
    return int(times)


def cluster(log: str) -> object:
    """Executors in processes of their own, one of which is killed when it has staged some rows."""
    from cursus_spark import register
    from tests.support.spark.faulty_source import SOURCES

    spark = session("local-cluster[2,1,1024]", spark__executor__memory="512m")
    register(spark)
    for source in SOURCES:
        spark.dataSource.register(source)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    write(tagged(spark, "cluster"), log)
    rows = spark.read.format("cursus").option("subscribe", TOPIC).option("minPartitions", "4")
    read = rows.load(log)
    workers = read.sparkSession.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    found = [read.count(), read.rdd.getNumPartitions(), workers - 1]
    write(tagged(spark, "executor"), log, "executor_killed")
    return [*found, count(spark, log)]


def connect(log: str) -> object:
    """A server and a thin client: a write, a read, a stream in two runs, an error."""
    from cursus_spark import register
    from tests.support.spark.streams import Streams, finish

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    write(tagged(spark, "connect"), log)
    frame = spark.read.format("cursus").option("subscribe", TOPIC).schema("value string").load(log)
    rows = frame.count()
    streams = Streams(spark, Path(log))
    for tag in ("again", "more"):
        copied = streams.read(TOPIC).select("value", "partition")
        finish(streams.write(copied, "copy", numPartitions=PARTITIONS))
        write(tagged(spark, tag), log)
    bad = spark.read.format("cursus").option("subscribe", "nothing").load(log)
    try:
        bad.collect()
    except Exception as error:
        return [rows, type(spark).__module__, "[CURSUS_TOPIC_NOT_FOUND]" in str(error)]
    return "no error"


def installed(log: str) -> object:
    """Found without being registered, from the installed package."""
    spark = session("local[2]")
    write(tagged(spark, "installed"), log)
    files = [import_module(name).__file__ for name in ("cursus_spark", "pyspark_cursus")]
    return [count(spark, log), *files]


def py_files(log: str) -> object:
    """Shipped with ``--py-files`` and registered."""
    spark = session("local[2]")
    import cursus_spark

    cursus_spark.register(spark)
    write(tagged(spark, "shipped"), log)
    return [count(spark, log), cursus_spark.__file__]


TASKS: dict[str, Callable[..., object]] = {
    task.__name__: task
    for task in (faults, killed_driver, writes, cluster, connect, installed, py_files)
}

if __name__ == "__main__":
    print("RESULT", json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])), flush=True)
