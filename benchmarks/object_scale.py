"""Large logs of stores of objects: plans of 10 million slices, and opening by the length of a log.

The large log is simulated: its manifests are what a writer makes, and no object of data exists.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cursus_spark.read.log_slice import SegmentSplit
from cursus_spark.read.splits import CutPoints, plan_tasks
from storage_core import Store, StoreConfig
from storage_core.objects.backend import Contents
from storage_core.objects.commit_log import CommitLog
from storage_core.objects.manifests.archive import Archive, Manifest, ranges_of
from storage_core.objects.manifests.block import SliceColumns, encode_manifest
from storage_core.objects.manifests.table import slices_in, table
from storage_core.objects.names import DATA, MANIFEST_SUFFIX
from storage_core.objects.patience import Patience, PatientBackend
from storage_core.objects.state import LogState
from storage_core.objects.vfs_backend import VfsBackend
from storage_core.types import TimeBounds
from storage_core.vfs import PosixVfs

from . import data
from .data import Sizes
from .growth import exponent
from .measure import Bar, Row, clock, interleaved, variation_of

_PARTITIONS, _TASKS, _SIZE, _RECORDS = 1000, 8, 64 << 20, 100_000
_DAY_US, _DAYS, _BEGIN = 24 * 3600 * 10**6, 365, 1_700_000_000_000_000
# Slices of a partition in a manifest, and manifests.
_MANIFESTS = {data.FULL: (131, 77), data.QUICK: (131, 20), data.TINY: (5, 3)}
_AFTER_CHECKPOINT = 50
_COMMITS = {
    data.FULL: (100, 1000, 10_000, 100_000),
    data.QUICK: (100, 1000, 10_000),
    data.TINY: (10, 30),
}


class CountingBackend(VfsBackend):
    """Objects in a directory, with a count of the reads."""

    gets = 0

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        self.gets += 1
        return super().get_ranges(key, ranges)


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Plans of a simulated log, and opening logs of several lengths."""
    yield from plans(sizes, directory / "plans")
    yield opening(sizes, directory)


