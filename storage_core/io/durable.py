"""Multi-step file operations that survive a crash between any two of their steps.

The order matters: data is synced before the name that leads to it, and a name is synced in its
directory before the caller relies on it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ..vfs import Buffer, OpenMode, Vfs

_COPIED_BYTES = 4 << 20
_ABANDONED_NS = 3600 * 10**9


@contextmanager
def opened(vfs: Vfs, path: str, mode: OpenMode) -> Iterator[int]:
    """The descriptor of a file that is closed at the end."""
    fd = vfs.open(path, mode)
    try:
        yield fd
    finally:
        vfs.close(fd)


def write_all(vfs: Vfs, fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write every byte of ``buffers`` at ``position``; return the position after them."""
    pending = [view for view in (memoryview(buffer).cast("B") for buffer in buffers) if len(view)]
    while pending:
        try:
            written = vfs.pwritev(fd, pending, position)
        except InterruptedError:
            continue
        if written <= 0:
            raise OSError(errno.EIO, "the system wrote no byte of a non-empty buffer")
        position += written
        done = 0
        while done < len(pending) and written >= len(pending[done]):
            written -= len(pending[done])
            done += 1
        pending = pending[done:]
        if written:
            pending[0] = pending[0][written:]
    return position


def read_file(vfs: Vfs, path: str, limit: int) -> bytes | None:
    """The first ``limit`` bytes of a file, or None when there is none."""
    try:
        with opened(vfs, path, "read") as fd:
            return vfs.pread(fd, limit, 0)
    except FileNotFoundError:
        return None


def create_file(vfs: Vfs, path: str, data: bytes) -> None:
    """Create a file with its contents synced; its name is durable once the directory is."""
    with opened(vfs, path, "create") as fd:
        write_all(vfs, fd, [data], 0)
        vfs.fsync(fd)


def sync_file(vfs: Vfs, path: str) -> None:
    """Make durable what other processes may have written to a file."""
    with opened(vfs, path, "read") as fd:
        vfs.fsync(fd)


def replace_file(vfs: Vfs, path: str, data: bytes, *, sync: bool = True) -> None:
    """Put ``data`` in the place of a file in one step. The caller holds the lock over ``path``.

    Without ``sync`` a power cut may leave the old contents, none or torn ones: only for files
    that readers check and that can be rebuilt.
    """
    temporary = path + ".tmp"
    try:
        fd = vfs.open(temporary, "create")
    except FileExistsError:  # left by a crash
        vfs.unlink(temporary)
        fd = vfs.open(temporary, "create")
    try:
        write_all(vfs, fd, [data], 0)
        if sync:
            vfs.fsync(fd)
    finally:
        vfs.close(fd)
    vfs.rename(temporary, path)
    if sync:
        vfs.fsync_dir(parent(path))


def keep_head(vfs: Vfs, path: str, size: int) -> None:
    """Put the first ``size`` bytes of a file in its place in one step.

    Truncating the file itself would kill readers that have mapped it.
    """
    temporary = path + ".tmp"
    with suppress(FileNotFoundError):  # left by a crash
        vfs.unlink(temporary)
    with opened(vfs, path, "read") as source, opened(vfs, temporary, "create") as fd:
        position = 0
        while position < size:
            data = vfs.pread(source, min(_COPIED_BYTES, size - position), position)
            if not data:
                raise OSError(errno.EIO, "the file is shorter than its size", path)
            position = write_all(vfs, fd, [data], position)
        vfs.fsync(fd)
    vfs.rename(temporary, path)
    vfs.fsync_dir(parent(path))


def save_copy(vfs: Vfs, paths: Iterable[str], data: bytes) -> str:
    """Save bytes that are about to be cut under the first path that is free; return the path.

    Earlier bytes that were saved stay. The same bytes are not saved twice.
    """
    for path in paths:
        saved = read_file(vfs, path, len(data) + 1)
        if saved is None:
            replace_file(vfs, path, data)
        if saved in (None, data):
            return path
    raise ValueError("no path is free")


def link_over_empty(vfs: Vfs, path: str, target: str) -> None:
    """Give a file a second name. An empty file of that name is replaced in one step.

    Raises:
        FileExistsError: a file of that name has contents.
    """
    found = vfs.stat(target)
    if found is None or found.size:
        vfs.link(path, target)
        return
    with suppress(FileNotFoundError):  # left by a crash
        vfs.unlink(f"{target}.tmp")
    vfs.link(path, f"{target}.tmp")
    vfs.rename(f"{target}.tmp", target)


def make_directories(vfs: Vfs, path: str) -> None:
    """Create ``path`` and its missing parents, each durable in the one above."""
    if path in ("", "."):
        return
    make_directories(vfs, parent(path))
    with suppress(FileExistsError):
        vfs.mkdir(path)
        vfs.fsync_dir(parent(path))


def sync_directories(vfs: Vfs, path: str) -> None:
    """Create ``path`` and its missing parents, and sync those that exist too.

    The creator of an existing directory may have crashed before its sync. Where a power cut must
    not lose what is put into a directory, existing is not enough. Every call syncs: call it once.
    """
    make_directories(vfs, path)
    while path:
        path = parent(path)
        vfs.fsync_dir(path)


def remove_tree(vfs: Vfs, path: str) -> None:
    """Delete a directory and all below it, without following links.

    A missing file is fine: another process may delete the same tree.
    """
    found = vfs.stat(path)
    if found is None:
        return
    with suppress(FileNotFoundError):
        if found.kind != "directory":
            vfs.unlink(path)
            return
        for name in vfs.listdir(path):
            remove_tree(vfs, f"{path}/{name}")
        vfs.rmdir(path)


def parent(path: str) -> str:
    """Directory of a path; the root is the empty string."""
    return path.rpartition("/")[0]


def is_abandoned(vfs: Vfs, path: str) -> bool:
    """Whether a crashed writer left what it prepared here: no writer takes an hour for it."""
    found = vfs.stat(path)
    return found is not None and vfs.now_us() * 1000 - found.modified_ns > _ABANDONED_NS
