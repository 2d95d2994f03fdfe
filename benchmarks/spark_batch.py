"""Spark's batch reads and writes compared with the ceiling of a Python source, Parquet, JSON."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from cursus_spark import partition_by_key, register
from cursus_spark.datasource import CursusDataSource
from storage_core import Store, StoreConfig

from . import data
from .baselines import linked
from .baselines.ceiling import BytesOnlySource, CeilingSource
from .data import RECORD_BYTES, Sizes, UnsyncedVfs
from .measure import Bar, Row, clock, interleaved, speed_row, time_row

_PARTITIONS = 4
_ROOT = Path(__file__).resolve().parent.parent


class Amount(NamedTuple):
    """How much data this benchmark uses: the bars are for the first amount."""

    records: int
    segments: int
    large_bytes: int
    segment_bytes: int
    memory_bytes: int
    rounds: int


_AMOUNTS = {
    data.FULL: Amount(4_000_000, 100_000, 10**10, 64 << 20, 10**9, 7),
    data.QUICK: Amount(1_000_000, 20_000, 10**9, 64 << 20, 10**8, 3),
    data.TINY: Amount(20_000, 200, 10**6, 1 << 18, 10**6, 1),
}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the table. ``directory`` is empty at the start."""
    amount = _AMOUNTS[sizes]
    yield from planning(amount, directory)
    yield from memory(amount, directory)
    with session(directory) as spark:
        yield from one_record(amount, directory, spark)
        yield from one_moment(sizes, directory, spark)
        yield from reading(amount, directory, spark)
        yield from writing(amount, directory, spark)


