"""Objects as files of a directory, without any lock: works on NFS and EFS too.

A file is written and synced as ``tmp/<uuid>`` and gets its name by a link, which fails if the name
exists. The directory is synced before the call returns. A crash leaves at most a file in ``tmp/``.

A file system has no conditional replacement. A key that ``replace_if`` writes is therefore a
directory ``<key>~`` of numbered versions: the highest is the object, its number is the tag, and the
next number is created by a link. Old versions are removed after five minutes, when no replacement
can be under way that does not know them: its writer gives up after half a minute, and its listing
may be a minute old, as an NFS client keeps it. It also gives up if it finds a higher version then.

What is old, the clock of the file system says: a machine whose own clock is ahead must not remove
what others have just written.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from ..io.caching import may_cache_listing
from ..io.durable import opened, parent, sync_directories, write_all
from ..vfs import Buffer, Vfs
from .backend import Contents, ObjectInfo

TEMPORARY = "tmp"
_VERSIONS = "~"
_KEPT_NS = 300 * 10**9
_LONGEST_REPLACEMENT_S = 30.0
# No writer takes so long between the file in ``tmp/`` and its name.
_ABANDONED_NS = 3600 * 10**9
_PLACE_TRIES = 5


class VfsBackend:
    """Objects below the root of a vfs. Safe for several threads, processes and machines."""

    def __init__(self, vfs: Vfs) -> None:
        self._vfs = vfs
        self._ready: set[str] = set()
        self._synced: dict[str, tuple[int, tuple[int, int]]] = {}

    @property
    def name(self) -> str:
        return self._vfs.root

    @property
    def lists_whole(self) -> bool:
        return True

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        temporary = self._temporary(data)
        try:
            self._link(temporary, key)
        finally:
            self._vfs.unlink(temporary)

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        temporary = self._temporary(data)
        try:
            self._place(self._vfs.rename, temporary, key)
        except OSError:
            with suppress(OSError):
                self._vfs.unlink(temporary)
            raise
        self._vfs.fsync_dir(parent(key))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        try:
            pieces = self._read(key, ranges)
            tag = None
        except FileNotFoundError:
            pieces, tag = self._read_version(key, ranges)
            key = f"{key}{_VERSIONS}/"
        if ranges is None:
            self._make_durable(parent(key))
        return Contents(pieces, tag)

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        directory = prefix.rstrip("/")
        if after.startswith(prefix) and "/" not in after[len(prefix) :]:
            # Most names of a long log stand before: their sizes are not looked up.
            found = self._walk_after(directory, after, few=most is not None)
        else:
            found = self._walk(directory)
        return iter(sorted(islice((info for info in found if info.key > after), most)))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                self._vfs.unlink(key)
            except FileNotFoundError:
                self._delete_versions(key)
            self._remove_empty(parent(key))

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        directory, since = f"{key}{_VERSIONS}", self._clocks()
        versions = self._versions(directory)
        current = versions[-1] if versions else None
        if current != tag:
            raise FileExistsError(errno.EEXIST, f"the object has tag {current}, not {tag}", key)
        temporary, ours = self._temporary(data), f"{int(current or 0) + 1:020d}"
        try:
            self._link(temporary, f"{directory}/{ours}")
            now_ns = self._written_ns(temporary)
        finally:
            self._vfs.unlink(temporary)
        # The monotonic clock of a machine that is suspended stands still.
        passed = [now - then for now, then in zip(self._clocks(), since, strict=True)]
        late = max(passed) > _LONGEST_REPLACEMENT_S or min(passed) < -1
        # Not by the clocks alone: those of a file server jump, and a version may be named long
        # after it was written.
        if late or max(self._versions(directory), default=ours) > ours:
            # The number may have been taken and removed meanwhile.
            raise OSError(errno.ETIMEDOUT, "the replacement took too long to be sure of it", key)
        self._remove_older(directory, versions[:-1], now_ns - _KEPT_NS)

    def sweep(self) -> int:
        """Remove what crashed writers left in ``tmp/``; return how many files."""
        temporary = self._temporary([])
        try:
            now_ns = self._written_ns(temporary)
        finally:
            self._vfs.unlink(temporary)
        return self._remove_older(TEMPORARY, self._vfs.listdir(TEMPORARY), now_ns - _ABANDONED_NS)

    def _clocks(self) -> tuple[float, float]:
        return self._vfs.monotonic(), self._vfs.now_us() / 1e6

    def _written_ns(self, path: str) -> int:
        """When a file was written, by the clock of the file system; 0 if it is not there."""
        stat = self._vfs.stat(path)
        return 0 if stat is None else stat.modified_ns

    def _remove_older(self, directory: str, names: Iterable[str], than_ns: int) -> int:
        """Remove files that were written before a time; return how many."""
        removed = 0
        for path in (f"{directory}/{name}" for name in names):
            if 0 < self._written_ns(path) < than_ns:
                with suppress(OSError):
                    self._vfs.unlink(path)
                    removed += 1
        return removed

    def _temporary(self, data: Sequence[Buffer]) -> str:
        if TEMPORARY not in self._ready:
            sync_directories(self._vfs, TEMPORARY)
            self._ready.add(TEMPORARY)
        path = f"{TEMPORARY}/{uuid.uuid4()}"
        with opened(self._vfs, path, "create") as fd:
            try:
                write_all(self._vfs, fd, data, 0)
                self._vfs.fsync(fd)
                self._vfs.make_read_only(fd)
            except OSError:
                with suppress(OSError):
                    self._vfs.unlink(path)
                raise
        return path

    def _prepare(self, directory: str) -> None:
        """Make a directory durable, once: its creator may have crashed before its sync."""
        if directory not in self._ready:
            sync_directories(self._vfs, directory)
            self._ready.add(directory)

    def _link(self, temporary: str, path: str) -> None:
        try:
            self._place(self._vfs.link, temporary, path)
        except FileExistsError:
            # NFS answers so too if it repeated a call whose reply was lost.
            ours, found = self._vfs.stat(temporary), self._vfs.stat(path)
            if ours is None or found is None or ours.identity != found.identity:
                raise
        self._vfs.fsync_dir(parent(path))

    def _place(self, call: Callable[[str, str], None], temporary: str, path: str) -> None:
        """Give a file its name. Others may remove its directory while that is empty."""
        for tries in range(_PLACE_TRIES):
            try:
                self._prepare(parent(path))
                call(temporary, path)
            except FileNotFoundError:
                self._ready.discard(parent(path))
                if tries == _PLACE_TRIES - 1:
                    raise
            else:
                return

    def _read(self, path: str, ranges: Sequence[tuple[int, int]] | None) -> tuple[memoryview, ...]:
        with opened(self._vfs, path, "read") as fd:
            if ranges is None:
                ranges = [(0, self._vfs.fstat(fd).size)]
            return tuple(
                memoryview(self._vfs.pread(fd, size, position)) for position, size in ranges
            )

    def _read_version(
        self, key: str, ranges: Sequence[tuple[int, int]] | None
    ) -> tuple[tuple[memoryview, ...], str]:
        directory = f"{key}{_VERSIONS}"
        while True:
            versions = self._versions(directory)
            if not versions:
                raise FileNotFoundError(errno.ENOENT, "there is no such object", key)
            with suppress(FileNotFoundError):  # replaced, and removed, since it was listed
                return self._read(f"{directory}/{versions[-1]}", ranges), versions[-1]

    def _make_durable(self, directory: str) -> None:
        """Sync a directory before the caller relies on what it found there.

        The writer's link is visible before its sync. A reader must not act on a commit that a power
        cut takes back.
        """
        stat = self._vfs.stat(directory)
        if stat is None or self._synced.get(directory) == (stat.modified_ns, stat.identity):
            return
        try:
            self._vfs.fsync_dir(directory)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EINVAL, errno.ENOENT, errno.EACCES):
                raise
        if may_cache_listing(self._vfs, stat):
            self._synced[directory] = (stat.modified_ns, stat.identity)

    def _walk_after(self, directory: str, after: str, *, few: bool) -> Iterator[ObjectInfo]:
        try:
            names = self._vfs.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        last = after[len(directory) + 1 :]
        above = [name for name in names if f"{name.removesuffix(_VERSIONS)}/" > last]
        if len(above) > len(names) // 2 and not few:
            yield from self._walk(directory)
            return
        for name in _in_order(above, lambda name: self._is_file(f"{directory}/{name}")):
            path = f"{directory}/{name}"
            stat = None if name.endswith(_VERSIONS) else self._vfs.stat(path)
            if name.endswith(_VERSIONS):
                yield from self._versioned(path)
            elif stat is not None and stat.kind == "file":
                yield ObjectInfo(path, stat.size)
            else:
                yield from self._walk(path)

    def _walk(self, directory: str) -> Iterator[ObjectInfo]:
        try:
            names = self._vfs.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        sizes = self._vfs.sizes(directory, "")
        for name in _in_order(names, sizes.__contains__):
            path = f"{directory}/{name}" if directory else name
            if name in sizes:
                yield ObjectInfo(path, sizes[name])
            elif name.endswith(_VERSIONS):
                yield from self._versioned(path)
            else:
                yield from self._walk(path)

    def _is_file(self, path: str) -> bool:
        stat = self._vfs.stat(path)
        return stat is not None and stat.kind == "file"

    def _versioned(self, path: str) -> Iterator[ObjectInfo]:
        versions = self._versions(path)
        stat = self._vfs.stat(f"{path}/{versions[-1]}") if versions else None
        if stat is not None:
            yield ObjectInfo(path.removesuffix(_VERSIONS), stat.size)

    def _versions(self, directory: str) -> list[str]:
        try:
            return sorted(name for name in self._vfs.listdir(directory) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _delete_versions(self, key: str) -> None:
        directory = f"{key}{_VERSIONS}"
        for name in self._versions(directory):
            with suppress(FileNotFoundError):
                self._vfs.unlink(f"{directory}/{name}")
        with suppress(OSError):
            self._vfs.rmdir(directory)

    def _remove_empty(self, directory: str) -> None:
        """Remove directories that have become empty, but those at the top."""
        while "/" in directory:
            try:
                self._vfs.rmdir(directory)
            except OSError:
                return
            self._ready.discard(directory)
            directory = parent(directory)


def _in_order(names: Sequence[str], is_file: Callable[[str], bool]) -> list[str]:
    """The names of a directory in the order of the keys that they lead to.

    ``is_file`` is asked only of names where that matters: ``a/x`` is between ``a.x`` and ``ax``.
    """
    pairs = sorted((name.removesuffix(_VERSIONS), name) for name in names)
    found, nexts = [], [*(key for key, _ in pairs[1:]), ""]
    for (key, name), after in zip(pairs, nexts, strict=False):
        matters = after.startswith(key) and after[len(key) :] < "/" and not name.endswith(_VERSIONS)
        found.append((f"{key}/" if matters and not is_file(name) else key, name))
    return [name for _, name in sorted(found)]
