"""Work on many pieces at once: on two processors, or by threads that wait for a disk.

Checksums and decompression run without Python's global lock, so two threads run them at once. The
threads take pieces from one queue: a helper thread that starts late finds the queue empty. Where
other processes keep all processors busy, a second thread costs more than it gains: see
``use_processors``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

from .. import arguments

# Waking the helper thread takes as long as a checksum of this many bytes.
_WORTH_BYTES = 1 << 20
_processors = min(2, os.cpu_count() or 1)
Piece = TypeVar("Piece")
Result = TypeVar("Result")


def use_processors(count: int) -> None:
    """How many processors this process may use for one read or append: 1 or 2, by default 2.

    With 1 no thread is started. Use 1 where a process runs on every processor, as with Spark: two
    threads that share a processor are slower than one.
    """
    arguments.integer("count", count, 1)
    global _processors
    _processors = count


def map_on_processors(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], size: int
) -> list[Result]:
    """The result of ``work`` for each piece, in order; the pieces have ``size`` bytes together.

    If a call raises, no further piece is begun.
    """
    if len(pieces) < 2 or size < _WORTH_BYTES or _processors < 2:
        return [work(piece) for piece in pieces]
    return _run(_helper(os.getpid()), 1, work, pieces)


def map_on_threads(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], threads: int
) -> list[Result]:
    """The same for work that waits for a disk: up to ``threads`` pieces at once."""
    helpers = min(threads, len(pieces)) - 1
    if helpers < 1:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(helpers, thread_name_prefix="storage-core") as pool:
        return _run(pool, helpers, work, pieces)


def _run(
    pool: ThreadPoolExecutor,
    helpers: int,
    work: Callable[[Piece], Result],
    pieces: Sequence[Piece],
) -> list[Result]:
    waiting = deque(enumerate(pieces))
    results: dict[int, Result] = {}

    def take() -> None:
        while True:
            try:
                at, piece = waiting.popleft()
            except IndexError:
                return
            try:
                results[at] = work(piece)
            except BaseException:
                waiting.clear()
                raise

    helping: list[Future[None]] = []
    # Python starts no thread once the program ends, and queued records are written even later.
    # The calling thread then takes all pieces.
    with suppress(RuntimeError):
        for _ in range(helpers):
            helping.append(pool.submit(take))
    take()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    return [results[at] for at in range(len(pieces))]


@cache
def _helper(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """The helper thread; one for each process, because a fork does not copy threads."""
    return ThreadPoolExecutor(1, thread_name_prefix="storage-core")
