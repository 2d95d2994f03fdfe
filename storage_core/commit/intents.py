"""Redo records of commits under way: ``meta/intents/<transaction>.json``, normally none.

A commit is decided the moment its intent is durable. The intent names every partition with the
offset its records begin at and the staged parts that follow each other there, so that whoever finds
it can finish the work: the log itself tells how far the first attempt came.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import DamagedMetadataError, InvalidCommitError, InvalidNameError
from ..format.file_names import check_name
from ..io import json_files
from ..io.durable import replace_file, sync_directories
from ..io.io_errors import typed_metadata_errors
from ..vfs import FileStat, Vfs
from .part_validation import part_from
from .staging import StagedPart

_FORMAT = 1
# A directory's time moves in steps of some milliseconds.
_TIME_STEP_NS = 50_000_000
# A part takes about 1 KiB: a commit of a quarter million files.
_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class PartitionIntent:
    """What one partition gets. ``segment`` and ``position`` say where its log ended.

    ``before`` are the last bytes there, in hex, for logs without an identity of their own.
    """

    topic: str
    topic_uuid: str
    partition: int
    start: int
    segment: int
    position: int
    parts: tuple[StagedPart, ...]
    before: str = ""

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

    def names(self, topic: str | None, partition: int | None) -> bool:
        return any((part.topic, part.partition) == (topic, partition) for part in self.partitions)


class Intents:
    """The intents of one store. Safe for several threads."""

    def __init__(self, vfs: Vfs, directory: str, staging: str) -> None:
        self._vfs = vfs
        self.directory = directory
        self._staging = staging
        self._ready = False
        self._known: dict[str, Intent] = {}

    def write(self, intent: Intent) -> None:
        """The commit point: after this returns, or fails in its last step, the commit happens.

        Who finds an intent writes it again before acting on it: a killed process may have left it
        unsynced, and a sync that failed once proves nothing when it succeeds later.
        """
        data = json_files.dump({"format": _FORMAT, **_fields(intent)})
        if len(data) > _MAX_BYTES:
            raise InvalidCommitError(
                f"job {intent.job} has too many parts for one commit: its redo record would have "
                f"{len(data)} bytes, the most is {_MAX_BYTES}. Write it in several jobs."
            )
        if not self._ready:
            sync_directories(self._vfs, self.directory)
            self._ready = True
        replace_file(self._vfs, self._path(intent.transaction), data)

    def is_absent(self, intent: Intent) -> bool:
        """Whether an intent that could not be written is certainly not there."""
        try:
            return self._vfs.stat(self._path(intent.transaction)) is None
        except OSError:
            return False

    def remove(self, intent: Intent) -> None:
        """Forget a commit whose every partition and ledger entry is durable."""
        with suppress(FileNotFoundError):
            self._vfs.unlink(self._path(intent.transaction))
        self._vfs.fsync_dir(self.directory)

    def pending(self) -> list[Intent]:
        """All intents there are. One listing when there are none; each is parsed only once.

        Raises:
            DamagedMetadataError: one cannot be trusted, so its partitions must not be written.
        """
        with typed_metadata_errors():
            return self._pending()

    def _pending(self) -> list[Intent]:
        try:
            names = self._vfs.listdir(self.directory)
        except FileNotFoundError:
            return []
        # An intent never changes under its name.
        known, found = self._known, {}
        for name in sorted(names):
            if name in known:
                found[name] = known[name]
            elif name.endswith(".json"):
                intent = self.read(f"{self.directory}/{name}")
                if intent is not None:
                    found[name] = intent
        self._known = found
        return list(found.values())

    def read(self, path: str) -> Intent | None:
        """One intent; None if it is gone.

        Raises:
            DamagedMetadataError: it cannot be trusted.
        """
        fields = json_files.read(self._vfs, path, _MAX_BYTES)
        return None if fields is None else self._parse(fields, path)

    def naming(self, topic: str, partition: int) -> list[Intent]:
        """The intents that a partition has to wait for."""
        return [intent for intent in self.pending() if intent.names(topic, partition)]

    def mark(self) -> FileStat | None:
        """What changes whenever an intent comes or goes; None before there was one."""
        return self._vfs.stat(self.directory)

    def untouched_since(self, mark: FileStat | None) -> bool:
        """Whether surely no intent came or went since ``mark`` was taken.

        A directory's time moves in steps of some milliseconds, so a fresh one proves nothing.
        """
        if mark is not None and self._vfs.now_us() * 1000 - mark.modified_ns < _TIME_STEP_NS:
            return False
        return self.mark() == mark

    def starts(self, topic: str, topic_uuid: str) -> dict[int, int]:
        """Where the pending commits to a topic begin, by partition: nobody may look past that."""
        found: dict[int, int] = {}
        for intent in self.pending():
            for part in intent.partitions:
                if (part.topic, part.topic_uuid) == (topic, topic_uuid):
                    start = found.get(part.partition, part.start)
                    found[part.partition] = min(start, part.start)
        return found

    def sweep(self, older_than_us: int) -> None:
        """Remove the halves of intents whose writers died long ago."""
        with suppress(FileNotFoundError):
            for name in self._vfs.listdir(self.directory):
                path = f"{self.directory}/{name}"
                stat = self._vfs.stat(path) if name.endswith(".tmp") else None
                if stat is not None and stat.modified_ns // 1000 < older_than_us:
                    self._vfs.unlink(path)

    def _path(self, transaction: str) -> str:
        return f"{self.directory}/{transaction}.json"

    def _parse(self, fields: dict[str, Any], path: str) -> Intent:
        try:
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']!r} is unknown to this release")
            topics = {check_name("topic", topic): str(u) for topic, u in fields["topics"].items()}
            return Intent(
                transaction=check_name("transaction", fields["transaction"]),
                job=check_name("job", fields["job"]),
                app=str(fields["app"]),
                version=int(fields["version"]),
                plain=bool(fields["plain"]),
                topics=topics,
                partitions=tuple(self._partition(entry, topics) for entry in fields["partitions"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidNameError) as error:
            raise DamagedMetadataError(
                f"{path} is not a redo record: {error}. Writers wait for it; restore it from a "
                "copy, or move it away to give the commit up.",
                path=path,
            ) from error

    def _partition(self, entry: dict[str, Any], topics: dict[str, str]) -> PartitionIntent:
        parts = tuple(part_from(self._staging, part) for part in entry["parts"])
        made = PartitionIntent(**{**entry, "parts": parts})
        place = (made.topic, made.partition)
        numbers = (made.partition, made.start, made.segment, made.position)
        if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
            raise ValueError(f"{place} has impossible numbers")
        if type(made.before) is not str or len(bytes.fromhex(made.before)) > made.position:
            raise ValueError(f"{place} has impossible bytes before it")
        if topics.get(made.topic) != made.topic_uuid:
            raise ValueError(f"{place} is of no topic that it names")
        if any((part.topic, part.partition) != place for part in parts):
            raise ValueError(f"{place} holds parts of others")
        return made


def _fields(intent: Intent) -> dict[str, Any]:
    fields = asdict(intent)
    for entry in fields["partitions"]:
        if not entry["before"]:
            del entry["before"]
    return fields
