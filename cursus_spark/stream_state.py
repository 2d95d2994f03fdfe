"""What a stream compares its position with: topics that come, go, shrink and are made anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from storage_core import Store, TopicNotFoundError

from .errors import CursusError, cursus_error
from .options import StreamReadOptions
from .ranges import (
    Available,
    TopicPartition,
    aged_out,
    available,
    check_named,
    resolve_start,
    subscribed_topics,
    within,
)
from .stream_position import Positions, StreamPosition

_log = logging.getLogger("cursus_spark")


@dataclass(frozen=True, slots=True)
class TopicsNow:
    """Uuids and visible ends of the subscribed topics at one instant."""

    ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]

    def position(self) -> StreamPosition:
        """The position of a stream that has read everything."""
        return StreamPosition(dict(self.ids), nested(self.ends))


def look(store: Store, options: StreamReadOptions) -> TopicsNow:
    """The subscribed topics now: file-system metadata only, whatever they hold.

    Topics that vanished are simply not there; ``reconcile`` says what that means.
    """
    named = set(options.subscription.named())
    existing = named & set(store.topics()) if named else None
    topics = (
        sorted(existing) if existing is not None else subscribed_topics(store, options.subscription)
    )
    ids: dict[str, str] = {}
    ends: dict[TopicPartition, int] = {}
    for topic in topics:
        try:
            ids[topic] = str(store.topic(topic).uuid)
            for partition, end in enumerate(store.visible_ends(topic)):
                if options.subscription.includes(topic, partition):
                    ends[topic, partition] = end
        except TopicNotFoundError:
            ids.pop(topic, None)
    return TopicsNow(ids, ends)


def first_position(store: Store, options: StreamReadOptions) -> StreamPosition:
    """Where a new query starts, by its ``startingOffsets``."""
    held = available(store, options.subscription)
    check_named(options.starting, held)
    committed = (
        {} if options.consumer_group is None else store.committed_offsets(options.consumer_group)
    )
    positions: dict[TopicPartition, int] = {}
    for where, bounds in held.items():
        if options.starting.bound(*where).kind == "group":
            # A partition the group never read is read whole: skipping records is never a default.
            known = committed.get(where[0], {}).get(where[1], bounds.start)
            positions[where] = within(where, known, bounds, fail=options.fail_on_data_loss)
        else:
            positions[where] = resolve_start(store, options, where, bounds)
    ids = {topic: str(store.topic(topic).uuid) for topic in {topic for topic, _ in held}}
    return StreamPosition(ids, nested(positions))


def reconcile(
    store: Store, options: StreamReadOptions, start: StreamPosition, now: TopicsNow
) -> dict[TopicPartition, int]:
    """The next offset of every partition there is now, given how far the stream has come.

    Raises:
        CursusError: records the stream has not read are gone, unless ``failOnDataLoss`` is false.
    """
    begin: dict[TopicPartition, int] = {}
    renewed = {topic for topic, known in start.ids.items() if now.ids.get(topic, known) != known}
    for topic in sorted(renewed):
        _lose(options, _recreated(topic))
    for topic, partitions in start.positions.items():
        for partition, position in partitions.items():
            where = (topic, partition)
            if where not in now.ends:
                if options.subscription.includes(*where):
                    _lose(options, _deleted(topic, partition, whole=topic not in now.ids))
            elif topic not in renewed:
                begin[where] = _known_position(store, options, where, position, now.ends[where])
    for where in now.ends:
        if where not in begin:
            begin[where] = first_offset(store, options, where, now.ends[where])
    return begin


def first_offset(store: Store, options: StreamReadOptions, where: TopicPartition, end: int) -> int:
    """Where a partition that appeared while the query runs is read from: its first record.

    Raises:
        CursusError: its first records are gone already, unless ``failOnDataLoss`` is false.
    """
    start = store.start_offset(*where) if end else 0
    if start > 0:
        _lose(options, aged_out(where, 0, Available(start, end)))
    return min(start, end)


def _known_position(
    store: Store, options: StreamReadOptions, where: TopicPartition, position: int, end: int
) -> int:
    if position == end:
        return position
    if position > end:
        return _gone_back(store, options, where, position, end)
    start = min(store.start_offset(*where), end)
    if position < start:
        _lose(options, aged_out(where, position, Available(start, end)))
    return max(position, start)


def _gone_back(
    store: Store, options: StreamReadOptions, where: TopicPartition, position: int, end: int
) -> int:
    """The visible end is behind the stream: stale after a reboot, or records were lost."""
    if store.recovery_due(*where):
        _log.warning(
            "%s-%s ends at %s, but the stream has read up to %s. The partition was not closed "
            "cleanly: waiting until a writer recovers it",
            *where, end, position,
        )  # fmt: skip
        return position
    _lose(
        options,
        cursus_error(
            "DATA_LOSS",
            f"{where[0]}-{where[1]}: the end of the log was changed from {position} to {end}. "
            f"Set failOnDataLoss to false to continue from {end}.",
        ),
    )
    return end


def _recreated(topic: str) -> CursusError:
    return cursus_error(
        "DATA_LOSS",
        f"Topic '{topic}' was deleted and created again since the checkpoint. Start with a new "
        "checkpoint, or set failOnDataLoss to false to read the new topic from its start.",
    )


def _deleted(topic: str, partition: int, *, whole: bool) -> CursusError:
    what = f"Topic '{topic}' was deleted" if whole else f"Partition {topic}-{partition} is gone"
    return cursus_error(
        "DATA_LOSS",
        f"{what}. Start with a new checkpoint, or set failOnDataLoss to false to go on without it.",
    )


def _lose(options: StreamReadOptions, error: CursusError) -> None:
    if options.fail_on_data_loss:
        raise error
    _log.warning("%s", error)


def nested(flat: Mapping[TopicPartition, int]) -> Positions:
    """Offsets by topic and then by partition."""
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in flat.items():
        found.setdefault(topic, {})[partition] = offset
    return found
