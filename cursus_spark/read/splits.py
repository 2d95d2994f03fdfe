"""Divides the segments of a read into tasks, by their sizes and sparse indexes; reads no file.

A Spark task costs 60 to 90 ms whatever it does, so there is not one task for each segment. All
splits are put in a line, in the order of topic, partition and offset. The line is cut into tasks of
about equal weight, so large segments are divided, and small neighbours share a task. A cut is made
at the edge of a split if one is near, so that no task opens a file for a small rest of it; else at
an entry of the sparse index.

Two kinds of cuts are made between index entries, at exact records: those for ``max_records``, which
is a promise, and those for ``min_partitions`` if the index has too few entries. The reader of such
a split starts at the entry before and skips records.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from storage_core.types import Int64s

from ..options.read_options import DEFAULT_MAX_BYTES_PER_PARTITION
from .backlog_shares import share_by_backlog
from .log_slice import SegmentSplit

MIB = 1 << 20
# To read this much takes about as long as to start a task: below it, more tasks do not help.
_WORTH_A_TASK = 16 * MIB
# Nor for these records: compressed ones stand in few bytes, and take as long as others.
_RECORDS_WORTH_A_TASK = 250_000
# The cost of opening a file, in bytes that could be read in that time.
_OPEN_COST = 64 * 1024
# Tasks may exceed their share by this fraction, to end at the edge of a split.
_TOLERANCE = 1 / 16
# Up to this number, all tasks get the same work, so that none is waited for. More tasks are cut at
# the edges of splits, if that leaves them half full: indexes of 100,000 segments take long to load.
_FEW_TASKS, _HALF_FULL = 64, 1 / 2
# Spark cannot schedule more tasks in reasonable time; a limit of a few bytes could ask for them. It
# does not bound tasks that the user asks for by number of records.
_MOST_TASKS = 100_000


class CutPoints(NamedTuple):
    """Entries of a segment's sparse index, ascending: a record's offset and its position."""

    offsets: Int64s
    positions: Int64s


class _Line(NamedTuple):
    """All splits in a line.

    ``records`` and ``weights`` are running sums, with one element more than there are splits. The
    weight of a split is the cost of opening it, then its bytes.
    """

    splits: list[SegmentSplit]
    open_cost: int
    records: Int64s
    weights: Int64s
    cuts: Callable[[SegmentSplit], CutPoints]


def plan_tasks(
    splits: Sequence[SegmentSplit],
    *,
    cuts: Callable[[SegmentSplit], CutPoints],
    max_bytes: int = DEFAULT_MAX_BYTES_PER_PARTITION,
    min_partitions: int | None = None,
    max_records: int | None = None,
    parallelism: int = 1,
    arrange: Callable[[list[SegmentSplit]], list[SegmentSplit] | None] = lambda _: None,
) -> list[list[SegmentSplit]]:
    """Cut splits into tasks.

    Args:
        splits: What to read, in any order; at most one split of a segment. Empty ones are dropped.
        cuts: Loads the index entries of a split. Called once for each split that is cut: most
            indexes of a large topic are never read.
        max_bytes: Approximate maximum of bytes per task, as far as the index allows.
        min_partitions: Minimum number of tasks, if there are as many records.
        max_records: Maximum number of records per task, counted as offsets.
        parallelism: Number of cores to use, if there is enough to read.
        arrange: Another order of the splits, if there is a better one. The splits of a partition
            must stay in the order of their offsets.

    Returns:
        Tasks, and in each task its splits, in the order of topic, partition and offset, or in that
        of ``arrange``.
    """
    kept = [split for split in splits if split.end_offset > split.start_offset]
    kept.sort(key=itemgetter(0, 1, 3))  # topic, partition, start_offset
    if not kept:
        return []
    kept = arrange(kept) or kept
    # No weight is 0: else a split at the end could not be distinguished from the one before.
    line = _lay_out(kept, cuts, max(1, min(_OPEN_COST, max_bytes // 1024)))
    heaviest = max(max_bytes, int(line.weights[-1]) // _MOST_TASKS)
    count = _task_count(line, heaviest, min_partitions, parallelism)
    edges = _cut_by_weight(line, count, heaviest)
    if max_records is not None or min_partitions is not None:
        edges = _cut_by_records(edges, max_records, min_partitions)
    return _tasks(line, edges)


def _lay_out(
    splits: list[SegmentSplit], cuts: Callable[[SegmentSplit], CutPoints], open_cost: int
) -> _Line:
    numbers = np.array([split[3:7] for split in splits], dtype=np.int64)
    records, weights = np.zeros((2, len(splits) + 1), dtype=np.int64)
    np.cumsum(numbers[:, 1] - numbers[:, 0], out=records[1:])
    np.cumsum(numbers[:, 3] - numbers[:, 2] + open_cost, out=weights[1:])
    loaded: dict[str, CutPoints] = {}

    def load_once(split: SegmentSplit) -> CutPoints:
        if split.path not in loaded:
            loaded[split.path] = cuts(split)
        return loaded[split.path]

    return _Line(splits, open_cost, records, weights, load_once)


def _task_count(line: _Line, heaviest: int, min_partitions: int | None, parallelism: int) -> int:
    weight = int(line.weights[-1])
    size = weight - line.open_cost * len(line.splits)
    # The cost of opening files may exceed the limit a little.
    wanted = max(1, -(-size // heaviest), math.ceil(weight / (heaviest * (1 + _TOLERANCE))))
    if wanted > parallelism:
        wanted = -(-wanted // parallelism) * parallelism  # no core idles in the last round
    else:
        worth = max(weight // _WORTH_A_TASK, int(line.records[-1]) // _RECORDS_WORTH_A_TASK)
        wanted = max(wanted, min(parallelism, worth))
    return min(max(wanted, min_partitions or 1), _MOST_TASKS, int(line.records[-1]))


def _cut_by_weight(line: _Line, count: int, heaviest: int) -> Int64s:
    """Positions on the line, counted in records, that divide it into tasks."""
    weights, records = line.weights.tolist(), line.records.tolist()
    fullness = 1 - _TOLERANCE if count <= _FEW_TASKS else _HALF_FULL
    most = heaviest * (1 + _TOLERANCE)
    places, here = [0], 0
    while True:
        # The rest is divided by the tasks that are left, which corrects an uneven cut at once.
        share = min((weights[-1] - here) / max(count - len(places) + 1, 1), most)
        target = here + share
        edge = bisect.bisect_left(weights, target)
        over = weights[edge] - target
        if over > min(share * _TOLERANCE, most - share) or over > target - weights[edge - 1]:
            edge -= 1
        if weights[edge] >= here + share * fullness:
            place, here = records[edge], weights[edge]
        else:
            place, here = _cut_inside(line, edge, here, target)
        if place == records[-1]:
            return np.array([*places, place], dtype=np.int64)
        places.append(place)


def _cut_inside(line: _Line, owner: int, here: int, target: float) -> tuple[int, int]:
    """Record and weight of the cut in a split that is nearest to ``target`` and after ``here``."""
    split = line.splits[owner]
    low, high = int(line.weights[owner]), int(line.weights[owner + 1])
    first = int(line.records[owner])
    offsets, positions = _inner_cuts(split, line.cuts(split))
    zero = low + line.open_cost - split.start_position  # the weight of position 0
    after = int(np.searchsorted(positions, int(target) - zero))
    candidates = [(first, low), (int(line.records[owner + 1]), high)]
    for entry in range(max(after - 1, 0), min(after + 1, len(positions))):
        place = first + int(offsets[entry]) - split.start_offset
        candidates.append((place, zero + int(positions[entry])))
    beyond = [candidate for candidate in candidates if candidate[1] > here]
    return min(beyond, key=lambda candidate: abs(candidate[1] - target))


def _inner_cuts(split: SegmentSplit, cuts: CutPoints) -> CutPoints:
    """The entries strictly inside a split."""
    low = int(np.searchsorted(cuts.offsets, split.start_offset, side="right"))
    high = int(np.searchsorted(cuts.offsets, split.end_offset, side="left"))
    return CutPoints(cuts.offsets[low:high], cuts.positions[low:high])


def _cut_by_records(edges: Int64s, max_records: int | None, min_partitions: int | None) -> Int64s:
    """Divide tasks with too many records, and the largest ones if there are too few tasks."""
    sizes = np.diff(edges)
    parts = np.ones_like(sizes)
    if max_records is not None:
        parts = -(-sizes // max_records)
    if min_partitions is not None and int(parts.sum()) < min_partitions:
        shares = share_by_backlog(dict(enumerate(sizes.tolist())), min_partitions)
        parts = np.maximum(parts, list(shares.values()))
    if int(parts.max()) == 1:
        return edges
    # Part k of n starts at k/n of its task, in whole numbers: no record is between two parts.
    task = np.repeat(np.arange(len(sizes)), parts)
    number = np.arange(len(task)) - np.repeat(np.cumsum(parts) - parts, parts)
    whole, rest = sizes[task] // parts[task], sizes[task] % parts[task]
    inner: Int64s = edges[task] + whole * number + np.minimum(number, rest)
    return np.append(inner, edges[-1])


def _tasks(line: _Line, edges: Int64s) -> list[list[SegmentSplit]]:
    first = np.searchsorted(line.records, edges[:-1], side="right") - 1
    last = np.searchsorted(line.records, edges[1:], side="left") - 1
    starts, ends = edges[:-1] - line.records[first], edges[1:] - line.records[last]
    bounds = zip(first.tolist(), (last + 1).tolist(), strict=True)
    tasks = [line.splits[low:high] for low, high in bounds]
    # Ends first: a split may be cut at both ends, and both lengths count from its start.
    for number in np.flatnonzero(edges[1:] < line.records[last + 1]).tolist():
        tasks[number][-1] = _cut_end(line, tasks[number][-1], int(ends[number]))
    for number in np.flatnonzero(starts).tolist():
        tasks[number][0] = _cut_start(line, tasks[number][0], int(starts[number]))
    return tasks


def _cut_end(line: _Line, split: SegmentSplit, length: int) -> SegmentSplit:
    """The first records of a split."""
    offset = split.start_offset + length
    offsets, positions = line.cuts(split)
    entry = int(np.searchsorted(offsets, offset, side="left"))
    known = entry < len(offsets) and int(positions[entry]) < split.end_position
    position = int(positions[entry]) if known else split.end_position
    return split._replace(end_offset=offset, end_position=position)


def _cut_start(line: _Line, split: SegmentSplit, length: int) -> SegmentSplit:
    """A split without its first records."""
    offset = split.start_offset + length
    offsets, positions = line.cuts(split)
    entry = int(np.searchsorted(offsets, offset, side="right")) - 1
    if entry < 0 or int(positions[entry]) <= split.start_position:
        return split._replace(start_offset=offset)
    return split._replace(start_offset=offset, start_position=int(positions[entry]))