def plans(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """A plan of one day and one of everything, each by a process that knows nothing yet."""
    rounds = min(sizes.rounds, 3)
    log, total = simulated(directory, *_MANIFESTS[sizes])
    day = TimeBounds(_BEGIN + 200 * _DAY_US, _BEGIN + 201 * _DAY_US)
    found: dict[str, tuple[int, int]] = {}

    def plan_day() -> float:
        return clock(lambda: found.__setitem__("day", _tasks_of(directory, log, day)))

    def plan_all() -> float:
        return clock(lambda: found.__setitem__("all", _columns_of(directory, log)))

    samples = interleaved({"day": plan_day, "all": plan_all}, rounds, warmups=0)
    if found["all"][0] != total:
        raise AssertionError(f"the plan has {found['all'][0]} slices, expected {total}")
    for name, what, limit in (("day", "one day", 2), ("all", "everything", 20)):
        slices, gets = found[name]
        seconds = samples[name]
        label = f"objects: plan {what} of {total:,} slices"
        variation = variation_of(seconds)
        yield Row(
            f"{label}: seconds",
            f"{seconds.best:.3g} s",
            f"{slices:,} slices",
            seconds.best,
            Bar("at most", limit),
            variation,
        )
        bar = Bar("at most", 20) if name == "day" else None
        yield Row(f"{label}: GETs", f"{gets}", "requests", gets, bar, None)


def _tasks_of(directory: Path, log: str, times: TimeBounds) -> tuple[int, int]:
    """The Spark tasks that read a time range, from a cold start."""
    opened, backend = open_log(directory, log)
    splits = [
        SegmentSplit("t", partition, each.path, each.base, each.end, 0, each.size, True, each.base)
        for part in table(opened.refresh(), times)
        for partition, each in slices_in(part)
    ]
    nothing = np.empty(0, np.int64)
    plan_tasks(splits, cuts=lambda _: CutPoints(nothing, nothing), parallelism=os.cpu_count() or 1)
    return len(splits), backend.gets


def _columns_of(directory: Path, log: str) -> tuple[int, int]:
    """All slices as columns, from a cold start."""
    opened, backend = open_log(directory, log)
    count = sum(part.rows for part in table(opened.refresh()))
    return count, backend.gets


def open_log(directory: Path, log: str) -> tuple[CommitLog, CountingBackend]:
    """A log as a new process opens it."""
    vfs = PosixVfs(str(directory))
    backend = CountingBackend(vfs)
    patient = PatientBackend(backend, Patience(vfs, 30))
    return CommitLog(patient, vfs, log, ttl_s=24 * 3600), backend


def simulated(directory: Path, each: int, manifests: int) -> tuple[str, int]:
    """A log whose checkpoint names manifests; its id, and how many slices it has."""
    vfs = data.UnsyncedVfs(str(directory))
    with Store.open(directory, layout="objects", create=True) as store:
        store.create_topic("t", _PARTITIONS)
    (log_directory,) = (directory / "logs").iterdir()
    log = CommitLog(
        PatientBackend(VfsBackend(vfs), Patience(vfs, 30)), vfs, log_directory.name, ttl_s=24 * 3600
    )
    state, rng = log.refresh(), np.random.default_rng(1)
    found, step = list[Manifest](), _DAYS * _DAY_US // (each * manifests)
    for number in range(manifests):
        columns = _columns(rng, number * each, each, step)
        buffers, blocks = encode_manifest(log.name, columns)
        key = f"{DATA}/2023111500/{uuid.UUID(bytes=rng.bytes(16))}{MANIFEST_SUFFIX}"
        log.backend.put(key, buffers)
        ends = np.full(_PARTITIONS, (number + 1) * each * _RECORDS, np.int64)
        found.append(Manifest(key, ends, blocks, ranges_of(columns.keys)))
    log.checkpoint(_with_archive(state, Archive(found, log.manifests)))
    return log.name, manifests * each * _PARTITIONS


def _with_archive(state: LogState, archive: Archive) -> LogState:
    partitions = tuple(
        replace(each, end=archive.end(number), archive=archive)
        for number, each in enumerate(state.partitions)
    )
    return replace(state, partitions=partitions, archive=archive)


def _columns(rng: np.random.Generator, first: int, count: int, step: int) -> SliceColumns:
    """The slices of one manifest: ``count`` commits of tasks that write all partitions."""
    partition = np.repeat(np.arange(_PARTITIONS), count)
    commit = np.tile(np.arange(count), _PARTITIONS)
    task = partition * _TASKS // _PARTITIONS
    base = (first + commit) * _RECORDS
    begin = _BEGIN + (first + commit) * step
    rows = len(partition)
    numbers = np.stack(
        [
            partition,
            base,
            base + _RECORDS,
            commit * _TASKS + task,
            (partition % (_PARTITIONS // _TASKS)) * (_SIZE + 4096),
            _SIZE - rng.integers(0, 4096, rows),
            np.full(rows, 2048),
            np.full(rows, 1024),
            np.full(rows, _RECORDS),
            begin,
            begin + step - rng.integers(1, 10**6, rows),
            rng.integers(0, 1 << 32, rows),
        ]
    ).astype(np.int64)
    names = [uuid.UUID(bytes=rng.bytes(16)) for _ in range(count * _TASKS)]
    return SliceColumns(numbers, [f"{DATA}/2023111500/job/{each}.frames" for each in names])


def opening(sizes: Sizes, directory: Path) -> Row:
    """Opening a store and reading its newest record, by the number of commits of the log."""
    grown = {count: directory / f"commits-{count}" for count in _COMMITS[sizes]}
    for count, path in grown.items():
        build_commits(path, count)

    def look(path: Path, count: int) -> float:
        return clock(lambda: _read_newest(path, count))

    sides = {str(count): (lambda c=count, p=path: look(p, c)) for count, path in grown.items()}
    found = interleaved(sides, sizes.rounds * 3)
    ordered = [(count, found[str(count)]) for count in grown]
    (small, least), (large, most) = ordered[0], ordered[-1]
    return Row(
        f"objects: open and first read: growth from {small:,} to {large:,} commits",
        f"{most.best * 1e3:.3g} ms",
        f"{least.best * 1e3:.3g} ms smallest",
        exponent(ordered),
        Bar("at most", 0.1),
        variation_of(*(samples for _, samples in ordered)),
    )


def _read_newest(path: Path, count: int) -> None:
    with Store.open(path) as store:
        end = store.visible_ends("t")[0]
        (batch,) = store.read("t", 0, end - 1, end)
        if batch.num_rows != 1 or end < count:
            raise AssertionError(f"read {batch.num_rows} records before offset {end}")


def build_commits(path: Path, count: int) -> None:
    """A log of commits with one record each; 50 of them stand after the last checkpoint.

    Args:
        path: An empty directory.
        count: How many at least.
    """
    Store.open(path, layout="objects", create=True).close()
    with Store(data.UnsyncedVfs(str(path)), StoreConfig(), "objects") as store:
        store.create_topic("t")
        for _ in range(count):
            store.append("t", 0, [b"x"])
        (directory,) = (path / "logs").iterdir()
        log = open_log(path, directory.name)[0]
        while log.refresh().number != log.hint() + _AFTER_CHECKPOINT:
            store.append("t", 0, [b"x"])
