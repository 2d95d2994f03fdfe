"""Rows walked many at a time with numpy: a vectorised walk of length-prefixed records.

Records of one size come first: ``walk_even`` compares all their headers at once. Sensors, counters
and packed structs write such records. If every header at a fixed step has the same length,
following the lengths one by one leads through exactly these places, so that is proof, not a guess.

All other records can only be followed from one to the next, but a sparse index gives many places to
start from. Each entry starts a walker. All walkers take one step (one record) per turn, so a turn
is a handful of numpy calls for any number of walkers. Entries are hints: a walker counts only if
the walker before it ended exactly where it began, and the scalar walk covers what lies between. The
result is therefore always that of ``rows.walk_scalar``, whatever the entries say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...types import Int64s
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

# The walkers of a turn, the position of each, and the header there.
Turn = tuple[Int64s, Int64s, npt.NDArray[np.void]]

# A turn costs some ten numpy calls. The scalar walk does about 32 records in that time.
_FEW_WALKERS = 32
# Walkers of one block: enough to make the calls cheap, few enough for their positions to stay in
# the processor's cache.
_BLOCK_WALKERS = 2048
# Bytes that fit the cache are brought there in one pass, which is faster still.
_CACHE_BYTES = 1 << 20
# A few walkers with long ways get this many turns more before the scalar walk takes over.
_LAST_TURNS = 16
# An even walk needs this many records, looks at this many first, and lets this many last differ.
_SAMPLE = 64
# In a file without an index: how far apart records are looked for, and in how many bytes.
_GUESS_BYTES, _LOOKED_BYTES = 64 << 10, 8 << 10


def walk_indexed(data: Data, start: int, limit: int, fmt: RowFormat, entries: Int64s) -> Rows:
    """Walk the records from ``start`` to ``limit``; the result is that of ``walk_scalar``.

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
    starts = _starts(entries, start, limit - fmt.header_bytes)
    if len(starts) <= _FEW_WALKERS:
        return walk_scalar(data, start, limit, fmt)
    walk = _Walk(data, starts, limit, fmt)
    walker: int | None = 0
    while walker is not None and walker < len(starts) - 1:
        walker = walk.block(walker)
    if walker is not None:
        walk.bridge(walker)
    return walk.rows()


def walk_even(data: Data, start: int, limit: int, fmt: RowFormat) -> Rows | None:
    """The same as ``walk_scalar`` where almost all records have one length; else None.

    Only a few at the end may differ, which are walked by scalar.
    """
    view = memoryview(data)
    count, step = _even(view, start, limit, fmt)
    if not count:
        return None
    positions = np.arange(start, start + count * step, step, dtype=np.int64)
    end = start + count * step
    offsets = None
    if fmt.has_offset:
        words = np.ndarray((count,), ">u8", buffer=view, offset=start + 4, strides=(step,))
        offsets = words.astype(np.int64)
    if end == limit:
        return make_rows(positions, end, fmt, Ending.WHOLE, None, offsets)
    rest = walk_scalar(data, end, limit, fmt)
    positions = np.concatenate((positions, rest.positions))
    if offsets is not None:
        offsets = np.concatenate((offsets, offsets_at(view, rest.positions)))
    return make_rows(positions, rest.end, fmt, rest.ending, rest.problem, offsets)


def _even(view: memoryview, start: int, limit: int, fmt: RowFormat) -> tuple[int, int]:
    """How many records of one length come first, and the step from one to the next.

    0 if there are few, or if more than a few follow them.
    """
    if limit - start < fmt.header_bytes:
        return 0, 1
    length = int.from_bytes(view[start : start + 4], "big")
    step = fmt.header_bytes + length
    count = (limit - start) // step
    if count < _SAMPLE or not fmt.min_payload <= length <= fmt.max_payload:
        return 0, step
    found = np.ndarray((count,), ">u4", buffer=view, offset=start, strides=(step,))
    if not (found[:_SAMPLE] == length).all():
        return 0, step
    same = found == length
    if not same[: max(_SAMPLE, count - _SAMPLE)].all():
        return 0, step
    return (count if same.all() else int(np.argmin(same))), step


