"""``meta/ledger/``: the last version each application has committed to each topic.

An entry is made durable after the records and before they are published, so a commit that is
repeated after any crash finds itself here and adds nothing. The file is named by a hash of topic
and application; its fields say both in the open.
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
    """The newest committed version, and where the records of this and earlier ones ended."""

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
    def hold(self, names: Iterable[str], timeout_ms: int) -> Iterator[None]:
        """Keep others from committing for the same application or job: a zombie and its successor.

        Taken before any partition's lock. Names share a few lock files, which are never deleted.
        """
        stripes = {int(_digest("", name)[:8], 16) % _STRIPES for name in names}
        with ExitStack() as stack:
            for stripe in sorted(stripes):
                path = f"{self.directory}/locks/{stripe:02d}"
                ensure_lock_file(self._vfs, path)
                stack.enter_context(locked(self._vfs, path, timeout_ms))
            yield

    def find(self, topic: str, topic_uuid: str, app: str) -> LedgerEntry | None:
        """The entry for this very topic; one of a deleted namesake does not count."""
        entry = self.read(self._path(topic, app))
        return entry if entry is not None and entry.topic_uuid == topic_uuid else None

    def has(self, topic: str, topic_uuid: str, app: str, version: int) -> bool:
        """Whether this version, or a later one, is committed."""
        entry = self.find(topic, topic_uuid, app)
        return entry is not None and version <= entry.version

    def record(self, entry: LedgerEntry) -> None:
        """Make an entry durable; one of a later version stays.

        Ends of other versions are kept: they too are durable points.
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
        """The highest ends that commits to a topic are known to have made durable, by partition."""
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
        """Forget plain jobs that ended long ago: nobody will repeat them."""
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
            DamagedMetadataError: it cannot be trusted.
        """
        fields: dict[str, Any] | None = json_files.read(self._vfs, path)
        if fields is None:
            return None
        ends = json_files.field(fields, "ends", dict, path)
        if not all(key.isdecimal() and len(key) < 9 for key in ends):
            raise DamagedMetadataError(f"{path} names no partitions: {list(ends)[:3]}.", path=path)
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
