"""Garbage of a whole store: old commits, data of crashed jobs, logs of deleted topics."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..config import StoreConfig
from ..errors import StorageError
from ..io import json_files
from ..vfs import Vfs
from .catalog import ObjectCatalog
from .commit_log import CHECKPOINT_INTERVAL, GONE, CommitLog, Draft
from .garbage import Garbage, collect_deleted, collect_log, live_keys
from .names import DATA, hour_of, time_text
from .patience import PatientBackend
from .state import Commit, LogState

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
        hour = hour_of(self._clock.now_us() - self._ttl_us)
        found, logs = Garbage(), list[CommitLog]()
        for log_id in self._log_ids():
            log = self._catalog.open_log(log_id)
            state = log.refresh()
            if not state.deleted:
                logs.append(log)
                found = found.plus(collect_log(log, self._ttl_us, dry_run=dry_run))
            elif log.boundary() >= GONE or self._is_old(log):
                found = found.plus(collect_deleted(log, dry_run=dry_run))
        rest = self._orphans(live_keys(log.refresh() for log in logs), hour)
        if dry_run or not rest.keys:
            return found.plus(rest)
        # A writer that slept, or whose clock is wrong, may be about to commit some of these. After
        # the fence it cannot, and what it has committed before is in the state of the fence.
        rest = rest.without(live_keys([_fenced(log, hour) for log in logs]))
        self._delete(list(rest.keys))
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
        """Delete what the tasks of a job uploaded since the time to live, but nothing committed."""
        now_us, hours, keys = self._clock.now_us(), set(), list[str]()
        for ago in range(0, self._ttl_us + _HOUR_US, _HOUR_US):
            hours.add(hour_of(now_us - ago))
        for hour in sorted(hours):
            keys += [info.key for info in self._backend.list_after(f"{DATA}/{hour}/{job}/")]
        if keys:
            # The caller may abort a job that it has committed.
            live = live_keys(self._catalog.get(topic)[1] for topic in self._catalog.names())
            self._delete([key for key in keys if key not in live])

    def _log_ids(self) -> Iterable[str]:
        found: dict[str, None] = {}
        for info in self._backend.list_after("logs/"):
            found[info.key.split("/")[1]] = None
        return found

    def _is_old(self, log: CommitLog) -> bool:
        """Whether the topic was deleted so long ago that no reader is left."""
        return log.last_written() < time_text(self._clock.now_us() - self._ttl_us)

    def _orphans(self, live: set[str], hour: str) -> Garbage:
        listed = self._backend.list_after(f"{DATA}/")
        old = Garbage(tuple(info for info in listed if info.key < f"{DATA}/{hour}"))
        return old.without(live)

    def _delete(self, keys: list[str]) -> None:
        for at in range(0, len(keys), _BATCH):
            self._backend.delete(keys[at : at + _BATCH])


def _fenced(log: CommitLog, hour: str) -> LogState:
    """The state of a log after which no commit may name data from before an hour."""

    def build(state: LogState) -> Draft | None:
        if state.deleted or state.fence >= hour:
            return None
        return Draft(Commit(fence=hour, written_at=json_files.timestamp(log.clock)))

    return log.commit(build).state
