"""Cutting the end of a log: a torn tail, or an append that failed and is taken back."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import NamedTuple

from ..format.file_names import BROKEN, IDX, TIMEIDX, segment_file
from ..io.durable import read_file, replace_file, write_all
from ..vfs import Vfs
from .listing import list_segments, log_path

_COPY_BYTES = 8 << 20


class TailMark(NamedTuple):
    """An end of the log: next offset, and the active segment with its size (None: no segment)."""

    end: int
    base: int | None
    size: int


def cut_back(vfs: Vfs, directory: str, mark: TailMark) -> None:
    """Remove from the log what stands behind ``mark``; nobody may have the files open to write.

    The last file first, each durably before the one below it is touched: a power cut in between
    that brought a file back would leave a hole before it, which is damage.
    """
    for base in reversed(list_segments(vfs, directory).bases):
        path = log_path(directory, base)
        if base == mark.base:
            _make_writable(vfs, path)
            cut_segment(vfs, directory, base, mark.size)
        elif base >= mark.end:
            drop_indexes(vfs, directory, base)
            vfs.unlink(path)
            vfs.fsync_dir(directory)


def cut_segment(vfs: Vfs, directory: str, base: int, size: int) -> None:
    """Shorten a segment that may be written, durably: else old bytes surface behind new ones.

    In place, as a full disk has no room for a copy: readers may have mapped it if it was closed,
    and touch nothing behind the visible end.
    """
    drop_indexes(vfs, directory, base)
    fd = vfs.open(log_path(directory, base), "write")
    try:
        vfs.truncate(fd, size)
        vfs.fsync(fd)
    finally:
        vfs.close(fd)


def save_tail(vfs: Vfs, fd: int, directory: str, base: int, position: int, size: int) -> str:
    """Keep bytes that are about to be cut, durably; return where."""
    data = vfs.pread(fd, size, position)
    for number in count():
        path = broken_path(directory, base, position, number)
        saved = read_file(vfs, path, size + 1)
        if saved is None:
            replace_file(vfs, path, data)
        # Another tail torn at the same place stays; this one is not saved twice.
        if saved in (None, data):
            break
    return path


def broken_path(directory: str, base: int, position: int, number: int) -> str:
    """Where bytes of a segment are kept that were cut there, the first time or again."""
    again = f".{number}" if number else ""
    return f"{directory}/{segment_file(base, f'-{position}{again}{BROKEN}')}"


def copy_to_new_file(vfs: Vfs, directory: str, base: int, *, closed: bool = False) -> None:
    """Write a segment anew, durably, and put the copy in its place."""
    path = log_path(directory, base)
    source = vfs.open(path, "read")
    try:
        target = vfs.open(path + ".tmp", "create")
        try:
            position = 0
            while data := vfs.pread(source, _COPY_BYTES, position):
                position = write_all(vfs, target, [data], position)
            vfs.fsync(target)
            if closed:
                vfs.make_read_only(target)
        finally:
            vfs.close(target)
    finally:
        vfs.close(source)
    vfs.rename(path + ".tmp", path)
    vfs.fsync_dir(directory)


def drop_indexes(vfs: Vfs, directory: str, base: int) -> None:
    """Before the bytes go: an entry for them would point into those that follow."""
    for suffix in (IDX, TIMEIDX):
        with suppress(FileNotFoundError):
            vfs.unlink(f"{directory}/{segment_file(base, suffix)}")


def _make_writable(vfs: Vfs, path: str) -> None:
    fd = vfs.open(path, "read")
    try:
        vfs.make_writable(fd)
    finally:
        vfs.close(fd)
