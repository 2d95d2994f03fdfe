"""Batches and streams compared with Spark's Kafka connector and a real broker, in one session.

Runs only by name (``make bench-kafka``), because it downloads the broker and the connector. Cursus
syncs before it acknowledges a write; the broker leaves the sync to the kernel, as by default.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from . import data
from .baselines import broker
from .data import RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, clock, interleaved, speed_row, time_row
from .processor_time import jvm_of, used_by, work_between
from .spark_batch import drain, rows_to_write, session

ON_REQUEST = True
_PARTITIONS = 4
_SMALL, _SMALL_BATCHES = 100, 20
_PATIENCE_S = 600
_RECORDS = {data.FULL: 2_000_000, data.QUICK: 500_000, data.TINY: 10_000}
CACHE = Path(__file__).resolve().parent.parent / "build" / "kafka"


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Rows of the table; if there is no broker, none and the reason."""
    try:
        connector = broker.connector_jars(CACHE)
        jars = broker.fetch(CACHE, broker.BROKER)
        with broker.running(directory, jars) as (address, process):
            yield from _compare(sizes, directory, address, process, connector)
    except broker.UnavailableError as error:
        print(f"  no comparison with Kafka: {error}")


def _compare(
    sizes: Sizes, directory: Path, address: str, process: int, connector: list[Path]
) -> Iterator[Row]:
    rounds = max(3, sizes.rounds) if sizes is not data.TINY else 1
    with session(directory, {"spark.jars": ",".join(map(str, connector))}) as spark:
        both = _Both(spark, directory, address, _RECORDS[sizes])
        found = interleaved(
            {
                "ours": both.write_ours,
                "kafka": both.write_kafka,
                "ours, keyed": lambda: both.write_ours(keyed=True),
                "kafka, keyed": lambda: both.write_kafka(keyed=True),
                "read ours": both.read_ours,
                "read kafka": both.read_kafka,
                "stream ours": lambda: clock(both.stream_ours),
                "stream kafka": lambda: clock(both.stream_kafka),
                "batch ours": lambda: _typical(both.stream_ours(small=True)),
                "batch kafka": lambda: _typical(both.stream_kafka(small=True)),
            },
            rounds,
            warmups=2,
        )
        processes = (jvm_of(spark), process)
        work = interleaved(
            {
                "ours": partial(_processor_time, both.write_ours, processes),
                "kafka": partial(_processor_time, both.write_kafka, processes),
            },
            rounds,
            warmups=0,
        )
    yield from _rows(found, _RECORDS[sizes] * RECORD_BYTES)
    what, name = "processor time of a write, no key", "Kafka, broker included"
    yield time_row(what, work["ours"], work["kafka"], None, name=name)


def _rows(found: dict[str, Samples], size: int) -> Iterator[Row]:
    for what, ours, kafka, least in (
        ("write, no key", "ours", "kafka", 3),
        ("write, keyed", "ours, keyed", "kafka, keyed", 2),
        ("read, all columns", "read ours", "read kafka", 3),
        ("stream into noop", "stream ours", "stream kafka", 2),
    ):
        bar = Bar("at least", least)
        yield speed_row(what, found[ours], found[kafka], size, bar, "Kafka")
    what, bar = f"micro-batch, {_SMALL} rows into noop", Bar("at most", 1)
    yield time_row(what, found["batch ours"], found["batch kafka"], bar, name="Kafka")


def _processor_time(work: Callable[[], object], processes: tuple[int, ...]) -> float:
    """Processor seconds of processes and their children during a job."""
    before = {process: used_by(process) for process in processes}
    work()
    return sum(sum(work_between(then, used_by(it), it)) for it, then in before.items())


def _typical(query: StreamingQuery) -> float:
    """The median batch, without the first, which starts the workers."""
    progress = [each for each in query.recentProgress if each.numInputRows]
    return statistics.median(each.durationMs["triggerExecution"] / 1e3 for each in progress[1:])


class _Both:
    """The same records through both connectors; the first writes are what is read later."""

    def __init__(self, spark: SparkSession, directory: Path, address: str, records: int) -> None:
        self._spark, self._directory, self._address = spark, directory, address
        plain, keyed = rows_to_write(spark, records)
        self._frames = {False: plain, True: keyed}
        self._round = 0
        self._last = ""
        few = plain.limit(_SMALL * _SMALL_BATCHES)
        few.write.format("cursus").option("topic", "t").mode("append").save(self._log("small"))
        make_topic(spark, address, "small", 1)
        self._to_kafka(few, "small")

    def write_ours(self, *, keyed: bool = False) -> float:
        path = self._log("keyed" if keyed else "plain")
        shutil.rmtree(path, ignore_errors=True)
        options = {"topic": "t", "numPartitions": str(_PARTITIONS)}
        writer = self._frames[keyed].write.format("cursus").options(**options).mode("append")
        return clock(lambda: writer.save(path))

    def write_kafka(self, *, keyed: bool = False) -> float:
        self._round += 1
        topic = f"{'keyed' if keyed else 'plain'}-{self._round}"
        make_topic(self._spark, self._address, topic, _PARTITIONS)
        if not keyed:
            self._last = topic
        return clock(lambda: self._to_kafka(self._frames[keyed], topic))

    def read_ours(self) -> float:
        reader = self._spark.read.format("cursus").option("subscribe", "t")
        return drain(reader.load(self._log("plain")))

    def read_kafka(self) -> float:
        return drain(self._spark.read.format("kafka").options(**self._source(self._last)).load())

    def stream_ours(self, *, small: bool = False) -> StreamingQuery:
        options = {"subscribe": "t", **self._start(small=small)}
        reader = self._spark.readStream.format("cursus").options(**options)
        return self._run(reader.load(self._log("small" if small else "plain")))

    def stream_kafka(self, *, small: bool = False) -> StreamingQuery:
        options = {**self._source("small" if small else self._last), **self._start(small=small)}
        return self._run(self._spark.readStream.format("kafka").options(**options).load())

    def _run(self, frame: DataFrame) -> StreamingQuery:
        self._round += 1
        checkpoint = str(self._directory / f"checkpoint-{self._round}")
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_PATIENCE_S):
            raise AssertionError("the query did not end in time")
        return query

    def _start(self, *, small: bool) -> dict[str, str]:
        limit = {"maxOffsetsPerTrigger": str(_SMALL)} if small else {}
        return {"startingOffsets": "earliest", **limit}

    def _log(self, name: str) -> str:
        return str(self._directory / f"log-{name}")

    def _source(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._address, "subscribe": topic}

    def _to_kafka(self, frame: DataFrame, topic: str) -> None:
        options = {"topic": topic, "kafka.bootstrap.servers": self._address}
        frame.write.format("kafka").options(**options).save()


def make_topic(spark: SparkSession, address: str, topic: str, partitions: int) -> None:
    """Create the topic with our number of partitions; Kafka's default is one."""
    java = spark._jvm.java.util  # type: ignore[union-attr]
    kafka = spark._jvm.org.apache.kafka.clients.admin  # type: ignore[union-attr]
    settings = java.HashMap()
    settings.put("bootstrap.servers", address)
    admin = kafka.AdminClient.create(settings)
    try:
        topics = java.ArrayList()
        topics.add(kafka.NewTopic(topic, partitions, 1))
        admin.createTopics(topics).all().get(60, java.concurrent.TimeUnit.SECONDS)
    finally:
        admin.close()
