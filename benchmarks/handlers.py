"""Handlers compared with a bare loop that does the minimum of a durable, asynchronous write.

The loop is a queue, a thread and a standard future per record: it takes up to 500 queued records,
writes their bytes with one call, syncs, and resolves the futures. It has no offsets, frames,
checksums or index, and no order across threads.
"""

from __future__ import annotations

import os
import queue
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from storage_core import DiskHandler, DiskManager, StoreConfig

from .data import RECORD_BYTES, Sizes
from .measure import Bar, Row, Samples, interleaved, variation_of

_CONF = Path(__file__).resolve().parent.parent / "conf"
_PROFILES = ("default", "high-throughput", "low-latency", "memory-constrained")
_VALUE = b"x" * RECORD_BYTES
_LOOP_BATCH, _LOOP_QUEUE = 500, 10_000
_PACE_S = 0.01
Append = Callable[[bytes], "Future[int]"]


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """Every row of the handlers' table. ``directory`` is empty at the start."""
    for threads, thousands in ((1, 400), (4, 200)):
        yield from throughput(sizes, directory, threads, Bar("at least", thousands))
    yield four_threads(sizes, directory)
    yield from round_trips(sizes, directory)
    for profile in _PROFILES:
        yield latency(sizes, directory, profile)


def throughput(sizes: Sizes, directory: Path, threads: int, thousands: Bar) -> Iterator[Row]:
    """Single records per second, all durable at the end, with and without the loop."""
    records = sizes.loop_records // threads * threads
    found = interleaved(
        {
            "handler": lambda: _with_handler(directory, partial(_produce, records, threads)),
            "loop": lambda: _with_loop(directory, partial(_produce, records, threads)),
        },
        sizes.rounds,
    )
    what = f"append(), {threads} thread{'s' if threads > 1 else ''}"
    yield _rate_row(what, found["handler"], found["loop"], records, Bar("at least", 0.75))
    rate = records / found["handler"].best / 1e3
    yield Row(what, f"{rate:.0f} k/s", "1 k/s", rate, thousands, found["handler"].variation)


def four_threads(sizes: Sizes, directory: Path) -> Row:
    """What four threads append to one handler, compared with one thread."""
    records = sizes.loop_records // 4 * 4
    found = interleaved(
        {
            "one": lambda: _with_handler(directory, partial(_produce, records, 1)),
            "four": lambda: _with_handler(directory, partial(_produce, records, 4)),
        },
        sizes.rounds,
    )
    one, four = found["one"], found["four"]
    return Row(
        "append(), 4 threads compared with 1",
        f"{records / four.best / 1e3:,.0f} k/s",
        f"{records / one.best / 1e3:,.0f} k/s 1 thread",
        one.best / four.best,
        Bar("at least", 0.7),
        variation_of(one, four),
    )


def round_trips(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """``append().result()`` one after another: one write and one sync each."""
    records = max(10, sizes.loop_records // 1000)
    found = interleaved(
        {
            "handler": lambda: _with_handler(directory, partial(_one_by_one, records)),
            "loop": lambda: _with_loop(directory, partial(_one_by_one, records)),
            "plain": lambda: _plainly(directory, records),
        },
        sizes.rounds,
    )
    what, handler = "append().result()", found["handler"]
    yield _rate_row(what, handler, found["loop"], records, None)
    plain, name = found["plain"], "write+fsync"
    yield _rate_row(what, handler, plain, records, Bar("at least", 0.6), name)


def latency(sizes: Sizes, directory: Path, profile: str) -> Row:
    """Time from append to durable at a steady rate, with a configuration of ``conf/``."""
    ticks = min(100, sizes.loop_records // 200)
    each = max(1, sizes.loop_records // 10_000)
    config = StoreConfig.load(_CONF / f"{profile}.yaml", environment={})
    waits: list[float] = []

    def produce(append: Append) -> None:
        for _ in range(ticks):
            for _ in range(each):
                append(_VALUE).add_done_callback(partial(_note, waits, time.perf_counter()))
            time.sleep(_PACE_S)

    _with_handler(directory, produce, config)
    p50, p99 = (statistics.quantiles(waits, n=100)[at] * 1e3 for at in (49, 98))
    return Row(
        f"append to durable, {profile}, {each / _PACE_S:.0f} records/s",
        f"p50 {p50:.1f} ms",
        f"p99 {p99:.1f} ms",
        p99 / p50,
        None,
        None,
    )


def _rate_row(
    what: str,
    ours: Samples,
    loop: Samples,
    records: int,
    bar: Bar | None,
    name: str = "bare loop",
) -> Row:
    return Row(
        what,
        f"{records / ours.best / 1e3:,.1f} k/s",
        f"{records / loop.best / 1e3:,.1f} k/s {name}",
        loop.best / ours.best,
        bar,
        variation_of(ours, loop),
    )


def _note(waits: list[float], begin: float, _: Future[int]) -> None:
    waits.append(time.perf_counter() - begin)


def _produce(records: int, threads: int, append: Append) -> None:
    last: list[Future[int]] = []

    def work() -> None:
        for _ in range(records // threads):
            future = append(_VALUE)
        last.append(future)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for future in last:
        future.result()


def _one_by_one(records: int, append: Append) -> None:
    for _ in range(records):
        append(_VALUE).result()


def _plainly(directory: Path, records: int) -> float:
    """No queue, no thread and no future: one write and one sync for each record."""
    path = directory / "plain"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    begin = time.perf_counter()
    for _ in range(records):
        os.write(fd, _VALUE)
        os.fsync(fd)
    seconds = time.perf_counter() - begin
    os.close(fd)
    path.unlink()
    return seconds


def _with_handler(
    directory: Path, work: Callable[[Append], None], config: StoreConfig | None = None
) -> float:
    path = directory / "handler"
    settings = (config or StoreConfig()).override({"log_dir": str(path)})
    with DiskManager(settings) as manager:
        handler: DiskHandler = manager.get_handler("t", 0)
        handler.write_direct(_VALUE)
        begin = time.perf_counter()
        work(handler.append)
        handler.flush()
        seconds = time.perf_counter() - begin
    shutil.rmtree(path)
    return seconds


def _with_loop(directory: Path, work: Callable[[Append], None]) -> float:
    path = directory / "loop"
    loop = _Loop(path)
    begin = time.perf_counter()
    work(loop.append)
    seconds = time.perf_counter() - begin
    loop.close()
    path.unlink()
    return seconds


class _Loop:
    """The bare loop."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        self._queue: queue.Queue[tuple[bytes, Future[int]] | None] = queue.Queue(_LOOP_QUEUE)
        self._written = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def append(self, value: bytes) -> Future[int]:
        future: Future[int] = Future()
        self._queue.put((value, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        os.close(self._fd)

    def _run(self) -> None:
        while True:
            items = [self._queue.get()]
            while len(items) < _LOOP_BATCH:
                try:
                    items.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            records = [item for item in items if item is not None]
            if records:
                self._write(records)
            if len(records) < len(items):
                return

    def _write(self, records: list[tuple[bytes, Future[int]]]) -> None:
        os.write(self._fd, b"".join([value for value, _ in records]))
        os.fsync(self._fd)
        for _, future in records:
            future.set_result(self._written)
            self._written += 1
