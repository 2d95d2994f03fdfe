"""Deleting segments so that a crash never brings one back.

The steps of a deletion: write ``<base>.tomb`` (with the new start offset) and sync it, remove the
indexes and statistics, remove the log, sync the directory, remove the marker. Readers ignore a
segment that has a marker; recovery finishes the deletion after a crash. Without the second sync a
power cut could undo the removal of the log but not that of the marker, and the start offset would
go back.

Segments that a merge has put into the one before them are deleted in the same way, with one *range
marker* for all of them: ``<first base>-<end>.tomb``. It is written after the merged segment is
durable in its place, so a reader that sees the marker finds every record there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

from ..format.file_names import HINTS, LOG, MARKER, range_marker_file, segment_file
from ..io.checksum import crc32c
from ..io.durable import create_file
from ..vfs import Vfs
from .listing import Listing

_MARKER = struct.Struct(">4sB3xQ")
_MAGIC, _VERSION = b"CRST", 1


def pack_marker(new_start: int) -> bytes:
    """``magic CRST, version u8, 3 zero bytes, new start offset u64, CRC32C u32``, big-endian."""
    body = _MARKER.pack(_MAGIC, _VERSION, new_start)
    return body + crc32c(body).to_bytes(4, "big")


def unpack_marker(data: bytes) -> int | None:
    """The new start offset, or None when the marker is torn. A torn marker counts too."""
    if len(data) != _MARKER.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    magic, version, new_start = _MARKER.unpack_from(data)
    return new_start if (magic, version) == (_MAGIC, _VERSION) else None


def drop_segments(vfs: Vfs, directory: str, bases: Sequence[int], new_start: int) -> None:
    """Remove segments for good, oldest first. The caller holds the partition's lock."""
    for base in bases:
        path = f"{directory}/{segment_file(base, MARKER)}"
        with suppress(FileExistsError):
            create_file(vfs, path, pack_marker(new_start))
    vfs.fsync_dir(directory)
    remove_marked(vfs, directory, bases)


def drop_merged(vfs: Vfs, directory: str, bases: Sequence[int], end: int) -> None:
    """Remove neighbouring segments whose records stand, durably, in the segment before them.

    Args:
        vfs: The store's files.
        directory: Of the partition's segments, whose lock the caller holds.
        bases: The segments.
        end: Where the last of them ends.
    """
    marker = f"{directory}/{range_marker_file(bases[0], end)}"
    with suppress(FileExistsError):
        create_file(vfs, marker, pack_marker(end))
    vfs.fsync_dir(directory)
    _remove_files(vfs, directory, bases, [marker])


def remove_marked(vfs: Vfs, directory: str, bases: Sequence[int]) -> None:
    """Finish the deletion of segments whose markers are durable."""
    markers = [f"{directory}/{segment_file(base, MARKER)}" for base in bases]
    _remove_files(vfs, directory, bases, markers)


def _remove_files(vfs: Vfs, directory: str, bases: Sequence[int], markers: Sequence[str]) -> None:
    # Lowest first: a reader whose listing misses a later segment also misses the earlier one, and
    # lists again.
    for base in bases:
        for suffix in (*HINTS, LOG):
            with suppress(FileNotFoundError):
                vfs.unlink(f"{directory}/{segment_file(base, suffix)}")
    vfs.fsync_dir(directory)
    for marker in markers:
        with suppress(FileNotFoundError):
            vfs.unlink(marker)


def finish_deletions(vfs: Vfs, directory: str, listing: Listing) -> int:
    """Complete interrupted deletions. The caller has synced the directory: markers are durable."""
    if listing.markers:
        remove_marked(vfs, directory, listing.markers)
    if listing.merged:
        markers = [f"{directory}/{range_marker_file(*bounds)}" for bounds in listing.merged]
        _remove_files(vfs, directory, listing.covered, markers)
    return len(listing.markers) + len(listing.covered)
