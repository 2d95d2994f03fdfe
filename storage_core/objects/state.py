"""The state of a log: what its commits say when they are applied in order.

The state after commit n is a value. Applying the next commit makes another one that shares most of
its parts, so that a reader keeps the snapshot that it began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..commit.ledger import LedgerEntry, with_version
from ..errors import InvalidCommitError, InvalidSchemaError
from ..metadata import topic_file
from ..metadata.schema_files import RegisteredSchema
from ..metadata.topic_file import TopicFile
from ..schema.document import from_json, to_json
from .slices import Slice, SliceTable, slice_from

FORMAT = 1
DATA = "data"


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


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The slices of one partition, in order. ``start`` may be inside the first one.

    Only the first ``count`` of ``slices`` belong to this state: a later state shares the list and
    has more of them.
    """

    start: int = 0
    end: int = 0
    slices: list[Slice] = field(default_factory=list)
    count: int = 0

    def all(self) -> list[Slice]:
        """The slices of this state."""
        return self.slices[: self.count]

    def appended(self, added: Sequence[Slice]) -> PartitionState:
        """With more slices after the end; they count from 0."""
        slices, end = self.slices, self.end
        if len(slices) != self.count:  # another state has grown from this one
            slices = self.all()
        for each in added:
            slices.append(each.moved(end))
            end = slices[-1].end
        return replace(self, slices=slices, count=len(slices), end=end)

    def trimmed(self, start: int) -> PartitionState:
        """Without the records below an offset."""
        if start <= self.start:
            return self
        kept = [each for each in self.all() if each.end > start]
        return replace(self, start=min(start, self.end), slices=kept, count=len(kept))

    def replaced(self, change: Replacement) -> PartitionState:
        """With other slices in the place of some."""
        found = self.all()
        at = found.index(change.old[0])
        found[at : at + len(change.old)] = change.new
        return replace(self, slices=found, count=len(found))

    def has(self, change: Replacement) -> bool:
        """Whether the slices that would be replaced are all there, one after another."""
        found = self.all()
        if change.old[0] not in found:
            return False
        at = found.index(change.old[0])
        return tuple(found[at : at + len(change.old)]) == change.old


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

    def applied(self, commit: Commit) -> LogState:
        """The state after one more commit."""
        topic = commit.topic or self.topic
        partitions = list(self.partitions)
        if topic is not None:
            partitions += [PartitionState() for _ in range(topic.partitions - len(partitions))]
        for change in commit.replacements:
            partitions[change.partition] = partitions[change.partition].replaced(change)
        added: dict[int, list[Slice]] = {}
        for partition, each in commit.slices:
            added.setdefault(partition, []).append(each)
        for partition, slices in added.items():
            partitions[partition] = partitions[partition].appended(slices)
        for partition, start in commit.trims.items():
            partitions[partition] = partitions[partition].trimmed(start)
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
        )

    def require_kept(self, commit: Commit) -> None:
        """Refuse a commit of data that garbage collection may have deleted.

        Raises:
            InvalidCommitError: an object was uploaded before the fence.
        """
        new = [each for change in commit.replacements for each in change.new]
        for each in (*(found for _, found in commit.slices), *new):
            if each.key.startswith(f"{DATA}/") and each.key < f"{DATA}/{self.fence}":
                raise InvalidCommitError(
                    f"{each.key!r} was uploaded before {self.fence}, and garbage collection may "
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
        """Without plain jobs that were recorded before a time: no driver repeats them."""
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
    kept = {name: value for name, value in fields.items() if value not in (None, [], {})}
    return {**kept, "format": FORMAT, "written_at": commit.written_at}


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
    )


def state_fields(state: LogState) -> dict[str, Any]:
    """A state as the fields of a checkpoint."""
    table = SliceTable()
    partitions = [
        [each.start, each.end, [table.row(one) for one in each.all()]] for each in state.partitions
    ]
    return {
        "format": FORMAT,
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


def state_from(fields: Mapping[str, Any], key: str) -> LogState:
    """The state of a checkpoint.

    Raises:
        ValueError, TypeError, KeyError: a field is missing or wrong.
    """
    _require_format(fields)
    keys, topic = fields["objects"], fields["topic"]
    partitions = []
    for start, end, rows in fields["partitions"]:
        slices = [slice_from(row, keys) for row in rows]
        partitions.append(PartitionState(start, end, slices, len(slices)))
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
    if fields.get("format") != FORMAT:
        raise ValueError(f"format {fields.get('format')!r} is unknown to this release")
