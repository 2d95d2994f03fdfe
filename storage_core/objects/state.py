"""The state of a log: what its commits say when they are applied in order.

The state after commit n is a value. Applying the next commit makes another one that shares most of
its parts, so that a reader keeps the snapshot that it began with.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..commit.ledger import LedgerEntry, with_version
from ..errors import InvalidCommitError, InvalidSchemaError
from ..metadata import topic_file
from ..metadata.schema_files import RegisteredSchema
from ..metadata.topic_file import TopicFile
from ..schema.document import from_json, to_json
from ..types import TimeBounds
from .manifests.archive import (
    Archive,
    Manifest,
    ManifestReader,
    manifest_fields,
    manifest_from,
)
from .names import DATA
from .slices import Slice, SliceTable, slice_from

FORMAT, FORMAT_WITH_MANIFESTS = 1, 2


class Transaction(NamedTuple):
    """Who commits: the application, and its version. ``plain``: the job is its own application."""

    app: str
    version: int
    plain: bool


class Replacement(NamedTuple):
    """Slices of a partition that take the place of others with the same offsets."""

    partition: int
    old: tuple[Slice, ...]
    new: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit changes. The slices count from 0: the state gives them their offsets."""

    slices: Sequence[tuple[int, Slice]] = ()
    transaction: Transaction | None = None
    trims: Mapping[int, int] = field(default_factory=dict)
    replacements: Sequence[Replacement] = ()
    topic: TopicFile | None = None
    schemas: Sequence[RegisteredSchema] = ()
    published: int | None = None
    deleted: bool = False
    fence: str | None = None
    written_at: str = ""
    manifests: Sequence[Manifest | str] | None = None
    """All manifests from now on: the new ones, and the keys of those that stay."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The slices of one partition, in order. ``start`` may be inside the first one.

    Only the first ``count`` of ``slices`` belong to this state: a later state shares the list and
    has more of them. Older slices stand in the ``archive``. One of ``slices`` below the end of the
    archive has replaced slices there: it hides them.
    """

    start: int = 0
    end: int = 0
    slices: list[Slice] = field(default_factory=list)
    count: int = 0
    archive: Archive | None = None
    partition: int = 0

    def loaded(self) -> list[Slice]:
        """The slices that do not only stand in the archive."""
        return self.slices[: self.count]

    @property
    def archived(self) -> int:
        """Where the archive ends."""
        return 0 if self.archive is None else self.archive.end(self.partition)

    def all(self) -> list[Slice]:
        """All slices of this state; it reads manifests.

        Raises:
            FileNotFoundError: a manifest is gone; later commits may have replaced it.
        """
        if self.archived <= self.start:
            return self.loaded()
        return [each for number in range(self.windows) for each in self.window(number)]

    @property
    def windows(self) -> int:
        """Into how many parts the slices are divided: one for each manifest, and the rest."""
        return 1 if self.archive is None else len(self.archive.manifests) + 1

    def window_at(self, offset: int) -> int:
        """The number of the window with the slice that holds an offset."""
        if self.archive is None:
            return 0
        at = self._place(offset) - 1
        if at >= 0 and self.slices[at].end > offset:
            offset = self.slices[at].base
        return bisect.bisect_right(self.archive.ends(self.partition), offset)

    def window_bounds(self, number: int) -> tuple[int, int]:
        """The offsets between which the slices of a window begin."""
        if self.archive is None:
            return 0, self.end
        ends = self.archive.ends(self.partition)
        return ends[number - 1] if number else 0, ends[number] if number < len(ends) else self.end

    def may_have(self, number: int, times: TimeBounds) -> bool:
        """Whether a window can have records of a time; it reads nothing."""
        low, high = self.window_bounds(number)
        own = self.slices[self._place(low, before=True) : self._place(high, before=True)]
        bounds = [TimeBounds(each.smallest, each.largest) for each in own]
        if self.archive is not None and number < len(self.archive.manifests):
            stored = self.archive.manifests[number].bounds(self.partition)
            bounds += [] if stored is None else [stored]
        return any(
            each.largest >= times.smallest and each.smallest <= times.largest for each in bounds
        )

    def window(self, number: int) -> list[Slice]:
        """The slices of one window; raises as ``all`` does."""
        low, high = self.window_bounds(number)
        if self.archive is None or number == len(self.archive.manifests):
            return self.slices[self._place(low, before=True) : self.count]
        first, after = self._place(low, before=True), self._place(high, before=True)
        own = self.slices[first:after]
        # One that begins before may reach into the window.
        hiding = self.slices[max(first - 1, 0) : after]
        if high <= low or high <= self.start:
            return own
        stored = self.archive.slices_of(number, self.partition)
        kept = [each for each in stored if each.end > self.start and low <= each.base < high]
        if hiding:
            bases = [each.base for each in hiding]
            at = [bisect.bisect_right(bases, each.base) - 1 for each in kept]
            kept = [
                each
                for each, place in zip(kept, at, strict=True)
                if place < 0 or hiding[place].end <= each.base
            ]
        return sorted([*kept, *own]) if own else kept

    def _place(self, offset: int, *, before: bool = False) -> int:
        """How many of the loaded slices begin up to an offset, or before it."""
        find = bisect.bisect_left if before else bisect.bisect_right
        return find(self.slices, offset, 0, self.count, key=lambda each: each.base)

    def last(self) -> Slice | None:
        """The last slice."""
        if self.count:
            return self.slices[self.count - 1]
        found = self.all()
        return found[-1] if found else None

    def appended(self, added: Sequence[Slice]) -> PartitionState:
        """With more slices after the end; they count from 0."""
        slices, end = self.slices, self.end
        if len(slices) != self.count:  # another state has grown from this one
            slices = self.loaded()
        for each in added:
            slices.append(each.moved(end))
            end = slices[-1].end
        return replace(self, slices=slices, count=len(slices), end=end)

    def trimmed(self, start: int) -> PartitionState:
        """Without the records below an offset."""
        if start <= self.start:
            return self
        kept = [each for each in self.loaded() if each.end > start]
        return replace(self, start=min(start, self.end), slices=kept, count=len(kept))

    def replaced(self, change: Replacement) -> PartitionState:
        """With other slices in the place of some."""
        first, end = change.old[0].base, change.old[-1].end
        low, high = self._place(first, before=True), self._place(end, before=True)
        found = self.loaded()
        if first >= self.archived and tuple(found[low:high]) != change.old:
            raise ValueError(f"the slices from {first} to {end} are others")
        found[low:high] = change.new
        return replace(self, slices=found, count=len(found))

    def has(self, change: Replacement) -> bool:
        """Whether the slices that would be replaced are all there, one after another.

        It may read manifests.
        """
        first = self.window_at(change.old[0].base)
        last = self.window_at(change.old[-1].base)
        found = [each for number in range(first, last + 1) for each in self.window(number)]
        if change.old[0] not in found:
            return False
        at = found.index(change.old[0])
        return tuple(found[at : at + len(change.old)]) == change.old

    def moved(self, archive: Archive, known: Collection[str]) -> PartitionState:
        """With another archive; what its manifests hold that were not ``known`` is not loaded."""
        ends = archive.ends(self.partition)
        below = self._place(ends[-1], before=True) if ends else 0
        kept = [
            each
            for each in self.slices[:below]
            if archive.manifests[bisect.bisect_right(ends, each.base)].key in known
        ]
        kept += self.slices[below : self.count]
        return replace(self, archive=archive, slices=kept, count=len(kept))


