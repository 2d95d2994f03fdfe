"""Ranges of data objects that were read before, in a directory of this machine.

A data object has a unique name and never changes, so what was read of it stays true. Commits are
not kept here: after a backup is restored, another commit may get the number of a lost one.

The cache holds blocks: ``BLOCK_BYTES`` of an object, at a multiple of that. Each is a file with a
checksum over its name and its bytes. A block that does not match is removed and fetched again. So
nothing has to be synced, and a crash leaves at most a torn file, which counts like any other. No
lock is taken: several processes may share the directory. The cache is never needed. Where its
directory cannot be used, a warning says so, and reads go to the store.
"""

from __future__ import annotations

import hashlib
import logging
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ...errors import UnsafeFileError
from ...io.checksum import crc32c
from ...io.durable import make_directories, opened, parent, remove_tree, write_all
from ...vfs import Buffer, PosixVfs, Vfs
from ..backend import Contents, ObjectBackend, ObjectInfo
from ..names import DATA

BLOCK_BYTES = 1 << 20
SUFFIX = ".range"
_HOME = "cursus-ranges"
_HEADER = struct.Struct("<8sII")  # magic, checksum, bytes
_MAGIC = b"CURSRNG1"
# Every new block looks at the files of its directory, so there are many directories.
_MOST_DIRECTORIES, _LEAST_BYTES = 256, 16 << 20
_PAGE_BYTES = 4096
_OURS = re.compile(rf"[0-9a-f]{{40}}-\d+\{SUFFIX}|[0-9a-f-]{{36}}\.tmp")
_DIRECTORY = re.compile(r"[0-9a-f]{2}")
_log = logging.getLogger("storage_core")


