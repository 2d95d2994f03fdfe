"""Intents of pending commits: ``meta/intents/<transaction>.json``. Normally there are none.

A commit is decided when its intent is durable. For every partition the intent names the start
offset of the commit's records and the staged parts in their order. So any process that finds the
intent can finish the commit: the end of the log shows how far the first attempt came.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import DamagedMetadataError, InvalidCommitError, InvalidNameError
from ..format.file_names import check_name
from ..io import json_files
from ..io.durable import replace_file, sync_directories
from ..io.io_errors import typed_metadata_errors
from ..vfs import FileStat, Vfs
from .part_validation import part_from
from .staging import StagedPart

_FORMAT, _FORMAT_EXACT, _FORMAT_TYPED = 1, 2, 3
# File systems update the time of a directory in steps of some milliseconds.
_TIME_STEP_NS = 50_000_000
# A part takes about 1 KiB, so this is a commit of 250,000 files.
_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class PartitionIntent:
    """The part of a commit for one partition. Its log ended at byte ``position`` of ``segment``.

    ``before``: the last bytes of the log there, in hex, for layouts whose topics have no identity.
    ``skip``: the first records of the parts that stand before ``position`` already, because another
    program appended after them.
    """

    topic: str
    topic_uuid: str
    partition: int
    start: int
    segment: int
    position: int
    parts: tuple[StagedPart, ...]
    before: str = ""
    skip: int = 0

    @property
    def end(self) -> int:
        return self.start + sum(part.records for part in self.parts) - self.skip


@dataclass(frozen=True, slots=True)
class Intent:
    """One decided commit. ``app`` and ``version`` are its key in the ledger.

    ``exact``: later versions may be in the ledger already. A release that does not know the field
    would take such a commit for finished, so its intent has a format that it refuses.
    """

    transaction: str
    job: str
    app: str
    version: int
    plain: bool
    topics: dict[str, str]
    partitions: tuple[PartitionIntent, ...]
    replaces: str = ""
    """The intent that this one takes the place of; both go together."""
    exact: bool = False
    schemas: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By topic the published schema version before the commit, and the one that it publishes.

    The intent names partition 0 of such a topic, with no parts if the commit adds no row there: its
    lock protects the schema.
    """

    def names(self, topic: str | None, partition: int | None) -> bool:
        """Whether writers of this partition must finish the commit first.

        A new schema concerns all partitions. It is visible before it is durable: rows that name it
        must not be durable first, or a power cut would show them without their columns.
        """
        if topic in self.schemas:
            return True
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
        """The commit point. The commit happens if this returns or fails in its last step.

        A process that finds an intent writes it again before it acts on it. The committer may have
        crashed before fsync. And after a failed fsync, a later one that succeeds proves nothing.
        """
        data = json_files.dump(_fields(intent))
        if len(data) > _MAX_BYTES:
            raise InvalidCommitError(
                f"job {intent.job} has too many parts for one commit: its intent has {len(data)} "
                f"bytes, the limit is {_MAX_BYTES}. Split it into several jobs."
            )
        if not self._ready:
            sync_directories(self._vfs, self.directory)
            self._ready = True
        replace_file(self._vfs, self._path(intent.transaction), data)

    def is_absent(self, intent: Intent) -> bool:
        """Whether an intent that could not be written is certainly absent."""
        try:
            return self._vfs.stat(self._path(intent.transaction)) is None
        except OSError:
            return False

    def written_us(self, intent: Intent) -> int | None:
        """When an intent was last written; None if it is gone: then its commit is finished."""
        with typed_metadata_errors():
            found = self._vfs.stat(self._path(intent.transaction))
        return None if found is None else found.modified_ns // 1000

    def remove(self, intent: Intent) -> None:
        """Remove the intent of a commit whose records and ledger entries are durable."""
        # The replaced one last: until it goes, readers stop where it began.
        for transaction in filter(None, (intent.transaction, intent.replaces)):
            with suppress(FileNotFoundError):
                self._vfs.unlink(self._path(transaction))
            self._vfs.fsync_dir(self.directory)

    def pending(self, *, replaced: bool = False) -> list[Intent]:
        """All intents. It costs one listing, and parses each intent once.

        Raises:
            DamagedMetadataError: an intent is damaged. No partition may be written: the intent may
                name it.
        """
        with typed_metadata_errors():
            found = self._pending()
        gone = set() if replaced else {intent.replaces for intent in found}
        return [intent for intent in found if intent.transaction not in gone]

    def _pending(self) -> list[Intent]:
        try:
            names = self._vfs.listdir(self.directory)
        except FileNotFoundError:
            return []
        # The content of an intent never changes.
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
            DamagedMetadataError: it is damaged.
        """
        fields = json_files.read(self._vfs, path, _MAX_BYTES)
        return None if fields is None else self._parse(fields, path)

    def naming(self, topic: str, partition: int) -> list[Intent]:
        """The intents that name a partition. Its writers must finish them first."""
        return [intent for intent in self.pending() if intent.names(topic, partition)]

    def directory_stat(self) -> FileStat | None:
        """It changes when an intent is written or removed; None before the first intent."""
        return self._vfs.stat(self.directory)

    def unchanged_since(self, stat: FileStat | None) -> bool:
        """Whether certainly no intent was written or removed since ``stat`` was taken.

        A directory that changed just now may change again without a new time: then it is False.
        """
        if stat is not None and self._vfs.now_us() * 1000 - stat.modified_ns < _TIME_STEP_NS:
            return False
        return self.directory_stat() == stat

    def of_topic(self, topic: str, topic_uuid: str) -> list[Intent]:
        """The intents that name a topic, also those that others take the place of."""
        pending = self.pending(replaced=True)
        return [intent for intent in pending if intent.topics.get(topic) == topic_uuid]

    def sweep(self, older_than_us: int) -> None:
        """Remove old temporary files that crashed committers left."""
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
            if fields["format"] not in (_FORMAT, _FORMAT_EXACT, _FORMAT_TYPED):
                raise ValueError(f"format {fields['format']!r} is unknown to this release")
            topics = {check_name("topic", topic): str(u) for topic, u in fields["topics"].items()}
            partitions = tuple(self._partition(entry, topics) for entry in fields["partitions"])
            return Intent(
                transaction=check_name("transaction", fields["transaction"]),
                job=check_name("job", fields["job"]),
                app=str(fields["app"]),
                version=int(fields["version"]),
                plain=bool(fields["plain"]),
                topics=topics,
                partitions=partitions,
                replaces=check_name("transaction", fields["replaces"])
                if "replaces" in fields
                else "",
                exact=fields["format"] == _FORMAT_EXACT or bool(fields.get("exact", False)),
                schemas=_schemas(fields.get("schemas", {}), partitions),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidNameError) as error:
            raise DamagedMetadataError(
                f"{path} is damaged: {error}. No partition can be written until you restore the "
                "file from a copy, or move it away to drop the commit.",
                path=path,
            ) from error

    def _partition(self, entry: dict[str, Any], topics: dict[str, str]) -> PartitionIntent:
        parts = tuple(part_from(self._staging, part) for part in entry["parts"])
        made = PartitionIntent(**{**entry, "parts": parts})
        place, where = (made.topic, made.partition), f"{made.topic}-{made.partition}"
        numbers = (made.partition, made.start, made.segment, made.position, made.skip)
        if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
            raise ValueError(f"{where}: a field is out of range: {numbers}")
        if type(made.before) is not str or len(bytes.fromhex(made.before)) > made.position:
            raise ValueError(
                f"{where}: the field before is not at most {made.position} bytes in hex"
            )
        if topics.get(made.topic) != made.topic_uuid:
            raise ValueError(f"{where}: the topic and its uuid are not in the field topics")
        if any((part.topic, part.partition) != place for part in parts):
            raise ValueError(f"{where} contains parts of another partition")
        return made


def _schemas(
    fields: dict[str, Any], partitions: tuple[PartitionIntent, ...]
) -> dict[str, tuple[int, int]]:
    found = {}
    for topic, (before, after) in fields.items():
        if type(before) is not int or type(after) is not int or not 1 <= before < after < 1 << 32:
            raise ValueError(f"{topic}: schema versions {before!r}, {after!r} are out of range")
        if not any((part.topic, part.partition) == (topic, 0) for part in partitions):
            raise ValueError(f"{topic}: a new schema version needs partition 0")
        found[topic] = (before, after)
    return found


def _fields(intent: Intent) -> dict[str, Any]:
    """The fields of the file. Releases without typed topics refuse format 3."""
    fields = asdict(intent)
    parts = [part for entry in fields["partitions"] for part in entry["parts"]]
    typed = bool(intent.schemas) or any(part["schema"] is not None for part in parts)
    if typed:
        fields["format"] = _FORMAT_TYPED
    else:
        # The format says it.
        fields["format"] = _FORMAT_EXACT if fields.pop("exact") else _FORMAT
    if not intent.schemas:
        del fields["schemas"]
    for part in parts:
        if part["schema"] is None:
            del part["schema"], part["schema_checksum"]
    if not intent.replaces:
        del fields["replaces"]
    for entry in fields["partitions"]:
        for name in ("before", "skip"):
            if not entry[name]:
                del entry[name]
    return fields
