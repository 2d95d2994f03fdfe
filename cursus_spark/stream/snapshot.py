"""What a stream compares its position with: the subscribed topics as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage_core import StorageError, Store, TopicNotFoundError

from ..options.query_options import StreamReadOptions
from ..store import TopicPartition
from .position import Positions, StreamPosition

_RECOVERY_NEEDED = "RECOVERY_NEEDED"


class TopicSnapshot(NamedTuple):
    """One topic at one instant. ``ends`` is None while nobody knows them.

    That happens when a power cut took the watermark; the next writer restores it.
    """

    uuid: str
    ends: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """Uuids of the subscribed topics at one instant, and the visible ends of their partitions.

    ``unknown`` are topics that are there without anybody knowing where they end.
    """

    ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    unknown: frozenset[str] = frozenset()

    def position(self) -> StreamPosition:
        """The position of a stream that has read everything."""
        return StreamPosition(dict(self.ids), by_topic(self.ends))


def take_snapshot(
    store: Store, options: StreamReadOptions, before: TopicsSnapshot | None = None
) -> TopicsSnapshot:
    """The subscribed topics now: file-system metadata only, whatever they hold.

    Topics that vanished are simply not there; what that means is for others to say.

    Args:
        store: The store.
        options: What is subscribed.
        before: An earlier look: a topic that shows the same uuid as then is not looked at twice.
    """
    known = {} if before is None else before.ids
    whole = options.subscription.partitions is None
    ids: dict[str, str] = {}
    ends: dict[TopicPartition, int] = {}
    unknown = set()
    for topic in _candidates(store, options):
        seen = topic_snapshot(store, topic, known.get(topic))
        if seen is None:
            continue
        ids[topic] = seen.uuid
        if seen.ends is None:
            unknown.add(topic)
        for partition, end in enumerate(seen.ends or ()):
            if whole or options.subscription.includes(topic, partition):
                ends[topic, partition] = end
    return TopicsSnapshot(ids, ends, frozenset(unknown))


def topic_snapshot(store: Store, topic: str, before: str | None = None) -> TopicSnapshot | None:
    """One topic now; None if there is none of this name.

    Args:
        store: The store.
        topic: Name of the topic.
        before: The uuid that it had some time before now, if that is known.
    """
    try:
        while True:
            ends = _ends(store, topic)
            uuid = str(store.topic(topic).uuid)
            if uuid == before:
                return TopicSnapshot(uuid, ends)
            # It was made anew between the two looks, or never seen: the ends may be of another.
            before = uuid
    except TopicNotFoundError:
        return None


def by_topic(flat: Mapping[TopicPartition, int]) -> Positions:
    """Offsets by topic and then by partition."""
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in flat.items():
        found.setdefault(topic, {})[partition] = offset
    return found


def _candidates(store: Store, options: StreamReadOptions) -> Iterable[str]:
    """Topics to look at. Named ones are not searched for: there may be thousands of others."""
    subscription = options.subscription
    if subscription.pattern is None:
        return sorted(set(subscription.named()))
    return [topic for topic in store.topics() if subscription.includes(topic, 0)]


def _ends(store: Store, topic: str) -> tuple[int, ...] | None:
    try:
        return store.visible_ends(topic)
    except StorageError as error:
        if error.code != _RECOVERY_NEEDED:
            raise
        return None
