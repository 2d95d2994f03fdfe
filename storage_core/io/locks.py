"""Exclusive locks between processes, on files that are never deleted while in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import LockTimeoutError, TopicNotFoundError
from ..vfs import Vfs
from .durable import create_file, make_directories, parent

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.0002, 0.02


def ensure_lock_file(vfs: Vfs, path: str) -> None:
    """Create an empty lock file, with its directory, unless it is there."""
    if vfs.stat(path) is not None:
        return
    make_directories(vfs, parent(path))
    with suppress(FileExistsError):
        create_file(vfs, path, b"")
    vfs.fsync_dir(parent(path))


@contextmanager
def locked(vfs: Vfs, path: str, timeout_ms: int) -> Iterator[int]:
    """Hold the exclusive lock of the file ``path`` and yield its descriptor.

    Lock files are never deleted while their directory exists: after a deletion two processes could
    lock two files of the same name. If the file was replaced during the wait, its identity differs,
    and the wait starts again on the new file.

    Raises:
        LockTimeoutError: another process kept the lock for ``timeout_ms``.
    """
    deadline = vfs.monotonic() + timeout_ms / 1000
    while True:
        try:
            fd = vfs.open(path, "write")
        except FileNotFoundError as error:
            raise TopicNotFoundError(
                f"lock file {path} does not exist: its topic was deleted or never created.",
                path=path,
            ) from error
        try:
            _wait_for_lock(vfs, fd, path, deadline, timeout_ms)
            now = vfs.stat(path)
            if now is None or now.identity != vfs.fstat(fd).identity:
                continue
            try:
                yield fd
            finally:
                vfs.unlock(fd)
            return
        finally:
            vfs.close(fd)


def _wait_for_lock(vfs: Vfs, fd: int, path: str, deadline: float, timeout_ms: int) -> None:
    wait = _FIRST_WAIT_S
    while not vfs.try_lock(fd):
        if vfs.monotonic() >= deadline:
            raise LockTimeoutError(
                f"another writer{_holder(vfs, fd)} has held {path} for more than {timeout_ms} ms. "
                "Wait until it finishes, stop it, or raise lock_timeout_ms.",
                path=path,
            )
        vfs.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_S)


def _holder(vfs: Vfs, fd: int) -> str:
    """The holder's process id: every lock file starts with it as 8 bytes."""
    first = vfs.pread(fd, 8, 0)
    pid = int.from_bytes(first, "big") if len(first) == 8 else 0
    return f" (process {pid})" if 0 < pid < 1 << 22 else ""
