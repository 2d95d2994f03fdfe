"""Cutting the end of a log: a torn tail, or an append that failed and is taken back."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from .listing import list_segments, log_path
from .naming import IDX, TIMEIDX, segment_file
from .vfs import Vfs


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
            _drop_indexes(vfs, directory, base)
            vfs.unlink(path)
            vfs.fsync_dir(directory)


def cut_segment(vfs: Vfs, directory: str, base: int, size: int) -> None:
    """Shorten a segment that may be written, durably: else old bytes surface behind new ones.

    In place, as a full disk has no room for a copy: readers may have mapped it if it was closed,
    and touch nothing behind the visible end.
    """
    _drop_indexes(vfs, directory, base)
    fd = vfs.open(log_path(directory, base), "write")
    try:
        vfs.truncate(fd, size)
        vfs.fsync(fd)
    finally:
        vfs.close(fd)


def _drop_indexes(vfs: Vfs, directory: str, base: int) -> None:
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
