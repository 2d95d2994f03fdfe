"""A driver whose executors do not see its directory: the path leads to another one in each process.

Each attempt prints the error of the job, after what was attempted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cursus_spark import register
from storage_core import Store

# Every executor of a worker has a working directory of its own.
LOG = "/proc/self/cwd/log"


def _attempt(what: str, job: Callable[[], object]) -> None:
    try:
        job()
    except Exception as error:
        print(f"ATTEMPT {what}:", *str(error).split(), flush=True)
    else:
        print(f"ATTEMPT {what}: succeeded", flush=True)


def _batch(rows: DataFrame) -> None:
    rows.write.format("cursus").mode("append").save(LOG)


def _stream(spark: SparkSession, checkpoint: str) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        source.selectExpr("'named' AS topic", "string(value) AS value").writeStream.format("cursus")
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(LOG)
    )  # fmt: skip
    query.processAllAvailable()


def _read(spark: SparkSession) -> None:
    options = {"subscribe": "mine", "failOnDataLoss": "false"}
    print(spark.read.format("cursus").options(**options).load(LOG).count())


def _stores_of_executors(spark: SparkSession, *, create: bool) -> set[tuple[str, ...]]:
    def look(_: Iterable[int]) -> Iterator[tuple[str, ...]]:
        if create:
            with Store.open(LOG, create=True) as store:
                if "mine" not in store.topics():
                    store.create_topic("mine")
        yield tuple(sorted(path.name for path in Path(LOG).glob("topics/*")))

    return set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect())


def main(checkpoints: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    rows = spark.range(100).selectExpr("'named' AS topic", "string(id) AS value")
    _attempt("batch without store", lambda: _batch(rows))
    _attempt("stream without store", lambda: _stream(spark, f"{checkpoints}/first"))
    print("EXECUTORS", _stores_of_executors(spark, create=False), flush=True)
    with Store.open(LOG) as store:
        store.create_topic("mine")
        store.append("mine", 0, [b"a"])
    _stores_of_executors(spark, create=True)
    _attempt("batch with another store", lambda: _batch(rows))
    _attempt("stream with another store", lambda: _stream(spark, f"{checkpoints}/second"))
    _attempt("read of another store", lambda: _read(spark))
    print("EXECUTORS", _stores_of_executors(spark, create=False), flush=True)
    with Store.open(LOG) as store:
        print("DRIVER", store.topics(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
