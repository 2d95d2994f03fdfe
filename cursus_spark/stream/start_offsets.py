"""Where the next batch of a stream starts, whatever happened to its topics in the meantime."""

from __future__ import annotations

import time
from collections.abc import Mapping

from storage_core import Store
from storage_core.layouts.registry import LAYOUTS

from ..errors import CursusError, cursus_error
from ..logs import logger
from ..options.stream_read_options import StreamReadOptions
from ..read.data_loss import (
    Available,
    aged_out,
    deleted,
    gone_back,
    lose,
    name_of,
    recreated,
    within,
)
from ..read.ranges import (
    available,
    check_named,
    left_out,
    missing_partition,
    missing_topic,
    resolve_start,
    warn_of_no_topics,
)
from ..store import TopicPartition
from .position import StreamPosition
from .snapshot import TopicsSnapshot, by_topic

_log = logger()
_WARN_AGAIN_S = 60.0


class RecoveryWarnings:
    """Logs partitions that wait for recovery, each at most once a minute. Used by one thread."""

    def __init__(self) -> None:
        self._said: dict[TopicPartition, float] = {}

    def warn(self, where: TopicPartition, end: int | None, position: int) -> None:
        """Log that the stream waits until a writer recovers the partition."""
        now = time.monotonic()
        if now - self._said.get(where, -_WARN_AGAIN_S) < _WARN_AGAIN_S:
            return
        self._said[where] = now
        _log.warning("%s The stream waits until then.", recovery_due(where, end, position))


def require_sound_ends(
    store: Store, reached: Mapping[TopicPartition, int | None], now: TopicsSnapshot
) -> None:
    """Raise if a stream is at damaged records of a broker's directory.

    Without a high watermark the log seems to end there, and the stream would wait forever.
    """
    if LAYOUTS[store.layout].tells_end:
        return
    for where, position in reached.items():
        if position == now.ends.get(where):
            store.require_sound_end(*where)


def first_position(
    store: Store, options: StreamReadOptions, *, is_new: bool = True
) -> StreamPosition:
    """Where a new query starts, by its ``startingOffsets``.

    Args:
        store: The store.
        options: The options of the query.
        is_new: False if the query may continue from a checkpoint, with partitions added since.

    Raises:
        CursusError: the JSON of a new query leaves out partitions, whose records would be skipped.
    """
    held, ids = available(store, options.subscription)
    check_named(options.starting, held)
    if (error := left_out(options.starting, held)) is not None:
        if is_new:
            raise error
        _log.warning("%s A new query skips their records.", error)
    committed = (
        {} if options.consumer_group is None else store.committed_offsets(options.consumer_group)
    )
    positions: dict[TopicPartition, int] = {}
    for where, bounds in held.items():
        if options.starting.bound(*where).kind == "group":
            # A partition without a committed offset is read from its start: no record is skipped.
            known = committed.get(where[0], {}).get(where[1], bounds.start)
            positions[where] = within(options, where, known, bounds)
        else:
            positions[where] = resolve_start(store, options, where, bounds)
    _warn_of_late_times(store, options, positions)
    return StreamPosition(
        {topic: ids[topic] for topic in {topic for topic, _ in held}}, by_topic(positions)
    )


def _warn_of_late_times(
    store: Store, options: StreamReadOptions, positions: Mapping[TopicPartition, int]
) -> None:
    """Say once that a start by time also gets older records: Kafka's rule, seldom expected."""
    late = [
        name_of(where)
        for where, position in positions.items()
        if (bound := options.starting.bound(*where)).kind == "timestamp"
        and (store.end_of_older(*where, bound.value) or 0) > position
    ]
    if late:
        _log.warning(
            "Times are out of order in %s: the stream starts at the first record not older than "
            "%s, and reads the older records after it too. Filter by the column timestamp.",
            ", ".join(late),
            options.starting.option,
        )


