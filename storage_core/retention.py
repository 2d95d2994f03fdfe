"""Which old segments to drop, and how to drop them so that a crash never brings one back.

The steps of a deletion: write ``<base>.tomb`` (with the new start offset) and sync it, remove the
indexes, remove the log, sync the directory, remove the tomb. A segment under a tomb is gone for
every reader at once; whoever finds a tomb after a crash does the rest. Without the sync in the
middle a power cut could undo the removal of the log but not that of the tomb, and the start would
go back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

import crc32c

from .durable import create_file
from .listing import Listing
from .naming import IDX, LOG, TIMEIDX, TOMB, segment_file
from .vfs import Vfs

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


def segments_to_drop(
    sizes: Sequence[int],
    largest_timestamp: Callable[[int], int],
    *,
    now_us: int,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> int:
    """How many of the oldest segments may go.

    Args:
        sizes: Bytes of all segments, oldest first; the last one is active and always stays.
        largest_timestamp: Newest timestamp of segment ``i``; asked only as far as needed.
        now_us: The clock. A clock that went back only makes records look younger.
        retention_ms: Age limit, or None.
        retention_bytes: Size limit of the whole partition, or None.
    """
    total = sum(sizes)
    count = 0
    for position, size in enumerate(sizes[:-1]):
        too_much = retention_bytes is not None and total - size >= retention_bytes
        too_old = (
            not too_much
            and retention_ms is not None
            and largest_timestamp(position) < now_us - retention_ms * 1000
        )
        if not too_much and not too_old:
            break
        total -= size
        count += 1
    return count


def drop_segments(vfs: Vfs, directory: str, bases: Sequence[int], new_start: int) -> None:
    """Remove segments for good, oldest first. The caller holds the partition's lock."""
    for base in bases:
        path = f"{directory}/{segment_file(base, TOMB)}"
        with suppress(FileExistsError):
            create_file(vfs, path, pack_tomb(new_start))
    vfs.fsync_dir(directory)
    bury(vfs, directory, bases)


def bury(vfs: Vfs, directory: str, bases: Sequence[int]) -> None:
    """Finish the deletion of segments whose tombs are durable."""
    for base in bases:
        for suffix in (IDX, TIMEIDX, LOG):
            with suppress(FileNotFoundError):
                vfs.unlink(f"{directory}/{segment_file(base, suffix)}")
    vfs.fsync_dir(directory)
    for base in bases:
        with suppress(FileNotFoundError):
            vfs.unlink(f"{directory}/{segment_file(base, TOMB)}")


def finish_deletions(vfs: Vfs, directory: str, listing: Listing) -> int:
    """Complete what a crash interrupted. The caller synced the directory: the tombs are durable."""
    if listing.tombs:
        bury(vfs, directory, listing.tombs)
    return len(listing.tombs)
