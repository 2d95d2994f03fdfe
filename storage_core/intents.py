"""Redo records of commits under way: ``meta/intents/<transaction>.json``, normally none.

A commit is decided the moment its intent is durable. The intent names every partition with the
offset its records begin at and the staged parts that follow each other there, so that whoever finds
it can finish the work: the log itself tells how far the first attempt came.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from . import metafile
from .durable import make_directories
from .errors import DamagedMetadataError
from .naming import is_name
from .staging import SUFFIX, StagedPart
from .vfs import FileStat, Vfs

_FORMAT = 1
_TIME_STEP_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class PartitionIntent:
    """What one partition gets. ``segment`` and ``position`` say where its log ended, for people."""

    topic: str
    topic_uuid: str
    partition: int
    start: int
    segment: int
    position: int
    parts: tuple[StagedPart, ...]

    @property
    def end(self) -> int:
        return self.start + sum(part.records for part in self.parts)


@dataclass(frozen=True, slots=True)
class Intent:
    """One decided commit; ``app`` and ``version`` are its key in the ledger."""

    transaction: str
    job: str
    app: str
    version: int
    plain: bool
    topics: dict[str, str]
    partitions: tuple[PartitionIntent, ...]

    def names(self, topic: str, partition: int) -> bool:
        return any((part.topic, part.partition) == (topic, partition) for part in self.partitions)


class Intents:
    """The intents of one store. Stateless; safe for several threads."""

    def __init__(self, vfs: Vfs, directory: str, staging: str) -> None:
        self._vfs = vfs
        self._directory = directory
        self._staging = staging

    def write(self, intent: Intent) -> None:
        """The commit point: after this returns, or fails in its last step, the commit happens."""
        make_directories(self._vfs, self._directory)
        fields = {"format": _FORMAT, **asdict(intent)}
        metafile.replace(self._vfs, self._path(intent.transaction), fields)

    def remove(self, intent: Intent) -> None:
        """Forget a commit whose every partition and ledger entry is durable."""
        with suppress(FileNotFoundError):
            self._vfs.unlink(self._path(intent.transaction))
        self._vfs.fsync_dir(self._directory)

    def pending(self) -> list[Intent]:
        """All intents there are; cheap when there are none.

        Raises:
            DamagedMetadataError: one cannot be trusted, so its partitions must not be written.
        """
        try:
            names = self._vfs.listdir(self._directory)
        except FileNotFoundError:
            return []
        found = []
        for name in sorted(names):
            if name.endswith(".json"):
                fields = metafile.read(self._vfs, f"{self._directory}/{name}")
                if fields is not None:
                    found.append(self._parse(fields, name))
        return found

    def naming(self, topic: str, partition: int) -> list[Intent]:
        """The intents that a partition has to wait for."""
        return [intent for intent in self.pending() if intent.names(topic, partition)]

    def mark(self) -> FileStat | None:
        """What changes whenever an intent comes or goes; None before there was one."""
        return self._vfs.stat(self._directory)

    def untouched_since(self, mark: FileStat | None) -> bool:
        """Whether surely no intent came or went since ``mark`` was taken.

        A directory's time moves in steps of some milliseconds, so a fresh one proves nothing.
        """
        if mark is not None and self._vfs.now_us() * 1000 - mark.modified_ns < _TIME_STEP_NS:
            return False
        return self.mark() == mark

    def sync(self) -> None:
        """Make durable what is about to be acted on: a killed process may have left it unsynced."""
        for name in self._vfs.listdir(self._directory):
            if name.endswith(".json"):
                with suppress(FileNotFoundError):
                    fd = self._vfs.open(f"{self._directory}/{name}", "read")
                    try:
                        self._vfs.fsync(fd)
                    finally:
                        self._vfs.close(fd)
        self._vfs.fsync_dir(self._directory)

    def _path(self, transaction: str) -> str:
        return f"{self._directory}/{transaction}.json"

    def _parse(self, fields: dict[str, Any], name: str) -> Intent:
        path = f"{self._directory}/{name}"
        try:
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']!r} is unknown to this release")
            return Intent(
                transaction=str(fields["transaction"]),
                job=str(fields["job"]),
                app=str(fields["app"]),
                version=int(fields["version"]),
                plain=bool(fields["plain"]),
                topics={str(topic): str(uid) for topic, uid in fields["topics"].items()},
                partitions=tuple(self._partition(entry) for entry in fields["partitions"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedMetadataError(
                f"{path} is not a redo record: {error}. Writers wait for it; restore it from a "
                "copy, or move it away to give the commit up.",
                path=path,
            ) from error

    def _partition(self, entry: dict[str, Any]) -> PartitionIntent:
        parts = tuple(self.check_part(part) for part in entry["parts"])
        return PartitionIntent(**{**entry, "parts": parts})

    def check_part(self, fields: dict[str, Any]) -> StagedPart:
        """A staged part from plain fields, which may come from anywhere: nothing is trusted.

        Raises:
            ValueError: it does not name one of this store's staging files.
        """
        part = StagedPart(**{**fields, "runs": tuple((int(a), int(b)) for a, b in fields["runs"])})
        prefix, _, rest = part.path.partition(f"{self._staging}/")
        job, _, name = rest.partition("/")
        if prefix or not is_name(job) or not is_name(name) or not name.endswith(SUFFIX):
            raise ValueError(f"{part.path!r} is not a staging file")
        numbers = (part.partition, part.records, *(number for run in part.runs for number in run))
        if not is_name(part.topic) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"the part of {part.topic!r} has impossible numbers")
        return part
