"""The interface between ``Store`` and the engine of a layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from ..commit.commit_state import PendingCommit
from ..commit.protocol import CommitRequest, CommitResult
from ..commit.staging import Stage, StageCheck
from ..config import StoreConfig
from ..format.columns import Columns
from ..log.published import Published
from ..metadata.topic_file import TopicFile
from ..segments.partition_reader import PartitionReader
from ..types import ActiveFile, OffsetRange, Problem, RecoveryReport, SegmentContents, SegmentInfo

if TYPE_CHECKING:
    from ..commit.ledger import LedgerEntry
    from ..commit.staging_gc import StagedJob
    from ..format.frame_scan import StoredFrame
    from ..maintenance.partition import PartitionMaintenance
    from ..metadata.consumer_groups import Groups
    from ..metadata.schema_files import NewSchema, RegisteredSchema, Schemas
    from ..schema.fields import Field, SchemaVersion


class Log(Protocol):
    """The writing side of one topic-partition. Safe for several threads and processes."""

    config: StoreConfig

    @property
    def base_name(self) -> str:
        """The prefix of the paths of the partition's log files, relative to the root."""

    @property
    def active(self) -> ActiveFile:
        """The active segment, as of the last time this process held the lock."""

    @property
    def recovery_point(self) -> int:
        """The offset below which all records are durable, as far as this process knows."""

    def append(self, columns: Columns) -> OffsetRange:
        """Append records. They are durable and visible on return unless the policy defers it."""

    def flush(self) -> None:
        """Sync and publish the records that the policy has deferred."""

    def roll(self) -> bool:
        """Seal the active segment. False if it was empty."""

    def close(self) -> None:
        """Close the files."""


class RemoteReads(Protocol):
    """How reads of a store far away cost few requests. Files need none of this."""

    def reading_once(self) -> AbstractContextManager[None]:
        """Inside it, this thread asks for the state of each log at most once."""

    def pinned(self, topic: str) -> bytes:
        """What a task needs of a topic to read planned segments, or to stage, without its log."""

    def pin(self, topic: str, data: bytes) -> None:
        """Take a topic for what ``pinned`` said, without a look at its log."""

    def read_ahead(self, places: Sequence[tuple[str, int, int]]) -> None:
        """Fetch these before they are read: path of a segment, first and last byte, in order."""

    def container(self, path: str) -> str:
        """The object that a segment stands in; several may share one."""


class Engine(Protocol):
    """One opened log directory. Safe for several threads."""

    name: str

    @property
    def remote(self) -> RemoteReads | None:
        """How to read it with few requests; None where reads are reads of files."""

    @property
    def groups(self) -> Groups:
        """The committed offsets of consumer groups."""

    def store_uuid(self) -> UUID | None:
        """The identity of the store; None if it has none, or if its file is missing."""

    def ledger(self) -> list[LedgerEntry]:
        """The versions that applications committed."""

    def pending_commits(self) -> list[PendingCommit]:
        """Commits that are decided and not finished."""

    def staged_jobs(self) -> list[StagedJob]:
        """Jobs with staged files, where each job has files of its own."""

    def topics(self) -> list[str]:
        """Names of all topics, sorted."""

    def topic(self, topic: str) -> TopicFile:
        """Identity, partitions and settings of a topic."""

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        """The high watermark of every partition, at one instant where the layout allows it."""

    def published(self, topic: str) -> Published:
        """The high watermarks and, of a typed topic, the schema version, at one instant."""

    def schemas(self, topic: str) -> Schemas:
        """The registered schema versions of a typed topic."""

    def register_schema(
        self, topic: str, wanted: Sequence[Field], *, add: bool, widen: bool
    ) -> SchemaVersion:
        """The schema version for rows of these columns: the published one, or a new one.

        The commit of rows that name a new version publishes it.
        """

    def add_columns(self, topic: str, columns: Sequence[Field]) -> None:
        """Add columns to a typed topic now."""

    def adopt_schemas(self, topic: str, versions: Sequence[RegisteredSchema]) -> None:
        """Give a typed topic the schema versions of another store's, and publish the last."""

    def recovery_due(self, topic: str, partition: int) -> bool:
        """Whether the high watermark may be too low until a writer recovers the partition."""

    def reader(self, topic: str, partition: int) -> PartitionReader:
        """The reading side of an existing partition."""

    def slice_contents(
        self, topic: str, partition: int, found: SegmentInfo
    ) -> SegmentContents | None:
        """What a commit says about a slice; None if it is gone."""

    def slice_frames(self, topic: str, partition: int, found: SegmentInfo) -> Iterator[StoredFrame]:
        """The frames of a slice, every byte checked."""

    def check(self) -> Iterator[Problem]:
        """All problems of the directory. Changes nothing."""

    def require_writable(self) -> None:
        """Raise unless this process may write to the directory."""

    def create_topic(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, Any],
        new: NewSchema | None = None,
    ) -> TopicFile:
        """Create a topic; ``new`` makes it a typed one."""

    def delete_topic(self, topic: str) -> None: ...

    def add_partitions(self, topic: str, total: int) -> TopicFile: ...

    def alter_topic(self, topic: str, settings: Mapping[str, Any]) -> TopicFile: ...

    def append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        """Append to the partition's log; first recover and finish pending commits if needed."""

    def stage_check(self, topic: str, partition: int) -> StageCheck:
        """Returns a check that raises for records that an append would refuse.

        After the commit point no record may be refused.
        """

    def stage(self, job: str, overrides: Mapping[str, Any]) -> Stage:
        """Staging for one task of a job. ``overrides``: topic settings for this task only."""

    def finish_commit(self, transaction: str) -> None:
        """Append the rest of an interrupted commit after the records of another program."""

    def give_up_commit(self, transaction: str) -> None:
        """Drop an interrupted commit; what it had appended stays."""

    def abort(self, job: str, app: str, *, tried: bool) -> None:
        """Delete the staging of a job, or finish its commit if that is decided.

        ``tried``: a commit of the job may have been tried, in any process.
        """

    def commit(self, request: CommitRequest) -> CommitResult:
        """Publish all parts or none; first recover and finish pending commits if needed."""

    def log(self, topic: str, partition: int) -> Log:
        """The writing side of an existing partition."""

    def appended_log(self, topic: str, partition: int) -> Log:
        """The log of the last append to a partition, without a look at the topic."""

    def roll(self, topic: str, partition: int, *, begin: bool = False) -> bool:
        """Seal the active segment; ``begin`` also creates the next one."""

    def maintenance(self, topic: str, partition: int) -> PartitionMaintenance:
        """Maintenance of an existing partition."""

    def repair(self) -> list[RecoveryReport]:
        """Recover every partition and rewrite all metadata that can be derived from the logs."""

    def collect_garbage(self, *, dry_run: bool) -> tuple[int, int]:
        """Delete what no reader needs, in a layout that leaves it; how many objects and bytes."""

    def flush(self) -> None:
        """Flush every open log."""

    def flush_partition(self, topic: str, partition: int) -> None:
        """Flush one log; first recover and finish pending commits if needed."""

    def close(self) -> None:
        """Flush every log and close all files."""
