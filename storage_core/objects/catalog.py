"""The topics of a store of objects, and their logs.

``topics/<name>/<n:020>.json`` names the log of the topic; it is created once. All else is in the
log: partitions, settings, columns, and that the topic was deleted. So one read of the log sees
every change, and no commit can follow the deletion. A topic that is created again gets the next
number and another log. ``<n:020>.deleted`` tells listings of topics that number n is gone.
``<n:020>.deleting`` is stored before the commit that deletes it: so a listing that meets a crash
between the two looks into the log.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ..config import StoreConfig
from ..errors import StorageError, TopicExistsError, TopicNotFoundError
from ..format.file_names import check_name, check_no_case_clash, is_name
from ..io import json_files
from ..metadata import topic_file
from ..metadata.schema_files import NewSchema, RegisteredSchema
from ..metadata.topic_file import TopicFile
from ..schema.fields import SchemaVersion
from ..vfs import Vfs
from .backend import read_object
from .commit_log import CommitLog, Draft
from .document import damaged
from .patience import TRANSIENT, PatientBackend
from .reads.kept_logs import KnownLog
from .reads.pins import Pin
from .state import Commit, LogState

TOPICS = "topics/"
_ENTRY = re.compile(r"(\d{20})\.(json|deleting|deleted)")
_DELETING, _DELETED = 1, 2
_STEPS = {"json": 0, "deleting": _DELETING, "deleted": _DELETED}


class _Step(threading.local):
    """What one thread has seen since ``reading_once`` began; None outside of it."""

    topics: dict[str, tuple[CommitLog, LogState]] | None = None
    names: list[str] | None = None


class ObjectCatalog:
    """Topics by name. Safe for several threads, processes and machines."""

    def __init__(
        self,
        backend: PatientBackend,
        clock: Vfs,
        config: StoreConfig,
        kept: dict[str, KnownLog] | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._config = config
        self._lock = threading.Lock()
        self._known: dict[str, KnownLog] = {}
        self._kept = {} if kept is None else kept
        self._pins: dict[str, tuple[Pin, CommitLog]] = {}
        self._step = _Step()

    @contextmanager
    def reading_once(self) -> Iterator[None]:
        """Inside it, this thread reads each log and the list of topics at most once."""
        if self._step.topics is not None:
            yield
            return
        self._step.topics, self._step.names = {}, None
        try:
            yield
        finally:
            self._step.topics = self._step.names = None

    def pin(self, topic: str, pin: Pin) -> None:
        """Take a topic for what it was when another process looked. Its log is read if needed."""
        self._pins[topic] = (pin, self.open_log(pin.log))

    @property
    def has_pins(self) -> bool:
        """Whether this is the store of a task, whose driver has looked at it."""
        return bool(self._pins)

    def pinned(self, topic: str) -> Pin | None:
        """What was pinned, unless its log was read since and says that the topic is deleted."""
        pin, log = self._pins.get(topic, (None, None))
        return None if log is None or log.is_deleted else pin

    def known_store(self) -> uuid.UUID | None:
        """The store's identity, if a topic of it was read here. Pins tell only of the driver's."""
        with self._lock:
            topics = [known.log.known_topic for known in self._known.values()]
        return next((each.store_uuid for each in topics if each is not None), None)

    def names(self) -> list[str]:
        """All topics, sorted."""
        if self._step.names is None:
            found = self._names()
            if self._step.topics is None:
                return found
            self._step.names = found
        return list(self._step.names)

    def _names(self) -> list[str]:
        last: dict[str, tuple[int, int]] = {}
        for info in self._backend.list_after(TOPICS):
            topic, _, entry = info.key.removeprefix(TOPICS).partition("/")
            found = _ENTRY.fullmatch(entry)
            if found is not None and is_name(topic):
                mark = (int(found[1]), _STEPS[found[2]])
                last[topic] = max(mark, last.get(topic, mark))
        return sorted(
            name
            for name, (_, step) in last.items()
            if step != _DELETED and not (step == _DELETING and self._is_gone(name))
        )

    def _is_gone(self, topic: str) -> bool:
        """Whether a deletion that was begun has happened; if its log is damaged, nobody knows."""
        try:
            return self._find(topic) is None
        except StorageError:
            return False

    def states(self) -> Iterator[tuple[str, LogState]]:
        """Every topic with its state. One that is deleted meanwhile is left out."""
        for name in self.names():
            try:
                state = self.get(name)[1]
            except TopicNotFoundError:
                continue
            yield name, state

    def get(self, topic: str) -> tuple[CommitLog, LogState]:
        """The log of a topic, and its state now.

        Raises:
            TopicNotFoundError: the topic does not exist.
        """
        step = self._step.topics
        if step is not None and topic in step:
            return step[topic]
        known, state = self._current(topic)
        if step is not None:
            step[topic] = (known.log, state)
        return known.log, state

    def _current(self, topic: str) -> tuple[KnownLog, LogState]:
        check_name("topic", topic)
        if topic in self._pins:
            log = self._pins[topic][1]
            state = log.refresh()
            if not state.deleted:
                return KnownLog(-1, log), state
            raise self._not_found(topic)
        known = self._known.get(topic) or self._recalled(topic)
        if known is not None:
            state = known.log.refresh()
            if not state.deleted:
                return known, state
        found = self._find(topic)
        if found is not None and (known is None or found.number != known.number):
            # Another thread may know it by now: readers use that log, so its state must be as new.
            found = self._remember(topic, found)
            state = found.log.refresh()
            if not state.deleted:
                return found, state
        with self._lock:
            self._known.pop(topic, None)
            self._kept.pop(topic, None)
        raise self._not_found(topic)

    def _recalled(self, topic: str) -> KnownLog | None:
        """A log that this process has read for another store, if it is still there."""
        kept = self._kept.get(topic)
        if kept is None:
            return None
        if kept.is_there():
            return self._remember(topic, kept)
        self._kept.pop(topic, None)
        return None

    def _remember(self, topic: str, found: KnownLog) -> KnownLog:
        """Know a log, unless a later one of that name is known."""
        with self._lock:
            if self._known.setdefault(topic, found).number < found.number:
                self._known[topic] = found
            self._kept[topic] = self._known[topic]
            return self._known[topic]

    def log(self, topic: str) -> CommitLog:
        """The log of a topic, without a look whether it changed since the last one."""
        if topic in self._pins:
            return self._pins[topic][1]
        known = self._known.get(topic)
        if known is None:
            # What is kept may be as old as the store that kept it: the state now is wanted.
            return self._current(topic)[0].log
        return known.log

    def open_log(self, log_id: str) -> CommitLog:
        """A log by its id."""
        ttl_s = self._config.staging_ttl_ms / 1000
        return CommitLog(self._backend, self._clock, log_id, ttl_s=ttl_s)

    def create(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, Any],
        store_uuid: uuid.UUID,
        new: NewSchema | None = None,
    ) -> TopicFile:
        """Create a topic. On return it is durable and other processes see all of it.

        Raises:
            TopicExistsError: it exists already.
        """
        check_name("topic", topic)
        topic_file.check_partitions(partitions)
        now = json_files.timestamp(self._clock)
        created = TopicFile(
            uuid.uuid4(), store_uuid, partitions, now, topic_file.check_settings(settings)
        )
        schemas: tuple[RegisteredSchema, ...] = ()
        if new is not None:
            created = topic_file.as_typed(created, new.key_columns, new.timestamp_column)
            topic_file.check_cleanup(created, created.settings)
            schemas = (RegisteredSchema(SchemaVersion(1, new.fields), "create", now),)
        check_no_case_clash(topic, self.names())
        number = self._free_number(topic)
        log_id = created.uuid.hex
        log = self.open_log(log_id)
        log.begin()
        published = 1 if schemas else None
        first = Commit(topic=created, schemas=schemas, published=published, written_at=now)
        log.commit(lambda state: None if state.topic else Draft(first))
        try:
            self._register(topic, number, log_id)
        except TopicExistsError:
            # Nobody will find this log: let garbage collection delete it.
            with suppress(OSError, StorageError):
                log.commit(lambda _: Draft(Commit(deleted=True, written_at=now)))
            raise
        with self._lock:
            self._known[topic] = self._kept[topic] = KnownLog(number, log)
        return created

    def _free_number(self, topic: str) -> int:
        """The number for a new topic of this name.

        Raises:
            TopicExistsError: there is one.
        """
        found = self._find(topic, with_deleted=True)
        if found is None:
            return 0
        if not found.log.refresh().deleted:
            raise _exists(topic)
        return found.number + 1

    def _register(self, topic: str, number: int, log_id: str) -> None:
        """Give the topic its name: this creates it."""
        key, tries, until = _key(topic, number), 0, self._backend.patience.deadline()
        data = json_files.dump({"format": 1, "log": log_id})
        while True:
            try:
                self._backend.create(key, [data])
                return
            except (FileExistsError, *TRANSIENT) as error:
                found = read_object(self._backend, key)
                if found == data:
                    return
                if found is not None:
                    raise _exists(topic) from error
                if tries and self._backend.patience.is_over(until):
                    raise
                tries += 1
                self._backend.patience.wait(tries)

    def delete(self, topic: str) -> None:
        """Delete a topic. No commit can follow."""
        self._pins.pop(topic, None)  # a pin does not know the number of the topic
        known, _ = self._current(topic)
        now = json_files.timestamp(self._clock)
        self._backend.put(_key(topic, known.number, "deleting"), [b""])

        def build(state: LogState) -> Draft | None:
            return None if state.deleted else Draft(Commit(deleted=True, written_at=now))

        if not known.log.commit(build).happened:
            raise self._not_found(topic)
        with self._lock:
            # Another thread may have created the topic again: that one stays.
            if self._known.get(topic) == known:
                del self._known[topic]
                self._kept.pop(topic, None)
        self._backend.put(_key(topic, known.number, "deleted"), [b""])

    def change(self, topic: str, change: Callable[[TopicFile], TopicFile]) -> TopicFile:
        """Change the settings or the number of partitions of a topic."""
        known, _ = self._current(topic)

        def build(state: LogState) -> Draft | None:
            current = self.require(topic, state)
            changed = change(current)
            if changed == current:
                return None
            now = json_files.timestamp(self._clock)
            return Draft(Commit(topic=changed, written_at=now))

        return self.require(topic, known.log.commit(build).state)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        """Increase a topic to ``total`` partitions. The number never decreases."""
        topic_file.check_partitions(total)
        return self.change(topic, lambda now: topic_file.with_partitions(topic, now, total))

    def require(self, topic: str, state: LogState, known: TopicFile | None = None) -> TopicFile:
        """The topic of a state; ``known`` is what the caller took it for.

        Raises:
            TopicNotFoundError: it was deleted, or it is another one.
        """
        found = state.topic
        if found is None or state.deleted or (known is not None and known.uuid != found.uuid):
            raise self._not_found(topic)
        return found

    def _find(self, topic: str, *, with_deleted: bool = False) -> KnownLog | None:
        """The last topic of this name; None if there was none, or if it was deleted."""
        last = (-1, 0)
        for info in self._backend.list_after(f"{TOPICS}{topic}/"):
            found = _ENTRY.fullmatch(info.key.rpartition("/")[2])
            if found is not None:
                last = max(last, (int(found[1]), _STEPS[found[2]]))
        number, step = last
        if number < 0 or (step == _DELETED and not with_deleted):
            return None
        key = _key(topic, number)
        fields = json_files.load(bytes(self._backend.get_ranges(key).whole), key)
        log_id = fields.get("log")
        if not isinstance(log_id, str) or not is_name(log_id):
            raise damaged(key, f"log is {log_id!r}")
        known = KnownLog(number, self.open_log(log_id))
        if with_deleted or step != _DELETING or not known.log.refresh().deleted:
            return known
        with suppress(OSError):  # a reader may not write
            self._backend.put(_key(topic, number, "deleted"), [b""])
        return None

    def _not_found(self, topic: str) -> TopicNotFoundError:
        found = ", ".join([name for name in self.names() if name != topic][:20]) or "none"
        return TopicNotFoundError(
            f"Topic {topic!r} does not exist in {self._backend.name}. Topics found: {found}.",
            topic=topic,
        )


def _key(topic: str, number: int, suffix: str = "json") -> str:
    return f"{TOPICS}{topic}/{number:020d}.{suffix}"


def _exists(topic: str) -> TopicExistsError:
    return TopicExistsError(f"topic {topic!r} already exists.", topic=topic)
