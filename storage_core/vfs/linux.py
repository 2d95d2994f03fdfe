"""What only Linux offers; other systems use ``Portable``."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import socket
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from .base import Buffer, OpenMode
from .portable import Portable

_SYNC_FILE_RANGE_WRITE = 2
# The largest block of the usual file systems, and the size of a page.
_BLOCK = 4096
_MOST_DIRECT_BYTES = 8 << 20
_O_DIRECT = getattr(os, "O_DIRECT", 0)


def _load_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        function.restype = ctypes.c_int
    found: Callable[[int, int, int, int], int] | None = function
    return found


_sync_file_range = _load_sync_file_range()


class _OpenHow(ctypes.Structure):
    """The argument of ``openat2``."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_OPENAT2 = 437
_NO_SYMLINKS, _BENEATH = 0x04, 0x08
_DESCEND = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC
_LOOK = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


@cache
def _how(flags: int, mode: int) -> tuple[Any, int]:
    """The argument for these flags, and its size."""
    found = _OpenHow(flags, mode, _NO_SYMLINKS | _BENEATH)
    return ctypes.pointer(found), ctypes.sizeof(found)


def _load_syscall() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    found: Callable[..., int] = function
    return found


_syscall = _load_syscall()


class Linux(Portable):
    """What Linux does better. Stateless, picklable, safe for several threads."""

    def open_flags(self, mode: OpenMode) -> int:
        if mode.endswith("+dsync"):
            return os.O_DSYNC
        return _O_DIRECT if mode.endswith("+direct") else 0

    def descend(self, directory: int, path: str) -> int | None:
        return self.open_below(directory, path, _DESCEND)

    def open_below(self, directory: int, path: str, flags: int, mode: int = 0) -> int | None:
        if _syscall is None:
            return None
        fd = _syscall(_OPENAT2, directory, os.fsencode(path), *_how(flags, mode))
        return None if fd < 0 else int(fd)

    def stat_below(self, directory: int, path: str) -> os.stat_result | None:
        fd = self.open_below(directory, path, _LOOK)
        if fd is None:
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def begin_writeback(self, fd: int, position: int, size: int) -> None:
        # A failure only costs speed: the fsync decides.
        if _sync_file_range is not None:
            _sync_file_range(fd, position, size, _SYNC_FILE_RANGE_WRITE)

    def will_read(self, fd: int, position: int, size: int) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)

    def read_direct(self, fd: int, size: int, position: int) -> bytes | None:
        if not _is_direct(fd):
            return None
        with _buffered(fd):
            return os.pread(fd, size, position)

    def write_direct(self, fd: int, buffers: Sequence[Buffer], position: int) -> int | None:
        """Whole blocks go past the page cache, the ragged ends of an append through it.

        The two never share a page, so they cannot overwrite each other.
        """
        if not _is_direct(fd):
            return None
        data = memoryview(b"".join(buffers))
        to_boundary = -position % _BLOCK
        blocks = min(len(data), _MOST_DIRECT_BYTES) // _BLOCK * _BLOCK
        if to_boundary or not blocks:
            with _buffered(fd):
                return os.pwrite(fd, data[: to_boundary or len(data)], position)
        with mmap.mmap(-1, blocks) as aligned:
            aligned[:] = data[:blocks]
            return os.pwrite(fd, aligned, position)

    def send(self, fd: int, sock: socket.socket, position: int, size: int) -> int:
        if not size:
            return 0
        with open(fd, "rb", buffering=0, closefd=False) as file:
            return sock.sendfile(file, position, size)


def _is_direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & _O_DIRECT)


@contextmanager
def _buffered(fd: int) -> Iterator[None]:
    """Use the page cache inside. Only the holder of the partition's lock uses ``fd``."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~_O_DIRECT)
    try:
        yield
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)


@cache
def boot_id() -> bytes:
    """The kernel's boot id, or zeros where there is none: then every start counts as a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return uuid.UUID(file.read().strip()).bytes
    except (OSError, ValueError):
        return bytes(16)


def mount_point(field: str) -> str:
    """A path as the mount table spells it: blanks and backslashes by their octal codes."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field)


def filesystem(path: str) -> str:
    """Type of the file system that holds ``path``, from the kernel's mount table."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    path = os.path.realpath(path)
    best, found = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = mount_point(left.split(" ")[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, right.split(" ")[0]
    return found
