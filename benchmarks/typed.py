"""Typed topics: the engine beside Parquet, then Spark's reads and writes beside their ceilings.

The events have six columns, one of them a list and one a struct. Elapsed time is noisy where other
programs run, so the processor time of Spark's processes is measured in the same rounds.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from storage_core import Store, StoreConfig

from . import data
from .baselines.typed_ceiling import EventsSource
from .data import Sizes, UnsyncedVfs
from .measure import Bar, Row, Samples, clock, interleaved, speed_row, time_row, variation_of
from .parts import events
from .processor_time import jvm_of, used_by, work_between
from .spark_batch import drain, session

_PARTITIONS = 4
_FRAMES_A_BLOCK = 200
_CODECS = ("none", "zstd")


class Amount(NamedTuple):
    """How much data this benchmark uses: the bars are for the first amount."""

    rows: int
    block_rows: int
    blocks: int
    rounds: int
    warmups: int


# A block is 200 frames. Fourteen blocks of two million rows are 2 GB.
_AMOUNTS = {
    data.FULL: Amount(2_000_000, 2_000_000, 14, 7, 2),
    data.QUICK: Amount(500_000, 200_000, 14, 3, 2),
    data.TINY: Amount(8_000, 4_000, 4, 1, 0),
}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the table. ``directory`` is empty at the start."""
    amount = _AMOUNTS[sizes]
    yield from engine(amount, directory / "engine")
    with session(directory) as spark:
        spark.dataSource.register(EventsSource)
        yield from reading(amount, directory / "reads", spark)
        yield from writing(amount, directory / "writes", spark)
        yield from filtering(amount, directory / "filtered", spark)


def engine(amount: Amount, directory: Path) -> Iterator[Row]:
    """Bytes a row, and processor time of a read and a write on one thread, without Spark."""
    directory.mkdir()
    table = pa.Table.from_batches([events.events(amount.rows)])
    _fill(directory / "log", amount.rows)
    with Store.open(directory / "log") as store:
        sides: dict[str, Callable[[], float]] = {}
        for codec in _CODECS:
            file = directory / f"{codec}.parquet"
            pq.write_table(table, file, compression=codec)
            sides[codec] = partial(_processor_time, partial(_scan, store, codec))
            sides[f"Parquet {codec}"] = partial(_processor_time, partial(_read_parquet, file))
            two = partial(_scan, store, codec, ["user", "amount"])
            sides[f"{codec}, two"] = partial(_processor_time, two)
        found = interleaved(sides, amount.rounds)
    for codec in _CODECS:
        what = f"typed engine read, {codec}, processor time"
        yield time_row(
            what, found[codec], found[f"Parquet {codec}"], None, name="pyarrow's Parquet"
        )
        what = f"typed engine read, {codec}, two of six columns"
        yield _times_row(what, found[f"{codec}, two"], found[codec], None, "all columns")
    shutil.rmtree(directory)


