"""What the engines of all layouts have in common.

Every append, commit and maintenance goes through ``guarded``. It finishes the work of a crashed
writer first, so that neither a log nor the commit protocol has to do it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ..commit.commit_state import CommitState, PendingCommit
from ..config import StoreConfig
from ..errors import (
    CommitPendingError,
    ConfigError,
    DamagedMetadataError,
    InvalidCommitError,
    InvalidRecordError,
    RecoveryNeededError,
    SchemaMismatchError,
    StorageError,
)
from ..format.columns import Columns
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile
from ..types import Problem, SegmentContents
from ..vfs import Vfs

if TYPE_CHECKING:
    from ..checks import store_check
    from ..commit import staging, staging_gc
    from ..commit.ledger import LedgerEntry
    from ..commit.protocol import CommitRequest, CommitResult, Committer
    from ..commit.staging import Stage, StageCheck
    from ..format.frame_scan import StoredFrame
    from ..metadata import consumer_groups
    from ..metadata.schema_files import Schemas
    from ..schema.fields import SchemaVersion
else:
    store_check = LazyModule("storage_core.checks.store_check")
    consumer_groups = LazyModule("storage_core.metadata.consumer_groups")
    staging = LazyModule("storage_core.commit.staging")
    staging_gc = LazyModule("storage_core.commit.staging_gc")

Result = TypeVar("Result")


class BaseEngine(ABC):
    """One opened log directory: guarded writes, staging and commits. Safe for several threads."""

    groups_directory: str
    remote: None = None

    def __init__(self, vfs: Vfs, config: StoreConfig, commits: CommitState) -> None:
        self._vfs = vfs
        self._config = config
        self.commits = commits

    @cached_property
    def groups(self) -> consumer_groups.Groups:
        return consumer_groups.GroupFiles(
            self._vfs, self.groups_directory, self._config.lock_timeout_ms
        )

    def store_uuid(self) -> UUID | None:
        """None: only some layouts have an identity."""
        return None

    def ledger(self) -> list[LedgerEntry]:
        return list(self.commits.ledger.entries())

    def pending_commits(self) -> list[PendingCommit]:
        return self.commits.pending()

    def staged_jobs(self) -> list[staging_gc.StagedJob]:
        return self.staging_gc.jobs()

    def check(self) -> Iterator[Problem]:
        """All problems of the directory. Changes nothing."""
        yield from self.log_problems()
        commits, groups = self.commits, self.groups_directory
        yield from store_check.state_problems(self._vfs, commits.intents, commits.ledger, groups)

    @abstractmethod
    def log_problems(self) -> Iterator[Problem]:
        """All problems of topics and logs."""

    @property
    @abstractmethod
    def committer(self) -> Committer[Any]:
        """The commit protocol. It is created on first use: most tasks do not commit."""

    @cached_property
    def staging_gc(self) -> staging_gc.StagingGc:
        """The garbage collection of staging. It stores the time of its last sweep."""
        return staging_gc.StagingGc(self._vfs, self.commits, self._config)

    @abstractmethod
    def topic(self, topic: str) -> TopicFile:
        """Identity, partitions and settings of a topic."""

    @abstractmethod
    def recover(self, topic: str) -> object:
        """Restore the lost high watermarks of a topic."""

    @abstractmethod
    def stage_check(self, topic: str, partition: int) -> StageCheck:
        """Returns a check that raises for records that an append would refuse."""

    def guarded(self, action: Callable[[], Result]) -> Result:
        """Run ``action``. If it raises because of a pending commit or lost high watermarks, finish
        the commit or recover the topic, then run it again.

        The action itself cannot do that: both need more locks than it holds, and locks are taken in
        order from the first.
        """
        recovered: set[str | None] = set()
        while True:
            try:
                return action()
            except CommitPendingError as error:
                self.committer.finish_pending(error)
            except RecoveryNeededError as error:
                # Raised before anything was written. If it is raised again, recovery does not help.
                if error.topic is None or error.topic in recovered:
                    raise
                recovered.add(error.topic)
                self.recover(error.topic)

    def stage(self, job: str, overrides: Mapping[str, Any]) -> Stage:
        return staging.Stage(
            self._vfs,
            self.commits.staging,
            job,
            lambda topic: self.topic(topic).config(self._config).override(overrides),
            self.stage_check,
            self.topic,
        )

    def commit(self, request: CommitRequest) -> CommitResult:
        try:
            result = self.guarded(lambda: self.committer.commit(request))
        except StorageError:
            # Abandoned staging may be what fills the disk.
            self.staging_gc.sweep_if_due(committing=request.job)
            raise
        self.staging_gc.sweep_if_due(committing=request.job)
        return result

    def slice_contents(self, *_: object) -> SegmentContents | None:
        raise self._only_objects("has files, not slices")

    def slice_frames(self, *_: object) -> Iterator[StoredFrame]:
        raise self._only_objects("has files, not slices")

    def collect_garbage(self, *, dry_run: bool) -> tuple[int, int]:  # noqa: ARG002
        raise self._only_objects("leaves no garbage: writers delete old staging by themselves")

    def _only_objects(self, reason: str) -> ConfigError:
        return ConfigError(f"{self._vfs.root} {reason}. This is for layout objects.")

    def abort(self, job: str, app: str, *, tried: bool) -> None:  # noqa: ARG002
        """The intent tells whether a commit was tried."""
        self.committer.abort(job, app)

    def finish_commit(self, transaction: str) -> None:
        raise self._no_decision(transaction)

    def give_up_commit(self, transaction: str) -> None:
        raise self._no_decision(transaction)

    def _no_decision(self, transaction: str) -> InvalidCommitError:
        return InvalidCommitError(
            f"the commit {transaction} needs no decision: the next writer, or repair, finishes it."
        )


def require_kind(
    topic: str, columns: Columns, *, is_typed: bool, schemas: Callable[[], Schemas]
) -> None:
    """Raise for records that a topic does not take. Records that ``make_columns`` accepts fit."""
    if columns.schema is not None and is_typed:
        _require_schema(topic, columns.schema, schemas())
    if is_typed == (columns.rows is not None) or not columns.count:
        return
    raise InvalidRecordError(
        f"topic {topic!r} is a typed topic: it takes rows, not keys and values. Use append_table."
        if columns.rows is None
        else f"topic {topic!r} is a records topic: it takes keys and values. Use append.",
        topic=topic,
    )


def _require_schema(topic: str, found: SchemaVersion, schemas: Schemas) -> None:
    try:
        registered = schemas.get(found.version)
    except DamagedMetadataError as error:
        if found.version <= len(schemas.all()):
            raise
        # Its last file is lost, or the rows are of an older topic, which had more versions.
        raise DamagedMetadataError(
            f"{error} If the topic was deleted and created again meanwhile, write the rows again.",
            topic=topic,
            path=error.path,
        ) from error
    if registered is not found and registered != found:
        raise SchemaMismatchError(
            f"topic {topic!r} has other columns in schema version {found.version} than the "
            "rows: it was deleted and created again meanwhile. Nothing was written; write the "
            "rows again.",
            topic=topic,
        )


def no_columns(topic: str) -> SchemaMismatchError:
    """The error for a records topic where a typed one is needed."""
    return SchemaMismatchError(
        f"topic {topic!r} is a records topic: it has keys and values, no columns of its "
        "own. The kind of a topic never changes; create a typed topic.",
        topic=topic,
    )
