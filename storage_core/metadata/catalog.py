"""The topics of a native store: creating, changing, deleting and finding them.

The catalog prepares a topic under a name that no topic can have (it starts with ``~``). One rename
makes the topic appear, and one rename makes it disappear. So a topic exists completely or not at
all, also after a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from ..config import StoreConfig
from ..errors import TopicExistsError, TopicNotFoundError
from ..format.file_names import check_name, check_no_case_clash, is_name
from ..io import json_files
from ..io.caching import may_cache_listing
from ..io.durable import (
    create_file,
    is_abandoned,
    make_directories,
    remove_tree,
    sync_directories,
)
from ..io.locks import locked
from ..lazy import LazyModule
from ..vfs import FileStat, Vfs
from . import high_watermark, slots, topic_file
from .slots import Watermark
from .topic_file import TopicFile

if TYPE_CHECKING:
    from . import schema_files
    from .schema_files import NewSchema
else:
    schema_files = LazyModule("storage_core.metadata.schema_files")

TOPICS = "topics"
_PREPARED, _DISCARDED = "~creating-", "~deleted-"


class Catalog:
    """Topics by name. Safe for several threads. It rereads a file that changed on disk."""

    def __init__(self, vfs: Vfs, config: StoreConfig) -> None:
        self._vfs = vfs
        self._config = config
        self._known: dict[str, tuple[FileStat, TopicFile]] = {}
        self._names: tuple[FileStat, list[str]] | None = None

    def names(self) -> list[str]:
        """All topics, sorted. It costs one stat if no topic was created or deleted."""
        stat, known = self._vfs.stat(TOPICS), self._names
        if stat is None:
            return []
        if known is not None and known[0] == stat:
            return list(known[1])
        found = self._vfs.listdir(TOPICS)
        names = sorted(name for name in found if is_name(name) and self._exists(name))
        self._names = (stat, names) if may_cache_listing(self._vfs, stat) else None
        return list(names)

    def _exists(self, topic: str) -> bool:
        return self._vfs.stat(topic_file.path_of(topic)) is not None

    def get(self, topic: str) -> TopicFile:
        """The current topic file. It costs one stat if the file did not change.

        Raises:
            TopicNotFoundError: the topic does not exist.
        """
        check_name("topic", topic)
        stat = self._vfs.stat(topic_file.path_of(topic))
        known = self._known.get(topic)
        if stat is not None and known is not None and known[0] == stat:
            return known[1]
        found = topic_file.read(self._vfs, topic)
        if stat is None or found is None:
            self._known.pop(topic, None)
            raise self._not_found(topic)
        self._known[topic] = (stat, found)
        return found

    def create(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, Any],
        store_uuid: uuid.UUID,
        new: NewSchema | None = None,
    ) -> TopicFile:
        """Create a topic. On return it is durable and other processes see all of it.

        ``new`` makes it a typed topic.

        Raises:
            TopicExistsError: it exists already.
        """
        check_name("topic", topic)
        topic_file.check_partitions(partitions)
        created = TopicFile(
            uuid=uuid.uuid4(),
            store_uuid=store_uuid,
            partitions=partitions,
            created_at=json_files.timestamp(self._vfs),
            settings=topic_file.check_settings(settings),
        )
        if new is not None:
            created = topic_file.as_typed(created, new.key_columns, new.timestamp_column)
            topic_file.check_cleanup(created, created.settings)
        sync_directories(self._vfs, TOPICS)
        self.sweep()
        existing = self.names()
        check_no_case_clash(topic, existing)
        prepared = f"{TOPICS}/{_PREPARED}{created.uuid}"
        try:
            self._prepare(prepared, created, new)
            self._vfs.rename(prepared, f"{TOPICS}/{topic}")
        except OSError as error:
            with suppress(OSError):
                remove_tree(self._vfs, prepared)
            if topic in self.names():
                self._vfs.fsync_dir(TOPICS)  # its creator may have crashed before fsync
                raise TopicExistsError(f"topic {topic!r} already exists.", topic=topic) from error
            raise
        self._vfs.fsync_dir(TOPICS)
        return created

    def _prepare(self, directory: str, topic: TopicFile, new: NewSchema | None) -> None:
        self._vfs.mkdir(directory)
        for partition in range(topic.partitions):
            self._make_partition(directory, partition)
        create_file(self._vfs, f"{directory}/lock", b"")
        create_file(self._vfs, f"{directory}/topic.json", json_files.dump(topic_file.dump(topic)))
        first = Watermark(topic.uuid.bytes, (0,) * topic.partitions)
        if new is not None:
            schema_files.prepare(self._vfs, f"{directory}/schemas", topic.uuid, new.fields)
            first = first._replace(schema=1)
        create_file(self._vfs, f"{directory}/watermark", slots.pack(first))
        self._vfs.fsync_dir(directory)

    def _make_partition(self, directory: str, partition: int) -> None:
        make_directories(self._vfs, f"{directory}/{partition}/segments")
        with suppress(FileExistsError):
            create_file(self._vfs, f"{directory}/{partition}/lock", b"")
        self._vfs.fsync_dir(f"{directory}/{partition}")

    def delete(self, topic: str, partitions: int) -> bool:
        """Remove a topic by renaming it; ``sweep`` then frees its space.

        The caller holds the locks of ``partitions`` partitions. Returns False if the topic has more
        by now: the caller does not hold the locks of the new ones. This takes the topic's lock:
        otherwise ``add_partitions`` could create the directory again under the old name.
        """
        with self._exclusive(topic):
            if self.get(topic).partitions != partitions:
                return False
            self._vfs.rename(f"{TOPICS}/{topic}", f"{TOPICS}/{_DISCARDED}{uuid.uuid4()}")
            self._vfs.fsync_dir(TOPICS)
        self._known.pop(topic, None)
        return True

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        """Increase a topic to ``total`` partitions. The number never decreases."""

        topic_file.check_partitions(total)

        def grown(current: TopicFile) -> TopicFile:
            larger = topic_file.with_partitions(topic, current, total)
            for partition in range(current.partitions, total):
                self._make_partition(f"{TOPICS}/{topic}", partition)
            # Always: an earlier call may have crashed after mkdir and before this fsync.
            self._vfs.fsync_dir(f"{TOPICS}/{topic}")
            return larger

        return self._rewrite(topic, grown)

    def alter(self, topic: str, settings: Mapping[str, Any]) -> TopicFile:
        """Change settings of a topic. None resets a setting to the store's default."""
        return self._rewrite(topic, lambda current: topic_file.with_settings(current, settings))

    def _rewrite(self, topic: str, change: Callable[[TopicFile], TopicFile]) -> TopicFile:
        self.get(topic)
        with self._exclusive(topic):
            changed = change(self.get(topic))
            json_files.replace(self._vfs, topic_file.path_of(topic), topic_file.dump(changed))
        return changed

    def _exclusive(self, topic: str) -> AbstractContextManager[int]:
        return locked(self._vfs, high_watermark.lock_of(topic), self._config.lock_timeout_ms)

    def sweep(self) -> None:
        """Remove deleted topics, and half created ones that are older than an hour."""
        for name in self._vfs.listdir(TOPICS):
            path = f"{TOPICS}/{name}"
            prepared = name.startswith(_PREPARED)
            if name.startswith(_DISCARDED) or (prepared and is_abandoned(self._vfs, path)):
                remove_tree(self._vfs, path)

    def _not_found(self, topic: str) -> TopicNotFoundError:
        found = ", ".join(self.names()[:20]) or "none"
        return TopicNotFoundError(
            f"Topic {topic!r} does not exist in {self._vfs.root}. Topics found: {found}.",
            topic=topic,
        )
