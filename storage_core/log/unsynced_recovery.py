"""The log of a topic without syncs, after a power cut: any segment of it may be short or garbled.

Nothing says that such records were durable, so they may go; but offsets have no gaps, so all that
stands behind the first bad place goes with it. The bytes are kept beside the log as ``.broken``.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import NamedTuple

from ..errors import BrokenFrameError, SegmentStateError
from ..format.frame_scan import recovery_point_after, walk_frames
from ..io.byte_source import MappedSource
from ..segments.continuity import end_of
from ..segments.listing import Listing, log_path
from ..segments.truncate import broken_path, drop_indexes
from ..vfs import Vfs


class Unsound(NamedTuple):
    """Where a closed segment stops being sound; ``claim``: what its rest says was durable."""

    base: int
    position: int
    offset: int
    claim: int
    reason: str


def first_unsound(vfs: Vfs, listing: Listing, trusted: int) -> Unsound | None:
    """The first place where the closed segments do not go on; None if all of them join up.

    Every byte is checked, but for segments below the offset ``trusted``: there a look at the end
    is enough. A segment may go on behind those that were merged into it, as ``chain`` says.
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
        found, whole = _sound_part(vfs, listing.directory, base)
        after = _joined(listing, at, found.offset) if whole else None
        if after is None:
            return found
        at = after
    return None


def _joined(listing: Listing, at: int, end: int) -> int | None:
    """The segment that begins where this one ends, if there is one behind it."""
    after = listing.holding(end)
    return after if after > at and listing.bases[after] == end else None


def _sound_part(vfs: Vfs, directory: str, base: int) -> tuple[Unsound, bool]:
    """How far a segment is sound, and whether that is all of it."""
    position, offset = 0, base
    try:
        source = MappedSource(vfs, log_path(directory, base))
    except SegmentStateError:
        return Unsound(base, 0, base, 0, "it is empty"), False
    try:
        for frame in walk_frames(source, base, bodies=True):
            position, offset = frame.end_position, frame.end_offset
    except BrokenFrameError as error:
        claim = recovery_point_after(source, base, position)
        return Unsound(base, position, offset, claim, str(error)), False
    reason = f"it ends at offset {offset}, and the next segment does not start there"
    return Unsound(base, position, offset, 0, reason), True


def set_aside(vfs: Vfs, listing: Listing, last: int) -> tuple[int, list[str]]:
    """Take the segments behind ``last`` out of the log; return their bytes and their new names.

    From the end, each durably before the next: a power cut in between that brought one back would
    leave a hole before it. Whoever finds ``last`` at the end cuts what is bad of it.
    """
    directory = listing.directory
    behind = [base for base in listing.bases if base > last]
    for base in (last, *behind):
        drop_indexes(vfs, directory, base)
    # An index that came back would be taken for that of the next segment of its name.
    vfs.fsync_dir(directory)
    size, names = 0, list[str]()
    for base in reversed(behind):
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
