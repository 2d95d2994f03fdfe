"""The topics of a broker's directory, found by its file names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..config import StoreConfig
from ..errors import (
    ConfigError,
    DamagedMetadataError,
    InvalidNameError,
    TopicExistsError,
    TopicNotFoundError,
)
from ..format.file_names import check_name, check_no_case_clash
from ..io.caching import may_cache_listing
from ..io.durable import (
    create_file,
    make_directories,
    parent,
    read_file,
    remove_tree,
    replace_file,
    sync_directories,
)
from ..io.locks import ensure_lock_file, locked
from ..layouts.broker_names import BROKER_TOPICS, STATE_DIRECTORY
from ..metadata.topic_file import TopicFile, check_partitions
from ..vfs import FileStat, Vfs
from .layout import RowLayout

_DEFAULT_SEGMENT_BYTES = StoreConfig().segment_bytes
_LOCK = f"{STATE_DIRECTORY}/locks/topics"
# The names of our own files are longer than the name of their topic.
_MAX_NAME = 200
_NAMESPACE = uuid.UUID("5c1c35d5-8a0e-4c4f-a0be-6d1c9a1e2a67")


class BrokerCatalog:
    """Topics by name. Safe for several threads: the directory is the truth."""

    def __init__(
        self, vfs: Vfs, layout: RowLayout, config: StoreConfig, *, internal_topics: bool
    ) -> None:
        self._vfs = vfs
        self._layout = layout
        self._config = config
        self._internal = internal_topics
        self._known: dict[str, tuple[FileStat, FileStat | None, TopicFile]] = {}

    def names(self) -> list[str]:
        """Topics with a log; the broker's own (``__…``) only when asked for."""
        found = self._layout.names.topics(self._vfs)
        return [name for name in found if self._internal or not name.startswith("__")]

    def get(self, topic: str) -> TopicFile:
        """A topic. Its uuid changes when we create or delete the topic, never when it is copied.

        The uuid has nothing of the file system in it. A restored copy has other inodes and a
        remounted disk another device: streams and commits would take it for another topic.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        directory = self._layout.names.topic_directory(topic)
        stat = self._vfs.stat(directory) if _is_plain(topic) else None
        identity_stat = None if stat is None else self._vfs.stat(_identity_path(topic))
        known = self._known.get(topic)
        if known is not None and known[:2] == (stat, identity_stat):
            return known[2]
        partitions = 0 if stat is None else self._layout.names.partitions(self._vfs, topic)
        if stat is None or not partitions:
            found = ", ".join(self.names()[:20]) or "none"
            raise TopicNotFoundError(
                f"Topic {topic!r} does not exist in {self._vfs.root}. Topics found: {found}.",
                topic=topic,
            )
        identity = (read_file(self._vfs, _identity_path(topic), 64) or b"").hex()
        found_topic = TopicFile(
            uuid=uuid.uuid5(_NAMESPACE, f"{topic}:{identity}"),
            store_uuid=_NAMESPACE,
            partitions=partitions,
            created_at="",
            settings={"segment_bytes": self._segment_bytes()},
        )
        if may_cache_listing(self._vfs, stat) and not self._layout.names.has_own_directories(
            self._vfs, topic
        ):
            self._known[topic] = (stat, identity_stat, found_topic)
        return found_topic

    def _segment_bytes(self) -> int:
        """The broker's own limit, unless the configuration asks for another."""
        chosen = self._config.segment_bytes
        return self._layout.segment_bytes if chosen == _DEFAULT_SEGMENT_BYTES else chosen

    def create(self, topic: str, partitions: int) -> TopicFile:
        """Create a topic with an empty log for every partition."""
        if len(check_name("topic", topic)) > _MAX_NAME:
            raise InvalidNameError(
                f"topic name {topic!r} has {len(topic)} characters. In a broker's "
                f"directory at most {_MAX_NAME} are allowed."
            )
        check_partitions(partitions)
        with self._exclusive():
            existing = self._layout.names.topics(self._vfs)
            if topic in existing:
                self._finish_creation(topic)
                raise TopicExistsError(f"topic {topic!r} exists already.", topic=topic)
            check_no_case_clash(topic, existing)
            self._change_identity(topic)
            self._create_logs(topic, 0, partitions)
            self._register(topic, partitions)
        return self.get(topic)

    def grow(self, topic: str, total: int) -> TopicFile:
        """Add partitions to a topic."""
        with self._exclusive():
            current = self.get(topic).partitions
            if total < current:
                raise ConfigError(f"topic {topic!r} has {current} partitions; it cannot shrink.")
            self._create_logs(topic, current, check_partitions(total))
            self._register(topic, total)
        return self.get(topic)

    def require_same(self, topic: str, topic_uuid: uuid.UUID) -> None:
        """Raise TopicNotFoundError unless the name still stands for the same topic."""
        if self.get(topic).uuid != topic_uuid:
            raise TopicNotFoundError(
                f"topic {topic!r} was deleted and created again meanwhile. Try again to use the "
                "new one.",
                topic=topic,
            )

    def delete(self, topic: str, partitions: int) -> bool:
        """Remove a topic's directory, out of sight first. The caller holds all partitions' locks.

        False when ``partitions`` is no longer their number: others were added without these locks.
        """
        with self._exclusive():
            if self.get(topic).partitions != partitions:
                return False
            trash = f"{STATE_DIRECTORY}/deleted/{uuid.uuid4()}"
            make_directories(self._vfs, parent(trash))
            directory = self._layout.names.topic_directory(topic)
            self._vfs.rename(directory, trash)
            self._vfs.fsync_dir(parent(directory))
            # A topic that the broker creates under this name later is another one: commits to this
            # one must neither be finished there nor count as done.
            self._change_identity(topic)
            self._register(topic, None)
            remove_tree(self._vfs, parent(trash))
        return True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep our other processes from changing topics meanwhile."""
        ensure_lock_file(self._vfs, _LOCK)
        with locked(self._vfs, _LOCK, self._config.lock_timeout_ms):
            yield

    def _change_identity(self, topic: str) -> None:
        """Let the name mean another topic from now on."""
        sync_directories(self._vfs, parent(_identity_path(topic)))
        replace_file(self._vfs, _identity_path(topic), uuid.uuid4().bytes)

    def _create_logs(self, topic: str, first: int, end: int) -> None:
        for partition in range(first, end):
            directory = self._layout.names.directory(self._vfs, topic, partition)
            make_directories(self._vfs, directory)
            name = self._layout.names.format(self._vfs, topic, partition, 0)
            create_file(self._vfs, f"{directory}/{name}", b"")
        self._sync_folders(topic)

    def _sync_folders(self, topic: str) -> None:
        """Sync existing directories too: their creator may have crashed before the sync."""
        directory = self._layout.names.topic_directory(topic)
        self._vfs.fsync_dir(directory)
        sync_directories(self._vfs, directory)

    def _finish_creation(self, topic: str) -> None:
        """Do what is left of a topic whose creator may have crashed."""
        self._sync_folders(topic)
        if self._layout.isolated:
            described = {e["name"]: e.get("partitions") for e in self._metadata()["topics"]}
            if described.get(topic) != self.get(topic).partitions:
                self._register(topic, self.get(topic).partitions)

    def _register(self, topic: str, partitions: int | None) -> None:
        """List the topic for a cursus broker, which refuses to start over unlisted directories."""
        if not self._layout.isolated:
            return
        document = self._metadata()
        kept = [entry for entry in document["topics"] if entry.get("name") != topic]
        if partitions is not None:
            old = [entry for entry in document["topics"] if entry.get("name") == topic]
            entry = old[0] if old else _new_entry(topic)
            kept.append({**entry, "partitions": partitions})
        document["topics"] = sorted(kept, key=lambda entry: str(entry["name"]))
        text = json.dumps(document, indent=2)
        replace_file(self._vfs, BROKER_TOPICS, text.encode())

    def _metadata(self) -> dict[str, Any]:
        data = read_file(self._vfs, BROKER_TOPICS, 1 << 24)
        if data is None:
            topics = self._layout.names.topics(self._vfs)
            count = self._layout.names.partitions
            entries = [
                {**_new_entry(name), "partitions": count(self._vfs, name)}
                for name in topics
                if not name.startswith("__")
            ]
            return {"version": 1, "topics": entries}
        try:
            document = json.loads(data)
            if not all(isinstance(entry["name"], str) for entry in document["topics"]):
                raise TypeError("a topic without a name")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedMetadataError(
                f"{BROKER_TOPICS} is not what the broker writes: {error}. Restore it from a copy.",
                path=BROKER_TOPICS,
            ) from error
        found: dict[str, Any] = document
        return found


def _identity_path(topic: str) -> str:
    return f"{STATE_DIRECTORY}/topics/{topic}"


def _is_plain(topic: str) -> bool:
    return bool(topic) and "/" not in topic and topic not in (".", "..", STATE_DIRECTORY)


def _new_entry(topic: str) -> dict[str, Any]:
    return {
        "name": topic,
        "partitions": 1,
        "idempotent": False,
        "event_sourcing": False,
        "policy": {},
    }
