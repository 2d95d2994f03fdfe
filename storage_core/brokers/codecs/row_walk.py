"""Rows walked many at a time: numpy lanes in lock-step, one lane per entry point.

A chain of length-prefixed records can only be followed, but a sparse index gives many places to
start from. All lanes take one step (one record) per turn, so a turn is a handful of numpy calls
however many lanes there are. Entry points are hints: a lane counts only if the lane before it ended
exactly where it begins, and whatever lies between such lanes is walked again by the scalar walker.
The result is therefore always that of ``rows.walk_scalar``, whatever the entries say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...types import Int64s
from .even_rows import walk_even
from .rows import (
    Data,
    Ending,
    RowFormat,
    Rows,
    Stretch,
    header_type,
    make_rows,
    offsets_at,
    scan,
    unaligned,
    walk_scalar,
)

# The lanes still walking, where each stands, and the header it finds there.
Turn = tuple[Int64s, Int64s, npt.NDArray[np.void]]

# A turn costs some ten numpy calls, which is what the scalar walker needs for about 32 records.
_FEW_LANES = 32
# Lanes walked together: enough to make the calls cheap, few enough for their positions to stay in
# the processor's cache.
_BLOCK_LANES = 2048
# A run of bytes that fits the cache is brought there in one pass, which is faster still.
_CACHE_BYTES = 1 << 20
# A few long lanes get this many turns more before the scalar walker takes over.
_PATIENCE = 16


def walk_lanes(data: Data, start: int, limit: int, fmt: RowFormat, entries: Int64s) -> Rows:
    """Walk the records from ``start`` to ``limit``; equal to ``walk_scalar``, only faster.

    Args:
        data: the bytes; positions count from their beginning.
        start: position of a record.
        limit: where the bytes to look at end.
        fmt: the framing.
        entries: positions where records may begin, in any order and of any quality.
    """
    even = walk_even(data, start, limit, fmt)
    if even is not None:
        return even
    marks = _marks(entries, start, limit - fmt.header_bytes)
    if len(marks) <= _FEW_LANES:
        return walk_scalar(data, start, limit, fmt)
    walk = _Walk(data, marks, limit, fmt)
    lane: int | None = 0
    while lane is not None and lane < len(marks) - 1:
        lane = walk.block(lane)
    if lane is not None:
        walk.bridge(lane)
    return walk.rows()


class _Walk:
    """The walk of one run of bytes: pieces of positions, all of them trusted, in order."""

    def __init__(self, data: Data, marks: Int64s, limit: int, fmt: RowFormat) -> None:
        self._view = memoryview(data)
        self._marks = marks
        self._limit = limit
        self._fmt = fmt
        self._positions: list[Int64s] = []
        self._offsets: list[Int64s] = []
        self._last = Stretch([], int(marks[0]), Ending.WHOLE, None)

    def block(self, lane: int) -> int | None:
        """Walk a block of lanes from a trusted one; return the next trusted lane, if any."""
        marks = self._marks[lane : lane + _BLOCK_LANES + 1]
        count = len(marks) - 1
        walked = _step_through(self._view, marks, self._fmt)
        wrong = np.flatnonzero(walked.finals != marks[1:])
        at = 0
        while at < count:
            ahead = np.searchsorted(wrong, at)
            upto = int(wrong[ahead]) if ahead < len(wrong) else count
            part = slice(walked.edges[at], walked.edges[upto])
            self._positions.append(walked.positions[part])
            self._offsets.append(walked.offsets[part])
            at = upto
            if at < count:
                following = self.bridge(lane + at)
                if following is None:
                    return None
                at = following - lane
        return lane + at

    def bridge(self, lane: int) -> int | None:
        """Walk by scalar from a trusted lane to the next lane that begins at a record."""
        marks, position = self._marks, int(self._marks[lane])
        following, keep = lane + 1, self._fmt.has_offset
        while True:
            at_end = following == len(marks)
            stop = self._limit if at_end else int(marks[following])
            found = scan(self._view, position, stop, self._limit, self._fmt)
            positions = np.array(found.positions, dtype=np.int64)
            self._positions.append(positions)
            self._offsets.append(offsets_at(self._view, positions[: len(positions) * keep]))
            self._last = found
            if at_end or found.ending is not Ending.WHOLE:
                return None
            position = found.end
            following = int(np.searchsorted(marks, position))
            if following < len(marks) and marks[following] == position:
                return following

    def rows(self) -> Rows:
        """All pieces together, cut before the first length that is damage."""
        last, fmt = self._last, self._fmt
        positions = np.concatenate(self._positions)
        offsets = np.concatenate(self._offsets) if fmt.has_offset else None
        rows = make_rows(positions, last.end, fmt, last.ending, last.problem, offsets)
        lengths = rows.lengths
        if not rows.count or fmt.min_payload <= lengths.min() <= lengths.max() <= fmt.max_payload:
            return rows
        # A lane follows any length, so that a turn need not look at it. Here it is looked at.
        bad = int(np.argmax((lengths < fmt.min_payload) | (lengths > fmt.max_payload)))
        position = int(positions[bad])
        cut = scan(self._view, position, position + 1, self._limit, fmt)
        return replace(rows.slice(0, bad), ending=cut.ending, problem=cut.problem)


class _Lanes(NamedTuple):
    """A block after its walk: lane i has ``positions[edges[i]:edges[i + 1]]``, ended at finals.

    ``offsets`` go with the positions; they are empty where the format has none.
    """

    positions: Int64s
    offsets: Int64s
    edges: Int64s
    finals: Int64s


def _step_through(data: Data, marks: Int64s, fmt: RowFormat) -> _Lanes:
    """Walk each lane from its mark until it reaches or passes the next one."""
    octets = np.frombuffer(data, dtype=np.uint8)
    headers, kind = unaligned(data, f"V{fmt.header_bytes}"), header_type(fmt)
    cached = marks[-1] - marks[0] <= _CACHE_BYTES
    if cached:
        octets[marks[0] : marks[-1] : 64].max()
    lanes = len(marks) - 1
    at, stops, names = marks[:-1], marks[1:], np.arange(lanes)
    counts = np.zeros(lanes, dtype=np.int64)
    finals = np.full(lanes, -1, dtype=np.int64)
    turns: list[Turn] = []
    patience = _PATIENCE
    while len(at) and patience:
        # Every header is a cache miss. This tight loop has many of them under way at once; the
        # unaligned gather after it, which could not, then finds its bytes in the cache.
        if not cached:
            octets.take(at, mode="clip")
        header = headers[at].view(kind)
        turns.append((names, at, header))
        at = at + header["length"].astype(np.int64)
        at += fmt.header_bytes
        alive = at < stops
        if np.count_nonzero(alive) < len(alive):
            done = names[~alive]
            finals[done] = at[~alive]
            counts[done] = len(turns)
            at, stops, names = at[alive], stops[alive], names[alive]
        if len(at) < _FEW_LANES:
            patience -= 1
    counts[names] = len(turns)
    return _by_lane(turns, counts, finals, fmt)


def _by_lane(turns: list[Turn], counts: Int64s, finals: Int64s, fmt: RowFormat) -> _Lanes:
    """Bring what was found turn by turn into the order of lanes, which is that of the file."""
    edges = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=edges[1:])
    positions = np.empty(edges[-1], dtype=np.int64)
    offsets = np.empty(edges[-1] if fmt.has_offset else 0, dtype=np.int64)
    for turn, (names, at, header) in enumerate(turns):
        places = (edges[:-1] if len(names) == len(counts) else edges[names]) + turn
        positions[places] = at
        if fmt.has_offset:
            offsets[places] = header["offset"].astype(np.int64)
    return _Lanes(positions, offsets, edges, finals)


def _marks(entries: Int64s, start: int, last: int) -> Int64s:
    """``start`` and the entries after it where a whole header may stand, strictly rising."""
    marks = np.asarray(entries, dtype=np.int64)
    if len(marks) > 1 and not (marks[1:] > marks[:-1]).all():
        marks = np.unique(marks)
    first, stop = np.searchsorted(marks, (start, last), side="right")
    return np.concatenate((np.array([start], dtype=np.int64), marks[first:stop]))


class Count(NamedTuple):
    """What an unindexed file holds; ``entries`` are positions of every so many-th record."""

    records: int
    end: int
    ending: Ending
    problem: str | None
    entries: Int64s


def walk_many(datas: Sequence[Data], fmt: RowFormat, *, every: int = 16) -> list[Count]:
    """Count the records of many unindexed files, each one lane, without copying them.

    Counting 1 GB in files of 1 MiB costs less than reading the payloads does. The entries make
    every later read an indexed one.

    Args:
        datas: the files' bytes. Each starts with a record.
        fmt: the framing.
        every: how many records apart the entries are, beginning with record 0.
    """
    counts, ends = np.zeros((2, len(datas)), dtype=np.int64)
    sizes = np.array([len(data) for data in datas], dtype=np.int64)
    names = np.flatnonzero(sizes >= 2 * fmt.header_bytes)
    sampled = [(names[:0], names[:0])]
    if len(names) > _FEW_LANES:
        memory, bases = _address_space([datas[int(name)] for name in names])
        at, last = bases, bases + sizes[names] - fmt.header_bytes
        octets, words = np.frombuffer(memory, dtype=np.uint8), unaligned(memory, ">u4")
        turn = 0
        while len(at) > _FEW_LANES:
            if turn % every == 0:
                sampled.append((names, at - bases))
            octets.take(at, mode="clip")
            length = words[at].astype(np.int64)
            following = at + length + fmt.header_bytes
            # A file leaves before a record that may be its last or no record at all: what is left
            # of it, and how it ends, is the scalar walker's.
            going = following <= last
            going &= (length >= fmt.min_payload) & (length <= fmt.max_payload)
            if np.count_nonzero(going) < len(going):
                gone = names[~going]
                counts[gone], ends[gone] = turn, (at - bases)[~going]
                following, last = following[going], last[going]
                bases, names = bases[going], names[going]
            at = following
            turn += 1
        counts[names], ends[names] = turn, at - bases
    return [
        _finish_count(data, int(count), int(end), entries, fmt, every)
        for data, count, end, entries in zip(
            datas, counts, ends, _by_file(sampled, len(datas)), strict=True
        )
    ]


def _address_space(datas: Sequence[Data]) -> tuple[pa.Buffer, Int64s]:
    """One buffer from the lowest to the highest byte of all ``datas``, and where each begins in it.

    Numpy gathers from one array only, and copying the files together would cost as much as the
    walk. Between the files lies memory that is not ours: only positions inside them may be read.
    """
    views = [np.frombuffer(data, dtype=np.uint8) for data in datas]
    starts = np.array([view.__array_interface__["data"][0] for view in views], dtype=np.int64)
    ends = starts + np.array([len(view) for view in views], dtype=np.int64)
    lowest = int(starts.min())
    return pa.foreign_buffer(lowest, int(ends.max()) - lowest, views), starts - lowest


def _by_file(sampled: Sequence[tuple[Int64s, Int64s]], count: int) -> list[Int64s]:
    """Sampled positions gathered per file."""
    names, positions = (np.concatenate(column) for column in zip(*sampled, strict=True))
    order = np.argsort(names, kind="stable")
    edges = np.searchsorted(names[order], np.arange(1, count))
    return np.split(positions[order], edges) if count else []


def _finish_count(
    data: Data, count: int, end: int, entries: Int64s, fmt: RowFormat, every: int
) -> Count:
    """Walk what the lanes left of one file."""
    found = scan(memoryview(data), end, len(data), len(data), fmt)
    first = len(entries) * every - count
    more = np.array(found.positions[first::every], dtype=np.int64)
    total = count + len(found.positions)
    # A lane is sampled before its record is looked at, so the last one may be none.
    entries = np.concatenate((entries, more))[: -(-total // every)]
    return Count(total, found.end, found.ending, found.problem, entries)
