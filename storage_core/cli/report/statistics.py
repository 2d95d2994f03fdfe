"""The numbers of the report, from frame headers where these are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...config import CODECS
from ...errors import StorageError
from ...format.frame_scan import segment_frames
from ...format.record_sizes import record_bounds
from ...layouts.registry import LAYOUTS
from ...schema.rows import row_bounds
from ...store.store import Store
from ...types import Int64s, Integers, Problem
from ..inspect.store_facts import (
    Lag,
    PartitionFacts,
    TopicFacts,
    consumer_lags,
    facts_of_topics,
)

BINS = 60
_POINTS = 8
Floats = npt.NDArray[np.float64]
Advance = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Flow:
    """Records and bytes over time, from frame headers: sums in ``BINS`` equal intervals."""

    low: int
    high: int
    records: tuple[float, ...]
    stored: tuple[float, ...]

    @property
    def bin_seconds(self) -> float:
        return (self.high - self.low) / BINS / 1e6


@dataclass(frozen=True, slots=True)
class Compression:
    """Body bytes of a topic's frames, as stored and before compression, and frames by codec."""

    frames: int
    stored: int
    raw: int
    codecs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes per record; ``counts[i]`` counts those up to ``2**i``."""

    measured: int
    counts: tuple[int, ...]
    smallest: int
    median: int
    largest: int


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic; a field is None if the layout does not store it."""

    facts: TopicFacts
    flow: Flow | None
    compression: Compression | None
    sizes: Sizes | None


@dataclass(frozen=True, slots=True)
class StoreReport:
    """Everything on the page. ``problems`` is None if the store was not checked."""

    path: str
    layout: str
    made_at: int
    topics: tuple[TopicReport, ...]
    lags: tuple[Lag, ...]
    problems: tuple[Problem, ...] | None


def gather(store: Store, *, sample: int, check: bool, advance: Advance) -> StoreReport:
    """Gather the numbers of a whole store.

    Args:
        store: The store.
        sample: Records per partition whose sizes are measured.
        check: Read every byte and report problems.
        advance: Called with the current step, and the bytes it has read.
    """
    topics = []
    for facts in facts_of_topics(store, times=True):
        flow, compression = _frames_of(store, facts.partitions, advance)
        sizes = _sizes(store, facts, sample, advance)
        topics.append(TopicReport(facts, flow, compression, sizes))
    advance("checking every byte", 0)
    problems = tuple(store.check()) if check else None
    try:
        lags = tuple(consumer_lags(store))
    except StorageError:  # a topic without a high watermark: the check reports it
        lags = ()
    return StoreReport(store.path, store.layout, store.vfs.now_us(), tuple(topics), lags, problems)


def _frames_of(
    store: Store, partitions: Sequence[PartitionFacts], advance: Advance
) -> tuple[Flow | None, Compression | None]:
    seen: list[tuple[int, int, int, int]] = []
    frames = LAYOUTS[store.layout].frames
    if frames == "slices":
        # Commits tell the times of slices; the codecs of frames would cost a read of everything.
        for segment in (each for partition in partitions for each in partition.segments):
            if segment.first_time is not None and segment.last_time is not None:
                times = (segment.first_time, segment.last_time)
                seen.append((*times, segment.records, segment.size))
        return (_flow(np.array(seen, dtype=np.int64)) if seen else None), None
    if frames is None:
        return None, None
    codecs: Counter[str] = Counter()
    body = raw = 0
    for partition in partitions:
        for segment in partition.segments:
            try:
                for frame in segment_frames(store.vfs, segment.path, segment.base, bodies=False):
                    head = frame.header
                    times = (head.min_timestamp, head.max_timestamp)
                    if head.records:  # else it only covers a hole of compaction
                        seen.append((*times, head.records, head.length))
                    codecs[CODECS[head.codec]] += 1
                    body, raw = body + head.body_length, raw + head.raw_length
            except (StorageError, OSError):  # the check reports it
                pass
            advance(f"frames of {partition.topic}-{partition.partition}", segment.size)
    if not seen:
        return None, None
    compression = Compression(len(seen), body, raw, tuple(sorted(codecs.items())))
    return _flow(np.array(seen, dtype=np.int64)), compression


def _flow(seen: Int64s) -> Flow:
    """Distribute each frame's records over a few points between its first and last time."""
    low, high = int(seen[:, 0].min()), int(seen[:, 1].max())
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    points = (seen[:, :1] + (seen[:, 1:2] - seen[:, :1]) * shares).ravel()
    edges = np.linspace(low, max(high, low + 1), BINS + 1)

    def binned(column: int) -> tuple[float, ...]:
        weights = np.repeat(seen[:, column] / _POINTS, _POINTS)
        sums: Floats = np.histogram(points, bins=edges, weights=weights)[0]
        return tuple(sums.tolist())

    return Flow(low, high, binned(2), binned(3))


def _sizes(store: Store, facts: TopicFacts, sample: int, advance: Advance) -> Sizes | None:
    found: list[Integers] = []
    is_typed = facts.file is not None and facts.file.is_typed
    columns = None if is_typed else ("key", "value", "headers")
    for partition in facts.partitions:
        try:
            for batch in store.read(
                facts.name, partition.partition, max_records=sample, columns=columns
            ):
                if is_typed:
                    bounds = row_bounds(batch.columns, batch.num_rows)
                else:
                    key, value, headers = batch.columns
                    bounds = record_bounds(key, value, headers, batch.num_rows)
                found.append(np.diff(bounds))
        except StorageError:  # the check reports it
            pass
        advance(f"records of {facts.name}-{partition.partition}", partition.size)
    if not found:
        return None
    sizes = np.concatenate(found)
    powers = np.ceil(np.log2(np.maximum(sizes, 1) + 0.5)).astype(np.int64)
    return Sizes(
        len(sizes),
        tuple(np.bincount(powers).tolist()),
        int(sizes.min()),
        int(np.median(sizes)),
        int(sizes.max()),
    )
