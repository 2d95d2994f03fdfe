"""Decoding ahead: while somebody works on one compressed frame, other cores decode the next.

Arrow's codecs and the checksum let other threads run meanwhile. Who reads one frame pays for one:
nothing is decoded ahead before a second one is asked for. Errors come in the order of the frames.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_WORKERS = min(2, os.cpu_count() or 1)
# Frames in memory at a time, beside the one that is being worked on.
_DEPTH = 2
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def decoded_ahead(
    items: Iterator[Item], decode: Callable[[Item], Result], worth_it: Callable[[Item], bool]
) -> Iterator[Result]:
    """``decode`` of every item, in order; those ``worth_it`` by other threads.

    An error of ``items`` comes behind the results of what they gave before it.
    """
    waiting: deque[Future[Result]] = deque()
    begun = False
    while True:
        try:
            item = next(items)
        except StopIteration:
            break
        except Exception:
            while waiting:
                yield waiting.popleft().result()
            raise
        if begun and worth_it(item):
            waiting.append(_pool().submit(decode, item))
            if len(waiting) > _DEPTH:
                yield waiting.popleft().result()
            continue
        while waiting:
            yield waiting.popleft().result()
        yield decode(item)
        begun = True
    while waiting:
        yield waiting.popleft().result()


def _pool() -> ThreadPoolExecutor:
    """The threads of this process: those of a parent are not there after a fork."""
    with _lock:
        pool = _pools.get(os.getpid())
        if pool is None:
            _pools.clear()
            pool = _pools[os.getpid()] = ThreadPoolExecutor(_WORKERS, "cursus-decode")
        return pool
