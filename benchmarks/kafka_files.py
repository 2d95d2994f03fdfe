"""A Kafka broker's log directory, read as it lies on the disk, compared with Kafka's own ways.

Runs only by name (``make bench-kafka``). The engine is compared with aiokafka's Cython decoder over
the same files, Spark with Spark's Kafka source over the same records while the broker runs.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from storage_core import Store, use_processors

from . import data
from .baselines import broker
from .data import RECORD_BYTES, Sizes
from .kafka import CACHE, make_topic
from .measure import Bar, Row, clock, interleaved, speed_row
from .spark_batch import drain, rows_to_write, session

ON_REQUEST = True
_PARTITIONS = 4
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_RECORDS = {data.FULL: 2_000_000, data.QUICK: 500_000, data.TINY: 10_000}
_PATIENCE_S = 60


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Rows of the table; if there is no broker, none and the reason."""
    try:
        connector = broker.connector_jars(CACHE)
        jars = broker.fetch(CACHE, broker.BROKER)
        with (
            broker.running(directory, jars) as (address, _),
            session(directory, {"spark.jars": ",".join(map(str, connector))}) as spark,
        ):
            files = _Files(spark, directory, address, _RECORDS[sizes])
            yield from files.spark_rows(sizes)
            yield from files.engine_rows(sizes)
    except broker.UnavailableError as error:
        print(f"  no comparison with Kafka: {error}")


class _Files:
    """A topic per codec, produced by Spark's Kafka sink."""

    def __init__(self, spark: SparkSession, directory: Path, address: str, records: int) -> None:
        self._spark, self._address, self._records = spark, address, records
        self._log = directory / "data"
        plain, _ = rows_to_write(spark, records)
        for codec in _CODECS:
            make_topic(spark, address, codec, _PARTITIONS)
            options = {
                "topic": codec,
                "kafka.bootstrap.servers": address,
                "kafka.compression.type": codec,
            }
            plain.write.format("kafka").options(**options).save()
        self._wait_for_the_high_watermark()

    def _wait_for_the_high_watermark(self) -> None:
        """The broker writes its file every five seconds."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            with Store.open(self._log) as store:
                if all(sum(store.visible_ends(it)) >= self._records for it in _CODECS):
                    return
            time.sleep(0.5)
        raise broker.UnavailableError("the broker's high watermark file stays below the records")

    def spark_rows(self, sizes: Sizes) -> Iterator[Row]:
        """Spark's reads of the same topic: from the files, and from the broker."""
        rounds = max(3, sizes.rounds) if sizes is not data.TINY else 1
        size = self._records * RECORD_BYTES
        for codec in ("none", "zstd"):
            found = interleaved(
                {
                    "files": lambda codec=codec: drain(self._files(codec)),  # type: ignore[misc]
                    "broker": lambda codec=codec: drain(self._broker(codec)),  # type: ignore[misc]
                },
                rounds,
                warmups=2,
            )
            what = f"Spark: a Kafka topic's files, {codec}"
            bar = Bar("at least", 3)
            yield speed_row(what, found["files"], found["broker"], size, bar, "Kafka's source")

    def _files(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("cursus").option("subscribe", topic)
        return reader.load(str(self._log))

    def _broker(self, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._address, "subscribe": topic}
        return self._spark.read.format("kafka").options(**options).load()

    def engine_rows(self, sizes: Sizes) -> Iterator[Row]:
        """One processor decodes the same files to Arrow: ours, and aiokafka's decoder."""
        use_processors(1)
        for codec in _CODECS:
            files = sorted(self._log.glob(f"{codec}-*/*.log"))
            if not can_decode(codec):
                continue
            with Store.open(self._log) as store:
                found = interleaved(
                    {
                        "ours": lambda store=store, codec=codec: clock(  # type: ignore[misc]
                            lambda: read_all(store, codec, self._records)
                        ),
                        "aiokafka": lambda files=files: clock(  # type: ignore[misc]
                            lambda: decode_all(files, self._records)
                        ),
                    },
                    sizes.rounds,
                )
            size = self._records * RECORD_BYTES
            bar = Bar("at least", 2)
            what = f"a Kafka topic's files to Arrow, {codec}"
            yield speed_row(what, found["ours"], found["aiokafka"], size, bar, "aiokafka")


def read_all(store: Store, topic: str, records: int) -> None:
    """All columns of all partitions, every check on."""
    columns = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    ends = store.visible_ends(topic)
    rows = sum(
        batch.num_rows
        for partition in range(len(ends))
        for batch in store.read(topic, partition, columns=columns)
    )
    _require(rows, records)


def can_decode(codec: str) -> bool:
    """Whether aiokafka is here, and what it needs for a codec."""
    try:
        codecs = importlib.import_module("aiokafka.codec")
    except ImportError:
        raise broker.UnavailableError("aiokafka is not installed: make bench-kafka") from None
    return codec == "none" or bool(getattr(codecs, f"has_{codec}")())


def decode_all(files: list[Path], records: int) -> None:
    """The same columns by aiokafka's decoder, which gives a record at a time."""
    decoder = importlib.import_module("aiokafka.record._crecords").MemoryRecords
    _require(sum(_decode(decoder, file.read_bytes()) for file in files), records)


def _decode(decoder: Any, log: bytes) -> int:
    memory = decoder(log)
    offsets: list[int] = []
    times: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Any] = []
    while (batch := memory.next_batch()) is not None:
        if not batch.validate_crc():
            raise AssertionError("a batch has a wrong checksum")
        for record in batch:
            offsets.append(record.offset)
            times.append(record.timestamp)
            keys.append(record.key)
            values.append(record.value)
            headers.append(record.headers)
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, pa.list_(entry)),
        }
    )
    return int(table.num_rows)


def _require(rows: int, records: int) -> None:
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")