class _Walk:
    """The walk of some bytes: pieces of positions, all of them trusted, in order."""

    def __init__(self, data: Data, starts: Int64s, limit: int, fmt: RowFormat) -> None:
        self._view = memoryview(data)
        self._starts = starts
        self._limit = limit
        self._fmt = fmt
        self._positions: list[Int64s] = []
        self._offsets: list[Int64s] = []
        self._last = Stretch([], int(starts[0]), Ending.WHOLE, None)

    def block(self, walker: int) -> int | None:
        """Run a block of walkers from a trusted one; return the next trusted walker, if any."""
        starts = self._starts[walker : walker + _BLOCK_WALKERS + 1]
        count = len(starts) - 1
        walked = _step_through(self._view, starts, self._fmt)
        wrong = np.flatnonzero(walked.finals != starts[1:])
        at = 0
        while at < count:
            ahead = np.searchsorted(wrong, at)
            upto = int(wrong[ahead]) if ahead < len(wrong) else count
            part = slice(walked.edges[at], walked.edges[upto])
            self._positions.append(walked.positions[part])
            self._offsets.append(walked.offsets[part])
            at = upto
            if at < count:
                following = self.bridge(walker + at)
                if following is None:
                    return None
                at = following - walker
        return walker + at

    def bridge(self, walker: int) -> int | None:
        """Walk by scalar from a trusted walker to the next that starts at a record."""
        starts, position = self._starts, int(self._starts[walker])
        following, keep = walker + 1, self._fmt.has_offset
        while True:
            at_end = following == len(starts)
            stop = self._limit if at_end else int(starts[following])
            found = scan(self._view, position, stop, self._limit, self._fmt)
            positions = np.array(found.positions, dtype=np.int64)
            self._positions.append(positions)
            self._offsets.append(offsets_at(self._view, positions[: len(positions) * keep]))
            self._last = found
            if at_end or found.ending is not Ending.WHOLE:
                return None
            position = found.end
            following = int(np.searchsorted(starts, position))
            if following < len(starts) and starts[following] == position:
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
        # A walker follows any length, to keep turns cheap. Lengths are checked here.
        bad = int(np.argmax((lengths < fmt.min_payload) | (lengths > fmt.max_payload)))
        position = int(positions[bad])
        cut = scan(self._view, position, position + 1, self._limit, fmt)
        return replace(rows.slice(0, bad), ending=cut.ending, problem=cut.problem)


class _Walked(NamedTuple):
    """A block after its walk: walker i saw ``positions[edges[i]:edges[i + 1]]``, ended at finals.

    ``offsets`` go with the positions; they are empty where the format has none.
    """

    positions: Int64s
    offsets: Int64s
    edges: Int64s
    finals: Int64s


def _step_through(data: Data, starts: Int64s, fmt: RowFormat) -> _Walked:
    """Let each walker go from its start until it reaches or passes the next one's."""
    octets = np.frombuffer(data, dtype=np.uint8)
    headers, kind = unaligned(data, f"V{fmt.header_bytes}"), header_type(fmt)
    cached = starts[-1] - starts[0] <= _CACHE_BYTES
    if cached:
        octets[starts[0] : starts[-1] : 64].max()
    count = len(starts) - 1
    at, stops, names = starts[:-1], starts[1:], np.arange(count)
    counts = np.zeros(count, dtype=np.int64)
    finals = np.full(count, -1, dtype=np.int64)
    turns: list[Turn] = []
    turns_left = _LAST_TURNS
    while len(at) and turns_left:
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
        if len(at) < _FEW_WALKERS:
            turns_left -= 1
    counts[names] = len(turns)
    return _in_file_order(turns, counts, finals, fmt)


def _in_file_order(turns: list[Turn], counts: Int64s, finals: Int64s, fmt: RowFormat) -> _Walked:
    """What was found turn by turn, in the order of walkers, which is that of the file."""
    edges = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=edges[1:])
    positions = np.empty(edges[-1], dtype=np.int64)
    offsets = np.empty(edges[-1] if fmt.has_offset else 0, dtype=np.int64)
    for turn, (names, at, header) in enumerate(turns):
        places = (edges[:-1] if len(names) == len(counts) else edges[names]) + turn
        positions[places] = at
        if fmt.has_offset:
            offsets[places] = header["offset"].astype(np.int64)
    return _Walked(positions, offsets, edges, finals)


