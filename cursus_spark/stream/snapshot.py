"""The subscribed topics at one instant; a stream compares its position with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage_core import StorageError, Store, TopicNotFoundError

from ..options.stream_read_options import StreamReadOptions
from ..read.data_loss import saw
from ..store import TopicPartition
from .position import Positions, StreamPosition

_RECOVERY_NEEDED = "RECOVERY_NEEDED"


class TopicSnapshot(NamedTuple):
    """One topic at one instant: the high watermarks of its partitions.

    ``ends`` is None if a power cut destroyed the high watermarks; the next writer recovers them.
    """

    uuid: str
    ends: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """Uuids of the subscribed topics at one instant, and the high watermarks of their partitions.

    ``unknown`` are topics whose high watermarks must be recovered first.
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
    """The subscribed topics now. Reads metadata of files only, however large the topics are.

    Deleted topics are not in it; the caller decides what that means.

    Args:
        store: The store.
        options: The subscription.
        before: An earlier snapshot: a topic that has the same uuid as then is read once only.
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
    """One topic now; None if it does not exist.

    Args:
        store: The store.
        topic: Name of the topic.
        before: An earlier uuid of the topic, if known.
    """
    saw(topic, before or "")  # the first look of a broker's directory may meet its deletion
    try:
        while True:
            ends = _ends(store, topic)
            uuid = str(store.topic(topic).uuid)
            saw(topic, uuid)
            if uuid == before:
                return TopicSnapshot(uuid, ends)
            # The uuid is new: the ends may belong to a deleted topic of this name.
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
    """Topics that may be subscribed. Named topics need no listing of thousands of others."""
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
