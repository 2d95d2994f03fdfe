"""Spark reads and writes of many shapes of records, compared with Spark's own file formats.

The base shape is: 100 bytes, no key, four partitions, uncompressed. Each other shape differs from
it in one property.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from .. import data
from ..data import Sizes
from ..measure import Row, clock, interleaved, speed_row
from ..spark_batch import drain, session

_BYTES = {data.FULL: 200_000_000, data.QUICK: 40_000_000, data.TINY: 400_000}


class Shape(NamedTuple):
    """The properties of a workload's records."""

    record_bytes: int = 100
    keyed: bool = False
    partitions: int = 4
    compression: str = "none"

    def __str__(self) -> str:
        size = f"{self.record_bytes} B"
        if self.record_bytes >= 1000:
            size = f"{self.record_bytes // 1000} KB"
        return (
            f"{size}, {'keyed' if self.keyed else 'no key'}, {self.partitions} partition"
            f"{'s' if self.partitions > 1 else ''}, {self.compression}"
        )


MIDDLE = Shape()
FOREIGN = ("cursus", "cursus-broker", "rustlog")
SHAPES = (
    MIDDLE,
    Shape(record_bytes=10),
    Shape(record_bytes=1000),
    Shape(record_bytes=100_000),
    Shape(keyed=True),
    Shape(partitions=1),
    Shape(partitions=64),
    Shape(compression="zstd"),
)


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every shape compared with Parquet, and the base shape with every format."""
    rounds = 3 if sizes is not data.TINY else 1
    with session(directory) as spark:
        for shape in SHAPES:
            yield from _against_parquet(spark, shape, _BYTES[sizes], directory, rounds)
        yield from _against_formats(spark, _BYTES[sizes], directory, rounds)
        yield from _layouts(spark, _BYTES[sizes], directory, rounds)


def _against_parquet(
    spark: SparkSession, shape: Shape, size: int, directory: Path, rounds: int
) -> Iterator[Row]:
    frame, ours, theirs = _records(spark, shape, size), directory / "ours", directory / "theirs"
    options = _options(shape)
    found = interleaved(
        {
            "write": lambda: _written(frame, "cursus", ours, **options),
            "their write": lambda: _written(
                frame, "parquet", theirs, compression=shape.compression
            ),
            "read": lambda: drain(_ours(spark, ours)),
            "their read": lambda: drain(spark.read.parquet(str(theirs))),
        },
        rounds,
    )
    frame.unpersist()
    name = f"Parquet {shape.compression}"
    yield speed_row(f"write {shape}", found["write"], found["their write"], size, None, name)
    yield speed_row(f"read {shape}", found["read"], found["their read"], size, None, name)


def _against_formats(spark: SparkSession, size: int, directory: Path, rounds: int) -> Iterator[Row]:
    """The base shape; text and JSON store the value as base64, because it is binary."""
    frame, ours = _records(spark, MIDDLE, size), directory / "ours"
    texts = frame.selectExpr("base64(value) value")
    frames = {"parquet": frame, "json": texts, "text": texts, "avro": frame}
    options = _options(MIDDLE)
    sides: dict[str, Callable[[], float]] = {
        "write": lambda: _written(frame, "cursus", ours, **options),
        "read": lambda: drain(_ours(spark, ours, "value binary")),
    }
    for name in [name for name in frames if _is_there(spark, name, directory)]:
        path = directory / name
        sides[f"write {name}"] = partial(_written, frames[name], name, path)
        reader = spark.read.format(name).schema(frames[name].schema)
        sides[f"read {name}"] = partial(_read_back, reader.load, path)
    found = interleaved(sides, rounds)
    frame.unpersist()
    for name in frames:
        if f"write {name}" in found:
            for way in ("write", "read"):
                what = f"{way} {MIDDLE}, value only"
                yield speed_row(what, found[way], found[f"{way} {name}"], size, None, name)


def _layouts(spark: SparkSession, size: int, directory: Path, rounds: int) -> Iterator[Row]:
    """The base shape in every layout: durable writes, and reads of all columns."""
    frame = _records(spark, MIDDLE, size)
    sides: dict[str, Callable[[], float]] = {}
    for layout in ("native", *FOREIGN):
        path, options = directory / f"layout-{layout}", {"topic": "t", "numPartitions": "4"}
        sides[f"write {layout}"] = partial(
            _written, frame, "cursus", path, layout=layout, **options
        )
        sides[f"read {layout}"] = lambda path=path: drain(_ours(spark, path))  # type: ignore[misc]
    found = interleaved(sides, rounds)
    frame.unpersist()
    for layout in FOREIGN:
        for way in ("write", "read"):
            ours, native = found[f"{way} {layout}"], found[f"{way} native"]
            yield speed_row(f"{way} {MIDDLE}, layout {layout}", ours, native, size, None, "native")


def _records(spark: SparkSession, shape: Shape, size: int) -> DataFrame:
    """Generated once and cached, so that no measurement includes that."""
    count = max(shape.partitions, size // shape.record_bytes)
    digits = min(shape.record_bytes, 1000) * 2
    value = f"unhex(lpad(hex(id * 7919), {digits}, 'ab45'))"
    if shape.record_bytes > 1000:
        value = f"unhex(repeat(hex({value}), {shape.record_bytes // 1000}))"
    key = ["cast(id as string) key"] if shape.keyed else []
    frame = spark.range(0, count, 1, 4).selectExpr(*key, f"{value} value").persist()
    frame.count()
    return frame


def _options(shape: Shape) -> dict[str, str]:
    return {
        "topic": "t",
        "numPartitions": str(shape.partitions),
        "compression": shape.compression,
    }


def _written(frame: DataFrame, source: str, path: Path, **options: str) -> float:
    shutil.rmtree(path, ignore_errors=True)
    writer = frame.write.format(source).options(**options).mode("append")
    return clock(lambda: writer.save(str(path)))


def _ours(spark: SparkSession, path: Path, schema: str = "") -> DataFrame:
    reader = spark.read.format("cursus").option("subscribe", "t")
    return (reader.schema(schema) if schema else reader).load(str(path))


def _read_back(load: Callable[[str], DataFrame], path: Path) -> float:
    return drain(load(str(path)))


def _is_there(spark: SparkSession, source: str, directory: Path) -> bool:
    """Whether Spark can write such files: Avro is a separate package."""
    path = directory / f"probe-{source}"
    try:
        spark.sql("select 'x' value").write.format(source).save(str(path))
    except (PySparkException, Py4JJavaError):
        print(f"! {source} is not on the class path: no rows for it", file=sys.stderr)
        return False
    return True
