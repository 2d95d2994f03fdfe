"""Recovery of a topic with ``fsync=none`` after a power cut: any segment may be short or garbled.

Records that nothing made durable may go. But a log has no gaps, so all records after the first
invalid place go too. Recovery keeps the bytes beside the log as ``.broken``.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import NamedTuple

from ..errors import BrokenFrameError, SegmentStateError
from ..format.frame_scan import recovery_point_after, walk_frames
from ..io.byte_source import MappedSource
from ..segments.continuity import end_of
from ..segments.index_files import drop_indexes
from ..segments.listing import Listing, log_path
from ..segments.segment_times import drop_times
from ..segments.truncate import broken_path
from ..vfs import Vfs


class InvalidPlace(NamedTuple):
    """The first invalid place of a sealed segment. ``claim``: the recovery point its rest names."""

    base: int
    position: int
    offset: int
    claim: int
    reason: str


def first_invalid_place(vfs: Vfs, listing: Listing, trusted: int) -> InvalidPlace | None:
    """The first place where the sealed segments do not continue; None if there is no such place.

    It checks every byte of segments above the offset ``trusted``, and only the end of segments
    below. A segment may continue after those that were merged into it: see ``continuity``.
    """
    at = 0
    while at + 1 < len(listing.bases):
        base, following = listing.bases[at : at + 2]
        if following <= trusted:
            with suppress(BrokenFrameError):
                path = log_path(listing.directory, base)
                after = _joined(listing, at, end_of(vfs, path, base, verify=False))
                if after is not None:
                    at = after
                    continue
        found, whole = _valid_part(vfs, listing.directory, base)
        after = _joined(listing, at, found.offset) if whole else None
        if after is None:
            return found
        at = after
    return None


def _joined(listing: Listing, at: int, end: int) -> int | None:
    """The index of the later segment that begins where this one ends, if there is one."""
    after = listing.holding(end)
    return after if after > at and listing.bases[after] == end else None


def _valid_part(vfs: Vfs, directory: str, base: int) -> tuple[InvalidPlace, bool]:
    """Where a segment stops being valid, and whether that is its end."""
    position, offset = 0, base
    try:
        source = MappedSource(vfs, log_path(directory, base))
    except SegmentStateError:
        return InvalidPlace(base, 0, base, 0, "it is empty"), False
    try:
        for frame in walk_frames(source, base, bodies=True):
            position, offset = frame.end_position, frame.end_offset
    except BrokenFrameError as error:
        claim = recovery_point_after(source, base, position)
        return InvalidPlace(base, position, offset, claim, str(error)), False
    reason = f"it ends at offset {offset}, and the next segment does not start there"
    return InvalidPlace(base, position, offset, 0, reason), True


def set_aside(vfs: Vfs, listing: Listing, last: int) -> tuple[int, list[str]]:
    """Rename the segments after ``last`` to ``.broken``; return their bytes and new names.

    It starts at the end and makes each rename durable before the next. Otherwise a power cut could
    bring a segment back with a gap before it. The caller cuts the invalid part of ``last``.
    """
    directory = listing.directory
    later = [base for base in listing.bases if base > last]
    drop_times(vfs, directory)
    for base in (last, *later):
        drop_indexes(vfs, directory, base)
    # After a power cut an old index must not come back: a new segment may get its name.
    vfs.fsync_dir(directory)
    size, names = 0, list[str]()
    for base in reversed(later):
        path = log_path(directory, base)
        found = vfs.stat(path)
        if found is None or found.size == 0:
            vfs.unlink(path)
        else:
            names.append(_free_name(vfs, directory, base))
            size += found.size
            vfs.rename(path, names[-1])
        vfs.fsync_dir(directory)
    return size, names


def _free_name(vfs: Vfs, directory: str, base: int) -> str:
    for number in count():
        path = broken_path(directory, base, 0, number)
        if vfs.stat(path) is None:
            break
    return path
