"""``meta/ledger/``: the versions that each application committed to each topic.

A commit makes its entry durable after the records are durable and before it publishes them. So a
commit that is repeated after a crash finds its version here and adds nothing. The file name is a
hash of topic and application; the fields of the file name both.

An entry has the last version and all committed ones, as ranges without gaps. Earlier releases wrote
the last one only, and remove the ranges when they write. Every version up to the last one then
counts as committed: a version that is skipped can be written again, a record that is there twice
cannot be taken back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import Any, NamedTuple

from ..errors import DamagedMetadataError
from ..io import json_files
from ..io.durable import sync_directories
from ..io.locks import ensure_lock_file, locked
from ..vfs import Vfs

_FORMAT = 1
_STRIPES = 64
_LOWEST = -(1 << 63)
MAX_RANGES = 1000
"""More ranges of committed versions are not kept: the two lowest then become one."""

VersionRanges = tuple[tuple[int, int], ...]
"""First and last version of each range, rising, with a gap between two ranges."""


class LedgerEntry(NamedTuple):
    """The last committed version, and by partition the end of its records or of earlier ones.

    ``plain``: the job is its own application. ``prune`` removes such entries.
    ``committed``: all versions that were committed; None if an earlier release wrote the entry.
    """

    topic: str
    topic_uuid: str
    app: str
    version: int
    plain: bool
    ends: Mapping[int, int]
    committed: VersionRanges | None = None
    recorded_at: str = ""

    def ranges(self) -> VersionRanges:
        """All versions that count as committed."""
        return ((_LOWEST, self.version),) if self.committed is None else self.committed

    def has(self, version: int, *, exact: bool) -> bool:
        """Whether this version is committed; unless ``exact``, this one or a later one."""
        if not exact:
            return version <= self.version
        return any(low <= version <= high for low, high in self.ranges())


class Ledger:
    """The ledger of one store. Safe for several threads and processes."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self.directory = directory
        self._ready = False

    @contextmanager
    def lock_names(self, names: Iterable[str], timeout_ms: int) -> Iterator[None]:
        """Lock applications and jobs, so that no other process commits for them.

        For example a zombie driver and its successor may commit the same job. A commit takes these
        locks before those of partitions. Names share a few lock files, which are never deleted.
        """
        stripes = {int(_digest("", name)[:8], 16) % _STRIPES for name in names}
        with ExitStack() as stack:
            for stripe in sorted(stripes):
                path = f"{self.directory}/locks/{stripe:02d}"
                ensure_lock_file(self._vfs, path)
                stack.enter_context(locked(self._vfs, path, timeout_ms))
            yield

    def find(self, topic: str, topic_uuid: str, app: str) -> LedgerEntry | None:
        """The entry for the topic with this uuid. One of a deleted topic does not count."""
        entry = self.read(self._path(topic, app))
        return entry if entry is not None and entry.topic_uuid == topic_uuid else None

    def has(
        self, topic: str, topic_uuid: str, app: str, version: int, *, exact: bool = False
    ) -> bool:
        """Whether this version is committed; unless ``exact``, this one or a later one."""
        entry = self.find(topic, topic_uuid, app)
        return entry is not None and entry.has(version, exact=exact)

    def record(self, entry: LedgerEntry) -> None:
        """Make an entry durable. If the file has a later version, that version stays.

        Ends of other versions are kept: they are recovery points too.
        """
        if not self._ready:
            sync_directories(self._vfs, self.directory)
            self._ready = True
        before = self.find(entry.topic, entry.topic_uuid, entry.app)
        ends = dict(entry.ends)
        ranges: VersionRanges = ()
        if before is not None:
            ends, ranges = {**before.ends, **ends}, before.ranges()
        entry = entry._replace(committed=with_version(ranges, entry.version))
        if before is not None:
            entry = entry._replace(version=max(entry.version, before.version))
        fields = {
            "format": _FORMAT,
            **entry._asdict(),
            "ends": {str(partition): end for partition, end in ends.items()},
            "recorded_at": json_files.timestamp(self._vfs),
        }
        json_files.replace(self._vfs, self._path(entry.topic, entry.app), fields)

    def recovery_points(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """By partition the highest offset up to which commits made the topic's records durable."""
        ends: dict[int, int] = {}
        for entry in self.entries():
            if (entry.topic, entry.topic_uuid) == (topic, topic_uuid):
                for partition, end in entry.ends.items():
                    ends[partition] = max(end, ends.get(partition, 0))
        return ends

    def entries(self) -> Iterator[LedgerEntry]:
        """All entries."""
        for name in self._names():
            entry = self.read(f"{self.directory}/{name}")
            if entry is not None:
                yield entry

    def prune(self, older_than_us: int) -> None:
        """Remove old entries of plain jobs: no driver repeats them."""
        for name in self._names():
            path = f"{self.directory}/{name}"
            stat = self._vfs.stat(path)
            if stat is not None and stat.modified_ns // 1000 < older_than_us:
                entry = self.read(path)
                if entry is not None and entry.plain:
                    with suppress(FileNotFoundError):
                        self._vfs.unlink(path)

    def _names(self) -> list[str]:
        try:
            return [name for name in self._vfs.listdir(self.directory) if name.endswith(".json")]
        except FileNotFoundError:
            return []

    def _path(self, topic: str, app: str) -> str:
        return f"{self.directory}/{_digest(topic, app)}.json"

    def read(self, path: str) -> LedgerEntry | None:
        """One entry; None if it is gone.

        Raises:
            DamagedMetadataError: it is damaged.
        """
        fields: dict[str, Any] | None = json_files.read(self._vfs, path)
        if fields is None:
            return None
        ends = json_files.field(fields, "ends", dict, path)
        if not all(key.isdecimal() and len(key) < 9 for key in ends):
            raise DamagedMetadataError(
                f"{path} is damaged: the keys of ends must be partition numbers, got "
                f"{list(ends)[:3]}. Restore the file from a copy.",
                path=path,
            )
        committed = (
            json_files.field(fields, "committed", list, path) if "committed" in fields else None
        )
        return LedgerEntry(
            committed=None if committed is None else _ranges(committed, path),
            recorded_at=json_files.field(fields, "recorded_at", str, path),
            topic=json_files.field(fields, "topic", str, path),
            topic_uuid=json_files.field(fields, "topic_uuid", str, path),
            app=json_files.field(fields, "app", str, path),
            version=json_files.field(fields, "version", int, path),
            plain=json_files.field(fields, "plain", bool, path),
            ends={int(key): json_files.field(ends, key, int, path) for key in ends},
        )


def with_version(ranges: VersionRanges, version: int) -> VersionRanges:
    """The ranges with one version more."""
    low = high = version
    kept = []
    for first, last in ranges:
        if last < low - 1 or first > high + 1:
            kept.append((first, last))
        else:
            low, high = min(low, first), max(high, last)
    kept = sorted([*kept, (low, high)])
    while len(kept) > MAX_RANGES:
        kept[:2] = [(kept[0][0], kept[1][1])]
    return tuple(kept)


def _ranges(found: list[Any], path: str) -> VersionRanges:
    numbers = [number for each in found if isinstance(each, list) for number in each]
    whole = all(isinstance(each, list) and len(each) == 2 for each in found)
    if not whole or not all(type(number) is int for number in numbers):
        raise _not_ranges(found, path)
    pairs = tuple((low, high) for low, high in found)
    rising = all(low <= high for low, high in pairs)
    apart = all(before[1] + 1 < after[0] for before, after in pairwise(pairs))
    if not (pairs and rising and apart):
        raise _not_ranges(found, path)
    return pairs


def _not_ranges(found: list[Any], path: str) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"{path} is damaged: committed must be rising ranges of versions, got {found[:3]}. Restore "
        "the file from a copy.",
        path=path,
    )


def _digest(topic: str, app: str) -> str:
    return hashlib.sha256(f"{topic}\0{app}".encode()).hexdigest()[:40]
