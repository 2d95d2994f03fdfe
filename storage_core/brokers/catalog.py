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
# The names of our own files beside the broker's are longer than the topic's.
_MOST_CHARACTERS = 200
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
        """What can be said of a topic. Its uuid changes when we make or delete it, never by a copy.

        Nothing of the file system is in it: a restored copy has other inodes, a remounted disk
        another device, and both would take every stream and commit for one of another topic.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        directory = self._layout.names.topic_directory(topic)
        stat = self._vfs.stat(directory) if _is_plain(topic) else None
        made_stat = None if stat is None else self._vfs.stat(_made(topic))
        known = self._known.get(topic)
        if known is not None and known[:2] == (stat, made_stat):
            return known[2]
        partitions = 0 if stat is None else self._layout.names.partitions(self._vfs, topic)
        if stat is None or not partitions:
            found = ", ".join(self.names()[:20]) or "none"
            raise TopicNotFoundError(
                f"Topic {topic!r} does not exist in {self._vfs.root}. Topics found: {found}.",
                topic=topic,
            )
        made = (read_file(self._vfs, _made(topic), 64) or b"").hex()
        made_topic = TopicFile(
            uuid=uuid.uuid5(_NAMESPACE, f"{topic}:{made}"),
            store_uuid=_NAMESPACE,
            partitions=partitions,
            created_at="",
            settings={"segment_bytes": self._segment_bytes()},
        )
        if may_cache_listing(self._vfs, stat) and not self._layout.names.has_own_directories(
            self._vfs, topic
        ):
            self._known[topic] = (stat, made_stat, made_topic)
        return made_topic

    def _segment_bytes(self) -> int:
        """The broker's own limit, unless the configuration asks for another."""
        chosen = self._config.segment_bytes
        return self._layout.segment_bytes if chosen == _DEFAULT_SEGMENT_BYTES else chosen

    def create(self, topic: str, partitions: int) -> TopicFile:
        """Create a topic with an empty log for every partition."""
        if len(check_name("topic", topic)) > _MOST_CHARACTERS:
            raise InvalidNameError(
                f"topic name {topic!r} has {len(topic)} characters; the most are "
                f"{_MOST_CHARACTERS} in a broker's directory."
            )
        check_partitions(partitions)
        with self._exclusive():
            existing = self._layout.names.topics(self._vfs)
            if topic in existing:
                self._make_sure(topic)
                raise TopicExistsError(f"topic {topic!r} exists already.", topic=topic)
            check_no_case_clash(topic, existing)
            self._make_other(topic)
            self._make_logs(topic, 0, partitions)
            self._register(topic, partitions)
        return self.get(topic)

    def grow(self, topic: str, total: int) -> TopicFile:
        """Give a topic more partitions."""
        with self._exclusive():
            current = self.get(topic).partitions
            if total < current:
                raise ConfigError(f"topic {topic!r} has {current} partitions; it cannot shrink.")
            self._make_logs(topic, current, check_partitions(total))
            self._register(topic, total)
        return self.get(topic)

    def require_same(self, topic: str, topic_uuid: uuid.UUID) -> None:
        """Raise TopicNotFoundError unless the name still stands for the same topic."""
        if self.get(topic).uuid != topic_uuid:
            raise TopicNotFoundError(
                f"topic {topic!r} was deleted and made anew meanwhile. Try again to use the new "
                "one.",
                topic=topic,
            )

    def delete(self, topic: str, partitions: int) -> bool:
        """Remove a topic's directory, out of sight first. The caller holds so many partitions.

        False when it has grown meanwhile: there are partitions whose locks nobody holds.
        """
        with self._exclusive():
            if self.get(topic).partitions != partitions:
                return False
            trash = f"{STATE_DIRECTORY}/deleted/{uuid.uuid4()}"
            make_directories(self._vfs, parent(trash))
            directory = self._layout.names.topic_directory(topic)
            self._vfs.rename(directory, trash)
            self._vfs.fsync_dir(parent(directory))
            # What the broker makes under this name later is another topic: old commits to this one
            # must neither be finished there nor count as done.
            self._make_other(topic)
            self._register(topic, None)
            remove_tree(self._vfs, parent(trash))
        return True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep our other processes from changing topics meanwhile."""
        ensure_lock_file(self._vfs, _LOCK)
        with locked(self._vfs, _LOCK, self._config.lock_timeout_ms):
            yield

    def _make_other(self, topic: str) -> None:
        """Let the name stand for another topic from now on."""
        sync_directories(self._vfs, parent(_made(topic)))
        replace_file(self._vfs, _made(topic), uuid.uuid4().bytes)

    def _make_logs(self, topic: str, first: int, end: int) -> None:
        for partition in range(first, end):
            directory = self._layout.names.directory(self._vfs, topic, partition)
            make_directories(self._vfs, directory)
            name = self._layout.names.format(self._vfs, topic, partition, 0)
            create_file(self._vfs, f"{directory}/{name}", b"")
        self._sync_folders(topic)

    def _sync_folders(self, topic: str) -> None:
        """Also those that were there: whoever made them may have died before they were durable."""
        directory = self._layout.names.topic_directory(topic)
        self._vfs.fsync_dir(directory)
        sync_directories(self._vfs, directory)

    def _make_sure(self, topic: str) -> None:
        """Do what is left to do of a topic whose maker may have died."""
        self._sync_folders(topic)
        if self._layout.isolated:
            described = {e["name"]: e.get("partitions") for e in self._metadata()["topics"]}
            if described.get(topic) != self.get(topic).partitions:
                self._register(topic, self.get(topic).partitions)

    def _register(self, topic: str, partitions: int | None) -> None:
        """Tell a cursus broker of the topic: it does not start over directories it cannot name."""
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


def _made(topic: str) -> str:
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
