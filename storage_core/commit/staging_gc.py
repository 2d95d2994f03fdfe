"""Garbage collection: staging of abandoned jobs, temporary files, old ledger entries.

It runs after a commit, never inside one. What it cannot remove now, it removes after a later
commit.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

from ..config import StoreConfig
from ..errors import LockTimeoutError, StorageError
from ..format.file_names import is_name
from ..io.durable import remove_tree
from ..vfs import FileStat, Vfs
from .commit_state import CommitState

_log = logging.getLogger("storage_core")
SWEEP_INTERVAL_S = 3600


class StagedJob(NamedTuple):
    """The staged files of a job, and when the last of them changed."""

    job: str
    files: int
    size: int
    changed_us: int


class StagingGc:
    """Removes what jobs left, at most once in ``SWEEP_INTERVAL_S`` for each store object."""

    def __init__(self, vfs: Vfs, state: CommitState, config: StoreConfig) -> None:
        self._vfs = vfs
        self._state = state
        self._config = config
        self._swept: float | None = None

    def sweep_if_due(self, committing: str = "") -> None:
        """Sweep unless the last sweep is recent. It logs a failure: the commit is over.

        The staging of the job that was just ``committing`` stays: the job may be tried again.
        """
        now = self._vfs.monotonic()
        if self._swept is not None and now - self._swept < SWEEP_INTERVAL_S:
            return
        self._swept = now
        try:
            self.sweep(self._vfs.now_us() - self._config.staging_ttl_ms * 1000, committing)
        except (OSError, StorageError) as error:
            _log.warning("old staging was not removed: %s", error)

    def sweep(self, oldest_us: int, committing: str = "") -> None:
        """Remove what no process has changed since ``oldest_us``.

        A job that an intent names stays. The job's name is locked meanwhile, so that no process can
        decide its commit.
        """
        intents, ledger = self._state.intents, self._state.ledger
        for job in self._jobs():
            if job == committing or not self._is_abandoned(job, oldest_us):
                continue
            # A timeout means that another process commits or aborts this job now.
            with suppress(LockTimeoutError), ledger.lock_names([job], 0):
                decided = {intent.job for intent in intents.pending()}
                if job not in decided and self._is_abandoned(job, oldest_us):
                    drop_staging(self._vfs, self._state.staging, job)
        intents.sweep(oldest_us)
        ledger.prune(oldest_us)

    def jobs(self) -> list[StagedJob]:
        """The jobs that have staged files: they run, or crashed and wait for a sweep."""
        found = []
        for job in self._jobs():
            stats = self._stats(job)
            if stats:
                files = [stat for stat in stats if stat.kind == "file"]
                changed_us = max(stat.modified_ns for stat in stats) // 1000
                size = sum(stat.size for stat in files)
                found.append(StagedJob(job, len(files), size, changed_us))
        return found

    def _jobs(self) -> list[str]:
        try:
            return [name for name in self._vfs.listdir(self._state.staging) if is_name(name)]
        except FileNotFoundError:
            return []

    def _is_abandoned(self, job: str, oldest_us: int) -> bool:
        """Whether neither a job's directory nor a file in it changed since ``oldest_us``."""
        changed_ns = [stat.modified_ns for stat in self._stats(job)]
        return bool(changed_ns) and max(changed_ns) // 1000 < oldest_us

    def _stats(self, job: str) -> list[FileStat]:
        """Of a job's directory and the files in it; none if there is no such directory."""
        directory = f"{self._state.staging}/{job}"
        found = self._vfs.stat(directory)
        if found is None or found.kind != "directory":
            return []
        try:
            files = [self._vfs.stat(f"{directory}/{name}") for name in self._vfs.listdir(directory)]
        except FileNotFoundError:  # deleted meanwhile
            return []
        return [stat for stat in (found, *files) if stat is not None]


def drop_staging(vfs: Vfs, staging: str, job: str) -> None:
    """Delete the staging of a job that is committed or aborted. Files linked into a log stay there.

    A zombie task may still add files. ``StagingGc`` removes later what cannot be deleted now.
    """
    try:
        remove_tree(vfs, f"{staging}/{job}")
    except (OSError, StorageError) as error:
        _log.warning("the staging of job %s was not deleted and is removed later: %s", job, error)