def reading(amount: Amount, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """All columns and two of six, beside ready-made batches, JSON values and Parquet."""
    directory.mkdir()
    path = directory / "log"
    _fill(path, amount.rows)
    for codec in _CODECS:
        _typed(spark, path, codec).write.option("compression", codec).parquet(
            str(directory / codec)
        )
    as_json(_typed(spark, path, "none")).write.format("cursus").options(
        topic="json", numPartitions=_PARTITIONS
    ).mode("append").save(str(path))
    yield _bytes_row(amount, path, directory)
    tasks = _typed(spark, path, "none").rdd.getNumPartitions()
    ready = spark.read.format("events").options(rows=amount.rows, tasks=tasks)
    jobs: dict[str, Callable[[], object]] = {
        "ready": lambda: drain(ready.load()),
        "json": lambda: drain(from_json(spark, path)),
    }
    for codec in _CODECS:
        jobs[codec] = partial(_drained, spark, path, codec)
        jobs[f"{codec}, two"] = partial(_drained, spark, path, codec, events.TWO_COLUMNS)
        jobs[f"Parquet {codec}"] = partial(_drained_parquet, spark, directory / codec)
    found, work = _measured(spark, jobs, amount)
    size = events.events(amount.rows).nbytes
    bar = Bar("at least", 0.93)
    yield speed_row(
        "typed read, all columns", found["none"], found["ready"], size, bar, "ready-made"
    )
    yield _work_row("typed read, all columns", work, "none", "ready", "ready-made")
    yield speed_row(
        "typed read, all columns, zstd", found["zstd"], found["ready"], size, None, "ready-made"
    )
    bar = Bar("at least", 5)
    yield _times_row("typed read, all columns", found["none"], found["json"], bar, "from_json")
    for codec in _CODECS:
        two, bar = found[f"{codec}, two"], Bar("at least", 2)
        what = f"typed read, two of six, {codec}"
        yield _times_row(what, two, found[codec], bar, "all columns")
        yield _work_row(what, work, f"{codec}, two", codec, "all columns")
        name = f"Parquet {codec}"
        yield _work_row(f"typed read, all columns, {codec}", work, codec, name, name)
    shutil.rmtree(directory)


def writing(amount: Amount, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """Durable, committed writes, beside batches that are only written, and beside JSON values."""
    directory.mkdir()
    pq.write_table(
        pa.Table.from_batches([events.events(amount.rows)]),
        directory / "events.parquet",
        row_group_size=-(-amount.rows // _PARTITIONS),
    )
    frame = spark.read.schema(events.DDL).parquet(str(directory / "events.parquet"))
    frame = frame.repartition(_PARTITIONS).persist()
    if frame.count() != amount.rows:
        raise AssertionError(f"expected {amount.rows} rows to write")
    target = directory / "written"

    def save(rows: DataFrame, source: str, **options: object) -> None:
        rows.write.format(source).options(**options).mode("append").save(str(target))  # type: ignore[arg-type]

    ours = {"topic": "t", "numPartitions": _PARTITIONS}
    jobs: dict[str, Callable[[], object]] = {
        "typed": lambda: save(frame, "cursus", **ours),
        "batches": lambda: save(frame, "events"),
        "json": lambda: save(as_json(frame), "cursus", **ours),
        "parquet": lambda: save(frame, "parquet", compression="none"),
    }
    found, work = _measured(spark, jobs, amount, after=lambda: shutil.rmtree(target))
    frame.unpersist()
    size = events.events(amount.rows).nbytes
    bar, name = Bar("at least", 0.85), "batches only, synced"
    yield speed_row("typed write", found["typed"], found["batches"], size, bar, name)
    yield _work_row("typed write", work, "typed", "batches", name)
    bar = Bar("at least", 1.4)
    yield _times_row("typed write", found["typed"], found["json"], bar, "to_json")
    yield _work_row("typed write", work, "typed", "parquet", "Parquet none")
    shutil.rmtree(directory)


def filtering(amount: Amount, directory: Path, spark: SparkSession) -> Iterator[Row]:
    """A ``where`` that one frame in 200 can match, beside a full read and an empty topic."""
    rows = amount.block_rows
    frame_rows = rows // _FRAMES_A_BLOCK
    Store.open(directory, create=True).close()
    with Store(UnsyncedVfs(directory), StoreConfig()) as store:
        for topic in ("large", "empty"):
            store.create_topic(topic, _PARTITIONS, schema=events.SCHEMA, frame_records=frame_rows)
        for block in range(amount.blocks):
            store.append_table("large", events.events(rows), partition=block % _PARTITIONS)
    size = sum(file.stat().st_size for file in directory.rglob("*.log"))
    reader = spark.read.format("cursus").option("subscribe", "large")
    some = reader.option("where", f"id < {frame_rows}").load(str(directory))
    expected = amount.blocks * frame_rows
    if some.count() != expected:
        raise AssertionError(f"expected {expected} rows, found {some.count()}")
    found = interleaved(
        {
            "some": lambda: drain(some),
            "all": lambda: drain(_typed(spark, directory, "large")),
            "empty": lambda: drain(_typed(spark, directory, "empty")),
        },
        amount.rounds,
        amount.warmups,
    )
    floor = found["empty"].best
    # At tiny sizes chance decides which one is longer.
    some_time, all_time = (max(found[name].best - floor, 1e-3) for name in ("some", "all"))
    yield Row(
        f"typed read, where one frame in {_FRAMES_A_BLOCK} can match, {size / 1e9:.1f} GB",
        f"{some_time:.2f} s",
        f"{all_time:.2f} s full read; both beyond {floor:.2f} s of an empty topic",
        some_time / all_time,
        Bar("at most", 0.1),
        variation_of(found["some"], found["all"]),
    )
    shutil.rmtree(directory)


def as_json(frame: DataFrame) -> DataFrame:
    """Rows as JSON values, as one would write them to a records topic."""
    return frame.selectExpr("to_json(struct(*)) value")


def from_json(spark: SparkSession, path: Path) -> DataFrame:
    """The events in the JSON values of a records topic."""
    reader = spark.read.format("cursus").option("subscribe", "json").schema("value binary")
    parsed = f"from_json(string(value), '{events.DDL}') event"
    return reader.load(str(path)).selectExpr(parsed).select("event.*")


def _fill(path: Path, rows: int) -> None:
    """A topic for each codec, its partitions equal."""
    Store.open(path, create=True).close()
    table, share = events.events(rows), rows // _PARTITIONS
    with Store(UnsyncedVfs(path), StoreConfig()) as store:
        for codec in _CODECS:
            store.create_topic(codec, _PARTITIONS, schema=events.SCHEMA, compression=codec)
            for partition in range(_PARTITIONS):
                piece = table.slice(partition * share, share)
                store.append_table(codec, piece, partition=partition)


def _typed(spark: SparkSession, path: Path, topic: str, schema: str = "") -> DataFrame:
    reader = spark.read.format("cursus").option("subscribe", topic)
    return (reader.schema(schema) if schema else reader).load(str(path))


def _drained(spark: SparkSession, path: Path, topic: str, schema: str = "") -> float:
    return drain(_typed(spark, path, topic, schema))


def _drained_parquet(spark: SparkSession, path: Path) -> float:
    return drain(spark.read.parquet(str(path)))


def _scan(store: Store, topic: str, columns: list[str] | None = None) -> int:
    return sum(batch.num_rows for batch in store.scan(topic, columns=columns).to_reader())


def _read_parquet(file: Path) -> int:
    batches = pq.ParquetFile(file).iter_batches(10_000, use_threads=False)
    return sum(batch.num_rows for batch in batches)


def _processor_time(action: Callable[[], object]) -> float:
    """Seconds of processor time of this process, all threads together."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def _measured(
    spark: SparkSession,
    jobs: Mapping[str, Callable[[], object]],
    amount: Amount,
    after: Callable[[], object] = lambda: None,
) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Elapsed seconds of each job, and the processor time of Spark's processes."""
    jvm, work = jvm_of(spark), defaultdict[str, list[float]](list)

    def run(name: str) -> float:
        before = used_by(jvm)
        seconds = clock(jobs[name])
        work[name].append(sum(work_between(before, used_by(jvm), jvm)))
        after()
        return seconds

    sides = {name: partial(run, name) for name in jobs}
    found = interleaved(sides, amount.rounds, amount.warmups)
    return found, {name: Samples(tuple(spent[-amount.rounds :])) for name, spent in work.items()}


def _times_row(what: str, ours: Samples, other: Samples, bar: Bar | None, name: str) -> Row:
    """Compare two durations; the ratio says how many times faster ours is."""
    return replace(time_row(what, ours, other, bar, name=name), ratio=other.best / ours.best)


def _work_row(what: str, work: Mapping[str, Samples], ours: str, other: str, name: str) -> Row:
    return time_row(f"{what}, processor time", work[ours], work[other], None, name=name)


def _bytes_row(amount: Amount, path: Path, directory: Path) -> Row:
    """Bytes a row of the topic under zstd, beside Spark's Parquet under zstd."""
    ours = sum(file.stat().st_size for file in (path / "topics" / "zstd").rglob("*.log"))
    other = sum(file.stat().st_size for file in (directory / "zstd").glob("*.parquet"))
    shown = f"{other / amount.rows:.1f} B Parquet zstd"
    bar = Bar("at most", 1.4)
    what = "typed topic, zstd, bytes a row"
    return Row(what, f"{ours / amount.rows:.1f} B", shown, ours / other, bar, None)