def check_continued(
    store: Store, options: StreamReadOptions, start: StreamPosition, now: TopicsSnapshot
) -> None:
    """Refuse unknown names in a query that continues from its checkpoint.

    Only when it starts: a topic that is missing later is deleted, not mistyped.

    Raises:
        CursusError: a topic or partition is neither in the store nor in the checkpoint, unless
            ``failOnDataLoss`` is false.
    """
    subscription = options.subscription
    known = {*now.ids, *start.ids, *start.positions}
    if not known:
        warn_of_no_topics(store, subscription)
    for topic in sorted(set(subscription.named()) - known):
        lose(options, missing_topic(store, topic))
    for topic, partitions in subscription.partitions or ():
        if topic not in now.ids or topic in now.unknown:
            continue
        for partition in partitions:
            if (topic, partition) not in now.ends and start.position(topic, partition) is None:
                lose(options, missing_partition(topic, partition))


def reconcile(
    store: Store,
    options: StreamReadOptions,
    start: StreamPosition,
    now: TopicsSnapshot,
    warnings: RecoveryWarnings,
) -> dict[TopicPartition, int]:
    """The next offset of every existing partition, given the position of the stream.

    Raises:
        CursusError: records that the stream did not read are gone, unless ``failOnDataLoss`` is
            false.
    """
    _warn_of_dropped(options, start, now)
    begin: dict[TopicPartition, int] = {}
    renewed = {topic for topic, known in start.ids.items() if now.ids.get(topic, known) != known}
    for topic in sorted(renewed):
        lose(options, recreated(topic))
    for topic, partitions in start.positions.items():
        unknown = topic in now.unknown and topic not in renewed
        for partition, position in partitions.items():
            where = (topic, partition)
            if unknown:
                warnings.warn(where, None, position)
                begin[where] = position
            elif where not in now.ends:
                if options.subscription.includes(*where) and topic not in renewed:
                    lose(options, deleted(topic, partition, whole=topic not in now.ids))
            elif topic not in renewed:
                begin[where] = _known_position(store, options, where, position, now, warnings)
    for where in now.ends:
        if where not in begin:
            begin[where] = first_offset(store, options, where, now.ends[where])
    return begin


def _warn_of_dropped(
    options: StreamReadOptions, start: StreamPosition, now: TopicsSnapshot
) -> None:
    includes = options.subscription.includes
    for topic, positions in start.positions.items():
        dropped = sorted(
            each
            for each in positions
            if (topic, each) not in now.ends and not includes(topic, each)
        )
        if dropped:
            parts = "" if len(dropped) == len(positions) else f", partitions {dropped}"
            _log.warning(
                "Topic '%s'%s is no longer subscribed: the query drops its position. If it is "
                "subscribed again, it is read from its first record.",
                topic,
                parts,
            )


def first_offset(store: Store, options: StreamReadOptions, where: TopicPartition, end: int) -> int:
    """Where a partition that was created while the query runs is read from: its first record.

    Raises:
        CursusError: its first records are gone, unless ``failOnDataLoss`` is false.
    """
    start = store.start_offset(*where) if end else 0
    if start > 0:
        lose(options, aged_out(where, 0, Available(start, end)))
    return min(start, end)


def _known_position(
    store: Store,
    options: StreamReadOptions,
    where: TopicPartition,
    position: int,
    now: TopicsSnapshot,
    warnings: RecoveryWarnings,
) -> int:
    end = now.ends[where]
    if position == end:
        return position
    if position > end:
        # The high watermark is below the position: stale after a reboot, or records were lost.
        if store.recovery_due(*where):
            warnings.warn(where, end, position)
            return position
        lose(options, gone_back(where, position, end))
        return end
    start = min(store.start_offset(*where), end)
    if position < start:
        lose(options, aged_out(where, position, Available(start, end)))
    return max(position, start)


def recovery_due(where: TopicPartition, end: int | None, position: int) -> CursusError:
    """The error, or the warning, for a partition that a writer must recover first."""
    known = "has no high watermark" if end is None else f"ends at {end}"
    return cursus_error(
        "RECOVERY_NEEDED",
        f"{name_of(where)} {known}, but the stream is at {position}. Its last writer did not close "
        "it cleanly. Append to it, or repair the store, to recover its records.",
    )
