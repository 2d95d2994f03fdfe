"""Real readers beside real writers: high watermarks never go back and are never missing."""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from storage_core.metadata import high_watermark
from storage_core.vfs import PosixVfs
from tests.support.sizes import LONG
from tests.support.stores import TOPIC, make_store

_SECONDS = 20.0 if LONG else 0.5
_SPAWN = multiprocessing.get_context("spawn")


def write(
    path: Path, uid: bytes, start: Barrier, stop: Event, answers: Any, partitions: range
) -> None:
    """Raise some partitions as fast as possible; the last ends."""
    vfs, end = PosixVfs(path), 0
    start.wait(60)
    while not stop.is_set():
        end += 1
        for partition in partitions:
            assert high_watermark.publish(vfs, TOPIC, uid, {partition: end}, 30_000, both=end == 9)
    answers.put(dict.fromkeys(partitions, end))


def read(path: Path, uid: bytes, start: Barrier, stop: Event, answers: Any) -> None:
    """Read as fast as possible; the number of reads, or what was wrong."""
    vfs, before, reads, wrong = PosixVfs(path), tuple[int, ...](), 0, ""
    start.wait(60)
    while not stop.is_set() and not wrong:
        found = high_watermark.newest(vfs, TOPIC, uid)
        if found is None:
            wrong = f"missing after {reads} reads"
        elif any(map(int.__lt__, found.watermark.ends, before)):
            wrong = f"back after {reads} reads"
        else:
            before, reads = found.watermark.ends, reads + 1
    answers.put(wrong or reads)


@pytest.mark.row(36)
@pytest.mark.parametrize("partitions", [4, 1200])
def test_high_watermarks_never_go_back_and_are_never_missing(
    tmp_path: Path, partitions: int
) -> None:
    uid = make_store(tmp_path, partitions=partitions).topic(TOPIC).uuid.bytes
    start, stop = _SPAWN.Barrier(7), _SPAWN.Event()
    written, counted = _SPAWN.Queue(), _SPAWN.Queue()
    halves = (range(2), range(partitions - 2, partitions))
    common = (tmp_path, uid, start, stop)
    workers: list[Any] = [
        *(_SPAWN.Process(target=write, args=(*common, written, half)) for half in halves),
        *(_SPAWN.Process(target=read, args=(*common, counted)) for _ in range(2)),
    ]
    in_threads: Queue[object] = Queue()
    threads = [threading.Thread(target=read, args=(*common, in_threads)) for _ in range(2)]
    workers += threads
    for worker in workers:
        worker.start()
    try:
        start.wait(60)
        time.sleep(_SECONDS)
    finally:
        stop.set()
    ends = {partition: end for _ in halves for partition, end in written.get(timeout=30).items()}
    counts = [counted.get(timeout=30) for _ in range(2)]
    for worker in workers:
        worker.join()
    counts += [in_threads.get() for _ in threads]
    assert all(isinstance(count, int) and count > 0 for count in counts), counts
    found = high_watermark.read(PosixVfs(tmp_path), TOPIC, uid)
    assert found is not None
    assert {partition: found.end(partition) for partition in ends} == ends
    assert min(ends.values()) > 1
