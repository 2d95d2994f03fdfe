"""Stores of objects compared with the bare library on the same server, and with Spark's ceilings.

Reads and writes of Spark are compared with GETs of the same objects and multipart PUTs of the same
bytes, by as many processes as Spark has tasks at once. The server, on loopback, works on the same
processors. So the ceiling of a Python source is a bound too: the slower of both is the baseline.
What both reach together on these processors has a row of its own (``object_ceiling``). Requests are
counted by a proxy. The log length and large logs are measured by ``object_scale``.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from cursus_spark.datasource import CursusDataSource
from storage_core import Store
from tests.support.objects.object_proxy import Proxy, proxied

from . import data
from .baselines.object_ceiling import PART_BYTES, PARTS, ObjectCeilingSource, Profile, library
from .data import RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, clock, interleaved, speed_row
from .parts.object_commits import commit_rows
from .parts.object_engine import engine_rows
from .parts.object_servers import Place, serving
from .spark_batch import drain, rows_to_write, session

_PROCESSES = 2  # as many as Spark's tasks at once
_PARTITIONS = 4
_RECORDS = {data.FULL: 10_000_000, data.QUICK: 2_000_000, data.TINY: 20_000}
_AT_LEAST = Bar("at least", 0.8)


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the table."""
    with serving(sizes, directory) as place:
        yield from engine_rows(sizes, place)
        yield from commit_rows(sizes, place)
        with session(directory) as spark, _workers() as workers:
            yield from requests(place, spark)
            yield from speed(sizes, directory, place, spark, workers)


class _Worker:
    """A process with a connection of its own."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))

    def begin(self, work: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Start some work there; the returned function waits for it."""
        return self._pool.submit(work, *arguments).result

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def _workers() -> Iterator[list[_Worker]]:
    with ExitStack() as stack:
        found = [_Worker() for _ in range(_PROCESSES)]
        for worker in found:
            stack.callback(worker.close)
        yield found


class _Object(NamedTuple):
    key: str
    size: int


_bodies: dict[str, bytes] = {}


def _get(url: str, options: Mapping[str, str], keys: Sequence[str], *, keep: bool = False) -> int:
    """GET whole objects, one after the other; their bytes, which a later ``_put`` may need."""
    obstore, store = library(url, options)
    size = 0
    for key in keys:
        body = obstore.get(store, key).bytes()
        size += len(body)
        if keep:
            _bodies[key] = bytes(body)
    return size


def _put(url: str, options: Mapping[str, str], prefix: str) -> None:
    """PUT what was kept, in parts, under other names."""
    obstore, store = library(url, options)
    for key, body in _bodies.items():
        obstore.put(
            store, f"{prefix}/{key}", body, use_multipart=True, chunk_size=PART_BYTES,
            max_concurrency=PARTS,
        )  # fmt: skip


