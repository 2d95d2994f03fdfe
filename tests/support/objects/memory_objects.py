"""A backend of objects in memory: what an object store promises, and what some servers do."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence

from storage_core.objects.backend import Contents, ObjectInfo
from storage_core.vfs import Buffer


class MemoryBackend:
    """Objects in a dict. ``broken`` makes it ignore conditions, or list what was there before."""

    name, lists_whole = "memory", False

    def __init__(self, broken: str = "") -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self._broken = broken
        self._lock = threading.Lock()
        self._tags = itertools.count(1)

    def _store(self, key: str, data: Sequence[Buffer]) -> None:
        self.objects[key] = (b"".join(bytes(piece) for piece in data), str(next(self._tags)))

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        if self._broken == "check then put":
            exists = key in self.objects
            time.sleep(0.01)
            if not exists:
                self._store(key, data)
                return
            raise FileExistsError(key)
        with self._lock:
            if key in self.objects and self._broken != "no create":
                raise FileExistsError(key)
            self._store(key, data)

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        with self._lock:
            self._store(key, data)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        with self._lock:
            if key not in self.objects:
                raise FileNotFoundError(key)
            data, tag = self.objects[key]
        if ranges is None:
            return Contents((memoryview(data),), tag)
        return Contents(tuple(memoryview(data)[at : at + size] for at, size in ranges))

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        with self._lock:
            found = sorted(
                ObjectInfo(key, len(data))
                for key, (data, _) in self.objects.items()
                if key.startswith(prefix) and key > after
            )
        if self._broken == "one page":
            found = found[:1000]
        found = found[:most]
        return iter(found[:-1] if self._broken == "stale list" else found)

    def delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        with self._lock:
            found = self.objects.get(key)
            if (found and found[1]) != tag and self._broken != "no tags":
                raise FileExistsError(key)
            self._store(key, data)