class RangeCache:
    """Blocks below the root of a vfs. Safe for several threads and processes.

    The blocks of a directory have at most their share of ``limit``; the oldest go first. Threads
    that add one at the same moment may pass it by one block each.
    """

    def __init__(self, vfs: Vfs, limit: int) -> None:
        self._vfs = vfs
        self._directories = min(max(limit // _LEAST_BYTES, 1), _MOST_DIRECTORIES)
        self._share = limit // self._directories
        self._warned = False
        try:
            make_directories(vfs, _HOME)
            self._remove_unused_directories()
        except (OSError, UnsafeFileError) as error:
            self._warn(error)

    def get(self, key: str, block: int) -> memoryview | None:
        """A block; None if it is not here. It is shorter at the end of the object."""
        path = self._path(key, block)
        try:
            with opened(self._vfs, path, "read") as fd:
                data = self._vfs.pread(fd, _HEADER.size + BLOCK_BYTES, 0)
        except FileNotFoundError:
            return None
        except (OSError, UnsafeFileError) as error:
            self._warn(error)
            return None
        found = memoryview(data)[_HEADER.size :]
        if len(found) and data[: _HEADER.size] == _header(path, found):
            return found
        self._remove(path)
        return None

    def add(self, key: str, block: int, data: memoryview) -> None:
        """Keep a block."""
        if not len(data):
            return
        path = self._path(key, block)
        temporary = f"{parent(path)}/{uuid.uuid4()}.tmp"
        try:
            make_directories(self._vfs, parent(path))
            self._make_room(parent(path), _HEADER.size + len(data))
            try:
                with opened(self._vfs, temporary, "create") as fd:
                    write_all(self._vfs, fd, [_header(path, data), data], 0)
                self._vfs.rename(temporary, path)
            except OSError:
                self._remove(temporary)
                raise
        except FileNotFoundError:  # another process made room, or removed the directory
            return
        except (OSError, UnsafeFileError) as error:
            self._warn(error)

    def forget(self, key: str, blocks: range) -> None:
        """Remove blocks of an object: what was fetched may have been damaged on its way."""
        for block in blocks:
            self._remove(self._path(key, block))

    def _path(self, key: str, block: int) -> str:
        name = hashlib.sha256(key.encode()).hexdigest()[:40]
        # Neighbours go to different directories, so that these fill evenly.
        place = (int(name[:8], 16) + block) % self._directories
        return f"{_HOME}/{place:02x}/{name}-{block}{SUFFIX}"

    def _make_room(self, directory: str, size: int) -> None:
        sizes = self._vfs.sizes(directory, "")
        total = sum(map(_room, sizes.values()), _room(size))
        if total <= self._share:
            return
        ages = []
        for name in filter(_OURS.fullmatch, sizes):
            stat = self._vfs.stat(f"{directory}/{name}")
            if stat is not None:
                ages.append((stat.modified_ns, name))
        # Some more than needed, so that not every block looks at all ages.
        for _, name in sorted(ages):
            if total <= self._share - self._share // 8:
                break
            self._remove(f"{directory}/{name}")
            total -= _room(sizes[name])

    def _remove_unused_directories(self) -> None:
        """Those of a cache that was larger."""
        for name in self._vfs.listdir(_HOME):
            if _DIRECTORY.fullmatch(name) and int(name, 16) >= self._directories:
                remove_tree(self._vfs, f"{_HOME}/{name}")

    def _remove(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError):
                self._vfs.unlink(path)
        except (OSError, UnsafeFileError) as error:
            self._warn(error)

    def _warn(self, error: object) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "the cache %s cannot be used: %s. Reads go to the store.", self._vfs.root, error
            )


class CachedBackend:
    """A backend whose ranges of data objects are kept by a cache. All else passes through."""

    def __init__(self, inner: ObjectBackend, cache: RangeCache) -> None:
        self.inner = inner
        self.cache = cache

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def lists_whole(self) -> bool:
        return self.inner.lists_whole

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        if ranges is None or not key.startswith(f"{DATA}/"):
            return self.inner.get_ranges(key, ranges)
        wanted = sorted({block for each in ranges for block in blocks_of(*each)})
        blocks, missing = dict[int, memoryview](), list[int]()
        for block in wanted:
            found = self.cache.get(key, block)
            if found is None:
                missing.append(block)
            else:
                blocks[block] = found
        blocks |= self._fetch(key, missing)
        return Contents(tuple(_cut(blocks, *each) for each in ranges))

    def _fetch(self, key: str, missing: Sequence[int]) -> dict[int, memoryview]:
        """Blocks from the store, neighbours with one range."""
        runs: list[tuple[int, int]] = []
        for block in missing:
            if runs and sum(runs[-1]) == block:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((block, 1))
        if not runs:
            return {}
        ranges = [(first * BLOCK_BYTES, count * BLOCK_BYTES) for first, count in runs]
        pieces = self.inner.get_ranges(key, ranges).pieces
        found = {}
        for (first, count), piece in zip(runs, pieces, strict=True):
            for number in range(count):
                data = piece[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
                found[first + number] = data
                self.cache.add(key, first + number, data)
        return found

    def forget(self, key: str, position: int, size: int) -> None:
        """Drop what the cache has of a range."""
        self.cache.forget(key, blocks_of(position, size))

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        self.inner.create(key, data)

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        self.inner.put(key, data)

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        return self.inner.list_after(prefix, after, most)

    def delete(self, keys: Sequence[str]) -> None:
        self.inner.delete(keys)

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        self.inner.replace_if(key, data, tag)


def cached(inner: ObjectBackend, vfs: PosixVfs, limit: int) -> CachedBackend:
    """A backend with a cache in a directory, which is made if it is missing."""
    with suppress(OSError):  # the cache says what is wrong
        vfs.make_root()
    return CachedBackend(inner, RangeCache(vfs, limit))


def blocks_of(position: int, size: int) -> range:
    """The numbers of the blocks that a range touches."""
    return range(position // BLOCK_BYTES, -(-(position + size) // BLOCK_BYTES) if size else 0)


def _room(size: int) -> int:
    """What a file takes on a disk."""
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


def _header(path: str, data: Buffer) -> bytes:
    name = path.rpartition("/")[2].encode()
    return _HEADER.pack(_MAGIC, crc32c(data, crc32c(name)), len(data))


def _cut(blocks: dict[int, memoryview], position: int, size: int) -> memoryview:
    """A range of the blocks; shorter where the object ends."""
    pieces = []
    for block in blocks_of(position, size):
        begin = block * BLOCK_BYTES
        pieces.append(blocks[block][max(position - begin, 0) : position + size - begin])
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
