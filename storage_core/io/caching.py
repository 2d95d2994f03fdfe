"""What may be kept in memory: a bounded cache, and when a directory listing may be kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..vfs import FileStat, Vfs

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
# A directory's time moves in steps of some milliseconds. A second change in the same step does not
# show in the time, so a listing made within a step of the last change is not kept.
_TIME_STEP_NS = 50_000_000


def may_cache_listing(vfs: Vfs, directory: FileStat) -> bool:
    """Whether the next change of the directory will show in its modification time."""
    return vfs.now_us() * 1000 - directory.modified_ns > _TIME_STEP_NS


class LruCache(Generic[Key, Value]):
    """At most ``limit`` values; the least recently used goes first.

    Safe for several threads; two may build the same value at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key, build: Callable[[], Value]) -> Value:
        """The cached value, or a new one. ``build`` runs outside the lock: it may read files."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = build()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
