"""What a kind of log directory must offer so that ``Store`` can work with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..commit.commit_state import CommitState
from ..commit.protocol import CommitResult
from ..commit.staging import Stage, StageCheck, StagedPart
from ..config import StoreConfig
from ..format.columns import Columns
from ..metadata.topic_file import TopicFile
from ..segments.partition_reader import PartitionReader
from ..types import ActiveFile, OffsetRange, Problem, RecoveryReport

if TYPE_CHECKING:
    from ..maintenance.partition import PartitionMaintenance


class Log(Protocol):
    """The writing side of one topic-partition. Safe for several threads and processes."""

    config: StoreConfig

    @property
    def base_name(self) -> str:
        """What the names of the partition's log files begin with, relative to the root."""

    @property
    def active(self) -> ActiveFile:
        """Where appends go, as of the last time the lock was held."""

    @property
    def recovery_point(self) -> int:
        """Offset up to which all records are durable, as far as this process knows."""

    def append(self, columns: Columns) -> OffsetRange:
        """Append records; durable and visible on return unless the topic's policy says later."""

    def flush(self) -> None:
        """Make durable and visible what the policy still holds back."""

    def roll(self) -> bool:
        """Close the active segment; False if it was empty."""

    def close(self) -> None:
        """Let go of the files."""


class Engine(Protocol):
    """One opened log directory. Safe for several threads."""

    name: str
    groups_directory: str

    def topics(self) -> list[str]:
        """Names of all topics, sorted."""

    def topic(self, topic: str) -> TopicFile:
        """Identity, partitions and settings of a topic."""

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        """The visible end of every partition, at one instant where the layout allows it."""

    def recovery_due(self, topic: str, partition: int) -> bool:
        """Whether the visible end may be too old until a writer recovers the partition."""

    def reader(self, topic: str, partition: int) -> PartitionReader:
        """The reading side of a partition that exists."""

    def check(self) -> Iterator[Problem]:
        """Every problem of the directory, changing nothing."""

    def require_writable(self) -> None:
        """Raise unless this process may write here."""

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, Any]
    ) -> TopicFile: ...

    def delete_topic(self, topic: str) -> None: ...

    def add_partitions(self, topic: str, total: int) -> TopicFile: ...

    def alter_topic(self, topic: str, settings: Mapping[str, Any]) -> TopicFile: ...

    def append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        """Append through the partition's log, recovering first where that is due."""

    commits: CommitState

    def stage_check(self, topic: str, partition: int) -> StageCheck:
        """Raises for records that an append would refuse: a decided commit must not meet one."""

    def stage(self, job: str, overrides: Mapping[str, Any]) -> Stage:
        """Private files for one task of a job; ``overrides`` are topic settings for it alone."""

    def abort(self, job: str, app: str) -> None:
        """Give a job up, or finish it if its commit is decided."""

    def commit(
        self, job: str, parts: Sequence[StagedPart], topics: Iterable[str], app: str, version: int
    ) -> CommitResult:
        """Publish staged parts, all or none, finishing and recovering first where that is due."""

    def log(self, topic: str, partition: int) -> Log:
        """The writing side of a partition that exists."""

    def roll(self, topic: str, partition: int) -> bool: ...

    def maintenance(self, topic: str, partition: int) -> PartitionMaintenance:
        """The care of a partition that exists."""

    def repair(self) -> list[RecoveryReport]:
        """Recover every partition and rewrite what can be worked out from the logs."""

    def flush(self) -> None:
        """Flush every open log."""

    def flush_partition(self, topic: str, partition: int) -> None:
        """Flush one, finishing and recovering first where that is due."""

    def close(self) -> None:
        """Flush and let go of everything."""
