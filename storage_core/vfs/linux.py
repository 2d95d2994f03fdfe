"""What only Linux offers, each with an answer for systems that lack it."""

from __future__ import annotations

import ctypes
import os
import sys
import uuid
from collections.abc import Callable
from functools import cache

_SYNC_FILE_RANGE_WRITE = 2


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


def begin_writeback(fd: int, position: int, size: int) -> None:
    """Ask the kernel to start writing a range; a failure only costs speed, the fsync decides."""
    if _sync_file_range is not None:
        _sync_file_range(fd, position, size, _SYNC_FILE_RANGE_WRITE)


@cache
def boot_id() -> bytes:
    """The kernel's boot id, or zeros where there is none: then every start counts as a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return uuid.UUID(file.read().strip()).bytes
    except (OSError, ValueError):
        return bytes(16)


def filesystem(path: str) -> str:
    """Type of the file system that holds ``path``, from the kernel's mount table."""
    try:
        with open("/proc/self/mountinfo") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    path = os.path.realpath(path)
    best, found = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split(" ")[4].encode().decode("unicode_escape")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, right.split(" ")[0]
    return found
