"""Where the records of many batches begin: one step of all batches at a time.

A record begins with its length, so inside a batch only the one before leads to it. All batches step
together: a step is a handful of numpy calls for any number of batches. Batches with many records
would take many steps for little, so they are entered at several places. Such a place is a guess: a
record is there whose fields fill it exactly, and another one follows. A guess counts only if the
records before it lead there. Otherwise the batch is walked from its beginning alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...types import Int64s
from .varints import FAR, PADDING, SIZES, VALUES, Bools, Varints

# A walker takes about as many steps; more walkers cost more guesses.
_STEPS = 96
# Bytes of a window in which a record is looked for, in records of average length.
_WINDOW_RECORDS, _LEAST_WINDOW, _MOST_WINDOW = 2, 32, 1 << 16
_LEAST_RECORD, _MOST_RECORD = 6, (1 << 31) - 1
# By the first two bytes: bytes from the start of a record to the next, 0 where two do not tell.
_JUMPS = np.where((VALUES >= _LEAST_RECORD) & (SIZES > 0), VALUES + SIZES, 0).astype(np.int32)


class Areas(NamedTuple):
    """Where the records of some batches stand: first byte, byte after the last, their number."""

    starts: Int64s
    ends: Int64s
    counts: Int64s


def walk_records(numbers: Varints, areas: Areas) -> tuple[Int64s, Bools]:
    """Positions of all records, batch after batch, and which batches are sound.

    A sound batch has as many records as its header says, and they fill it. Of others there are
    no positions.
    """
    starts, ends, owners = _walkers(numbers, areas)
    most = int(areas.counts.max(initial=0))
    positions, counts, finals = _step_through(numbers, starts, ends, most)
    totals = np.bincount(owners, weights=counts, minlength=len(areas.counts)).astype(np.int64)
    sound = totals == areas.counts
    sound[owners[finals != ends]] = False
    if sound.all():
        return positions, sound
    # Guesses among them may be false, or the batch itself is. One walker a batch tells.
    wrong = np.flatnonzero(~sound)
    found, again, finals = _step_through(numbers, areas.starts[wrong], areas.ends[wrong], most)
    sound[wrong] = (finals == areas.ends[wrong]) & (again == areas.counts[wrong])
    pieces = np.split(positions, np.cumsum(totals)[:-1])
    for batch, piece in zip(wrong.tolist(), np.split(found, np.cumsum(again)[:-1]), strict=True):
        pieces[batch] = piece if sound[batch] else piece[:0]
    return np.concatenate(pieces), sound


def _walkers(numbers: Varints, areas: Areas) -> tuple[Int64s, Int64s, Int64s]:
    """Where walkers start and stop, and the batch of each."""
    batches = np.arange(len(areas.starts))
    # What a header claims may be more than fits: a record takes 7 bytes with its length.
    counts = np.minimum(areas.counts, (areas.ends - areas.starts) // (_LEAST_RECORD + 1))
    large = np.flatnonzero(counts > 2 * _STEPS)
    if not len(large):
        return areas.starts, areas.ends, batches
    guesses, owners = _guess(numbers, areas._replace(counts=counts), large)
    starts = np.concatenate((areas.starts, guesses))
    owners = np.concatenate((batches, owners))
    order = np.argsort(starts, kind="stable")
    starts, owners = starts[order], owners[order]
    ends = np.append(starts[1:], 0)
    last = np.append(owners[1:] != owners[:-1], True)
    ends[last] = areas.ends[owners[last]]
    return starts, ends, owners


def _step_through(
    numbers: Varints, starts: Int64s, ends: Int64s, most: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Let a walker go from each start to each end; positions in the order of walkers.

    With them the number of records of each walker, and where it stopped: at its end, or elsewhere
    if not more than ``most`` records lead there.
    """
    pairs = numbers.pairs
    counts, finals = np.zeros(len(starts), dtype=np.int64), starts.copy()
    names, at, stop = np.arange(len(starts)), starts, ends
    steps: list[tuple[Int64s, Int64s]] = []
    while True:
        going = at < stop
        if len(steps) == most:
            going[:] = False
        if not going.all():
            gone = names[~going]
            counts[gone], finals[gone] = len(steps), at[~going]
            names, at, stop = names[going], at[going], stop[going]
        if not len(names):
            break
        jumps = _JUMPS[pairs[at]].astype(np.int64)
        if not jumps.all():
            unknown = np.flatnonzero(jumps == 0)
            jumps[unknown] = _long_jumps(numbers, at[unknown])
        steps.append((names, at))
        at = at + jumps
    return _in_order(steps, counts), counts, finals


