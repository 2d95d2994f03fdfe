"""Deleting segments so that a crash never brings one back.

The steps of a deletion: write ``<base>.tomb`` (with the new start offset) and sync it, remove the
indexes, remove the log, sync the directory, remove the tomb. A segment under a tomb is gone for
every reader at once; whoever finds a tomb after a crash does the rest. Without the sync in the
middle a power cut could undo the removal of the log but not that of the tomb, and the start would
go back.

Segments that a merge has put into the one before them go the same way, with one *range tomb* for
all of them: ``<first base>-<end>.tomb``. It is written when the merged segment is durable in its
place, so whoever sees the tomb finds every record there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

import crc32c

from ..format.file_names import IDX, LOG, TIMEIDX, TOMB, range_tomb_file, segment_file
from ..io.durable import create_file
from ..vfs import Vfs
from .listing import Listing

_TOMB = struct.Struct(">4sB3xQ")
_MAGIC, _VERSION = b"CRST", 1


def pack_tomb(new_start: int) -> bytes:
    """``magic CRST, version u8, 3 zero bytes, new start offset u64, CRC32C u32``, big-endian."""
    body = _TOMB.pack(_MAGIC, _VERSION, new_start)
    return body + crc32c.crc32c(body).to_bytes(4, "big")


def unpack_tomb(data: bytes) -> int | None:
    """The new start offset, or None when the tomb is torn; its name alone decides."""
    if len(data) != _TOMB.size + 4 or crc32c.crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    magic, version, new_start = _TOMB.unpack_from(data)
    return new_start if (magic, version) == (_MAGIC, _VERSION) else None


def drop_segments(vfs: Vfs, directory: str, bases: Sequence[int], new_start: int) -> None:
    """Remove segments for good, oldest first. The caller holds the partition's lock."""
    for base in bases:
        path = f"{directory}/{segment_file(base, TOMB)}"
        with suppress(FileExistsError):
            create_file(vfs, path, pack_tomb(new_start))
    vfs.fsync_dir(directory)
    bury(vfs, directory, bases)


def drop_merged(vfs: Vfs, directory: str, bases: Sequence[int], end: int) -> None:
    """Remove neighbouring segments whose records stand, durably, in the segment before them.

    Args:
        vfs: The store's files.
        directory: Of the partition's segments, whose lock the caller holds.
        bases: The segments.
        end: Where the last of them ends.
    """
    tomb = f"{directory}/{range_tomb_file(bases[0], end)}"
    with suppress(FileExistsError):
        create_file(vfs, tomb, pack_tomb(end))
    vfs.fsync_dir(directory)
    _remove_files(vfs, directory, bases, [tomb])


def bury(vfs: Vfs, directory: str, bases: Sequence[int]) -> None:
    """Finish the deletion of segments whose tombs are durable."""
    tombs = [f"{directory}/{segment_file(base, TOMB)}" for base in bases]
    _remove_files(vfs, directory, bases, tombs)


def _remove_files(vfs: Vfs, directory: str, bases: Sequence[int], tombs: Sequence[str]) -> None:
    # Lowest first: a reader whose look at the directory misses a later segment finds the earlier
    # one gone as well, and looks again.
    for base in bases:
        for suffix in (IDX, TIMEIDX, LOG):
            with suppress(FileNotFoundError):
                vfs.unlink(f"{directory}/{segment_file(base, suffix)}")
    vfs.fsync_dir(directory)
    for tomb in tombs:
        with suppress(FileNotFoundError):
            vfs.unlink(tomb)


def finish_deletions(vfs: Vfs, directory: str, listing: Listing) -> int:
    """Complete what a crash interrupted. The caller synced the directory: the tombs are durable."""
    if listing.tombs:
        bury(vfs, directory, listing.tombs)
    if listing.merged:
        tombs = [f"{directory}/{range_tomb_file(*bounds)}" for bounds in listing.merged]
        _remove_files(vfs, directory, listing.covered, tombs)
    return len(listing.tombs) + len(listing.covered)