def _starts(entries: Int64s, start: int, last: int) -> Int64s:
    """``start`` and the entries after it where a whole header may stand, strictly rising."""
    starts = np.asarray(entries, dtype=np.int64)
    if len(starts) > 1 and not (starts[1:] > starts[:-1]).all():
        starts = np.unique(starts)
    first, stop = np.searchsorted(starts, (start, last), side="right")
    return np.concatenate((np.array([start], dtype=np.int64), starts[first:stop]))


class Count(NamedTuple):
    """What an unindexed file holds; ``entries`` are the positions of every n-th record."""

    records: int
    end: int
    ending: Ending
    problem: str | None
    entries: Int64s


def walk_files(
    datas: Sequence[Data], fmt: RowFormat, *, every: int = 16, prefix: bytes = b""
) -> list[Count]:
    """Count the records of many unindexed files, a walker for each, without copying them.

    Counting 1 GB in files of 1 MiB costs less than reading the payloads does. The entries make
    every later read an indexed one.

    Args:
        datas: the files' bytes. Each starts with a record.
        fmt: the framing.
        every: how many records apart the entries are, beginning with record 0.
        prefix: what payloads begin with, if that is known. A large file is then walked from many
            guessed places; a guess has to prove itself as an index entry has.
    """
    counts, ends = np.zeros((2, len(datas)), dtype=np.int64)
    sizes = np.array([len(data) for data in datas], dtype=np.int64)
    sampled, uneven = [(counts[:0], counts[:0])], list[int]()
    for name, data in enumerate(datas):
        even, step = _even(memoryview(data), 0, len(data), fmt)
        counts[name], ends[name] = even, even * step
        if even:
            positions = np.arange(0, even * step, step * every, dtype=np.int64)
            sampled.append((np.full(len(positions), name), positions))
        elif prefix and sizes[name] >= _FEW_WALKERS * _GUESS_BYTES:
            guesses = _guesses(memoryview(data), prefix, fmt)
            rows = walk_indexed(data, 0, len(data), fmt, guesses)
            counts[name], ends[name] = rows.count, rows.end
            positions = rows.positions[::every]
            sampled.append((np.full(len(positions), name), positions))
        elif sizes[name] >= 2 * fmt.header_bytes:
            uneven.append(name)
    names = np.array(uneven, dtype=np.int64)
    if len(names) > _FEW_WALKERS:
        memory, bases = _address_space([datas[int(name)] for name in names])
        at, last = bases, bases + sizes[names] - fmt.header_bytes
        octets, words = np.frombuffer(memory, dtype=np.uint8), unaligned(memory, ">u4")
        turn = 0
        while len(at) > _FEW_WALKERS:
            if turn % every == 0:
                sampled.append((names, at - bases))
            octets.take(at, mode="clip")
            length = words[at].astype(np.int64)
            following = at + length + fmt.header_bytes
            # A file leaves before a record that may be its last or no record at all: what is left
            # of it, and how it ends, is for the scalar walk.
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


def _guesses(view: memoryview, prefix: bytes, fmt: RowFormat) -> Int64s:
    """Places where a record may begin, because its payload would begin as all do."""
    step = max(_GUESS_BYTES, len(view) // _BLOCK_WALKERS)
    found = [
        start + at - fmt.header_bytes
        for start in range(step, len(view), step)
        if (at := bytes(view[start : start + _LOOKED_BYTES]).find(prefix)) >= 0
    ]
    return np.array(found, dtype=np.int64)


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
    """Walk what the walkers left of one file."""
    found = scan(memoryview(data), end, len(data), len(data), fmt)
    first = len(entries) * every - count
    more = np.array(found.positions[first::every], dtype=np.int64)
    total = count + len(found.positions)
    # A position is sampled before its record is checked, so the last one may be no record.
    entries = np.concatenate((entries, more))[: -(-total // every)]
    return Count(total, found.end, found.ending, found.problem, entries)
