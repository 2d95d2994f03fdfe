"""The engine of a Kafka broker's log directory: it reads, and refuses to write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NoReturn
from uuid import UUID

from ..commit.commit_state import PendingCommit
from ..commit.ledger import LedgerEntry
from ..commit.staging_gc import StagedJob
from ..config import StoreConfig
from ..errors import ConfigError, NotWritableError, SchemaMismatchError, StorageError
from ..layouts.broker_names import STATE_DIRECTORY
from ..layouts.registry import KAFKA
from ..log.published import Published
from ..metadata.consumer_groups import GroupFiles
from ..metadata.topic_file import TopicFile
from ..types import IsolationLevel, Problem
from ..vfs import Vfs
from .catalog import KafkaCatalog
from .checkpoints import Checkpoints, PartitionFiles
from .checks import partition_problems
from .maintenance import KafkaMaintenance
from .segments import KafkaCaches, KafkaReader, KafkaSegments


class KafkaEngine:
    """One log directory. Safe for several threads."""

    name = KAFKA.name
    remote: None = None

    def __init__(
        self, vfs: Vfs, config: StoreConfig, isolation: IsolationLevel, *, internal_topics: bool
    ) -> None:
        self._vfs = vfs
        self._config = config
        self._isolation: IsolationLevel = isolation
        self._checkpoints = Checkpoints(vfs)
        self._catalog = KafkaCatalog(vfs, self._checkpoints, internal_topics=internal_topics)
        self._caches = KafkaCaches(vfs, config.index_cache_segments)
        self._lock = threading.Lock()
        self._segments: dict[tuple[UUID, str, int], KafkaSegments] = {}
        # None are there: the broker keeps its groups in a topic.
        self.groups = GroupFiles(vfs, f"{STATE_DIRECTORY}/groups", config.lock_timeout_ms)

    def topics(self) -> list[str]:
        return self._catalog.names()

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def published(self, topic: str) -> Published:
        return Published(self.high_watermarks(topic))

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        """Of a partition that is not in this directory it is 0; to read it is an error."""
        here = set(self._catalog.partitions(topic))
        count = self._catalog.get(topic).partitions
        return tuple(
            self._of(topic, number).high_watermark() if number in here else 0
            for number in range(count)
        )

    def recovery_due(self, topic: str, partition: int) -> bool:  # noqa: ARG002
        """Never: the broker recovers its logs."""
        return False

    def reader(self, topic: str, partition: int) -> KafkaReader:
        return KafkaReader(topic, partition, self._of(topic, partition))

    def maintenance(self, topic: str, partition: int) -> KafkaMaintenance:
        found = self._catalog.get(topic)
        return KafkaMaintenance(
            PartitionFiles(self._vfs, topic, partition),
            found.config(self._config),
            self._of(topic, partition),
            str(found.uuid),
        )

    def check(self) -> Iterator[Problem]:
        for topic in self.topics():
            try:
                self._catalog.get(topic)
            except StorageError as error:
                yield Problem.from_error(error)
                continue
            for partition in self._catalog.partitions(topic):
                of = PartitionFiles(self._vfs, topic, partition)
                yield from partition_problems(of, self._of(topic, partition))

    def store_uuid(self) -> None:
        """A broker's directory has none."""

    def ledger(self) -> list[LedgerEntry]:
        return []

    def pending_commits(self) -> list[PendingCommit]:
        return []

    def staged_jobs(self) -> list[StagedJob]:
        return []

    def slice_contents(self, *_: object) -> NoReturn:
        raise self._only_objects()

    def slice_frames(self, *_: object) -> NoReturn:
        raise self._only_objects()

    def collect_garbage(self, *, dry_run: bool) -> NoReturn:  # noqa: ARG002
        raise self._only_objects()

    def schemas(self, topic: str) -> NoReturn:
        raise SchemaMismatchError(
            f"layout kafka stores keys and values, not columns, so topic {topic!r} is no typed "
            "topic. Convert it to a typed topic of a native store.",
            topic=topic,
        )

    def require_writable(self) -> NoReturn:
        raise NotWritableError(
            f"layout kafka is only read: leader epochs, producer state and replicas in "
            f"{self._vfs.root} are the broker's. Write through Kafka, or convert the directory to "
            "a native store.",
            path="",
        )

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Whatever writes, for callers that did not ask whether that is possible."""
        self.require_writable()

    create_topic = delete_topic = add_partitions = alter_topic = refuse
    register_schema = add_columns = adopt_schemas = refuse
    append = log = appended_log = roll = stage = stage_check = refuse
    commit = abort = finish_commit = give_up_commit = repair = refuse

    def flush(self) -> None:
        """Nothing is written, so nothing waits."""

    def flush_partition(self, topic: str, partition: int) -> None:
        """Nor here."""

    def close(self) -> None:
        """Nothing is held open."""

    def _of(self, topic: str, partition: int) -> KafkaSegments:
        of = PartitionFiles(self._vfs, topic, partition)
        self._catalog.require_here(of)
        key = (self._catalog.get(topic).uuid, topic, partition)
        with self._lock:
            found = self._segments.get(key)
            if found is None:
                found = KafkaSegments(of, self._caches, self._checkpoints, self._isolation)
                self._segments[key] = found
            return found

    def _only_objects(self) -> ConfigError:
        return ConfigError("layout kafka has files, not objects. This is for layout objects.")


def open_engine(
    vfs: Vfs, config: StoreConfig, isolation: IsolationLevel, internal_topics: bool
) -> KafkaEngine:
    """The engine of a log directory."""
    return KafkaEngine(vfs, config, isolation, internal_topics=internal_topics)
