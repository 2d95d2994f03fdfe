"""What readers may see of a topic: the high watermarks, and the schema version of a typed topic."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ..errors import (
    RecoveryNeededError,
    SchemaMismatchError,
    StorageError,
    TopicNotFoundError,
)
from ..io.io_errors import watermark_lost
from ..lazy import LazyModule
from ..metadata import high_watermark
from ..metadata.catalog import Catalog
from ..metadata.topic_file import TopicFile
from ..vfs import Vfs
from .write_barrier import TopicBarrier

if TYPE_CHECKING:
    from ..metadata import checkpoint, schema_files
    from ..metadata.schema_files import TopicSchemas
    from ..schema.fields import SchemaVersion
else:
    checkpoint = LazyModule("storage_core.metadata.checkpoint")
    schema_files = LazyModule("storage_core.metadata.schema_files")


class Published(NamedTuple):
    """The high watermark of every partition, and the schema version to read rows with."""

    ends: tuple[int, ...]
    schema: int | None = None


class PublishedTopics:
    """Reads what is published. Takes no lock and changes no file. Safe for several threads."""

    def __init__(self, vfs: Vfs, catalog: Catalog, barrier: TopicBarrier, timeout_ms: int) -> None:
        self._vfs = vfs
        self._catalog = catalog
        self._barrier = barrier
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._schemas: dict[UUID, TopicSchemas] = {}

    def schemas(self, topic: str) -> TopicSchemas:
        """The registered schema versions of a typed topic.

        Raises:
            SchemaMismatchError: it is a records topic.
        """
        found = self._catalog.get(topic)
        if not found.is_typed:
            raise SchemaMismatchError(
                f"topic {topic!r} is a records topic: it has keys and values, no columns of its "
                "own. The kind of a topic never changes; create a typed topic.",
                topic=topic,
            )
        with self._lock:
            known = self._schemas.get(found.uuid)
            if known is None:
                known = schema_files.TopicSchemas(self._vfs, topic, found.uuid, self._timeout_ms)
                self._schemas[found.uuid] = known
            return known

    def key_columns(self, topic: str) -> tuple[str, ...]:
        """The key columns of a typed topic."""
        return self._catalog.get(topic).key_columns

    def current(self, topic: str) -> SchemaVersion:
        """The published schema of a typed topic.

        Raises:
            SchemaMismatchError: it is a records topic.
        """
        schemas = self.schemas(topic)
        version = self.read(topic).schema
        if version is None:
            raise TopicNotFoundError(
                f"topic {topic!r} was deleted and created again during this call.", topic=topic
            )
        return schemas.get(version)

    def read(self, topic: str) -> Published:
        """The ends and the schema of a topic, at one instant."""
        found = self._catalog.get(topic)
        newest = high_watermark.newest(self._vfs, topic, found.uuid.bytes)
        if newest is None or (newest.watermark.schema is not None) != found.is_typed:
            return self._read_lost(topic, found)
        watermark = newest.watermark
        ends = tuple(watermark.end(partition) for partition in range(found.partitions))
        published = Published(ends, watermark.schema)
        if newest.has_both_slots:
            return published
        # The other slot is torn: it may have been the newest, until it was damaged.
        with suppress(RecoveryNeededError):
            lost = self._read_lost(topic, found)
            schema = None if watermark.schema is None else max(watermark.schema, lost.schema or 0)
            published = Published(tuple(map(max, ends, lost.ends)), schema)
        return published

    def _read_lost(self, topic: str, found: TopicFile) -> Published:
        """What is published of a topic whose ``watermark`` file is lost.

        The ends come from checkpoint, ledger and intents. The lines of a checkpoint have different
        ages, and readers must not see half of a commit. So a commit that is in the ledger counts on
        all its partitions: it is durable there. A pending commit counts on none.
        """
        while True:
            schema = self.schema_of_lost(topic)
            ends = self._ends_of_lost(topic, found)
            # A commit between the two would show rows without their schema.
            if schema == self.schema_of_lost(topic):
                return Published(ends, schema)

    def _ends_of_lost(self, topic: str, found: TopicFile) -> tuple[int, ...]:
        try:
            committed = self._barrier.recovery_points(topic, str(found.uuid))
            pending = self._barrier.starts(topic, str(found.uuid))
        except StorageError as error:
            raise watermark_lost(topic) from error
        lines, ends = checkpoint.read(self._vfs), []
        for partition in range(found.partitions):
            line = lines.get((topic, partition))
            if line is None or line.topic_uuid != str(found.uuid):
                raise watermark_lost(topic)
            end = max(line.log_end_offset, committed.get(partition, 0))
            ends.append(min(end, pending.get(partition, end)))
        return tuple(ends)

    def schema_of_lost(self, topic: str) -> int | None:
        """The published schema version while the ``watermark`` file is lost."""
        found = self._catalog.get(topic)
        if not found.is_typed:
            return None
        copied = self.schemas(topic).published()
        return self._barrier.published_schema(topic, str(found.uuid), copied)
