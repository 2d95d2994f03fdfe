"""How the segments of a partition join up: each ends where the next begins.

There is one exception. A merge puts the records of several segments into the first of them by one
rename, and then removes the others. After a crash between the two steps the first segment ends
where a later one does. Those in between repeat its records: readers get the same from either.
"""

from __future__ import annotations

import re

from ..errors import BrokenFrameError, SegmentStateError
from ..format.frame_scan import last_end_offset, walk_frames
from ..io.byte_source import MappedSource
from ..vfs import Vfs
from .listing import Listing, log_path

Run = tuple[tuple[int, ...], int]
"""Bases of neighbouring segments, and the offset where the last of them ends."""


def covered_runs(vfs: Vfs, listing: Listing) -> list[Run]:
    """Segments whose every record stands in the segment before them, in order.

    The segment before them is checked to its last byte, so that the copies can be removed.

    Raises:
        BrokenFrameError: records are missing, or a segment cannot be read. ``path`` names it, and
            ``position`` is set if one of its frames is unsound.
    """
    runs: list[Run] = []
    at = 0
    while at + 1 < len(listing.bases):
        base, following = listing.bases[at], listing.bases[at + 1]
        path = log_path(listing.directory, base)
        end = end_of(vfs, path, base, verify=False)
        if end == following:
            at += 1
            continue
        after = listing.holding(end)
        if end < following or listing.bases[after] != end:
            raise BrokenFrameError(
                f"it ends at offset {end}, but the next segment starts at {following}. "
                "Restore the missing segments from a copy",
                path=path,
            )
        if end_of(vfs, path, base, verify=True) != end:
            raise BrokenFrameError("its frames do not join up", path=path)
        runs.append((listing.bases[at + 1 : after], end))
        at = after
    return runs


def end_of(vfs: Vfs, path: str, base: int, *, verify: bool) -> int:
    """Where a segment ends, by its last frame, or with ``verify`` by every byte of it."""
    try:
        source = MappedSource(vfs, path)
        if not verify:
            return last_end_offset(source, base)
        end = base
        for frame in walk_frames(source, base, bodies=True):
            end = frame.end_offset
        return end
    except BrokenFrameError as error:
        raise BrokenFrameError(
            f"{error}; restore the file from a copy",
            path=path,
            position=error.position,
            offset=error.offset,
        ) from error
    except SegmentStateError as error:
        raise BrokenFrameError("it is empty; restore the file from a copy", path=path) from error


def missing_records(
    vfs: Vfs, listing: Listing, base: int, error: BrokenFrameError
) -> BrokenFrameError:
    """The error for a read that stopped in the segment ``base``: a better one, if a file is gone.

    A segment that ends whole before the next one begins is not damaged: a file between them is
    missing. The better error has no position. Its ``path`` is the missing file.
    """
    at = listing.holding(base)
    following, path = listing.following(base), error.path or listing.path(base)
    if at < 0 or following is None or error.offset is None or error.offset >= following:
        return error
    found = vfs.stat(path)
    if found is None or found.size != error.position:
        return error
    after = listing.path(following)
    missing = re.sub(r"\d+(?=\.log$)", lambda digits: f"{error.offset:0{len(digits[0])}d}", after)
    return BrokenFrameError(
        f"offsets {error.offset} to {following - 1} are missing: {path} ends at offset "
        f"{error.offset}, and the next file is {after}. Restore {missing} from a copy, or read "
        f"from offset {following}. In a native store cursus skip gives up only these records",
        path=missing,
        offset=error.offset,
    )
