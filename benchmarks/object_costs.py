"""What a store in an object store costs: requests of ten minutes, counted on their way to a server.

Each kind of work has a proxy of its own, which counts its requests. They run side by side, at the
pace that the kind has in practice. A month has thirty days, and prices are those of S3 in its first
region: 0.005 $ for a thousand PUT, POST and LIST, 0.0004 $ for a thousand GET; DELETE is free.

Runs only by name, because it takes ten minutes. ``docs/operations.md`` has the figures.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from cursus_spark.datasource import CursusDataSource
from storage_core import DiskHandler, Store, StoreConfig
from tests.support.objects.object_proxy import proxied

from . import data
from .data import Sizes
from .measure import Bar, Row
from .parts.object_servers import Place, serving
from .spark_batch import session

ON_REQUEST = True
_SECONDS = {data.FULL: 600.0, data.QUICK: 60.0, data.TINY: 3.0}
_TASKS = 8
_MONTH_S = 30 * 24 * 3600
_DOLLARS = {"PUT": 5e-6, "POST": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}
Options = Mapping[str, str]
Run = Callable[[float], float]
"""Works for some seconds; returns for how many its requests are."""


class Kind(NamedTuple):
    """Some work, and what the model says it costs a month. ``prepare`` does all that is cold."""

    what: str
    dollars: float
    prepare: Callable[[str, Options], Run]


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """A row for each kind of work; the ratio is what was counted over what the model says."""
    seconds = _SECONDS[sizes]
    with serving(sizes, directory) as place, session(directory) as spark:
        kinds = _kinds(spark, directory / "checkpoint", trigger_s=10 if seconds > 30 else 1)
        counted = _counted(kinds, place, seconds)
    for kind, (requests, passed) in zip(kinds, counted, strict=True):
        month = sum(_DOLLARS[name] * count for name, count in requests.items()) * _MONTH_S / passed
        shown = ", ".join(f"{count} {name}" for name, count in sorted(requests.items()))
        yield Row(
            f"{kind.what}: {shown} in {passed:.0f} s",
            f"{month:.2f} $ a month",
            f"{kind.dollars:.2f} $ by the model",
            month / kind.dollars,
            Bar("at most", 1.1),
            None,
        )


def _kinds(spark: SparkSession, checkpoint: Path, trigger_s: int) -> list[Kind]:
    commit = (_TASKS + 1) * _DOLLARS["PUT"] + 2 * _DOLLARS["GET"]
    flush = _DOLLARS["PUT"] + _DOLLARS["GET"]
    each, month = f"{_TASKS} tasks", _MONTH_S
    stream = partial(_stream, spark, checkpoint, trigger_s)
    return [
        Kind(f"stream, trigger {trigger_s} s, {each}", commit * month / trigger_s, stream),
        Kind(f"1 commit/s of {each}", commit * month, _commits),
        Kind("poll each second", _DOLLARS["GET"] * month, _polls),
        Kind("handler, linger 1 s", flush * month, _handler),
    ]


def _counted(kinds: list[Kind], place: Place, seconds: float) -> list[tuple[Counter[str], float]]:
    """Requests of each kind, and the seconds that they are for."""
    with ExitStack() as stack:
        proxies, runs = [], []
        for number, kind in enumerate(kinds):
            proxy, options = stack.enter_context(proxied(place.storage, likely={}))
            url = f"{place.url}/costs-{number}"
            with Store.open(url, create=True, storage=place.storage) as store:
                store.create_topic("t", _TASKS)
            runs.append(kind.prepare(url, options))
            proxies.append(proxy)

        def count(number: int) -> tuple[Counter[str], float]:
            proxies[number].forget()
            passed = runs[number](seconds)
            return Counter(proxies[number].requests), passed

        with ThreadPoolExecutor(len(kinds)) as pool:
            return list(pool.map(count, range(len(kinds))))


def _each_second(action: Callable[[], object], seconds: float) -> float:
    """Do something each second; for how many seconds that was."""
    begin, turns = time.monotonic(), max(1, round(seconds))
    for turn in range(turns):
        time.sleep(max(0.0, begin + turn - time.monotonic()))
        action()
    return float(turns)


def _commits(url: str, options: Options) -> Run:
    """A driver that commits what tasks, which have its pin, have staged."""
    store, versions = Store.open(url, storage=options), itertools.count()
    pin = store.pinned("t")
    assert pin is not None
    rows = data.columns(100)

    def commit() -> None:
        version, parts = next(versions), []
        for task in range(_TASKS):
            with Store.open(url, storage=options, pins={"t": pin}) as opened:
                stage = opened.stage(f"job-{version}")
                stage.write("t", task, rows)
                parts += stage.finish()
        store.commit(f"job-{version}", parts, app="app", version=version)

    commit()
    return partial(_each_second, commit)


def _stream(
    spark: SparkSession, checkpoint: Path, trigger_s: int, url: str, options: Options
) -> Run:
    """A query that writes rows as they come. All its requests are for its commits."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    query = (
        rows.repartition(_TASKS)
        .selectExpr("cast(value as string) as value")
        .writeStream.format("cursus")
        .options(topic="t", **_given(options))
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{trigger_s} seconds")
        .start(url)
    )

    def done() -> int:
        """How many batches the query has completed."""
        if (error := query.exception()) is not None:
            raise error
        return (query.lastProgress or {"batchId": -1})["batchId"] + 1

    def run(seconds: float) -> float:
        first, until = done(), time.monotonic() + seconds
        while time.monotonic() < until or done() == first:
            time.sleep(0.1)
        query.stop()
        return float((done() - first) * trigger_s)

    while not done():
        time.sleep(0.1)
    return run


def _polls(url: str, options: Options) -> Run:
    """The polls of a stream that finds nothing new."""
    source = CursusDataSource({"path": url, "subscribe": "t", **_given(options)})
    reader = source.streamReader(source.schema())
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    return partial(_each_second, lambda: reader.latestOffset(start, limit))


def _handler(url: str, options: Options) -> Run:
    """Ten records a second, which are written together each second."""
    config = StoreConfig(linger_ms=1000)
    handler = DiskHandler(Store.open(url, storage=options, config=config), "t", 0, config)
    handler.append(b"first").result()

    def run(seconds: float) -> float:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.append(b"x" * data.RECORD_BYTES)
            time.sleep(0.1)
        handler.close()
        return seconds

    return run


def _given(options: Options) -> dict[str, str]:
    return {f"storage.{name}": text for name, text in options.items()}
