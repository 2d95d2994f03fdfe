"""Garbage of a whole store: old commits, data of crashed jobs, logs of deleted topics."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..commit.staging import SUFFIX
from ..config import StoreConfig
from ..errors import DamagedMetadataError, StorageError
from ..format.file_names import is_name
from ..io import json_files
from ..vfs import Vfs
from .backend import ObjectInfo, read_object
from .catalog import ObjectCatalog
from .commit_log import CHECKPOINT_INTERVAL, GONE, CommitLog, Draft
from .garbage import Garbage, collect_deleted, collect_log, needed
from .names import DATA, LOGS, MANIFEST_SUFFIX, hour_of, hour_start_us, time_text
from .patience import PatientBackend
from .state import Commit, LogState
from .vfs_backend import VfsBackend

_BATCH = 500
_HOUR_US = 3600 * 10**6
# An automatic sweep: how many in a time to live, and what it may look at.
_SWEEPS, _SWEPT, _SWEPT_TOPICS, _MOST_MANIFESTS = 24, 5000, 100, 16
_SWEEP = "sweep"
_SWEPT_LOGS = 200
# Above all keys of a log, and below those of the next one.
_AFTER_SLASH = chr(ord("/") + 1)
_TRIES = 4
_OURS = re.compile(rf"{DATA}/\d{{10}}/(?:[^/]+/)?[^/]+(?:{re.escape(SUFFIX)}|{MANIFEST_SUFFIX})")
_log = logging.getLogger("storage_core")


class _Hint(NamedTuple):
    at_us: int
    after: str


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
        hour, found = hour_of(self._clock.now_us() - self._ttl_us), Garbage()
        # Before the logs: what a log that is made meanwhile names is not in this listing.
        listed = list(self._backend.list_after(f"{DATA}/"))
        logs = list[CommitLog]()
        for log_id in self._log_ids():
            log = self._catalog.open_log(log_id)
            state = log.refresh()
            if not state.deleted:
                logs.append(log)
                found = found.plus(collect_log(log, self._ttl_us, dry_run=dry_run))
            elif log.boundary() >= GONE or self._is_old(log):
                found = found.plus(collect_deleted(log, dry_run=dry_run))
        for _ in range(_TRIES):
            # A manifest that is being read may be replaced and deleted by others.
            with suppress(FileNotFoundError):
                return found.plus(self._collect_orphans(logs, listed, hour, dry_run=dry_run))
        return found.plus(self._collect_orphans(logs, listed, hour, dry_run=dry_run))

    def _collect_orphans(
        self,
        logs: Sequence[CommitLog],
        listed: Sequence[ObjectInfo],
        hour: str,
        *,
        dry_run: bool,
        most: int | None = None,
    ) -> Garbage:
        """Delete those of some objects from before an hour that no log needs."""
        old = _before(listed, hour)
        rest = old.without(needed((log.refresh() for log in logs), old.keys, most))
        if dry_run or not rest.keys:
            return rest
        # A writer that slept, or whose clock is wrong, may be about to commit some of these. After
        # the fence it cannot, and what it has committed before is in the state of the fence.
        fence = _fence_of(rest.keys, hour)
        states = [_fenced(log, fence) for log in logs]
        rest = rest.without(needed(states, rest.keys, most))
        self._delete(list(rest.keys))
        return rest

    def collect_if_due(self, log: CommitLog, state: LogState) -> None:
        """Delete some garbage now and then; if that fails, the next writer does it.

        Old commits of the log, every hundred commits. Data of the whole store, once in a part of
        the time to live. Both with a bounded number of requests.
        """
        if state.number % CHECKPOINT_INTERVAL != CHECKPOINT_INTERVAL - 1:
            return
        try:
            collect_log(log, self._ttl_us, dry_run=False, bounded=True)
            self.sweep_if_due()
        except (OSError, StorageError) as error:
            _log.info("no garbage of %s was collected: %s", log.prefix, error)

    def sweep_if_due(self) -> Garbage:
        """Look at some old data, from where the last sweep ended, and delete what no log needs."""
        now_us, hint = self._clock.now_us(), self._hint()
        if abs(now_us - hint.at_us) < self._ttl_us // _SWEEPS:
            return Garbage()
        listed = self._backend.list_some(f"{DATA}/", hint.after, _SWEPT)
        hour = hour_of(now_us - self._ttl_us)
        # From the beginning again, where only new data is left.
        goes_on = len(listed) == _SWEPT and listed[-1].key < f"{DATA}/{hour}"
        self._store_hint(_Hint(now_us, listed[-1].key if goes_on else ""))
        self.sweep_temporary_files()
        if not listed or listed[0].key >= f"{DATA}/{hour}":
            return Garbage()
        topics = self._catalog.names()
        if len(topics) > _SWEPT_TOPICS:
            _log.info("%d topics are too many for a sweep: run cursus gc", len(topics))
            return Garbage()
        old = _before(listed, hour)
        rest = old.without(needed(self._states(), old.keys, _MOST_MANIFESTS))
        # A log whose name is lost needs its data, too: so ask every log there is.
        ids = log_ids(self._backend, _SWEPT_LOGS) if rest.keys else []
        if ids is None:
            _log.info("more than %d logs are too many for a sweep: run cursus gc", _SWEPT_LOGS)
        if not ids:
            return Garbage()
        logs = [self._catalog.open_log(each) for each in ids]
        return self._collect_orphans(logs, rest.objects, hour, dry_run=False, most=_MOST_MANIFESTS)

    def sweep_temporary_files(self) -> None:
        """Remove what crashed writers of a directory left; an object store hides such uploads."""
        if isinstance(self._backend.inner, VfsBackend):
            self._backend.inner.sweep()

    def _hint(self) -> _Hint:
        """When the last sweep was, and where it ended; nothing if that is lost."""
        data = read_object(self._backend, _SWEEP)
        try:
            fields = {} if data is None else json_files.load(data, _SWEEP)
        except DamagedMetadataError:
            fields = {}
        at_us, after = fields.get("at_us"), fields.get("after")
        return _Hint(at_us if type(at_us) is int else 0, after if isinstance(after, str) else "")

    def _store_hint(self, hint: _Hint) -> None:
        self._backend.put(_SWEEP, [json_files.dump(hint._asdict())])

    def drop_job(self, job: str) -> None:
        """Delete what the tasks of a job uploaded since the time to live, but nothing committed."""
        now_us, hours, keys = self._clock.now_us(), set(), list[str]()
        for ago in range(0, self._ttl_us + _HOUR_US, _HOUR_US):
            hours.add(hour_of(now_us - ago))
        for hour in sorted(hours):
            keys += [info.key for info in self._backend.list_after(f"{DATA}/{hour}/{job}/")]
        if keys:
            # The caller may abort a job that it has committed.
            live = needed(self._states(), keys)
            self._delete([key for key in keys if key not in live])

    def _states(self) -> Iterator[LogState]:
        return (state for _, state in self._catalog.states())

    def _log_ids(self) -> Iterable[str]:
        return _ids(self._backend.list_after(LOGS))

    def _is_old(self, log: CommitLog) -> bool:
        """Whether the topic was deleted so long ago that no reader is left."""
        try:
            return log.last_written() < time_text(self._clock.now_us() - self._ttl_us)
        except FileNotFoundError:  # another collector was first
            return False

    def _delete(self, keys: list[str]) -> None:
        for at in range(0, len(keys), _BATCH):
            self._backend.delete(keys[at : at + _BATCH])


def log_ids(backend: PatientBackend, most: int) -> list[str] | None:
    """All logs, with a listing for each, however many commits it has.

    None if there are more than ``most``, counting what other programs left there.
    """
    found, after = list[str](), LOGS
    for _ in range(most + 1):
        listed = backend.list_some(LOGS, after, 1)
        if not listed:
            return found
        found += _ids(listed)
        name, *rest = listed[0].key.removeprefix(LOGS).split("/")
        after = f"{LOGS}{name}{_AFTER_SLASH}" if rest else listed[0].key
    return None


def _ids(listed: Iterable[ObjectInfo]) -> list[str]:
    """The logs of a listing. What cannot be the name of one is of other programs."""
    names = [info.key.split("/")[1:] for info in listed]
    return list(dict.fromkeys(name for name, *rest in names if rest and is_name(name)))


def _before(listed: Iterable[ObjectInfo], hour: str) -> Garbage:
    """The data of a listing from before an hour. What other programs have put there stays."""
    return Garbage(
        tuple(info for info in listed if info.key < f"{DATA}/{hour}" and _OURS.fullmatch(info.key))
    )


def _fence_of(keys: Sequence[str], hour: str) -> str:
    """The hour after the newest of some old objects: no commit needs to be refused beyond it.

    So a collector whose clock is months ahead does not keep the others from writing for months.
    """
    newest = max(key.split("/")[1] for key in keys)
    try:
        return min(hour, hour_of(hour_start_us(newest) + _HOUR_US))
    except ValueError:  # ten digits, but no hour
        return hour


def _fenced(log: CommitLog, hour: str) -> LogState:
    """The state of a log after which no commit may name data from before an hour."""

    def build(state: LogState) -> Draft | None:
        if state.deleted or state.fence >= hour or state.number < 0:
            return None  # a log without a commit, or no log at all, names no data
        return Draft(Commit(fence=hour, written_at=json_files.timestamp(log.clock)))

    return log.commit(build).state
