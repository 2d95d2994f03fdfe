"""Garbage collection: old commits of a log, and data that no commit names.

The order matters: the boundary is raised before the first commit is deleted. A writer that creates
a deleted number again then finds the boundary above it, and knows that its commit did not happen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ..errors import DamagedMetadataError
from ..io import json_files
from .backend import ObjectInfo
from .commit_log import GONE, CommitLog
from .manifests.table import named
from .names import parse_listing, time_text
from .state import LogState

_BATCH = 500
# What an automatic run may list and read of one log.
_LISTED, _MOST_MANIFESTS = 2000, 16


class Garbage(NamedTuple):
    """The objects that garbage collection deletes."""

    objects: tuple[ObjectInfo, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(info.key for info in self.objects)

    @property
    def size(self) -> int:
        return sum(info.size for info in self.objects)

    def plus(self, other: Garbage) -> Garbage:
        return Garbage((*self.objects, *other.objects))

    def without(self, live: Collection[str]) -> Garbage:
        return Garbage(tuple(info for info in self.objects if info.key not in live))


def needed(logs: Iterable[LogState], keys: Collection[str], most: int | None = None) -> set[str]:
    """Those of some objects that logs need; all of them, if more than ``most`` manifests tell."""
    found = set[str]()
    for state in logs:
        here = named(state, keys, most)
        found.update(keys if here is None else here)
    return found


def collect_log(log: CommitLog, ttl_us: int, *, dry_run: bool, bounded: bool = False) -> Garbage:
    """Delete the commits and checkpoints of a log that the last old checkpoint makes superfluous.

    Commits whose inline records are still in the log stay. With ``bounded`` it looks at some
    thousand objects only: those after the boundary, and some before it.
    """
    boundary, tag = log.read_boundary()
    listed = _some(log, boundary) if bounded else list(log.backend.list_after(log.prefix))
    commits, checkpoints = parse_listing(log.prefix, (info.key for info in listed))
    kept = _last_old(log, checkpoints, time_text(log.clock.now_us() - ttl_us))
    if kept is None and not boundary:
        return Garbage()
    below = max(boundary, 0 if kept is None else kept + 1)
    if below > boundary and not dry_run and not _raise_boundary(log, below, tag):
        return Garbage()
    names = {f"{log.prefix}{number:020d}.commit" for number in commits if number < below}
    names |= {
        f"{log.prefix}{number:020d}.checkpoint" for number in checkpoints if number < below - 1
    }
    # Read after the listing: a state from before it may not know records of listed commits.
    live = needed([log.refresh()], names, _MOST_MANIFESTS if bounded else None)
    garbage = Garbage(tuple(info for info in listed if info.key in names)).without(live)
    if not dry_run:
        # Checkpoints first: a reader must not start from one and miss the commits after it.
        delete(log, sorted(garbage.keys, key=lambda key: (key.endswith(".commit"), key)))
    return garbage


def _some(log: CommitLog, boundary: int) -> list[ObjectInfo]:
    """Objects of a log after the boundary, and some before it: trims may have freed them."""
    after = f"{log.prefix}{max(boundary - 1, 0):020d}"
    listed = log.backend.list_some(log.prefix, after, _LISTED)
    begin = f"{log.prefix}{log.clock.now_us() // 1000 % (boundary + 1):020d}"
    return [
        *listed,
        *(i for i in log.backend.list_some(log.prefix, begin, _LISTED) if i.key < after),
    ]


def collect_deleted(log: CommitLog, *, dry_run: bool) -> Garbage:
    """Delete a log as a whole, but for its boundary.

    The boundary stays: a writer that slept would else create a commit of the log again, and believe
    that it happened. It also lets the next run go on after a crash in the middle.
    """
    kept = f"{log.prefix}boundary"
    garbage = Garbage(tuple(log.backend.list_after(log.prefix))).without({kept})
    boundary, tag = log.read_boundary()
    if not dry_run:
        if boundary < GONE and not _raise_boundary(log, GONE, tag):
            return Garbage()
        delete(log, list(garbage.keys))
    return garbage


def _raise_boundary(log: CommitLog, below: int, tag: str | None) -> bool:
    """False if another collector was first, or may have been: the next run deletes the rest."""
    data = json_files.dump({"number": below})
    try:
        log.backend.replace_if(f"{log.prefix}boundary", [data], tag)
    except (FileExistsError, TimeoutError):
        return False
    return True


def _last_old(log: CommitLog, checkpoints: Sequence[int], before: str) -> int | None:
    """The last checkpoint that was written before a time, found with few reads."""
    low, high = 0, len(checkpoints)
    while low < high:
        middle = (low + high) // 2
        try:
            is_old = log.read_checkpoint(checkpoints[middle])[1] < before
        except (FileNotFoundError, DamagedMetadataError):  # another collector was first
            is_old = True
        low, high = (middle + 1, high) if is_old else (low, middle)
    for number in reversed(checkpoints[:low]):
        try:
            return number if log.read_checkpoint(number)[1] < before else None
        except (FileNotFoundError, DamagedMetadataError):
            continue
    return None


def delete(log: CommitLog, keys: list[str]) -> None:
    for at in range(0, len(keys), _BATCH):
        log.backend.delete(keys[at : at + _BATCH])
