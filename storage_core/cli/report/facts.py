"""What the report shows: gathered once, from headers where that is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import StorageError
from ...format.frame import CODECS
from ...format.frame_scan import segment_frames
from ...format.record_sizes import record_bounds
from ...store.store import Store
from ...types import Problem
from ..inspect.overview import Lag, PartitionFacts, TopicFacts, lags, look_at_topics

BINS = 60
_POINTS = 8
Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Tell = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Flow:
    """When records and bytes came, from the frame headers: sums in ``BINS`` equal stretches."""

    low: int
    high: int
    records: tuple[float, ...]
    stored: tuple[float, ...]

    @property
    def bin_seconds(self) -> float:
        return (self.high - self.low) / BINS / 1e6


@dataclass(frozen=True, slots=True)
class Packing:
    """What the frames of a topic hold: bodies as stored and before compression, by codec."""

    frames: int
    stored: int
    raw: int
    codecs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of key, value and headers per record; ``counts[i]`` has those below ``2**i``."""

    looked_at: int
    counts: tuple[int, ...]
    smallest: int
    median: int
    largest: int


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic; a part is None where the layout cannot say."""

    facts: TopicFacts
    flow: Flow | None
    packing: Packing | None
    sizes: Sizes | None


@dataclass(frozen=True, slots=True)
class StoreReport:
    """Everything on the page. ``problems`` is None if nobody looked for them."""

    path: str
    layout: str
    made_at: int
    topics: tuple[TopicReport, ...]
    lags: tuple[Lag, ...]
    problems: tuple[Problem, ...] | None


def gather(store: Store, *, sample: int, check: bool, tell: Tell) -> StoreReport:
    """Look at a whole store.

    Args:
        store: The store.
        sample: Records per partition whose sizes are looked at.
        check: Read every byte and report problems.
        tell: Called with what is being done, and bytes that are done.
    """
    topics = []
    for facts in look_at_topics(store, times=True):
        flow, packing = _frames_of(store, facts.partitions, tell)
        topics.append(TopicReport(facts, flow, packing, _sizes(store, facts, sample, tell)))
    tell("checking every byte", 0)
    problems = tuple(store.check()) if check else None
    try:
        behind = tuple(lags(store))
    except StorageError:  # of a topic whose end is unknown: that is among the problems
        behind = ()
    return StoreReport(
        store.path, store.layout, store.vfs.now_us(), tuple(topics), behind, problems
    )


def _frames_of(
    store: Store, partitions: Sequence[PartitionFacts], tell: Tell
) -> tuple[Flow | None, Packing | None]:
    if store.layout != "native":
        return None, None
    seen: list[tuple[int, int, int, int]] = []
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
            except (StorageError, OSError):  # what the check reports in full
                pass
            tell(f"frames of {partition.topic}-{partition.partition}", segment.size)
    if not seen:
        return None, None
    packing = Packing(len(seen), body, raw, tuple(sorted(codecs.items())))
    return _flow(np.array(seen, dtype=np.int64)), packing


def _flow(seen: Int64s) -> Flow:
    """Each frame's records spread over a few points between its first and last time."""
    low, high = int(seen[:, 0].min()), int(seen[:, 1].max())
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    points = (seen[:, :1] + (seen[:, 1:2] - seen[:, :1]) * shares).ravel()
    edges = np.linspace(low, max(high, low + 1), BINS + 1)

    def spread(column: int) -> tuple[float, ...]:
        weights = np.repeat(seen[:, column] / _POINTS, _POINTS)
        sums: Floats = np.histogram(points, bins=edges, weights=weights)[0]
        return tuple(sums.tolist())

    return Flow(low, high, spread(2), spread(3))


def _sizes(store: Store, facts: TopicFacts, sample: int, tell: Tell) -> Sizes | None:
    found: list[Int64s] = []
    for partition in facts.partitions:
        try:
            for batch in store.read(
                facts.name,
                partition.partition,
                max_records=sample,
                columns=("key", "value", "headers"),
            ):
                columns = (batch["key"], batch["value"], batch["headers"])
                found.append(np.diff(record_bounds(*columns, batch.num_rows)))
        except StorageError:  # what the check reports in full
            pass
        tell(f"records of {facts.name}-{partition.partition}", partition.size)
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
