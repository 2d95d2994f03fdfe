"""Reads through a cache of ranges, also in processes of their own."""

from __future__ import annotations

from pathlib import Path
from random import Random

from storage_core.objects.reads.range_cache import BLOCK_BYTES, CachedBackend, cached
from storage_core.vfs import PosixVfs
from tests.support.objects.memory_objects import MemoryBackend

KEY = "data/2026010100/job/one.frames"
_READS, _BLOCKS = 30, 24


def contents(size: int, seed: int = 0) -> bytes:
    """Bytes that are not alike anywhere."""
    return Random(seed).randbytes(size)


def read(backend: CachedBackend, position: int, size: int, key: str = KEY) -> bytes:
    """One range."""
    return bytes(backend.get_ranges(key, [(position, size)]).pieces[0])


def read_at_random(directory: Path, limit: int, seed: int) -> None:
    """Read an object that is larger than the cache, and compare."""
    random, inner = Random(seed), MemoryBackend()
    data = contents(_BLOCKS * BLOCK_BYTES)
    inner.put(KEY, [data])
    backend = cached(inner, PosixVfs(directory), limit)
    for _ in range(_READS):
        at = random.randrange(len(data))
        size = random.randrange(1, 3 * BLOCK_BYTES)
        if read(backend, at, min(size, len(data) - at)) != data[at : at + size]:
            raise AssertionError(f"wrong bytes at {at}")
