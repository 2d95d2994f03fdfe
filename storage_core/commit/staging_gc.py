"""Tidying up behind write jobs that never came to an end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ..errors import LockTimeoutError
from ..format.file_names import is_name
from ..vfs import Vfs
from .intents import Intents
from .ledger import Ledger


def sweep(
    vfs: Vfs,
    staging: str,
    intents: Intents,
    ledger: Ledger,
    oldest_us: int,
    drop: Callable[[str], None],
    committing: str = "",
) -> None:
    """Drop what nobody has touched since ``oldest_us``: staging, halves of intents, plain entries.

    A job that an intent names is not dropped, and none can be decided meanwhile: its name is held.
    """
    for job in _jobs(vfs, staging):
        directory = f"{staging}/{job}"
        if job == committing or not _is_abandoned(vfs, directory, oldest_us):
            continue
        # A timeout: somebody is committing it just now.
        with suppress(LockTimeoutError), ledger.hold([job], 0):
            decided = {intent.job for intent in intents.pending()}
            if job not in decided and _is_abandoned(vfs, directory, oldest_us):
                drop(job)
    intents.sweep(oldest_us)
    ledger.prune(oldest_us)


def _jobs(vfs: Vfs, staging: str) -> list[str]:
    try:
        return [name for name in vfs.listdir(staging) if is_name(name)]
    except FileNotFoundError:
        return []


def _is_abandoned(vfs: Vfs, directory: str, oldest_us: int) -> bool:
    """Whether neither a job's directory nor a file in it changed since ``oldest_us``."""
    found = vfs.stat(directory)
    if found is None or found.kind != "directory":
        return False
    files = [vfs.stat(f"{directory}/{name}") for name in vfs.listdir(directory)]
    newest_ns = max(stat.modified_ns for stat in (found, *files) if stat is not None)
    return newest_ns // 1000 < oldest_us
