"""The offset ranges of one micro-batch, from its two offsets alone.

Spark plans a batch again after a crash, perhaps days later and with other options. The batch must
read the same records then, so the subscription is not used here: the offsets name every partition.
Records that are gone are a loss, which only this module can notice: later offsets start after them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from storage_core import Store

from ..errors import cursus_error
from ..options.stream_read_options import StreamReadOptions
from ..read.data_loss import Available, deleted, gone_back, lose, recreated, within
from ..store import TopicPartition
from .position import StreamPosition, SymbolicStart
from .snapshot import TopicSnapshot, topic_snapshot
from .start_offsets import first_offset, recovery_due

Ranges = dict[TopicPartition, tuple[int, int]]
Offsets = Mapping[int, int]
"""Of one topic, by partition."""

# How long a batch waits for a writer to recover a partition. A query cannot be stopped while it
# plans, so not longer.
_PATIENCE_S = 10.0
_PAUSE_S = 0.1


def micro_batch_ranges(
    store: Store,
    options: StreamReadOptions,
    begun: StreamPosition | SymbolicStart,
    last: StreamPosition,
) -> tuple[Ranges, dict[str, str]]:
    """Start and end offset of every partition that a batch reads; uuids of the topics.

    Raises:
        CursusError: the checkpoint is invalid, or records of the batch are gone (unless
            ``failOnDataLoss`` is false).
    """
    ranges: Ranges = {}
    ids: dict[str, str] = {}
    for topic, ends in last.positions.items():
        starts = _starts(begun, last, topic)
        for number, end in ends.items():
            if end < starts.get(number, 0):
                # A batch from there would read the following records a second time.
                lose(options, gone_back((topic, number), starts[number], end))
        wanted = {number: end for number, end in ends.items() if starts.get(number, 0) < end}
        if wanted:
            uuid = last.ids.get(topic)
            found, seen = _topic_ranges(store, options, topic, uuid, starts, wanted)
            ranges |= found
            ids[topic] = seen
    return ranges, ids


def _starts(begun: StreamPosition | SymbolicStart, last: StreamPosition, topic: str) -> Offsets:
    """Where the batch starts in the partitions of a topic that were known before."""
    if isinstance(begun, SymbolicStart):
        if last.start is None:
            raise cursus_error(
                "CHECKPOINT_INVALID",
                "The first batch of the checkpoint has no start. Start with a new checkpoint.",
            )
        return dict(last.start.get(topic, {}))
    if begun.ids.get(topic) != last.ids.get(topic):
        return {}  # a new topic of the same name is read from its start
    return dict(begun.positions.get(topic, {}))


def _topic_ranges(
    store: Store,
    options: StreamReadOptions,
    topic: str,
    uuid: str | None,
    starts: Offsets,
    ends: Offsets,
) -> tuple[Ranges, str]:
    """The ranges of one topic, and its uuid."""
    seen = _wait_for(store, topic, uuid, ends)
    if seen is None or seen.uuid != (uuid or seen.uuid):
        whole = deleted(topic, 0, whole=True) if seen is None else recreated(topic)
        lose(options, whole)
        return {}, ""
    ranges: Ranges = {}
    for number, wanted in ends.items():
        where = (topic, number)
        if number >= len(seen.ends or ()):
            lose(options, deleted(topic, number, whole=False))
            continue
        assert seen.ends is not None
        end = min(wanted, seen.ends[number])
        if end < wanted:
            lose(options, gone_back(where, wanted, end))
        start = starts.get(number)
        if start is None:
            start = first_offset(store, options, where, end)
        if start < end:
            held = Available(min(store.start_offset(*where), end), end)
            ranges[where] = (within(options, where, start, held), end)
    kept = {where: bounds for where, bounds in ranges.items() if bounds[0] < bounds[1]}
    return kept, seen.uuid


def _wait_for(store: Store, topic: str, uuid: str | None, ends: Offsets) -> TopicSnapshot | None:
    """The topic, as soon as no partition that the batch reads waits for recovery.

    Raises:
        CursusError: no writer recovered it in time.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        seen = topic_snapshot(store, topic)
        if seen is None or seen.uuid != (uuid or seen.uuid):
            return seen
        stale = _first_stale(store, topic, seen, ends)
        if stale is None:
            return seen
        if time.monotonic() >= deadline:
            end = None if seen.ends is None else seen.ends[stale]
            raise recovery_due((topic, stale), end, ends[stale])
        time.sleep(_PAUSE_S)


def _first_stale(store: Store, topic: str, seen: TopicSnapshot, ends: Offsets) -> int | None:
    """A partition that ends before the batch does, and may end later after a recovery."""
    for number, end in ends.items():
        if seen.ends is None:
            return number
        stale = number < len(seen.ends) and seen.ends[number] < end
        if stale and store.recovery_due(topic, number):
            return number
    return None
