"""The topics of a Kafka broker's log directory, by the names of its directories."""

from __future__ import annotations

import threading
import uuid

from ..errors import PartitionNotFoundError, TopicNotFoundError
from ..io.caching import may_cache_listing
from ..layouts.broker_names import KAFKA_NAMES, Numbers
from ..metadata.topic_file import TopicFile
from ..vfs import FileStat, Vfs
from .checkpoints import Checkpoints, PartitionFiles, topic_id

_NAMESPACE = uuid.UUID("0d7b1c1e-7f53-4a0b-8a5c-2f3f5d1e9b64")


class KafkaCatalog:
    """Topics by name. Safe for several threads: the directory is the truth."""

    def __init__(self, vfs: Vfs, checkpoints: Checkpoints, *, internal_topics: bool) -> None:
        self._vfs = vfs
        self._checkpoints = checkpoints
        self._internal = internal_topics
        self._lock = threading.Lock()
        self._known: tuple[FileStat, tuple[Numbers, Numbers]] | None = None
        self._topics: dict[str, tuple[FileStat | None, TopicFile]] = {}

    def names(self) -> list[str]:
        """All topics; internal ones (``__…``) only when asked for."""
        here, linked = self._numbers()
        # Of a topic that the broker has, all segments may be missing.
        known = [name for name in here if self._checkpoints.highest_partition(name) >= 0]
        found = sorted({*KAFKA_NAMES.topics(self._vfs), *linked, *known})
        return [name for name in found if self._internal or not name.startswith("__")]

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that are in this directory."""
        here, linked = self._numbers()
        if topic not in here and topic not in linked:
            names = ", ".join(self.names()[:20]) or "none"
            raise TopicNotFoundError(
                f"Topic {topic!r} does not exist in {self._vfs.root}. Topics found: {names}.",
                topic=topic,
            )
        return here.get(topic, [])

    def get(self, topic: str) -> TopicFile:
        """A topic; it has one partition more than the highest that is known of here.

        That may be one without a directory: the broker's checkpoint file names it, or a link.
        Its uuid is the broker's topic id, so it is another one after the topic was deleted and
        created again.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        numbers = self.partitions(topic)
        linked = self._numbers()[1].get(topic, [])
        count = 1 + max(*numbers[-1:], *linked[-1:], self._checkpoints.highest_partition(topic))
        of = PartitionFiles(self._vfs, topic, (numbers or linked)[0])
        stat = self._vfs.stat(of.name)
        known = self._topics.get(topic)
        if known is not None and known[0] == stat and known[1].partitions == count:
            return known[1]
        found = TopicFile(
            uuid=(topic_id(of) if numbers else None) or uuid.uuid5(_NAMESPACE, topic),
            store_uuid=_NAMESPACE,
            partitions=count,
            created_at="",
            settings={},
        )
        if stat is not None and may_cache_listing(self._vfs, stat):
            self._topics[topic] = (stat, found)
        return found

    def require_here(self, of: PartitionFiles) -> None:
        """Raise unless the partition is in this directory.

        Raises:
            PartitionNotFoundError: it is on another disk or another broker, or a link.
        """
        numbers = self.partitions(of.topic)
        if of.partition in numbers:
            return
        here = ", ".join(map(str, numbers[:20])) or "none"
        why = (
            f"{of.name} is not in {self._vfs.root}, which has partitions {here} of the topic. "
            "Another disk or broker has it"
        )
        if of.partition in self._numbers()[1].get(of.topic, []):
            why = f"{of.name} in {self._vfs.root} is a symbolic link, and links are not followed"
        raise PartitionNotFoundError(
            f"{why}: read that directory too, and name the partitions of each (option assign).",
            topic=of.topic,
            partition=of.partition,
        )

    def _numbers(self) -> tuple[Numbers, Numbers]:
        """The partitions that have a directory here, and those that have a link."""
        stat = self._vfs.stat(".")
        with self._lock:
            known = self._known
        if known is not None and known[0] == stat:
            return known[1]
        found = KAFKA_NAMES.found(self._vfs)
        if stat is not None and may_cache_listing(self._vfs, stat):
            with self._lock:
                self._known = (stat, found)
        return found