@contextmanager
def session(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """The active session, or a new one for this benchmark, with these settings too."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    found = SparkSession.getActiveSession()
    builder = SparkSession.builder.master("local[2]")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    spark = found or (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(CeilingSource)
    spark.dataSource.register(BytesOnlySource)
    try:
        yield spark
    finally:
        if found is None:
            spark.stop()


def planning(amount: Amount, directory: Path) -> Iterator[Row]:
    """Plan the tasks for every segment of a large topic, and pickle them, as the driver does."""
    many, few = amount.segments, amount.segments // 10
    for count in (many, few):
        linked.sparse_segments(directory / f"plan-{count}", count, _PARTITIONS)
    found = interleaved(
        {
            str(count): lambda count=count: clock(lambda: _plan(directory / f"plan-{count}"))  # type: ignore[misc]
            for count in (many, few)
        },
        amount.rounds,
    )
    best = found[str(many)]
    what = f"plan {many} segments"
    bar = Bar("at most", 2)
    yield Row(what, f"{best.best:.2f} s", "seconds", best.best, bar, best.variation)
    yield time_row(what, best, found[str(few)], Bar("at most", 12), name=f"{few} segments")
    for count in (many, few):
        shutil.rmtree(directory / f"plan-{count}")


def _plan(path: Path) -> list[bytes]:
    source = CursusDataSource({"path": str(path), "subscribe": linked.TOPIC})
    return [pickle.dumps(task) for task in source.reader(source.schema()).partitions()]


def memory(amount: Amount, directory: Path) -> Iterator[Row]:
    """Private memory of a task, minus that of the idle process: a sealed and an active segment."""
    path, bar = directory / "memory", Bar("at most", 300)
    config = StoreConfig(segment_bytes=4 << 30)
    data.build(path, config, "sealed", amount.memory_bytes)
    data.build(path, config, "active", amount.memory_bytes, sealed=False)
    records = amount.memory_bytes // (2 * RECORD_BYTES) // 10_000 * 10_000
    for task, what in (("read", "sealed"), ("read", "active"), ("write", str(records))):
        command = [sys.executable, "-m", "benchmarks.workers.worker_memory", task, str(path), what]
        done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
        used = int(done.stdout) / 1e6
        name = f"reading one {what} segment" if task == "read" else "writing to 64 partitions"
        size = f"of {amount.memory_bytes / 1e6:.0f} MB"
        yield Row(f"worker memory, {name}", f"{used:.1f} MB", size, used, bar, None)
    shutil.rmtree(path)


def one_record(amount: Amount, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """A read by offset in a large topic, and in a topic of one record."""
    large, small = directory / "large", directory / "small"
    end = linked.repeated_segment(large, amount.large_bytes, amount.segment_bytes)
    linked.repeated_segment(small, 1, 1)

    def read(path: Path, offset: int) -> float:
        where = '{"%s":{"0":%d}}'
        options = {
            "subscribe": linked.TOPIC,
            "startingOffsets": where % (linked.TOPIC, offset),
            "endingOffsets": where % (linked.TOPIC, offset + 1),
        }
        reader = spark.read.format("cursus").options(**options)
        return clock(lambda: _expect(1, reader.load(str(path)).count()))

    found = interleaved(
        {"large": lambda: read(large, end * 2 // 3), "small": lambda: read(small, 0)},
        amount.rounds * 3,
        warmups=3,
    )
    what = f"one record of {amount.large_bytes / 1e9:g} GB"
    yield time_row(what, found["large"], found["small"], Bar("at most", 1.5), name="a store of one")
    shutil.rmtree(large)


def one_moment(sizes: Sizes, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """A read of one record by time, in many segments and in few."""
    many, few = directory / "many", directory / "few"
    ends = {path: data.build_segments(path, count) for path, count in (
        (many, sizes.few_segments * 10), (few, sizes.few_segments),
    )}  # fmt: skip

    def read(path: Path) -> float:
        millisecond = ends[path] * 2 // 3
        options = {
            "subscribe": "events",
            "startingTimestamp": str(millisecond),
            "endingTimestamp": str(millisecond + 1),
        }
        reader = spark.read.format("cursus").options(**options)
        return clock(lambda: _expect(1, reader.load(str(path)).count()))

    found = interleaved({"many": lambda: read(many), "few": lambda: read(few)}, 5, warmups=2)
    what = f"one record by its time, {sizes.few_segments * 10} segments"
    yield time_row(what, found["many"], found["few"], None, name=f"{sizes.few_segments} segments")
    for path in ends:
        shutil.rmtree(path)


def reading(amount: Amount, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """All columns and one, of random and of compressible values, into the ``noop`` sink."""
    size = amount.records * RECORD_BYTES
    path = directory / "read"
    for topic in ("random", "compressible"):
        fill(path, topic, amount.records)
    ours = _cursus(spark, path, "random")
    tasks = ours.rdd.getNumPartitions()
    ceiling = spark.read.format("ceiling").option("rows", amount.records).option("tasks", tasks)
    _make_others(spark, path, directory)
    schema = ours.schema
    found = interleaved(
        {
            "ours": lambda: drain(_cursus(spark, path, "random")),
            "ceiling": lambda: drain(ceiling.load()),
            "ours, value": lambda: drain(_cursus(spark, path, "random", "value binary")),
            "ceiling, value": lambda: drain(ceiling_of_value(spark, amount, tasks).load()),
            "json": lambda: drain(spark.read.schema(schema).json(str(directory / "json"))),
        },
        amount.rounds,
        warmups=3,
    )
    bar = Bar("at least", 0.97)
    yield speed_row("read, all columns", found["ours"], found["ceiling"], size, bar, "ceiling")
    value, best = found["ours, value"], found["ceiling, value"]
    yield speed_row("read, value only", value, best, size, bar, "ceiling of one column")
    yield speed_row("read, value only", value, found["ours"], size, None, "all columns")
    bar = Bar("at least", 4)
    yield speed_row("read, all columns", found["ours"], found["json"], size, bar, "JSON")
    yield from _against_parquet(amount, directory, spark, path, size)


def ceiling_of_value(spark: SparkSession, amount: Amount, tasks: int) -> DataFrameReader:
    options = {"rows": amount.records, "tasks": tasks}
    return spark.read.format("ceiling").options(**options).schema("value binary")


def _against_parquet(
    amount: Amount, directory: Path, spark: SparkSession, path: Path, size: int
) -> Iterator[Row]:
    sides: dict[str, Callable[[], float]] = {}
    for topic in ("random", "compressible"):
        sides[topic] = lambda topic=topic: drain(_cursus(spark, path, topic))  # type: ignore[misc]
        for codec in ("snappy", "none"):
            file = str(directory / f"parquet-{topic}-{codec}")
            sides[f"{topic} {codec}"] = lambda file=file: drain(spark.read.parquet(file))  # type: ignore[misc]
    found = interleaved(sides, amount.rounds, warmups=2)
    for topic in ("random", "compressible"):
        for codec in ("snappy", "none"):
            other = found[f"{topic} {codec}"]
            what = f"read, {topic} values"
            yield speed_row(what, found[topic], other, size, None, f"Parquet {codec}")


def writing(amount: Amount, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """Durable, committed writes of keyed and plain rows, compared with bytes that are only written.

    The rows are generated before, so that no measurement includes that.
    """
    size = amount.records * RECORD_BYTES
    plain, keyed = rows_to_write(spark, amount.records)
    target = directory / "written"

    def save(frame: DataFrame, source: str, **options: object) -> float:
        writer = frame.write.format(source).options(**options)  # type: ignore[arg-type]
        seconds = clock(lambda: writer.mode("append").save(str(target)))
        shutil.rmtree(target)
        return seconds

    ours = {"topic": "t", "numPartitions": _PARTITIONS}
    found = interleaved(
        {
            "plain": lambda: save(plain, "cursus", **ours),
            "plain bytes": lambda: save(plain, "bytes_only"),
            "keyed": lambda: save(keyed, "cursus", **ours),
            "keyed bytes": lambda: save(keyed, "bytes_only"),
            "laid out": lambda: save(partition_by_key(keyed, _PARTITIONS), "cursus", **ours),
            "unsynced": lambda: save(plain, "bytes_only", sync="false"),
            "parquet": lambda: save(plain, "parquet", compression="none"),
        },
        amount.rounds,
        warmups=2,
    )
    for frame in (plain, keyed):
        frame.unpersist()
    plain_time, keyed_time = found["plain"], found["keyed"]
    name = "bytes only, synced"
    bar = Bar("at least", 0.95)
    yield speed_row("write, no key", plain_time, found["plain bytes"], size, bar, name)
    yield speed_row("write, keyed", keyed_time, found["keyed bytes"], size, bar, name)
    what, name = "write, keyed, laid out by partition_by_key", "keyed"
    yield speed_row(what, found["laid out"], keyed_time, size, None, name)
    for side, name in (("unsynced", "bytes only, not synced"), ("parquet", "Parquet none")):
        yield speed_row("write, no key", plain_time, found[side], size, None, name)


def rows_to_write(spark: SparkSession, records: int) -> tuple[DataFrame, DataFrame]:
    """Records without keys, and the same with keys; generated once and cached."""
    value = f"unhex(lpad(hex(id * 7919), {2 * RECORD_BYTES}, 'ab45')) value"
    rows = spark.range(0, records, 1, _PARTITIONS)
    plain = rows.selectExpr(value).persist()
    keyed = rows.selectExpr("cast(id as string) key", value).persist()
    _expect(2 * records, plain.count() + keyed.count())
    return plain, keyed


def fill(path: Path, topic: str, records: int) -> None:
    """Equal partitions of 8192-record frames, as a large write creates them."""
    Store.open(path, create=True).close()
    share = records // _PARTITIONS
    values = data.values(min(share, 500_000))
    if topic == "compressible":
        values = values.take(data.repeated(len(values)))
    with Store(UnsyncedVfs(path), StoreConfig()) as store:
        store.create_topic(topic, _PARTITIONS)
        for partition in range(_PARTITIONS):
            for first in range(0, share, len(values)):
                store.append(topic, partition, values.slice(0, min(len(values), share - first)))


def _make_others(spark: SparkSession, path: Path, directory: Path) -> None:
    _cursus(spark, path, "random").write.json(str(directory / "json"))
    for topic in ("random", "compressible"):
        for codec in ("snappy", "none"):
            file = str(directory / f"parquet-{topic}-{codec}")
            _cursus(spark, path, topic).write.option("compression", codec).parquet(file)


def _cursus(spark: SparkSession, path: Path, topic: str, schema: str = "") -> DataFrame:
    reader = spark.read.format("cursus").option("subscribe", topic)
    return (reader.schema(schema) if schema else reader).load(str(path))


def drain(frame: DataFrame) -> float:
    """Seconds to compute every row and discard it."""
    return clock(lambda: frame.write.format("noop").mode("overwrite").save())


def _expect(expected: int, found: int) -> None:
    if expected != found:
        raise AssertionError(f"read {found} records, expected {expected}")
