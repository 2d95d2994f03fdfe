"""Batch reads and writes against Spark's Kafka connector and a real broker, in one session.

Only run when asked for (``make bench-kafka``): it fetches the broker and the connector.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cursus_spark import register

from . import broker, data
from .data import RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, clock, interleaved, speed_row
from .spark_batch import drain, rows_to_write

ON_REQUEST = True
_PARTITIONS = 4
_RECORDS = {data.FULL: 2_000_000, data.QUICK: 500_000, data.TINY: 10_000}
_CACHE = Path(__file__).resolve().parent.parent / "build" / "kafka"


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Rows of the table, or one that says why there is none."""
    try:
        connector = broker.connector_jars(_CACHE)
        jars = broker.fetch(_CACHE, broker.BROKER)
        with broker.running(directory, jars) as address:
            yield from _compare(sizes, directory, address, connector)
    except broker.UnavailableError as error:
        print(f"  no comparison with Kafka: {error}")


def _compare(sizes: Sizes, directory: Path, address: str, connector: list[Path]) -> Iterator[Row]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, connector)))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        both = _Both(spark, directory / "log", address, _RECORDS[sizes])
        found = interleaved(
            {
                "ours": both.write_ours,
                "kafka": both.write_kafka,
                "ours, keyed": lambda: both.write_ours(keyed=True),
                "kafka, keyed": lambda: both.write_kafka(keyed=True),
                "read ours": both.read_ours,
                "read kafka": both.read_kafka,
                "stream ours": both.stream_ours,
                "stream kafka": both.stream_kafka,
            },
            max(3, sizes.rounds) if sizes is not data.TINY else 1,
        )
    finally:
        spark.stop()
    yield from _rows(found, _RECORDS[sizes] * RECORD_BYTES)


def _rows(found: dict[str, Samples], size: int) -> Iterator[Row]:
    bar = Bar("at least", 3)
    for what, ours, kafka, limit in (
        ("write, no key", "ours", "kafka", bar),
        ("write, keyed", "ours, keyed", "kafka, keyed", bar),
        ("read, all columns", "read ours", "read kafka", bar),
        ("stream into noop", "stream ours", "stream kafka", None),
    ):
        yield speed_row(what, found[ours], found[kafka], size, limit, "Kafka")


class _Both:
    """The same records through both connectors; what is read was written by the first writes."""

    def __init__(self, spark: SparkSession, path: Path, address: str, records: int) -> None:
        self._spark, self._path, self._address = spark, path, address
        plain, keyed = rows_to_write(spark, records)
        # Made once and kept, so that making them is in no measurement.
        self._frames = {False: plain.persist(), True: keyed.persist()}
        for frame in self._frames.values():
            frame.count()
        self._round = 0

    def write_ours(self, *, keyed: bool = False) -> float:
        path = self._path.with_name("log-keyed") if keyed else self._path
        shutil.rmtree(path, ignore_errors=True)
        options = {"topic": "t", "numPartitions": str(_PARTITIONS)}
        writer = self._frames[keyed].write.format("cursus").options(**options).mode("append")
        return clock(lambda: writer.save(str(path)))

    def write_kafka(self, *, keyed: bool = False) -> float:
        self._round += 1
        topic = f"{'keyed' if keyed else 'plain'}-{self._round}"
        self._make_topic(topic)
        if not keyed:
            self._last = topic
        writer = self._frames[keyed].write.format("kafka").option("topic", topic)
        return clock(lambda: writer.option("kafka.bootstrap.servers", self._address).save())

    def read_ours(self) -> float:
        reader = self._spark.read.format("cursus").option("subscribe", "t")
        return drain(reader.load(str(self._path)))

    def read_kafka(self) -> float:
        return drain(self._spark.read.format("kafka").options(**self._source()).load())

    def stream_ours(self) -> float:
        options = {"subscribe": "t", "startingOffsets": "earliest"}
        reader = self._spark.readStream.format("cursus").options(**options)
        return self._stream(reader.load(str(self._path)))

    def stream_kafka(self) -> float:
        options = {**self._source(), "startingOffsets": "earliest"}
        return self._stream(self._spark.readStream.format("kafka").options(**options).load())

    def _stream(self, frame: DataFrame) -> float:
        self._round += 1
        checkpoint = str(self._path.with_name(f"checkpoint-{self._round}"))
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)

        def run() -> None:
            if not writer.trigger(availableNow=True).start().awaitTermination(600):
                raise AssertionError("the query did not end in time")

        return clock(run)

    def _source(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._address, "subscribe": self._last}

    def _make_topic(self, topic: str) -> None:
        """With the partitions of ours; a topic that a write creates would have one."""
        java = self._spark._jvm.java.util  # type: ignore[union-attr]
        kafka = self._spark._jvm.org.apache.kafka.clients.admin  # type: ignore[union-attr]
        settings = java.HashMap()
        settings.put("bootstrap.servers", self._address)
        admin = kafka.AdminClient.create(settings)
        try:
            topics = java.ArrayList()
            topics.add(kafka.NewTopic(topic, _PARTITIONS, 1))
            admin.createTopics(topics).all().get()
        finally:
            admin.close()