def _long_jumps(numbers: Varints, at: Int64s) -> Int64s:
    """The same for lengths of three bytes and more; of what is no length, past everything."""
    lengths, after = numbers.read(at)
    possible = (lengths >= _LEAST_RECORD) & (lengths <= _MOST_RECORD) & (after < FAR)
    jumps: Int64s = np.where(possible, after - at + lengths, FAR - at)
    return jumps


def _in_order(steps: list[tuple[Int64s, Int64s]], counts: Int64s) -> Int64s:
    edges = np.cumsum(counts) - counts
    positions = np.empty(int(counts.sum()), dtype=np.int64)
    for step, (names, at) in enumerate(steps):
        positions[edges[names] + step] = at
    return positions


def _guess(numbers: Varints, areas: Areas, large: Int64s) -> tuple[Int64s, Int64s]:
    """Places in large batches where records seem to begin, and the batch of each, in order."""
    starts, sizes = areas.starts[large], areas.ends[large] - areas.starts[large]
    parts = areas.counts[large] // _STEPS
    # Part k of n of each batch, without the first.
    owner = np.repeat(np.arange(len(large)), parts - 1)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(parts - 1) - (parts - 1), parts - 1) + 1
    places = starts[owner] + sizes[owner] * number // parts[owner]
    window = np.clip(_WINDOW_RECORDS * sizes // areas.counts[large], _LEAST_WINDOW, _MOST_WINDOW)[
        owner
    ]
    window = np.minimum(window, areas.ends[large][owner] - places)
    which = np.repeat(np.arange(len(places)), window)
    offsets = np.arange(len(which)) - np.repeat(np.cumsum(window) - window, window)
    candidates, ends = places[which] + offsets, areas.ends[large][owner][which]
    chosen = _plausible(numbers, candidates, ends)
    which, first = np.unique(which[chosen], return_index=True)
    return candidates[chosen][first], large[owner[which]]


def _plausible(numbers: Varints, at: Int64s, ends: Int64s) -> Int64s:
    """Which places may be records that are followed by another one."""
    jumps = _JUMPS[numbers.pairs[at]]
    rows = np.flatnonzero((jumps > 0) & (at + jumps < ends))
    following = at[rows] + jumps[rows]
    deltas, fits = _fits(numbers, at[rows], following)
    rows, at, deltas = rows[fits], following[fits], deltas[fits]
    jumps = _JUMPS[numbers.pairs[at]]
    kept = (jumps > 0) & (at + jumps <= ends[rows])
    rows, at, deltas = rows[kept], at[kept], deltas[kept]
    after, fits = _fits(numbers, at, at + jumps[kept])
    found: Int64s = rows[fits & (after > deltas)]
    return found


def _fits(numbers: Varints, at: Int64s, stops: Int64s) -> tuple[Int64s, Bools]:
    """Offset deltas of records, and whether the fields of each fill it exactly."""
    last = len(numbers.data) - PADDING
    at = at + SIZES[numbers.pairs[at]]
    fits = numbers.data[at] == 0  # attributes
    _, at = numbers.read(np.minimum(at + 1, last))
    deltas, at = numbers.read(np.minimum(at, last))
    fits &= deltas >= 0
    for _ in ("key", "value"):
        lengths, at = numbers.read(np.minimum(at, last))
        fits &= (lengths >= -1) & (at < stops)
        at = at + np.clip(lengths, 0, last)
    headers, at = numbers.read(np.minimum(at, last))
    filled = np.where(headers == 0, at == stops, at + 2 * headers <= stops)
    return deltas, fits & (headers >= 0) & filled