@dataclass(frozen=True, slots=True)
class LogState:
    """A log after commit ``number``; ``number`` is -1 before the first one.

    ``fence``: data of hours before it may be deleted, so no later commit may name more of it.
    """

    number: int = -1
    topic: TopicFile | None = None
    partitions: tuple[PartitionState, ...] = ()
    ledger: Mapping[str, LedgerEntry] = field(default_factory=dict)
    schemas: tuple[RegisteredSchema, ...] = ()
    published: int | None = None
    deleted: bool = False
    fence: str = ""
    archive: Archive | None = None

    def applied(self, commit: Commit, reader: ManifestReader | None = None) -> LogState:
        """The state after one more commit; ``reader`` is for its manifests."""
        topic = commit.topic or self.topic
        partitions = list(self.partitions)
        if topic is not None:
            partitions += [
                PartitionState(archive=self.archive, partition=number)
                for number in range(len(partitions), topic.partitions)
            ]
        for change in commit.replacements:
            partitions[change.partition] = partitions[change.partition].replaced(change)
        added: dict[int, list[Slice]] = {}
        for partition, each in commit.slices:
            added.setdefault(partition, []).append(each)
        for partition, slices in added.items():
            partitions[partition] = partitions[partition].appended(slices)
        for partition, start in commit.trims.items():
            partitions[partition] = partitions[partition].trimmed(start)
        archive = self.archive
        if commit.manifests is not None:
            known = {each.key: each for each in self.manifests}
            if reader is None:
                raise ValueError("the commit names manifests, and nothing can read them")
            names = commit.manifests
            archive = Archive([known[n] if isinstance(n, str) else n for n in names], reader)
            partitions = [each.moved(archive, known) for each in partitions]
        ends = {partition: partitions[partition].end for partition in added}
        return LogState(
            self.number + 1,
            topic,
            tuple(partitions),
            self._recorded(commit, ends),
            (*self.schemas, *commit.schemas),
            self.published if commit.published is None else commit.published,
            self.deleted or commit.deleted,
            max(self.fence, commit.fence or ""),
            archive,
        )

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests of the archive."""
        return () if self.archive is None else self.archive.manifests

    def require_kept(self, commit: Commit) -> None:
        """Refuse a commit of data that garbage collection may have deleted.

        Raises:
            InvalidCommitError: an object was uploaded before the fence.
        """
        new = [each.key for change in commit.replacements for each in change.new]
        manifests = [each.key for each in commit.manifests or () if not isinstance(each, str)]
        for key in (*(found.key for _, found in commit.slices), *new, *manifests):
            if key.startswith(f"{DATA}/") and key < f"{DATA}/{self.fence}":
                raise InvalidCommitError(
                    f"{key!r} was uploaded before {self.fence}, and garbage collection may "
                    "have deleted it. Run the job again, or raise staging_ttl_ms."
                )

    def _recorded(self, commit: Commit, ends: Mapping[int, int]) -> Mapping[str, LedgerEntry]:
        if commit.transaction is None:
            return self.ledger
        app, version, plain = commit.transaction
        before = self.ledger.get(app)
        last, ranges = version, with_version((), version)
        if before is not None:
            last, ranges = max(last, before.version), with_version(before.ranges(), version)
            ends = {**before.ends, **ends}
        entry = LedgerEntry("", "", app, last, plain, ends, ranges, commit.written_at)
        return {**self.ledger, app: entry}

    def has_version(self, app: str, version: int, *, exact: bool) -> bool:
        """Whether an application has committed this version; unless ``exact``, or a later one."""
        entry = self.ledger.get(app)
        return entry is not None and entry.has(version, exact=exact)

    def without_jobs(self, before: str) -> LogState:
        """Without plain jobs that were recorded before a time."""
        kept = {
            app: entry
            for app, entry in self.ledger.items()
            if not entry.plain or entry.recorded_at >= before
        }
        return self if len(kept) == len(self.ledger) else replace(self, ledger=kept)


def commit_fields(commit: Commit) -> dict[str, Any]:
    """A commit as the fields of a document; what it does not change is left out."""
    table = SliceTable()
    rows = [[partition, *table.row(each)] for partition, each in commit.slices]
    replaced = [
        [
            change.partition,
            [table.row(each) for each in change.old],
            list(map(table.row, change.new)),
        ]
        for change in commit.replacements
    ]
    fields: dict[str, Any] = {
        "slices": rows,
        "replacements": replaced,
        "objects": table.keys,
        "trims": {str(partition): offset for partition, offset in commit.trims.items()},
        "transaction": None if commit.transaction is None else list(commit.transaction),
        "topic": None if commit.topic is None else topic_file.dump(commit.topic),
        "schemas": [schema_fields(each) for each in commit.schemas],
        "published": commit.published,
        "deleted": commit.deleted or None,
        "fence": commit.fence,
    }
    if commit.manifests is not None:
        fields["manifests"] = [
            each if isinstance(each, str) else manifest_fields(each) for each in commit.manifests
        ]
    kept = {
        name: value
        for name, value in fields.items()
        if value not in (None, [], {}) or name == "manifests"
    }
    version = FORMAT if commit.manifests is None else FORMAT_WITH_MANIFESTS
    return {**kept, "format": version, "written_at": commit.written_at}


def commit_from(fields: Mapping[str, Any], key: str, frames_at: int) -> Commit:
    """The commit of a document. Slices without an object stand in the commit itself.

    Raises:
        ValueError, TypeError, KeyError: a field is missing or wrong.
    """
    _require_format(fields)
    keys = fields.get("objects", [])
    topic, transaction = fields.get("topic"), fields.get("transaction")

    def resolved(row: Sequence[Any]) -> Slice:
        found = slice_from(row, keys)
        return found if found.key else found._replace(key=key, position=frames_at + found.position)

    return Commit(
        [(row[0], resolved(row[1:])) for row in fields.get("slices", [])],
        None if transaction is None else Transaction(*transaction),
        {int(partition): offset for partition, offset in fields.get("trims", {}).items()},
        [
            Replacement(partition, tuple(map(resolved, old)), tuple(map(resolved, new)))
            for partition, old, new in fields.get("replacements", [])
        ],
        None if topic is None else topic_file.parse(topic, key),
        [schema_from(each) for each in fields.get("schemas", [])],
        fields.get("published"),
        fields.get("deleted", False),
        fields.get("fence"),
        fields["written_at"],
        [each if isinstance(each, str) else manifest_from(each) for each in fields["manifests"]]
        if "manifests" in fields
        else None,
    )


def state_fields(state: LogState) -> dict[str, Any]:
    """A state as the fields of a checkpoint."""
    table = SliceTable()
    partitions = [
        [each.start, each.end, [table.row(one) for one in each.loaded()]]
        for each in state.partitions
    ]
    manifests = [manifest_fields(each) for each in state.manifests]
    return {
        **({"manifests": manifests} if manifests else {}),
        "format": FORMAT_WITH_MANIFESTS if manifests else FORMAT,
        "number": state.number,
        "topic": None if state.topic is None else topic_file.dump(state.topic),
        "partitions": partitions,
        "objects": table.keys,
        "ledger": [
            [
                entry.app,
                entry.version,
                entry.plain,
                sorted(entry.ends.items()),
                entry.ranges(),
                entry.recorded_at,
            ]
            for entry in state.ledger.values()
        ],
        "schemas": [schema_fields(each) for each in state.schemas],
        "published": state.published,
        "deleted": state.deleted,
        "fence": state.fence,
    }


def state_from(fields: Mapping[str, Any], key: str, reader: ManifestReader) -> LogState:
    """The state of a checkpoint.

    Raises:
        ValueError, TypeError, KeyError: a field is missing or wrong.
    """
    _require_format(fields)
    keys, topic = fields["objects"], fields["topic"]
    manifests = [manifest_from(each) for each in fields.get("manifests", ())]
    archive = Archive(manifests, reader) if manifests else None
    partitions = []
    for number, (start, end, rows) in enumerate(fields["partitions"]):
        slices = [slice_from(row, keys) for row in rows]
        partitions.append(PartitionState(start, end, slices, len(slices), archive, number))
    return LogState(
        fields["number"],
        None if topic is None else topic_file.parse(topic, key),
        tuple(partitions),
        {
            app: LedgerEntry(
                "", "", app, version, plain, dict(ends), tuple(map(tuple, ranges)), recorded_at
            )
            for app, version, plain, ends, ranges, recorded_at in fields["ledger"]
        },
        tuple(schema_from(each) for each in fields["schemas"]),
        fields["published"],
        fields["deleted"],
        fields.get("fence", ""),
        archive,
    )


def schema_fields(found: RegisteredSchema) -> dict[str, Any]:
    return {
        **to_json(found.schema),
        "origin": found.origin,
        "created_at": found.created_at,
    }


def schema_from(fields: Mapping[str, Any]) -> RegisteredSchema:
    try:
        schema = from_json({"version": fields["version"], "fields": fields["fields"]})
    except InvalidSchemaError as error:
        raise ValueError(str(error)) from error
    return RegisteredSchema(schema, fields["origin"], fields["created_at"])


def _require_format(fields: Mapping[str, Any]) -> None:
    if fields.get("format") not in (FORMAT, FORMAT_WITH_MANIFESTS):
        raise ValueError(f"format {fields.get('format')!r} is unknown to this release")
