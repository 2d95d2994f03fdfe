"""Truncating the end of a log: a torn tail, or the records of an append that failed."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from ..format.file_names import BROKEN, segment_file
from ..io.durable import opened, save_copy, write_all
from ..vfs import Vfs
from .index_files import drop_indexes
from .listing import list_segments, log_path

_COPY_BYTES = 8 << 20


class TailMark(NamedTuple):
    """An end of the log: next offset, and the active segment with its size (None: no segment)."""

    end: int
    base: int | None
    size: int


def cut_back(vfs: Vfs, directory: str, mark: TailMark) -> None:
    """Remove from the log what follows ``mark``; no writer may have the files open.

    The last file first, each durably before the next: if a power cut brought a file back, it would
    leave a hole before it, which is damage.
    """
    for base in reversed(list_segments(vfs, directory).bases):
        path = log_path(directory, base)
        if base == mark.base:
            with opened(vfs, path, "read") as fd:
                vfs.make_writable(fd)
            cut_segment(vfs, directory, base, mark.size)
        elif base >= mark.end:
            drop_indexes(vfs, directory, base)
            vfs.unlink(path)
            vfs.fsync_dir(directory)


def cut_segment(vfs: Vfs, directory: str, base: int, size: int) -> None:
    """Truncate a writable segment, durably: else old bytes may reappear after new ones.

    In place, because a full disk has no room for a copy. Readers that mapped the segment touch
    nothing after the high watermark.
    """
    drop_indexes(vfs, directory, base)
    with opened(vfs, log_path(directory, base), "write") as fd:
        vfs.truncate(fd, size)
        vfs.fsync(fd)


def save_tail(vfs: Vfs, fd: int, directory: str, base: int, position: int, size: int) -> str:
    """Copy bytes that are about to be cut, durably; return the path of the copy."""
    paths = (broken_path(directory, base, position, number) for number in count())
    return save_copy(vfs, paths, vfs.pread(fd, size, position))


def broken_path(directory: str, base: int, position: int, number: int) -> str:
    """Path of the bytes cut at a position of a segment; ``number`` counts repeated cuts there."""
    again = f".{number}" if number else ""
    return f"{directory}/{segment_file(base, f'-{position}{again}{BROKEN}')}"


def copy_to_new_file(vfs: Vfs, directory: str, base: int, *, sealed: bool = False) -> None:
    """Copy a segment, durably, and put the copy in its place."""
    path = log_path(directory, base)
    with opened(vfs, path, "read") as source, opened(vfs, path + ".tmp", "create") as target:
        position = 0
        while data := vfs.pread(source, _COPY_BYTES, position):
            position = write_all(vfs, target, [data], position)
        vfs.fsync(target)
        if sealed:
            vfs.make_read_only(target)
    vfs.rename(path + ".tmp", path)
    vfs.fsync_dir(directory)
