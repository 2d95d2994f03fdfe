"""The real backend: POSIX files below one root, reached without ever following a link."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import stat as stat_module
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from ..errors import ConfigError, UnsafeFileError
from . import linux
from .base import Buffer, FileKind, FileStat, OpenMode
from .portable import Portable

_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_DIRECTORY | _PATH_ONLY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO in the place of a file must fail, not hang; files ignore the flag.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FLAGS = {
    "read": os.O_RDONLY | _FILE,
    "write": os.O_RDWR | _FILE,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE,
}
_BUFFERS_PER_CALL = 1024
_UNSAFE_STEPS = frozenset(("", ".", ".."))
# A read of at least this size is part of a scan, so the system gets a hint about the next bytes.
# The hint covers no more than this: looking up one record must not fetch a whole segment.
_SCAN_BYTES = 1 << 20
FILE_MODE, DIRECTORY_MODE, SEALED_MODE = 0o644, 0o755, 0o444


class _Anchor(threading.local):
    """The root that this thread has open."""

    root = ""
    fd = -1


_anchor = _Anchor()


class MachineClock:
    """The clock of this machine: the same for every kind of store."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def boot_id(self) -> bytes:
        return linux.boot_id()


class PosixVfs(MachineClock):
    """Files below ``root``. Holds no state but the path: cheap, picklable, fork-safe.

    Args:
        root: The directory.
        system: Calls that differ between systems; by default the best for this one.
    """

    def __init__(self, root: str | os.PathLike[str], system: Portable | None = None) -> None:
        self._root = os.path.abspath(os.fspath(root))
        best = linux.Linux if sys.platform.startswith("linux") else Portable
        self._system = best() if system is None else system

    @property
    def root(self) -> str:
        return self._root

    @contextmanager
    def anchored(self) -> Iterator[None]:
        if _anchor.root == self._root:
            yield
            return
        try:
            fd = os.open(self._root, _ROOT)
        except OSError:
            yield  # each call raises what it means there
            return
        before = _anchor.root, _anchor.fd
        _anchor.root, _anchor.fd = self._root, fd
        try:
            yield
        finally:
            _anchor.root, _anchor.fd = before
            os.close(fd)

    def _open_root(self) -> int:
        """A descriptor of the root for ``_close_root``."""
        return _anchor.fd if _anchor.root == self._root else os.open(self._root, _ROOT)

    def _close_root(self, fd: int) -> None:
        if fd != _anchor.fd:
            os.close(fd)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Descend to the directory of ``path`` one real directory at a time.

        Each step refuses links, so no link in the tree can lead a write outside it.
        """
        directories, _, name = path.rpartition("/")
        root = fd = self._open_root()
        try:
            below = self._system.descend(fd, directories) if _is_plain(directories) else None
            if below is not None:
                fd = below
            else:
                for directory in directories.split("/") if directories else []:
                    above, fd = fd, self._open_directory(directory, fd, path)
                    if above != root:
                        os.close(above)
            yield fd, name
        finally:
            if fd != root:
                os.close(fd)
            self._close_root(root)

    def _open_directory(self, name: str, parent: int, path: str, flags: int = _PATH_ONLY) -> int:
        if name in _UNSAFE_STEPS:
            raise UnsafeFileError(f"path {path!r} leads out of the store", path=path)
        try:
            return os.open(name, flags | _DIRECTORY, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnsafeFileError(
                    f"{name!r}, part of {path}, is a link or a file, not a directory. "
                    "Remove it, or copy the real directory in its place.",
                    path=path,
                ) from error
            raise

    def open(self, path: str, mode: OpenMode) -> int:
        through = self._system.open_flags(mode)
        flags = _FLAGS[mode.partition("+")[0]] | through
        if _is_plain(path):
            root = self._open_root()
            try:
                found = self._system.open_below(
                    root, path, flags, FILE_MODE if flags & os.O_CREAT else 0
                )
            finally:
                self._close_root(root)
            if found is not None:
                return _regular(found, path)
        with self._parent(path) as (directory, name):
            try:
                fd = os.open(name, flags, FILE_MODE, dir_fd=directory)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    raise _not_regular(path) from error
                if through and error.errno == errno.EINVAL:
                    raise ConfigError(
                        f"the file system of {self._root} ({self.filesystem()}) does not support "
                        f"write_through={mode.partition('+')[2]}. Set write_through to none.",
                        path=path,
                    ) from error
                raise
        return _regular(fd, path)

    def close(self, fd: int) -> None:
        os.close(fd)

    def fstat(self, fd: int) -> FileStat:
        return _file_stat(os.fstat(fd))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        if size >= _SCAN_BYTES:
            self._system.will_read(fd, position + size, _SCAN_BYTES)
        data = self._pread(fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (size := size - len(data)) > 0:
            position += len(data)
            data = self._pread(fd, size, position)
            parts.append(data)
        return b"".join(parts)

    def _pread(self, fd: int, size: int, position: int) -> bytes:
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            data = None
            if error.errno == errno.EINVAL:
                data = self._system.read_direct(fd, size, position)
            if data is None:
                raise
            return data

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        try:
            return os.pwritev(fd, buffers[:_BUFFERS_PER_CALL], position)
        except OSError as error:
            written = None
            if error.errno == errno.EINVAL:
                written = self._system.write_direct(fd, buffers, position)
            if written is None:
                raise
            return written

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def begin_writeback(self, fd: int, position: int, size: int) -> None:
        self._system.begin_writeback(fd, position, size)

    def send(self, fd: int, sock: socket.socket, position: int, size: int) -> int:
        return self._system.send(fd, sock, position, size)

    def make_read_only(self, fd: int) -> None:
        os.fchmod(fd, SEALED_MODE)

    def make_writable(self, fd: int) -> None:
        os.fchmod(fd, FILE_MODE)

    def map(self, fd: int) -> memoryview:
        self._system.will_read(fd, 0, _SCAN_BYTES)
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))

    def stat(self, path: str) -> FileStat | None:
        try:
            if _is_plain(path):
                root = self._open_root()
                try:
                    found = self._system.stat_below(root, path)
                finally:
                    self._close_root(root)
                if found is not None:
                    return _file_stat(found)
            with self._parent(path) as (directory, name):
                return _file_stat(os.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def listdir(self, path: str) -> list[str]:
        with self._directory(path) as fd:
            return os.listdir(fd)

    def sizes(self, path: str, suffix: str) -> dict[str, int]:
        found = {}
        with self._directory(path) as fd, os.scandir(fd) as entries:
            for entry in entries:
                try:
                    if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue  # removed since it was listed
        return found

    def mkdir(self, path: str) -> None:
        with self._parent(path) as (directory, name):
            os.mkdir(name, DIRECTORY_MODE, dir_fd=directory)

    def rmdir(self, path: str) -> None:
        with self._parent(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)

    def rename(self, source: str, target: str) -> None:
        with self._parent(source) as (from_dir, name), self._parent(target) as (to_dir, new_name):
            os.rename(name, new_name, src_dir_fd=from_dir, dst_dir_fd=to_dir)

    def link(self, source: str, target: str) -> None:
        with self._parent(source) as (from_dir, name), self._parent(target) as (to_dir, new_name):
            os.link(name, new_name, src_dir_fd=from_dir, dst_dir_fd=to_dir, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        with self._parent(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def fsync_dir(self, path: str) -> None:
        with self._directory(path) as fd:
            os.fsync(fd)

    @contextmanager
    def _directory(self, path: str) -> Iterator[int]:
        if path in ("", "."):
            # Not the anchor, which can only be descended from.
            fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            with self._parent(path) as (parent, name):
                fd = self._open_directory(name, parent, path, os.O_RDONLY)
        try:
            yield fd
        finally:
            os.close(fd)

    def try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def filesystem(self) -> str:
        return linux.filesystem(self._root)

    def writable(self) -> bool:
        return os.access(self._root, os.W_OK | os.X_OK)

    def make_root(self) -> None:
        """Create the root and its parents, each made durable in its parent."""
        missing = []
        path = self._root
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)
            fd = os.open(os.path.dirname(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def read_outside(path: str, limit: int) -> bytes:
    """The first bytes of a file that belongs to the user, not to a store: links are followed."""
    with open(path, "rb") as file:
        return file.read(limit)


@lru_cache(4096)
def _is_plain(path: str) -> bool:
    """Whether every step of a path is a name, so that the system may descend in one call."""
    return bool(path) and not _UNSAFE_STEPS.intersection(path.split("/"))


def _regular(fd: int, path: str) -> int:
    """The descriptor, if it is one of a regular file. Otherwise it is closed."""
    if not stat_module.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(path)
    return fd


def _not_regular(path: str) -> UnsafeFileError:
    return UnsafeFileError(
        f"{path} is a link, pipe, device or directory; expected a regular file. "
        "Remove it: the store follows no links.",
        path=path,
    )


def _file_stat(found: os.stat_result) -> FileStat:
    kind: FileKind = "other"
    if stat_module.S_ISREG(found.st_mode):
        kind = "file"
    elif stat_module.S_ISDIR(found.st_mode):
        kind = "directory"
    return FileStat(kind, found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))
