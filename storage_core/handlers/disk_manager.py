"""The handlers of a log directory: one for each topic-partition, created at its first use."""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import arguments
from ..config import StoreConfig
from ..errors import CollectedError, ConfigError, StorageError
from ..format.file_names import check_name
from ..lazy import LazyModule
from ..store.store import Store
from .background import Maintainer
from .disk_handler import DiskHandler

if TYPE_CHECKING:
    from . import row_checks
    from .row_checks import RowChecks
else:
    row_checks = LazyModule("storage_core.handlers.row_checks")

_log = logging.getLogger("storage_core")


class DiskManager:
    """Handlers by topic and partition. Safe for several threads, not across a fork.

    The first call of ``get_handler`` opens (or creates) the store in ``config.log_dir``. To close
    all handlers closes the store too; the next ``get_handler`` opens it again. While it is open, a
    thread maintains its logs, if the configuration asks for it.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = StoreConfig() if config is None else config
        arguments.instance("config", self._config, StoreConfig, "a StoreConfig or None")
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._handlers: dict[str, DiskHandler] = {}
        self._rows: dict[str, RowChecks] = {}
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

    def append_row(self, topic: str, row: Mapping[str, Any]) -> Future[int]:
        """Queue one row of a typed topic in the partition that its key belongs to.

        Without key columns some hundreds of rows go to one partition, then the next ones to the
        next. The rest is as for ``DiskHandler.append_row``.
        """
        with self._lock:
            store = self._opened()
        found = store.topic(topic)
        checks = self._rows.get(topic)
        if checks is None or checks.uuid != found.uuid:
            checks = self._rows[topic] = row_checks.RowChecks(store, topic)
        checked = checks.check(row)
        partition = checks.partition_of(checked, found)
        if partition is None:
            turn = next(self._turn) // self._config.disk_flush_batch_size
            partition = turn % found.partitions
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
            self._rows = {}
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

    def _opened(self) -> Store:
        if self._store is None:
            config = self._config
            self._store = Store.open(
                config.log_dir, layout=config.layout, create=True, config=config
            )
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
