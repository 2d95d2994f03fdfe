"""Moving slices out of the state into manifests, and small manifests into larger ones.

It is one commit. So all readers agree on the archive, nothing is moved twice, and what holds for
data holds for manifests: none is deleted that the state names.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...types import Int64s
from ...vfs import Vfs
from ..backend import ObjectBackend
from ..names import MANIFEST_SUFFIX, new_key
from ..slices import Slice
from ..state import Commit, LogState, PartitionState
from .archive import Archive, Manifest, ManifestReader, ranges_of
from .block import BASE, END, PARTITION, SliceColumns, columns_of, encode_manifest, joined

# A checkpoint with this number of slices is read in some milliseconds.
LOADED_SLICES = 512
_FAN, _LARGEST_MERGE = 8, 1 << 17
# This number of slices may hide others in manifests, before these are written again.
_MOST_HIDING = 1 << 16


class Move(NamedTuple):
    """A planned move: the archive after it, and what it takes out of the state, by partition."""

    based_on: tuple[Manifest, ...]
    manifests: tuple[Manifest | str, ...]
    moved: tuple[frozenset[Slice], ...]

    def commit(self, state: LogState, reader: ManifestReader, now: str) -> Commit | None:
        """The commit on top of a state; None if what it would take out has changed since."""
        if state.deleted or not _same(state.manifests, self.based_on):
            return None
        found = Commit(manifests=self.manifests, written_at=now)
        after = state.applied(found, reader)
        for number, before in enumerate(state.partitions):
            left = set(before.loaded()).difference(after.partitions[number].loaded())
            planned = self.moved[number] if number < len(self.moved) else frozenset()
            if not left <= planned:
                return None
        return found


def is_due(state: LogState) -> bool:
    """Whether the state has more slices than a checkpoint should hold."""
    loaded = sum(each.count for each in state.partitions)
    if loaded <= LOADED_SLICES:
        return False
    hiding = sum(map(_hiding, state.partitions))
    return loaded - hiding > LOADED_SLICES or hiding > _most_hiding(state)


def _most_hiding(state: LogState) -> int:
    stored = sum(each.slices for each in state.manifests)
    return max(LOADED_SLICES, min(stored // _FAN, _MOST_HIDING))


def _hiding(partition: PartitionState) -> int:
    """How many loaded slices stand in the place of archived ones."""
    return partition.count - len(partition.window(partition.windows - 1))


def plan_move(
    state: LogState, reader: ManifestReader, backend: ObjectBackend, clock: Vfs, log: str
) -> Move:
    """Write the manifests that a commit can then put in the place of slices and manifests."""
    mover = _Mover(state, reader, lambda found, ends: _upload(backend, clock, log, found, ends))
    return mover.plan()


def _upload(
    backend: ObjectBackend, clock: Vfs, log: str, found: SliceColumns, ends: Int64s
) -> Manifest:
    buffers, blocks = encode_manifest(log, found)
    key = new_key(clock, suffix=MANIFEST_SUFFIX)
    backend.put(key, buffers)
    return Manifest(key, ends, blocks, ranges_of(found.keys))


class _Mover:
    """One move. Manifest k stands in window k; the last window has none yet."""

    def __init__(
        self,
        state: LogState,
        reader: ManifestReader,
        upload: Callable[[SliceColumns, Int64s], Manifest],
    ) -> None:
        self._state = state
        self._archive = state.archive or Archive((), reader)
        self._reader = reader
        self._upload = upload
        self._starts = np.array([each.start for each in state.partitions], np.int64)
        old = [wide(each.ends, len(self._starts)) for each in state.manifests]
        self._old_ends = [np.zeros_like(self._starts), *old]
        self._ends = [*(each.copy() for each in old), _ends_of(state)]
        self._hidden = self._hiding_windows()

    def plan(self) -> Move:
        """Write the new manifests."""
        before, found = self._state.manifests, list[Manifest | str]()
        groups = list(self._groups())
        for first, last, rewritten in groups:
            if rewritten:
                self._take_in(first, last)
        for first, last, rewritten in groups:
            if rewritten:
                columns = self._columns(first, last)
                if columns.rows:
                    found.append(self._upload(columns, self._ends[last]))
            elif last in self._hidden or (self._ends[last] > self._starts).any():
                same = np.array_equal(self._ends[last], self._old_ends[last + 1])
                kept = before[last]
                found.append(kept.key if same else kept._replace(ends=self._ends[last]))
        after = self._state.applied(Commit(manifests=found), self._reader)
        pairs = zip(self._state.partitions, after.partitions, strict=True)
        moved = tuple(frozenset(one.loaded()).difference(two.loaded()) for one, two in pairs)
        return Move(before, tuple(found), moved)

    def _groups(self) -> Iterator[tuple[int, int, bool]]:
        """Windows that become one manifest: first, last, and whether it has to be written."""
        manifests = self._state.manifests
        written = self._hidden if self._is_folding() else set[int]()
        first, total = len(manifests), sum(len(_tail(each)) for each in self._state.partitions)
        while True:
            run = first
            while run and _level(manifests[run - 1].slices) <= _level(total):
                run -= 1
            size = sum(each.slices for each in manifests[run:first])
            if first - run < _FAN - 1 or total + size > _LARGEST_MERGE:
                break
            first, total = run, total + size
        for number in range(first):
            yield number, number, number in written
        yield first, len(manifests), True

    def _is_folding(self) -> bool:
        return sum(map(_hiding, self._state.partitions)) > _most_hiding(self._state)

    def _hiding_windows(self) -> set[int]:
        return {
            bisect.bisect_right(self._archive.ends(number), found.base)
            for number, partition in enumerate(self._state.partitions)
            for found in partition.slices[: _hiding(partition)]
        }

    def _take_in(self, first: int, last: int) -> None:
        """Let windows end where the loaded slices end that begin in them."""
        for number, partition in enumerate(self._state.partitions):
            low = int(self._old_ends[first][number])
            high = int(self._ends[last][number])
            for found in partition.slices[: _hiding(partition)]:
                if low <= found.base < high < found.end:
                    for after in self._ends[last:]:
                        after[number] = max(int(after[number]), found.end)

    def _columns(self, first: int, last: int) -> SliceColumns:
        """The slices of some windows: those of their manifests that count, and the loaded ones."""
        low = self._ends[first - 1] if first else np.zeros_like(self._starts)
        high, parts = self._ends[last], list[SliceColumns]()
        for number in range(first, min(last + 1, len(self._state.manifests))):
            columns = self._archive.columns(number)
            lowest = np.maximum(low, self._old_ends[number])
            found = live_rows(columns, self._state, lowest, high)
            parts.append(columns.chosen(found))
        loaded = [
            (number, each)
            for number, partition in enumerate(self._state.partitions)
            for each in partition.loaded()
            if low[number] <= each.base < high[number]
        ]
        return joined([*parts, columns_of(loaded)])


def live_rows(columns: SliceColumns, state: LogState, low: Int64s, high: Int64s) -> Int64s:
    """The rows of a manifest, between offsets of each partition, that still count."""
    partition, base, end = (columns.column(each) for each in (PARTITION, BASE, END))
    starts = np.array([each.start for each in state.partitions], np.int64)
    is_live = (base >= low[partition]) & (base < high[partition]) & (end > starts[partition])
    for number, each in enumerate(state.partitions):
        count = _hiding(each)
        if count:
            first, after = np.searchsorted(partition, (number, number + 1))
            hiding = np.array([found[:2] for found in each.slices[:count]], np.int64)
            at = np.searchsorted(hiding[:, 0], base[first:after], side="right") - 1
            is_live[first:after] &= (at < 0) | (hiding[at, 1] <= base[first:after])
    return np.flatnonzero(is_live)


def _tail(partition: PartitionState) -> list[Slice]:
    return partition.window(partition.windows - 1)


def _ends_of(state: LogState) -> Int64s:
    return np.array([each.end for each in state.partitions], np.int64)


def wide(ends: Int64s, width: int) -> Int64s:
    """With a 0 for each partition that was added since."""
    return np.pad(ends, (0, width - len(ends)))


def _level(slices: int) -> int:
    return int(math.log(max(slices, LOADED_SLICES) / LOADED_SLICES, _FAN) + 1e-9)


def _same(some: tuple[Manifest, ...], others: tuple[Manifest, ...]) -> bool:
    if [each.key for each in some] != [each.key for each in others]:
        return False
    pairs = zip(some, others, strict=True)
    return all(np.array_equal(one.ends, two.ends) for one, two in pairs)
