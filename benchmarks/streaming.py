"""Structured Streaming compared with a trivial source and sink, and with batch queries."""

from __future__ import annotations

import json
import shutil
import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cursus_spark.datasource import CursusDataSource
from storage_core import DiskManager, Store, StoreConfig

from . import data
from .baselines.trivial import TrivialSource
from .data import RECORD_BYTES, Sizes, UnsyncedVfs
from .measure import Bar, Row, Samples, clock, interleaved, speed_row, time_row
from .spark_batch import session

_ROWS = 100
_PARTITIONS = 4
_POLLED = 1000
_SUSTAINED = 20
_PATIENCE_S = 600


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the streaming table. ``directory`` is empty at the start."""
    yield from idle_polls(sizes, directory)
    with session(directory) as spark:
        spark.dataSource.register(TrivialSource)
        ours, floor = micro_batches(sizes, directory, spark)
        what, name = f"micro-batch, {_ROWS} rows, topic to topic", "trivial source and sink"
        yield time_row(what, ours, floor, Bar("at most", 0.8), name=name)
        yield from latency(sizes, directory, spark, ours, floor)
        yield from throughput(sizes, directory, spark)


def idle_polls(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """The cost of a trigger without new records: both calls that Spark makes."""
    for topics, partitions in ((1, _POLLED), (_POLLED, 1)):
        path = directory / f"polled-{topics}"
        Store.open(path, create=True).close()
        with Store(UnsyncedVfs(path), StoreConfig()) as store:
            for number in range(topics):
                store.create_topic(f"t{number}", partitions)
        options = {"path": str(path), "subscribePattern": "t.*", "startingOffsets": "earliest"}
        source = CursusDataSource(options)
        reader = source.streamReader(source.schema())
        limit = reader.getDefaultReadLimit()
        start = reader.latestOffset(reader.initialOffset(), limit)

        def poll(reader=reader, start=start, limit=limit) -> float:  # type: ignore[no-untyped-def]
            return clock(lambda: (reader.latestOffset(start, limit), reader.reportLatestOffset()))

        found = interleaved({"poll": poll}, sizes.rounds * 5)["poll"]
        milliseconds = found.best * 1e3
        what = f"idle poll, {topics} topic{'s' if topics > 1 else ''} × {partitions} partitions"
        bar = Bar("at most", 50)
        yield Row(what, f"{milliseconds:.1f} ms", "1 ms", milliseconds, bar, found.variation)
        shutil.rmtree(path)


def micro_batches(sizes: Sizes, directory: Path, spark: SparkSession) -> tuple[Samples, Samples]:
    """The duration of small batches from topic to topic, and of a trivial source and sink."""
    batches = max(3, min(20, sizes.lookups // 10))
    path = directory / "small"
    _fill(path, {"in": 1}, batches * _ROWS * RECORD_BYTES)

    def ours() -> float:
        rows = _read(spark, path, "in", maxOffsetsPerTrigger=_ROWS).select("value")
        return _typical(_copy(rows, path, f"out-{uuid.uuid4()}", directory))

    def trivial() -> float:
        rows = spark.readStream.format("trivial").options(rows=_ROWS, batches=batches).load()
        return _typical(_run(rows.writeStream.format("trivial"), directory))

    found = interleaved({"ours": ours, "trivial": trivial}, sizes.rounds)
    return found["ours"], found["trivial"]


def latency(
    sizes: Sizes, directory: Path, spark: SparkSession, ours: Samples, floor: Samples
) -> Iterator[Row]:
    """Time from ``append`` of a handler to the sink's task that gets the record.

    A record that finds the query idle waits for one batch. One that arrives while a batch runs
    waits for the end of that batch too, whatever the source: half a batch more on average.
    """
    path, ages = directory / "latency", directory / "ages"
    _fill(path, {"in": 1}, 0)
    ages.touch()
    count = max(5, sizes.lookups // 5)
    rows = _read(spark, path, "in", startingOffsets="latest").select("value")
    query = (
        rows.writeStream.format("trivial")
        .option("latencies", str(ages))
        .option("checkpointLocation", str(directory / str(uuid.uuid4())))
        .trigger(processingTime="0 seconds")
        .start()
    )
    seen = list[float]()
    with DiskManager(StoreConfig(log_dir=str(path))) as manager:
        handler = manager.get_handler("in", 0)
        _wait_for(lambda: query.lastProgress is not None)
        for state, batches, bar in (("an idle", 3.0, Bar("at most", 1.1)), ("a busy", 0.5, None)):
            before = len(seen)
            for number in range(count + 5):
                handler.append(str(time.time()).encode()).result()
                # Not in step with the query's triggers.
                time.sleep(floor.best * (batches + number * 0.618 % 1))
            _wait_for(lambda due=before + count + 5: len(_ages(ages)) == due)
            seen = _ages(ages)
            yield from _waits(state, sorted(seen[before + 5 :]), ours, floor, bar)
    query.stop()


def _waits(
    state: str, seen: list[float], ours: Samples, floor: Samples, bar: Bar | None
) -> Iterator[Row]:
    for name, place in (("p50", 0.5), ("p99", 0.99)):
        waited = Samples((seen[min(len(seen) - 1, int(place * len(seen)))],))
        what = f"append by a handler to visible in {state} query, {name}"
        wanted = bar if name == "p50" else None
        yield time_row(what, waited, ours, wanted, name="our micro-batch")
        yield time_row(what, waited, floor, None, name="trivial micro-batch")


def throughput(sizes: Sizes, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """Large batches: from a topic to a no-op sink, and from topic to topic."""
    path = directory / "large"
    size = _fill(path, {"in": _PARTITIONS}, sizes.read_bytes // 2)
    whole = spark.read.format("cursus").option("subscribe", "in").load(str(path))

    def batch_read() -> float:
        return clock(lambda: whole.write.format("noop").mode("overwrite").save())

    def stream_read() -> float:
        return _total(_run(_read(spark, path, "in").writeStream.format("noop"), directory))

    def sustained() -> float:
        rows = _read(spark, path, "in", maxBytesPerTrigger=size // _SUSTAINED)
        return _total(_run(rows.writeStream.format("noop"), directory))

    sides = {"stream": stream_read, "batch": batch_read, "sustained": sustained}
    found = interleaved(sides, sizes.rounds)
    bar, name = Bar("at least", 0.85), "our batch read"
    what = f"stream into noop, {_PARTITIONS} partitions"
    yield speed_row(what, found["stream"], found["batch"], size, bar, name)
    what = f"sustained stream, batches of {size / _SUSTAINED / 1e6:g} MB"
    yield speed_row(what, found["sustained"], found["batch"], size, None, name)
    shutil.rmtree(path)
    yield from _topic_to_topic(sizes, directory, spark)


def _topic_to_topic(sizes: Sizes, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """Compared with its slower half, and with both halves, which share the cores."""
    path = directory / "copied"
    size = _fill(path, {"in": _PARTITIONS}, sizes.read_bytes // 2)
    whole = spark.read.format("cursus").option("subscribe", "in").load(str(path))
    rows = whole.select("value", "partition").cache()
    rows.count()

    def batch_read() -> float:
        return clock(lambda: whole.write.format("noop").mode("overwrite").save())

    def batch_write() -> float:
        topic = f"out-{uuid.uuid4()}"
        writer = rows.write.format("cursus").option("topic", topic).mode("append")
        writer = writer.option("numPartitions", _PARTITIONS)
        seconds = clock(lambda: writer.save(str(path)))
        _drop(path, topic)
        return seconds

    def stream() -> float:
        topic = f"out-{uuid.uuid4()}"
        rows = _read(spark, path, "in", schema="partition int, value binary")
        seconds = _total(_copy(rows, path, topic, directory, numPartitions=_PARTITIONS))
        _drop(path, topic)
        return seconds

    sides = {"stream": stream, "read": batch_read, "write": batch_write}
    found = interleaved(sides, sizes.rounds)
    rows.unpersist()
    slower = max(("read", "write"), key=lambda name: found[name].best)
    bar, name = Bar("at least", 0.7), f"our batch {slower}"
    yield speed_row("topic to topic", found["stream"], found[slower], size, bar, name)
    halves = zip(found["read"].seconds, found["write"].seconds, strict=True)
    both = Samples(tuple(map(sum, halves)))
    name = "our batch read, then our batch write"
    yield speed_row("topic to topic", found["stream"], both, size, None, name)


def _fill(path: Path, topics: dict[str, int], size: int) -> int:
    """Topics with ``size`` bytes of records in all their partitions; returns that size."""
    Store.open(path, create=True).close()
    with Store(UnsyncedVfs(path), StoreConfig()) as store:
        for topic, partitions in topics.items():
            store.create_topic(topic, partitions)
            count = size // RECORD_BYTES // partitions
            for partition in range(partitions) if count else ():
                store.append(topic, partition, data.values(count, seed=partition))
    return size


def _read(
    spark: SparkSession, path: Path, topic: str, schema: str | None = None, **options: object
) -> DataFrame:
    given = {"subscribe": topic, "startingOffsets": "earliest", **options}
    texts = {name: str(value) for name, value in given.items()}
    reader = spark.readStream.format("cursus").options(**texts)
    return (reader if schema is None else reader.schema(schema)).load(str(path))


def _copy(
    rows: DataFrame, path: Path, topic: str, directory: Path, **options: object
) -> StreamingQuery:
    given = {name: str(value) for name, value in options.items()}
    writer = rows.writeStream.format("cursus").option("topic", topic).options(**given)
    return _run(writer, directory, str(path))


def _run(writer, directory: Path, path: str | None = None) -> StreamingQuery:  # type: ignore[no-untyped-def]
    """Run a query over all current records."""
    checkpoint = str(directory / "checkpoints" / str(uuid.uuid4()))
    started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query: StreamingQuery = started.start(path) if path else started.start()
    if not query.awaitTermination(_PATIENCE_S):
        raise AssertionError("the query did not end in time")
    return query


def _durations(query: StreamingQuery) -> list[float]:
    return [
        progress.durationMs["triggerExecution"] / 1e3
        for progress in query.recentProgress
        if progress.numInputRows
    ]


def _typical(query: StreamingQuery) -> float:
    """The median batch, without the first, which starts the workers."""
    return statistics.median(_durations(query)[1:])


def _total(query: StreamingQuery) -> float:
    return sum(_durations(query))


def _drop(path: Path, topic: str) -> None:
    with Store.open(path) as store:
        store.delete_topic(topic)


def _ages(path: Path) -> list[float]:
    return [age for line in path.read_text().splitlines() for age in json.loads(line)]


def _wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.02)
