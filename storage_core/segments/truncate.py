"""Truncating the end of a log: a torn tail, or the records of an append that failed."""

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
    """Remove from the log what follows ``mark``; no writer may have the files open.

    The last file first, each durably before the next: if a power cut brought a file back, it would
    leave a hole before it, which is damage.
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
    """Truncate a writable segment, durably: else old bytes may reappear after new ones.

    In place, because a full disk has no room for a copy. Readers that mapped the segment touch
    nothing after the high watermark.
    """
    drop_indexes(vfs, directory, base)
    fd = vfs.open(log_path(directory, base), "write")
    try:
        vfs.truncate(fd, size)
        vfs.fsync(fd)
    finally:
        vfs.close(fd)


def save_tail(vfs: Vfs, fd: int, directory: str, base: int, position: int, size: int) -> str:
    """Copy bytes that are about to be cut, durably; return the path of the copy."""
    data = vfs.pread(fd, size, position)
    for number in count():
        path = broken_path(directory, base, position, number)
        saved = read_file(vfs, path, size + 1)
        if saved is None:
            replace_file(vfs, path, data)
        # An earlier tail torn at the same place is kept; this one is not saved twice.
        if saved in (None, data):
            break
    return path


def broken_path(directory: str, base: int, position: int, number: int) -> str:
    """Path of the bytes cut at a position of a segment; ``number`` counts repeated cuts there."""
    again = f".{number}" if number else ""
    return f"{directory}/{segment_file(base, f'-{position}{again}{BROKEN}')}"


def copy_to_new_file(vfs: Vfs, directory: str, base: int, *, sealed: bool = False) -> None:
    """Copy a segment, durably, and put the copy in its place."""
    path = log_path(directory, base)
    source = vfs.open(path, "read")
    try:
        target = vfs.open(path + ".tmp", "create")
        try:
            position = 0
            while data := vfs.pread(source, _COPY_BYTES, position):
                position = write_all(vfs, target, [data], position)
            vfs.fsync(target)
            if sealed:
                vfs.make_read_only(target)
        finally:
            vfs.close(target)
    finally:
        vfs.close(source)
    vfs.rename(path + ".tmp", path)
    vfs.fsync_dir(directory)


def drop_indexes(vfs: Vfs, directory: str, base: int) -> None:
    """Remove a segment's indexes before its bytes: a stale entry would point into later bytes."""
    for suffix in (IDX, TIMEIDX):
        with suppress(FileNotFoundError):
            vfs.unlink(f"{directory}/{segment_file(base, suffix)}")


def _make_writable(vfs: Vfs, path: str) -> None:
    fd = vfs.open(path, "read")
    try:
        vfs.make_writable(fd)
    finally:
        vfs.close(fd)
