"""Work that leaves the interpreter, spread over the calling thread and a helper.

Checksums and decompression run without Python's lock, so two threads really do them at once. Both
take the next piece from one queue, so that a helper that comes late finds nothing left to do. Where
other processes keep all processors busy it costs more than it gains: see ``use_processors``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

# Asking the helper takes as long as a checksum of so many bytes.
_WORTH_BYTES = 1 << 20
_processors = min(2, os.cpu_count() or 1)
Piece = TypeVar("Piece")
Result = TypeVar("Result")


def use_processors(count: int) -> None:
    """How many processors this process may use for one read or append: 1, or 2 as by default.

    With 1 no thread is started. Right where somebody else runs a process on every processor, as
    Spark does: threads that wait for each other's turn are slower than one.
    """
    global _processors
    _processors = count


def spread(work: Callable[[Piece], Result], pieces: Sequence[Piece], size: int) -> list[Result]:
    """``work`` of each piece, in the order of the pieces, which have ``size`` bytes together.

    If it raises, the pieces that nobody has begun are left alone.
    """
    if len(pieces) < 2 or size < _WORTH_BYTES or _processors < 2:
        return [work(piece) for piece in pieces]
    return _share(_helper(os.getpid()), 1, work, pieces)


def spread_waits(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], threads: int
) -> list[Result]:
    """Like ``spread`` for work that waits for a disk: up to ``threads`` pieces at once."""
    helpers = min(threads, len(pieces)) - 1
    if helpers < 1:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(helpers, thread_name_prefix="storage-core") as pool:
        return _share(pool, helpers, work, pieces)


def _share(
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
    # Python refuses helpers once a program ends, and records that are queued are written even
    # later. Without help the calling thread takes all pieces.
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
    """One for each process, as a fork takes no threads along."""
    return ThreadPoolExecutor(1, thread_name_prefix="storage-core")
