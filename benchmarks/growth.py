"""How the cost grows with the size: the exponent of a power law over at least two decades.

1 is proportional, 0 is no growth. Each size counts with its best of several rounds.
"""

from __future__ import annotations

import math
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from cursus_spark.datasource import CursusDataSource
from storage_core import Store, StoreConfig

from . import data
from .baselines import linked
from .data import RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, clock, interleaved, variation_of

_LINEAR, _CONSTANT = Bar("at most", 1.1), Bar("at most", 0.2)
_BYTES = {
    data.FULL: (10**6, 10**7, 10**8, 10**9),
    data.QUICK: (10**6, 10**7, 10**8),
    data.TINY: (10**4, 10**5),
}
_SEGMENTS = {
    data.FULL: (100, 1000, 10_000),
    data.QUICK: (100, 1000),
    data.TINY: (4, 20),
}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """One row for each kind of work."""
    yield from by_bytes(sizes, directory)
    yield from by_segments(sizes, directory)


def by_bytes(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Opening, reading and appending, by the bytes of a topic."""
    grown = {size: directory / f"bytes-{size}" for size in _BYTES[sizes]}
    counts = {size: data.build(path, StoreConfig(), "t", size) for size, path in grown.items()}
    yield _fitted(
        "open and first read", grown, lambda path, _: _open(path), sizes.rounds * 3, _CONSTANT
    )
    yield _fitted(
        "read all", grown, lambda path, size: _read(path, counts[size]), sizes.rounds, _LINEAR
    )
    for path in grown.values():
        shutil.rmtree(path)
    yield _fitted("append", grown, _append, sizes.rounds, _LINEAR)


def by_segments(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Lookups and planning, by the number of segments."""
    grown = {count: directory / f"segments-{count}" for count in _SEGMENTS[sizes]}
    ends = {count: data.build_segments(path, count) for count, path in grown.items()}
    stores = {path: Store.open(path) for path in grown.values()}
    rounds = sizes.rounds
    for what, look in (("offset", _seek_offset), ("time", _seek_time)):
        name = f"seek by {what}"

        def seek(path: Path, count: int, look: Callable[[Store, int], object] = look) -> float:
            store, end = stores[path], ends[count]
            places = [end * place // 17 for place in range(1, 17)]
            return clock(lambda: [look(store, place) for place in places])

        yield _fitted(name, grown, seek, rounds, _CONSTANT)
    for path, store in stores.items():
        store.close()
        shutil.rmtree(path)
    grown = {count * 10: path for count, path in grown.items()}
    for count, path in grown.items():
        linked.sparse_segments(path, count, 4)
    yield _fitted("plan a Spark read", grown, lambda path, _: _plan(path), rounds, _LINEAR)


def _fitted(
    what: str,
    grown: Mapping[int, Path],
    work: Callable[[Path, int], float],
    rounds: int,
    bar: Bar,
) -> Row:
    sides = {str(size): (lambda s=size, p=path: work(p, s)) for size, path in grown.items()}
    found = interleaved(sides, rounds)
    ordered = [(size, found[str(size)]) for size in grown]
    (small, least), (large, most) = ordered[0], ordered[-1]
    return Row(
        f"{what}: growth from {small:,} to {large:,}",
        f"{most.best * 1e3:.3g} ms",
        f"{least.best * 1e3:.3g} ms smallest",
        exponent(ordered),
        bar,
        variation_of(*(samples for _, samples in ordered)),
    )


def exponent(ordered: list[tuple[int, Samples]]) -> float:
    """Slope of the straight line through the points on logarithmic axes."""
    sizes = [math.log(size) for size, _ in ordered]
    times = [math.log(samples.best) for _, samples in ordered]
    return float(np.polyfit(sizes, times, 1)[0])


def _open(path: Path) -> float:
    def run() -> None:
        with Store.open(path) as store:
            next(iter(store.read("t", 0)))

    return clock(run)


def _read(path: Path, records: int) -> float:
    with Store.open(path) as store:
        return clock(lambda: _consume(store, records))


def _consume(store: Store, records: int) -> None:
    rows = sum(batch.num_rows for batch in store.read("t", 0, end=records))
    if rows != records:
        raise AssertionError(f"read {rows} records, expected {records}")


def _append(path: Path, size: int) -> float:
    count, group = size // RECORD_BYTES, 8 * data.MIB // RECORD_BYTES
    values = data.values(min(count, group))
    with Store.open(path, create=True) as store:
        store.create_topic("t")

        def run() -> None:
            for first in range(0, count, group):
                store.append("t", 0, values.slice(0, count - first))

        seconds = clock(run)
    shutil.rmtree(path)
    return seconds


def _seek_offset(store: Store, offset: int) -> object:
    return next(iter(store.read("events", 0, start=offset, max_records=1)))


def _seek_time(store: Store, offset: int) -> object:
    return store.offset_for_timestamp("events", 0, offset * 1000)


def _plan(path: Path) -> float:
    source = CursusDataSource({"path": str(path), "subscribe": linked.TOPIC})
    reader = source.reader(source.schema())
    return clock(lambda: [pickle.dumps(task) for task in reader.partitions()])
