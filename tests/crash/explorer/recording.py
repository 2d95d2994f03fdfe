"""A backend in memory that knows, at every call, what a power cut or a kill would leave.

It has the calls of ``storage_core.vfs.Vfs``, so the real engine runs on it. ``power_cut`` picks one
state of the disk (see ``disk.py``); ``kill`` keeps everything, synced or not, as the page cache
does when only the process dies.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import count
from socket import socket

from storage_core.vfs import Buffer, FileStat, OpenMode
from tests.crash.explorer.disk import Choose, Copier, File, Folder, Item, Node, Step, after_steps
from tests.support.faulty_vfs import CrashError

MEMORY = "/memory"
"""The root of every backend in memory."""
T0_US = 1_700_000_000_000_000


class MemoryVfs:
    """Files in memory. ``hook`` runs before every call that changes one, with kind and path."""

    def __init__(self, boot: bytes = b"the first boot..", top: Folder | None = None) -> None:
        self.top = top or Folder(0)
        self.steps: list[Step] = []
        self.dirty: dict[int, File] = {}
        """Files with bytes that are not synced, by number."""
        self.boot = boot
        self.hook: Callable[[str, str], None] | None = None
        self.calls = 0
        self.crash_after: int | None = None
        """Let this many changing calls through, then raise ``CrashError`` from all that follow."""
        self.enforce_modes = True
        """Whether read-only files refuse writers, as they do unless the user is root."""
        self.now = T0_US
        self._numbers = count(1)
        self._fds = count(1000)
        self._open: dict[int, tuple[File, str]] = {}
        self._lock = threading.RLock()

    def unsynced(self) -> list[Item]:
        """What a power cut may or may not keep: names first, then files."""
        steps = [Item(-1, number, 2) for number in range(len(self.steps))]
        return [*steps, *(item for file in self.dirty.values() for item in file.items())]

    def power_cut(self, choose: Choose, boot: bytes) -> MemoryVfs:
        """The disk after a power cut: everything that is left is durable, and the boot is new."""
        choice = choose(self.unsynced())
        kept = [step for n, step in enumerate(self.steps) if choice.get(Item(-1, n, 2))]
        names = after_steps(kept)
        copier = Copier(lambda folder: names.get(folder, folder.synced), choice)
        return self._made(boot, copier.folder(self.top))

    def kill(self) -> MemoryVfs:
        """The same files, open by nobody: what was not synced still is not."""
        copier = Copier(lambda folder: folder.names)
        made = self._made(self.boot, copier.folder(self.top))
        made.steps = [
            tuple((copier.folder(at), name, node and copier.node(node)) for at, name, node in step)
            for step in self.steps
        ]
        copies = (copier.node(file) for file in self.dirty.values())
        made.dirty = {file.number: file for file in copies if isinstance(file, File)}
        return made

    def _made(self, boot: bytes, top: Folder) -> MemoryVfs:
        made = MemoryVfs(boot, top)
        made._numbers = count(next(self._numbers) + 1_000_000)
        made.now, made.enforce_modes = self.now, self.enforce_modes
        return made

    def _enter(self, kind: str, path: str) -> None:
        if self.crash_after is not None and self.calls >= self.crash_after:
            raise CrashError(f"crashed before {kind} {path}")
        self.calls += 1
        if self.hook is not None:
            self.hook(kind, path)

    def _change(self, *changes: tuple[Folder, str, Node | None]) -> None:
        self.steps.append(changes)
        for folder, name, node in changes:
            folder.modified_ns = self.now_us() * 1000
            if node is None:
                del folder.names[name]
            else:
                folder.names[name] = node

    def _folder(self, path: str) -> Folder:
        at = self.top
        for name in _steps(path):
            below = at.names.get(name)
            if not isinstance(below, Folder):
                raise _error(errno.ENOENT if below is None else errno.ENOTDIR, path)
            at = below
        return at

    def _place(self, path: str) -> tuple[Folder, str]:
        directory, _, name = path.rpartition("/")
        return self._folder(directory), name

    def _find(self, path: str) -> Node:
        folder, name = self._place(path)
        if name not in folder.names:
            raise _error(errno.ENOENT, path)
        return folder.names[name]

    @property
    def root(self) -> str:
        return MEMORY

    def anchored(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, path: str, mode: OpenMode) -> int:
        with self._lock:
            kind = mode.partition("+")[0]
            if kind == "create":
                # Before anything is looked at: the hook may let another process come first.
                self._enter("create", path)
                folder, name = self._place(path)
                if name in folder.names:
                    raise _error(errno.EEXIST, path)
                made = File(next(self._numbers), modified_ns=self.now_us() * 1000)
                made.is_lock = "lock" in path
                self._change((folder, name, made))
            found = self._find(path)
            assert isinstance(found, File), path
            if kind == "write" and found.sealed and self.enforce_modes:
                raise _error(errno.EACCES, path)
            fd = next(self._fds)
            self._open[fd] = (found, path)
            return fd

    def close(self, fd: int) -> None:
        self.unlock(fd)
        del self._open[fd]

    def fstat(self, fd: int) -> FileStat:
        return self._open[fd][0].stat()

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return self._open[fd][0].data[position : position + size]

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        with self._lock:
            file, path = self._open[fd]
            data = b"".join(buffers)
            if path.endswith("watermark") and len(data) > 1:
                # Written in place beside readers: they, a kill and a power cut find half of it.
                data = data[: (len(data) + 1) // 2]
            self._enter("pwritev", path)
            file.write(data, position)
            self.dirty[file.number] = file
            file.modified_ns = self.now_us() * 1000
            return len(data)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            file, path = self._open[fd]
            self._enter("truncate", path)
            file.truncate(size)
            self.dirty[file.number] = file

    def fsync(self, fd: int) -> None:
        with self._lock:
            file, path = self._open[fd]
            self._enter("fsync", path)
            file.sync()
            self.dirty.pop(file.number, None)

    def begin_writeback(self, fd: int, position: int, size: int) -> None:
        """A hint that promises nothing."""

    def make_read_only(self, fd: int) -> None:
        self._open[fd][0].sealed = True

    def make_writable(self, fd: int) -> None:
        self._open[fd][0].sealed = False

    def send(self, fd: int, sock: socket, position: int, size: int) -> int:
        sock.sendall(self.pread(fd, size, position))
        return size

    def map(self, fd: int) -> memoryview:
        return memoryview(self._open[fd][0].data)

    def stat(self, path: str) -> FileStat | None:
        try:
            return self._find(path).stat()
        except FileNotFoundError:
            return None

    def listdir(self, path: str) -> list[str]:
        return list(self._folder(path).names)

    def sizes(self, path: str, suffix: str) -> dict[str, int]:
        return {
            name: len(node.data)
            for name, node in self._folder(path).names.items()
            if isinstance(node, File) and name.endswith(suffix)
        }

    def mkdir(self, path: str) -> None:
        with self._lock:
            self._enter("mkdir", path)
            folder, name = self._place(path)
            if name in folder.names:
                raise _error(errno.EEXIST, path)
            made = Folder(next(self._numbers), modified_ns=self.now_us() * 1000)
            self._change((folder, name, made))

    def rmdir(self, path: str) -> None:
        with self._lock:
            self._enter("rmdir", path)
            if self._folder(path).names:
                raise _error(errno.ENOTEMPTY, path)
            self._change((*self._place(path), None))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._enter("rename", target)
            moved, (folder, name) = self._find(source), self._place(target)
            there = folder.names.get(name)
            if isinstance(there, Folder) and there.names:
                raise _error(errno.ENOTEMPTY, target)
            self._change((*self._place(source), None), (folder, name, moved))

    def link(self, source: str, target: str) -> None:
        with self._lock:
            self._enter("link", target)
            node, (folder, name) = self._find(source), self._place(target)
            if name in folder.names:
                raise _error(errno.EEXIST, target)
            self._change((folder, name, node))

    def unlink(self, path: str) -> None:
        with self._lock:
            self._enter("unlink", path)
            self._find(path)
            self._change((*self._place(path), None))

    def fsync_dir(self, path: str) -> None:
        with self._lock:
            self._enter("fsync_dir", path)
            folder = self._folder(path)
            here = [any(at is folder for at, _, _ in step) for step in self.steps]
            durable = [step for step, synced in zip(self.steps, here, strict=True) if synced]
            for at, names in after_steps(durable).items():
                at.synced = names
            self.steps = [s for s, synced in zip(self.steps, here, strict=True) if not synced]

    def try_lock(self, fd: int) -> bool:
        file, _ = self._open[fd]
        with self._lock:
            if file.holder is None:
                file.holder = fd
            return file.holder == fd

    def unlock(self, fd: int) -> None:
        file, _ = self._open[fd]
        if file.holder == fd:
            file.holder = None

    def now_us(self) -> int:
        self.now += 1
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e6

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)

    def boot_id(self) -> bytes:
        return self.boot

    def filesystem(self) -> str:
        return "memory"

    def writable(self) -> bool:
        return True


@lru_cache(4096)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")) if path not in ("", ".") else ()


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