def _together(workers: Sequence[_Worker], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    waits = [worker.begin(*call) for worker, call in zip(workers, calls, strict=True)]
    return [wait() for wait in waits]


def requests(place: Place, spark: SparkSession) -> Iterator[Row]:
    """What a job, a poll and an idle second ask of the server."""
    url, tasks = f"{place.url}/requests", 5
    with Store.open(url, create=True, storage=place.storage) as store:
        store.create_topic("t", _PARTITIONS)
    with proxied(place.storage, likely={}) as (proxy, options):
        given = {f"storage.{name}": text for name, text in options.items()}
        rows = spark.range(0, 1000, 1, tasks).selectExpr("cast(id as string) value")
        writer = rows.write.format("cursus").mode("append").options(topic="t", **given)
        writer.save(url)
        proxy.forget()
        writer.save(url)
        data_puts = proxy.written["data"]
        commits = proxy.written["commit"]
        rest = sum(proxy.requests.values()) - data_puts - commits
        yield _counted(f"requests of a Spark job of {tasks} tasks: PUTs of data", data_puts, tasks)
        yield _counted("… PUTs of the commit", commits, 1)
        yield Row("… all others: planning, and 2 of the commit", f"{rest}", "–", rest, None, None)
        yield from _commit_alone(options, url, proxy)
        source = CursusDataSource({"path": url, "subscribe": "t", **given})
        reader = source.streamReader(source.schema())
        limit = reader.getDefaultReadLimit()
        start = reader.latestOffset(reader.initialOffset(), limit)
        proxy.forget()
        reader.latestOffset(start, limit)
        yield _counted("requests of a warm poll", sum(proxy.requests.values()), 1)
        proxy.forget()
        reader.latestOffset(start, limit)
        reader.reportLatestOffset()
        yield _counted("requests of an idle trigger", sum(proxy.requests.values()), 1)


def _commit_alone(options: Mapping[str, str], url: str, proxy: Proxy) -> Iterator[Row]:
    """A driver's commit, without what opens its store."""
    with Store.open(url, storage=options) as store:
        stage = store.stage("alone")
        stage.write("t", 0, data.columns(100))
        parts = stage.finish()
        proxy.forget()
        store.commit("alone", parts)
    found = sum(proxy.requests.values())
    yield Row(
        "requests of the commit of a job", f"{found}", "3 at most", found, Bar("at most", 3), None
    )


def _counted(what: str, found: int, wanted: int) -> Row:
    return Row(what, f"{found}", f"{wanted}", found / wanted, Bar("at most", 1), None)


class _Target:
    """Where Spark writes its rows: each time to another topic, or as bytes to another directory."""

    def __init__(
        self,
        url: str,
        storage: Mapping[str, str],
        options: Mapping[str, str],
        rows: DataFrame,
        directory: Path,
    ) -> None:
        self._url, self._storage, self._options = url, storage, options
        self._rows, self._directory = rows, directory
        self._numbers = itertools.count()

    def write(self) -> float:
        """Seconds of a write to a topic. Only the first one, ``t0``, is kept."""
        topic = f"t{next(self._numbers)}"
        writer = self._rows.write.format("cursus").mode("append")
        writer = writer.options(topic=topic, numPartitions=_PARTITIONS, **self._options)
        seconds = clock(lambda: writer.save(self._url))
        if topic != "t0":
            _drop(self._url, self._storage, topic)
        return seconds

    def write_bytes(self) -> float:
        """Seconds of a write of the bytes alone."""
        target = self._directory / f"bytes-{next(self._numbers)}"
        writer = self._rows.write.format("bytes_only").option("sync", "false").mode("append")
        seconds = clock(lambda: writer.save(str(target)))
        shutil.rmtree(target)
        return seconds

    def write_objects(self) -> float:
        """Seconds of a write of the bytes alone, as objects."""
        storage = json.dumps(dict(self._storage))
        writer = self._rows.write.format("object_ceiling").option("storage", storage)
        seconds = clock(lambda: writer.mode("append").save(self._url))
        self._delete("ceiling")
        return seconds

    def put(self, workers: Sequence[_Worker]) -> float:
        """Seconds of PUTs of the bytes that the processes keep."""
        call = (_put, self._url, dict(self._storage), "put")
        seconds = _all_of(workers, [call] * len(workers))
        self._delete("put")
        return seconds

    def _delete(self, prefix: str) -> None:
        """Delete objects, so that they do not fill the disk's cache, nor the disk."""
        obstore, store = library(self._url, self._storage)
        obstore.delete(store, [each["path"] for one in obstore.list(store, prefix) for each in one])


def speed(
    sizes: Sizes, directory: Path, place: Place, spark: SparkSession, workers: Sequence[_Worker]
) -> Iterator[Row]:
    """Spark's read and write, and the same bytes by the library alone, or by both at once."""
    spark.dataSource.register(ObjectCeilingSource)
    records = _RECORDS[sizes]
    size, rounds = records * RECORD_BYTES, min(sizes.rounds, 3)
    url, storage = f"{place.url}/speed", dict(place.storage)
    given = {f"storage.{name}": text for name, text in storage.items()}
    plain, keyed = rows_to_write(spark, records)
    keyed.unpersist()
    target = _Target(url, storage, given, plain, directory)
    target.write()  # the topic that is read
    objects = _objects(url, storage)
    shares = [[each.key for each in objects[at::_PROCESSES]] for at in range(_PROCESSES)]
    held = _together(workers, [(partial(_get, keep=True), url, storage, one) for one in shares])
    stored = sum(held)
    read = spark.read.format("cursus").options(subscribe="t0", **given).load(url)
    options = {"rows": records, "tasks": read.rdd.getNumPartitions()}
    ceiling = spark.read.format("ceiling").options(**options).load()
    keys = json.dumps([each.key for each in objects])
    both = spark.read.format("object_ceiling").options(
        storage=json.dumps(storage), keys=keys, size=stored, **options
    ).load(url)  # fmt: skip
    sides = {
        "read": lambda: drain(read),
        "gets": lambda: _all_of(workers, [(_get, url, storage, one) for one in shares]),
        "read ceiling": lambda: drain(ceiling),
        "read both": lambda: drain(both),
        "write": target.write,
        "puts": lambda: target.put(workers),
        "write ceiling": target.write_bytes,
        "write both": target.write_objects,
    }
    profile = Profile(spark)
    found = interleaved({name: profile.of(name, side) for name, side in sides.items()}, rounds)
    plain.unpersist()
    what = f"of {size / 1e6:g} MB, {stored / 1e6:.0f} MB in {len(objects)} objects, {place.server}"
    for verb, library_name in (("read", "gets"), ("write", "puts")):
        name = f"{_PROCESSES} × {library_name[:3].upper()}"
        yield from _against(f"Spark {verb} {what}", found, verb, library_name, name, size)
        yield from profile.rows(f"Spark's {verb}", verb, f"{verb} both", rounds)


def _all_of(workers: Sequence[_Worker], calls: Sequence[tuple[Any, ...]]) -> float:
    """Seconds until all processes are done."""
    return clock(lambda: _together(workers, calls))


def _against(
    what: str, found: Mapping[str, Samples], ours: str, library: str, name: str, size: int
) -> Iterator[Row]:
    """Against both bounds; the bar is for the slower one."""
    ceiling = f"{ours} ceiling"
    slower = max((library, ceiling), key=lambda side: found[side].best)
    for side, shown in ((library, name), (ceiling, "Spark's ceiling")):
        bar = _AT_LEAST if side == slower else None
        yield speed_row(what, found[ours], found[side], size, bar, shown)
    both = f"Spark and {name.split()[-1]} at once"
    yield speed_row(what, found[ours], found[f"{ours} both"], size, None, both)


def _objects(url: str, storage: Mapping[str, str]) -> list[_Object]:
    """The data objects of the topic, by their slices."""
    with Store.open(url, storage=storage) as store:
        sizes: dict[str, int] = {}
        for partition in range(_PARTITIONS):
            for segment in store.segments("t0", partition):
                key = segment.path.partition("@")[0]
                sizes[key] = sizes.get(key, 0) + segment.size
    return [_Object(key, size) for key, size in sorted(sizes.items())]


def _drop(url: str, storage: Mapping[str, str], topic: str) -> None:
    """Delete a topic, so that its data does not fill the disk's cache, nor the disk."""
    obstore, store = library(url, storage)
    with Store.open(url, storage=storage) as opened:
        keys = {
            segment.path.partition("@")[0]
            for partition in range(_PARTITIONS)
            for segment in opened.segments(topic, partition)
        }
        opened.delete_topic(topic)
    obstore.delete(store, sorted(keys))
