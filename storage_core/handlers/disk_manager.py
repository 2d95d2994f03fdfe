"""The handlers of a log directory: one for each topic-partition, created at its first use."""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import arguments
from ..config import StoreConfig
from ..errors import CollectedError, ConfigError, StorageError
from ..format.file_names import check_name
from ..format.partitioner import partition_for_key
from ..layouts.registry import LAYOUTS, layout_at_url
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile
from ..store.store import Store
from .background import Maintainer
from .disk_handler import DiskHandler
from .write_queue import Bytes, Headers, stored_bytes

if TYPE_CHECKING:
    from . import row_checks
    from .row_checks import RowChecks
else:
    row_checks = LazyModule("storage_core.handlers.row_checks")

_TOPIC_IS_FRESH_S = 1.0
_log = logging.getLogger("storage_core")


class DiskManager:
    """Handlers by topic and partition. Safe for several threads, not across a fork.

    The first call opens (or creates) the store in ``config.log_dir``. To close all handlers closes
    the store too; the next call opens it again. While it is open, a thread maintains its logs, if
    the configuration asks for it.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = StoreConfig() if config is None else config
        arguments.instance("config", self._config, StoreConfig, "a StoreConfig or None")
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._handlers: dict[str, DiskHandler] = {}
        self._rows: dict[str, RowChecks] = {}
        self._topics: dict[str, tuple[TopicFile, float]] = {}
        self._turn = itertools.count()
        self._maintainer: Maintainer | None = None

    @property
    def config(self) -> StoreConfig:
        """Settings of the store and of all handlers."""
        return self._config

    @property
    def handlers(self) -> dict[str, DiskHandler]:
        """The current handlers, by ``"{topic}_{partition}"``."""
        with self._lock:
            return dict(self._handlers)

    def get_handler(self, topic: str, partition: int) -> DiskHandler:
        """The handler of a topic-partition; a missing topic or partition is created.

        The same partition has the same handler until it is closed.
        """
        check_name("topic", topic)
        if not isinstance(partition, int) or partition < 0:
            raise ConfigError(f"partition must be an integer of 0 or more, got {partition!r}.")
        key = f"{topic}_{partition}"
        with self._lock:
            known = self._handlers.get(key)
            if known is not None and known.state != "closed":
                return known
            store = self._opened()
            _ensure_partition(store, topic, partition)
            handler = DiskHandler(store, topic, partition, self._config)
            self._handlers[key] = handler
            return handler

    @property
    def store(self) -> Store:
        """The store in ``config.log_dir``, opened or created; to create topics and to read.

        ``close_all_handlers`` closes it.
        """
        with self._lock:
            return self._opened()

    def append(
        self,
        topic: str,
        value: Bytes | None,
        key: Bytes | None = None,
        *,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
    ) -> Future[int]:
        """Queue one record; the future gives its offset once it is durable.

        The key chooses the partition, as in Kafka's producers and Spark's sink (murmur2). Without a
        key ``disk_flush_batch_size`` records go to one partition, then the next ones to the next.
        The rest is as for ``DiskHandler.append``.

        Raises:
            TopicNotFoundError: there is no such topic. ``store.create_topic`` creates it.
            InvalidRecordError: the record cannot be stored; only this record is refused.
        """
        found = self._topic(topic)
        if key is None:
            partition = self._next_partition(found)
        else:
            key = stored_bytes("key", key)
            assert key is not None
            partition = partition_for_key(key, found.partitions)
        handler = self.get_handler(topic, partition)
        return handler.append(value, key, headers=headers, timestamp=timestamp)

    def append_row(self, topic: str, row: Mapping[str, Any]) -> Future[int]:
        """Queue one row of a typed topic in the partition that its key belongs to.

        Without key columns rows go to the partitions as in ``append``. The rest is as for
        ``DiskHandler.append_row``.
        """
        found = self._topic(topic)
        checks = self._rows.get(topic)
        if checks is None or checks.uuid != found.uuid:
            checks = self._rows[topic] = row_checks.RowChecks(self.store, topic)
        checked = checks.check(row)
        partition = checks.partition_of(checked, found)
        if partition is None:
            partition = self._next_partition(found)
        return self.get_handler(topic, partition).append_checked(checked)

    def close_all_handlers(self) -> None:
        """Write all queued records, stop all threads and close all files.

        Raises:
            CollectedError: some handlers could not write their queued records; all are closed.
        """
        errors: list[BaseException] = []
        # Not under the lock: close waits for callbacks, and a callback may ask for a handler.
        with self._lock:
            handlers, self._handlers = self._handlers, {}
            store, self._store = self._store, None
            self._rows, self._topics = {}, {}
            maintainer, self._maintainer = self._maintainer, None
            atexit.unregister(self.close_all_handlers)
        if maintainer is not None:
            maintainer.stop()
        for name, handler in handlers.items():
            _log.info("closing the handler %s", name)
            _collect(handler.close, errors)
        if store is not None:
            _collect(store.close, errors)
        if errors:
            raise CollectedError(
                "closing the handlers failed: " + "; ".join(map(str, errors)), errors
            ) from errors[0]

    def __enter__(self) -> DiskManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close_all_handlers()

    def _topic(self, topic: str) -> TopicFile:
        """The topic now; of a store of objects as it was within the last second.

        There to look is a request, which takes longer than thousands of appends.
        """
        store = self.store
        if not LAYOUTS[store.layout].requests:
            return store.topic(topic)
        now = store.vfs.monotonic()
        known = self._topics.get(topic)
        if known is None or now >= known[1]:
            known = self._topics[topic] = store.topic(topic), now + _TOPIC_IS_FRESH_S
        return known[0]

    def _next_partition(self, topic: TopicFile) -> int:
        turn = next(self._turn) // self._config.disk_flush_batch_size
        return turn % topic.partitions

    def _opened(self) -> Store:
        if self._store is None:
            config = self._config
            at_url = arguments.store_url(config.log_dir) is not None
            layout = layout_at_url(config.layout) if at_url else config.layout
            self._store = Store.open(config.log_dir, layout=layout, create=True, config=config)
            # A program that ends without close loses no queued record.
            atexit.register(self.close_all_handlers)
            if config.maintenance_interval_ms is not None or config.scrub_interval_ms is not None:
                self._maintainer = Maintainer(self._store)
                self._maintainer.start()
        return self._store


def _collect(close: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        close()
    except StorageError as error:
        errors.append(error)


def _ensure_partition(store: Store, topic: str, partition: int) -> None:
    """Create the topic or add partitions; other processes may do the same at the same time."""
    found = store.create_topic(topic, partition + 1, exist_ok=True)
    while found.partitions <= partition:
        try:
            found = store.add_partitions(topic, partition + 1)
        except ConfigError:
            # Another process added more partitions, or the number is too large.
            found = store.topic(topic)
            if found.partitions <= partition:
                raise
