"""Damage in the segments of a native partition: where it is, and what is intact after it.

Most readers stop at the first bad byte, and so they should. This module looks at what follows it. A
frame whose header is intact says where the next one begins. Otherwise sound frames are looked for
byte by byte. A value may hold a copy of a frame, so a frame that is found so counts only if the
lengths at the end of frames lead back from it to the damage, or if all that follows it is sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ..errors import BrokenFrameError
from ..format.frame import (
    HEADER_BYTES,
    MAX_SPAN,
    TRAILER,
    TRAILER_BYTES,
    FrameHeader,
    frame_length,
    pack_header,
    unpack_header,
)
from ..format.frame_scan import sound_frames_after, walk_frames
from ..io.byte_source import Source, open_source
from ..io.checksum import crc32c
from ..types import NO_TIMESTAMP, TIMESTAMP_SUPPLIED, OffsetPosition
from ..vfs import Vfs
from .listing import Listing

_WINDOW_BYTES = 8 << 20
_LENGTH_BYTES = 4


class Damage(NamedTuple):
    """Offsets ``start`` to ``end`` that cannot be read: ``size`` bytes of a file, or a missing one.

    ``at_end``: nothing of the last segment is intact after it.
    """

    start: int
    end: int
    path: str
    base: int
    position: int
    size: int
    reason: str
    at_end: bool = False


def find_damage(vfs: Vfs, listing: Listing, high_watermark: int) -> Iterator[Damage]:
    """Every damage below the high watermark, in order. Reads every byte of the log."""
    reached = 0
    for base in listing.bases:
        if base < reached or base >= high_watermark:
            continue  # its records stand in the segment before it, or nobody has seen them
        following = listing.following(base)
        end = high_watermark if following is None else min(following, high_watermark)
        with open_source(vfs, listing.path(base), _WINDOW_BYTES) as source:
            for damage in _joined(_in_segment(source, base, end)):
                last = following is None and damage.position + damage.size == source.size
                yield damage._replace(path=listing.path(base), at_end=last)
            with suppress(BrokenFrameError):
                reached = max(reached, _end_of(source, base))


def hole(damage: Damage) -> bytes:
    """A frame without records in the place of the damage, with the same number of bytes.

    Only at the end of a file it may be longer, because a frame has at least 72 bytes.
    """
    padded = damage.size + -damage.size % 8
    body = bytes(max(padded, HEADER_BYTES + TRAILER_BYTES) - HEADER_BYTES - TRAILER_BYTES)
    relative = damage.start - damage.base
    header = FrameHeader(
        columns=0,
        codec=0,
        timestamp_type=TIMESTAMP_SUPPLIED,
        length=frame_length(len(body)),
        records=0,
        relative_offset=relative,
        recovery_point=relative,
        min_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        body_length=len(body),
        raw_length=len(body),
        span=damage.end - damage.start,
    )
    found = pack_header(header) + body + TRAILER.pack(crc32c(body), header.length)
    unpack_header(found)  # raises if no frame can be so long
    return found


def _in_segment(source: Source, base: int, end: int) -> Iterator[Damage]:
    here = OffsetPosition(base, 0)
    while here.offset < end:
        reason = "a file is missing, or its end"
        try:
            for frame in walk_frames(source, base, at=here, bodies=True):
                here = OffsetPosition(frame.end_offset, frame.end_position)
                if here.offset >= end:
                    return
        except BrokenFrameError as error:
            reason = str(error)
        after = _after(source, base, here, end) or OffsetPosition(end, source.size)
        if after.offset > here.offset:
            size = after.position - here.position
            yield Damage(here.offset, after.offset, "", base, here.position, size, reason)
        here = after


def _after(source: Source, base: int, at: OffsetPosition, end: int) -> OffsetPosition | None:
    """Where the log goes on after damage at a place; None if nothing after it is intact."""
    with suppress(BrokenFrameError):
        header = unpack_header(source.read(at.position, HEADER_BYTES))
        after = OffsetPosition(at.offset + header.span, at.position + header.length)
        if (
            base + header.relative_offset == at.offset
            and after.position <= source.size
            and after.offset <= end
        ):
            return after
    for frame in sound_frames_after(source, at.position):
        found = OffsetPosition(base + frame.offset, frame.position)
        if at.offset < found.offset < end and (
            _leads_back(source, frame.position, at.position) or _is_sound(source, base, found, end)
        ):
            return found
    return None


def _leads_back(source: Source, position: int, wanted: int) -> bool:
    """Whether the lengths at the end of frames lead from a position back to the wanted one."""
    while position > wanted:
        length = int.from_bytes(source.read(position - _LENGTH_BYTES, _LENGTH_BYTES), "big")
        if length < HEADER_BYTES + TRAILER_BYTES or length % 8:
            return False
        position -= length
    return position == wanted


def _is_sound(source: Source, base: int, at: OffsetPosition, end: int) -> bool:
    """Whether all frames from a place to the offset ``end`` are; a torn tail may follow them."""
    try:
        for _ in walk_frames(source, base, at=at, bodies=True):
            pass
    except BrokenFrameError as error:
        return error.offset is not None and error.offset >= end
    return True


def _end_of(source: Source, base: int) -> int:
    end = base
    for frame in walk_frames(source, base, bodies=False):
        end = frame.end_offset
    return end


def _joined(found: Iterator[Damage]) -> Iterator[Damage]:
    """Damage that follows other damage at once is one."""
    waiting: Damage | None = None
    for damage in found:
        if waiting is None:
            waiting = damage
        elif waiting.end == damage.start and damage.end - waiting.start <= MAX_SPAN:
            waiting = waiting._replace(end=damage.end, size=waiting.size + damage.size)
        else:
            yield waiting
            waiting = damage
    if waiting is not None:
        yield waiting
