"""``meta/ledger/``: the last version that each application committed to each topic.

A commit makes its entry durable after the records are durable and before it publishes them. So a
commit that is repeated after a crash finds its version here and adds nothing. The file name is a
hash of topic and application; the fields of the file name both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from ..errors import DamagedMetadataError
from ..io import json_files
from ..io.durable import sync_directories
from ..io.locks import ensure_lock_file, locked
from ..vfs import Vfs

_FORMAT = 1
_STRIPES = 64


class LedgerEntry(NamedTuple):
    """The last committed version, and by partition the end of its records or of earlier ones.

    ``plain``: the job is its own application. ``prune`` removes such entries.
    """

    topic: str
    topic_uuid: str
    app: str
    version: int
    plain: bool
    ends: Mapping[int, int]


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

    def has(self, topic: str, topic_uuid: str, app: str, version: int) -> bool:
        """Whether this version, or a later one, is committed."""
        entry = self.find(topic, topic_uuid, app)
        return entry is not None and version <= entry.version

    def record(self, entry: LedgerEntry) -> None:
        """Make an entry durable. If the file has a later version, that version stays.

        Ends of other versions are kept: they are recovery points too.
        """
        if not self._ready:
            sync_directories(self._vfs, self.directory)
            self._ready = True
        before = self.find(entry.topic, entry.topic_uuid, entry.app)
        ends = dict(entry.ends)
        if before is not None:
            ends = {**before.ends, **ends}
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
        return LedgerEntry(
            topic=json_files.field(fields, "topic", str, path),
            topic_uuid=json_files.field(fields, "topic_uuid", str, path),
            app=json_files.field(fields, "app", str, path),
            version=json_files.field(fields, "version", int, path),
            plain=json_files.field(fields, "plain", bool, path),
            ends={int(key): json_files.field(ends, key, int, path) for key in ends},
        )


def _digest(topic: str, app: str) -> str:
    return hashlib.sha256(f"{topic}\0{app}".encode()).hexdigest()[:40]
