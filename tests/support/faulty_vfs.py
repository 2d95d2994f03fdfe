"""A file backend that forwards to a real one and fails, counts or crashes on demand."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from socket import socket

from storage_core.vfs import Buffer, FileStat, OpenMode, PosixVfs, Vfs

CHANGES = (
    "open:create",
    "pwritev",
    "truncate",
    "fsync",
    "make_read_only",
    "mkdir",
    "rmdir",
    "rename",
    "link",
    "unlink",
    "fsync_dir",
)
"""Calls that change what a crash leaves behind."""


class CrashError(BaseException):
    """The process was killed here: no handler may tidy up after it."""


@dataclass(slots=True)
class Fault:
    """Fails calls of one kind: the ``nth`` that matches ``path``, and ``times - 1`` after it."""

    kind: str
    error: int
    nth: int = 1
    times: int = 1
    path: str = ""
    drop_unsynced: bool = False
    """What was written since the last sync reads as zeros from now on, as lost pages do."""
    seen: int = 0

    def hits(self, kind: str, path: str) -> bool:
        """Count a call, and say whether it must fail."""
        if self.kind not in (kind, kind.partition(":")[0]) or self.path not in path:
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


@dataclass(slots=True)
class Call:
    """One call that reached the backend."""

    kind: str
    path: str


@dataclass
class FaultyVfs:
    """Forwards every call to ``inner`` unless a fault, the crash point or a setting says else."""

    inner: Vfs
    faults: list[Fault] = field(default_factory=list)
    crash_after: int | None = None
    """Let this many changing calls through, then raise ``CrashError`` from all that follow."""
    short_writes: int | None = None
    """Most bytes a write takes."""
    real_syncs: bool = True
    """False spares the device where a test repeats itself a thousand times."""
    boot: bytes | None = None
    kind_of_filesystem: str | None = None
    may_write: bool | None = None
    clock_us: int | None = None
    hook: Callable[[str, str], None] | None = None
    """Called with kind and path before each call."""

    def __post_init__(self) -> None:
        self.calls: list[Call] = []
        self.changes = 0
        self._paths: dict[int, str] = {}
        self._unsynced: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def fail(self, kind: str, error: int, **details: object) -> Fault:
        """Add a fault and return it."""
        fault = Fault(kind, error, **details)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def _enter(self, kind: str, path: str) -> None:
        if self.hook is not None:
            self.hook(kind, path)
        with self._lock:
            self.calls.append(Call(kind, path))
            if kind in CHANGES:
                if self.crash_after is not None and self.changes >= self.crash_after:
                    raise CrashError(f"crashed before {kind} {path}")
                self.changes += 1
            hits = [fault for fault in self.faults if fault.hits(kind, path)]
        for fault in hits:
            if fault.drop_unsynced:
                self._drop(path)
            raise OSError(fault.error, os.strerror(fault.error), path)

    def _drop(self, path: str) -> None:
        fd = self.inner.open(path, "write")
        for position, size in self._unsynced.pop(path, []):
            self.inner.pwritev(fd, [bytes(size)], position)
        self.inner.close(fd)

    def _path(self, fd: int) -> str:
        return self._paths.get(fd, "")

    @property
    def root(self) -> str:
        return self.inner.root

    def anchored(self) -> AbstractContextManager[None]:
        return self.inner.anchored()

    def open(self, path: str, mode: OpenMode) -> int:
        self._enter(f"open:{mode.partition('+')[0]}", path)
        fd = self.inner.open(path, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        path = self._paths.pop(fd, "")
        # The descriptor is gone even when close fails: so it is on Linux.
        self.inner.close(fd)
        self._enter("close", path)

    def fstat(self, fd: int) -> FileStat:
        self._enter("fstat", self._path(fd))
        return self.inner.fstat(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._enter("pread", self._path(fd))
        return self.inner.pread(fd, size, position)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        path = self._path(fd)
        self._enter("pwritev", path)
        if self.short_writes is not None:
            buffers = [memoryview(buffers[0])[: self.short_writes]]
        written = self.inner.pwritev(fd, buffers, position)
        self._unsynced.setdefault(path, []).append((position, written))
        return written

    def truncate(self, fd: int, size: int) -> None:
        self._enter("truncate", self._path(fd))
        self.inner.truncate(fd, size)

    def fsync(self, fd: int) -> None:
        self._enter("fsync", self._path(fd))
        if self.real_syncs:
            self.inner.fsync(fd)
        self._unsynced.pop(self._path(fd), None)

    def begin_writeback(self, fd: int, position: int, size: int) -> None:
        self.inner.begin_writeback(fd, position, size)

    def send(self, fd: int, sock: socket, position: int, size: int) -> int:
        self._enter("send", self._path(fd))
        return self.inner.send(fd, sock, position, size)

    def make_writable(self, fd: int) -> None:
        self._enter("make_read_only", self._path(fd))
        self.inner.make_writable(fd)

    def make_read_only(self, fd: int) -> None:
        self._enter("make_read_only", self._path(fd))
        self.inner.make_read_only(fd)

    def map(self, fd: int) -> memoryview:
        self._enter("map", self._path(fd))
        return self.inner.map(fd)

    def stat(self, path: str) -> FileStat | None:
        self._enter("stat", path)
        return self.inner.stat(path)

    def sizes(self, path: str, suffix: str) -> dict[str, int]:
        self._enter("listdir", path)
        return self.inner.sizes(path, suffix)

    def listdir(self, path: str) -> list[str]:
        self._enter("listdir", path)
        return self.inner.listdir(path)

    def mkdir(self, path: str) -> None:
        self._enter("mkdir", path)
        self.inner.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._enter("rmdir", path)
        self.inner.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self._enter("rename", target)
        self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._enter("link", target)
        self.inner.link(source, target)

    def unlink(self, path: str) -> None:
        self._enter("unlink", path)
        self.inner.unlink(path)

    def fsync_dir(self, path: str) -> None:
        self._enter("fsync_dir", path)
        if self.real_syncs:
            self.inner.fsync_dir(path)

    def try_lock(self, fd: int) -> bool:
        return self.inner.try_lock(fd)

    def unlock(self, fd: int) -> None:
        self.inner.unlock(fd)

    def now_us(self) -> int:
        return self.inner.now_us() if self.clock_us is None else self.clock_us

    def monotonic(self) -> float:
        return self.inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self.inner.sleep(seconds)

    def boot_id(self) -> bytes:
        return self.inner.boot_id() if self.boot is None else self.boot

    def filesystem(self) -> str:
        return (
            self.inner.filesystem()
            if self.kind_of_filesystem is None
            else (self.kind_of_filesystem)
        )

    def writable(self) -> bool:
        return self.inner.writable() if self.may_write is None else self.may_write


def faulty(path: str | os.PathLike[str]) -> FaultyVfs:
    """A faulty backend over the real files below ``path``."""
    return FaultyVfs(PosixVfs(path))
