"""Garbage of a whole store: old commits, data of crashed jobs, logs of deleted topics."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..config import StoreConfig
from ..errors import StorageError
from ..vfs import Vfs
from .catalog import ObjectCatalog
from .commit_log import CHECKPOINT_INTERVAL, CommitLog
from .garbage import DATA, Garbage, collect_log, hour_of, live_keys, time_text
from .patience import PatientBackend
from .state import LogState

_BATCH = 500
_HOUR_US = 3600 * 10**6
_log = logging.getLogger("storage_core")


class Collector:
    """Finds and deletes what no reader needs. Safe beside writers, readers and other collectors."""

    def __init__(
        self,
        backend: PatientBackend,
        clock: Vfs,
        config: StoreConfig,
        catalog: ObjectCatalog,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._ttl_us = config.staging_ttl_ms * 1000
        self._catalog = catalog

    def collect(self, *, dry_run: bool) -> Garbage:
        """Delete everything that is older than the time to live and not needed."""
        now_us = self._clock.now_us()  # before the logs are read: later commits name newer data
        found, states = Garbage(), list[LogState]()
        for log_id in self._log_ids():
            log = self._catalog.open_log(log_id)
            state = log.refresh()
            states.append(state)
            if state.deleted and self._is_old(log):
                found = found.plus(self._whole_log(log))
            elif not state.deleted:
                found = found.plus(collect_log(log, self._ttl_us, dry_run=dry_run))
        rest = self._orphans(live_keys(states), now_us)
        if not dry_run:
            self._delete([*found.keys, *rest.keys])
        return found.plus(rest)

    def collect_if_due(self, log: CommitLog, state: LogState) -> None:
        """Delete old commits of one log, now and then; if that fails, the next writer does it."""
        if state.number % CHECKPOINT_INTERVAL != CHECKPOINT_INTERVAL - 1:
            return
        try:
            collect_log(log, self._ttl_us, dry_run=False)
        except (OSError, StorageError) as error:
            _log.info("no garbage of %s was collected: %s", log.prefix, error)

    def drop_job(self, job: str) -> None:
        """Delete what the tasks of a job uploaded since the time to live."""
        now_us, hours = self._clock.now_us(), set()
        for ago in range(0, self._ttl_us + _HOUR_US, _HOUR_US):
            hours.add(hour_of(now_us - ago))
        for hour in sorted(hours):
            keys = [info.key for info in self._backend.list_after(f"{DATA}/{hour}/{job}/")]
            self._delete(keys)

    def _log_ids(self) -> Iterable[str]:
        found: dict[str, None] = {}
        for info in self._backend.list_after("logs/"):
            found[info.key.split("/")[1]] = None
        return found

    def _is_old(self, log: CommitLog) -> bool:
        """Whether the topic was deleted so long ago that no reader is left."""
        return log.last_written() < time_text(self._clock.now_us() - self._ttl_us)

    def _whole_log(self, log: CommitLog) -> Garbage:
        found = list(self._backend.list_after(log.prefix))
        return Garbage(tuple(info.key for info in found), sum(info.size for info in found))

    def _orphans(self, live: set[str], now_us: int) -> Garbage:
        last = f"{DATA}/{hour_of(now_us - self._ttl_us)}"
        keys, size = list[str](), 0
        for info in self._backend.list_after(f"{DATA}/"):
            if info.key < last and info.key not in live:
                keys.append(info.key)
                size += info.size
        return Garbage(tuple(keys), size)

    def _delete(self, keys: list[str]) -> None:
        for at in range(0, len(keys), _BATCH):
            self._backend.delete(keys[at : at + _BATCH])
