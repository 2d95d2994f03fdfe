"""What became of the transactions of a partition, by their markers.

A transaction of a producer ends with a control batch of this producer. The batches of the producer
before it, back to its last marker, are aborted or committed by it. This is what Kafka's consumers
make of the broker's ``.txnindex``. The markers stand in the log under a checksum, the index does
not, so reads never open it; ``check`` compares it with the markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..format.file_names import MAX_OFFSET
from ..types import Int64s
from .codecs.batches import Batches
from .codecs.indexes import Aborted
from .codecs.records import decode
from .codecs.varints import Bools
from .segment_reader import Chunk

_ABORT, _COMMIT = 0, 1
_KEY_BYTES = 4
_NONE: Int64s = np.empty(0, dtype=np.int64)


class Markers(NamedTuple):
    """Ends of transactions: producer, offset of the marker, whether it aborts."""

    producers: Int64s
    offsets: Int64s
    aborts: Bools


NO_MARKERS = Markers(_NONE, _NONE, np.empty(0, dtype=np.bool_))


def markers_of(data: memoryview, batches: Batches) -> Markers:
    """The markers among some batches; other control records, such as leader changes, are none."""
    rows = np.flatnonzero(batches.is_control & batches.is_transactional & (batches.count > 0))
    if not len(rows):
        return NO_MARKERS
    chosen = batches[rows]
    found = decode(data, chosen)
    # A control batch has one record. Its key is a version and a type, two bytes each.
    firsts = np.cumsum(chosen.count) - chosen.count
    starts, long = found.keys.starts[firsts], found.keys.lengths[firsts] >= _KEY_BYTES
    table = np.frombuffer(found.data, dtype=np.uint8)
    kinds = np.full(len(rows), -1, dtype=np.int64)
    kinds[long] = table[starts[long] + 2].astype(np.int64) << 8 | table[starts[long] + 3]
    ends = (kinds == _ABORT) | (kinds == _COMMIT)
    return Markers(chosen.producer[ends], found.offsets[firsts][ends], kinds[ends] == _ABORT)


def join_markers(first: Markers, second: Markers) -> Markers:
    """All markers of both."""
    return Markers(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


def next_markers(producers: Int64s, offsets: Int64s, markers: Markers) -> Int64s:
    """For each batch the row of the first marker of its producer after it; -1 without one."""
    count = len(producers)
    everyone = np.concatenate((producers, markers.producers))
    places = np.concatenate((offsets, markers.offsets))
    order = np.lexsort((places, everyone))
    rows = np.arange(len(order))
    far = len(order)
    nearest = np.minimum.accumulate(np.where(order >= count, rows, far)[::-1])[::-1]
    owner = order[np.minimum(nearest, far - 1)] if far else rows
    same = (nearest < far) & (everyone[owner] == everyone[order])
    found = np.empty(far, dtype=np.int64)
    found[order] = np.where(same, owner - count, -1)
    return found[:count]


def aborted_among(chunks: Iterable[Chunk], opened: dict[int, int]) -> Aborted:
    """The transactions that the markers of one segment abort; first offset -1 if it is not known.

    Args:
        chunks: All of the segment.
        opened: Producers and first offsets of the transactions that are open before it, from the
            first segment on; afterwards those that are open after it.
    """
    found: list[tuple[int, int, int]] = []
    for chunk in chunks:
        batches = chunk.batches
        if not batches.is_transactional.any():
            continue
        data = batches[batches.is_transactional & ~batches.is_control]
        markers = markers_of(chunk.data, batches)
        ends = next_markers(data.producer, data.base, markers)
        closed, rows = np.unique(ends, return_index=True)
        begun = dict(zip(closed.tolist(), data.base[rows].tolist(), strict=True))
        fields = (field.tolist() for field in markers)
        for row, (producer, offset, aborts) in enumerate(zip(*fields, strict=True)):
            first = opened.pop(producer, begun.get(row, -1))
            if aborts:
                found.append((producer, first, offset))
        still = ends < 0
        producers, rows = np.unique(data.producer[still], return_index=True)
        starts = data.base[still][rows]
        for producer, at in zip(producers.tolist(), starts.tolist(), strict=True):
            opened.setdefault(producer, at)
    return Aborted(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


class Outcomes:
    """Which batches of one read are of aborted transactions. Used by one thread.

    Reads on where the marker of a transaction comes after what is asked for.
    """

    def __init__(self, chunks_from: Callable[[int], Iterator[Chunk]]) -> None:
        self._chunks_from = chunks_from
        self._markers = NO_MARKERS
        self._start = self._end = 0

    def is_delivered(self, chunk: Chunk) -> Bools:
        """Which batches of a chunk are not of an aborted transaction."""
        batches = chunk.batches
        delivered = np.ones(len(batches), dtype=np.bool_)
        rows = np.flatnonzero(batches.is_transactional & ~batches.is_control)
        if not len(batches):
            return delivered
        self._add(chunk)
        if not len(rows):
            return delivered
        producers, offsets = batches.producer[rows], batches.base[rows]
        ends = next_markers(producers, offsets, self._markers)
        if (ends < 0).any():
            for following in self._chunks_from(self._end):
                self._add(following)
                ends = next_markers(producers, offsets, self._markers)
                if (ends >= 0).all():
                    break
        # Below the last stable offset a transaction without a marker was not aborted.
        ended = ends >= 0
        delivered[rows[ended]] = ~self._markers.aborts[ends[ended]]
        return delivered

    def _add(self, chunk: Chunk) -> None:
        """Take the markers of a chunk; forget those of before if it does not follow."""
        batches = chunk.batches
        if not len(batches):
            return
        first = int(batches.base[0])
        if not self._start <= first <= self._end:
            self._markers, self._start, self._end = NO_MARKERS, first, first
        fresh = batches.base >= self._end
        self._markers = join_markers(self._markers, markers_of(chunk.data, batches[fresh]))
        self._end = max(self._end, chunk.due)


class OpenTransactions(NamedTuple):
    """Transactions without a marker below ``end``: producers and first offsets."""

    end: int
    first: dict[int, int]

    @property
    def lowest(self) -> int:
        """The first offset of the oldest one; past every offset if none is open."""
        return min(self.first.values(), default=MAX_OFFSET)

    def after(self, chunk: Chunk, limit: int) -> OpenTransactions:
        """The same after the batches of a chunk that are below ``limit``."""
        batches = chunk.batches[(chunk.batches.base >= self.end) & (chunk.batches.last < limit)]
        if not len(batches):
            return self
        end = int(batches.last[-1]) + 1
        if not batches.is_transactional.any():
            return self._replace(end=end)
        markers = markers_of(chunk.data, batches)
        ended = set(markers.producers.tolist())
        first = {producer: at for producer, at in self.first.items() if producer not in ended}
        data = batches[batches.is_transactional & ~batches.is_control]
        opened = next_markers(data.producer, data.base, markers) < 0
        producers, rows = np.unique(data.producer[opened], return_index=True)
        starts = data.base[opened][rows]
        for producer, at in zip(producers.tolist(), starts.tolist(), strict=True):
            first.setdefault(producer, at)
        return OpenTransactions(end, first)
