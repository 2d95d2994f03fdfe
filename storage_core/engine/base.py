"""What the engines of all kinds of log directories do alike.

Every append, commit and maintenance passes ``guarded``: it finishes what an earlier writer left
unfinished, so that neither a log nor the commit protocol has to know how.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ..commit.commit_state import CommitState
from ..config import StoreConfig
from ..errors import CommitPendingError, RecoveryNeededError
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile
from ..vfs import Vfs

if TYPE_CHECKING:
    from ..commit import staging, staging_gc
    from ..commit.protocol import CommitResult, Committer
    from ..commit.staging import Stage, StageCheck, StagedPart
else:
    staging = LazyModule("storage_core.commit.staging")
    staging_gc = LazyModule("storage_core.commit.staging_gc")

Result = TypeVar("Result")


class BaseEngine(ABC):
    """One opened log directory: guarded writes, staging and commits. Safe for several threads."""

    def __init__(self, vfs: Vfs, config: StoreConfig, commits: CommitState) -> None:
        self._vfs = vfs
        self._config = config
        self.commits = commits

    @property
    @abstractmethod
    def committer(self) -> Committer[Any]:
        """The commit protocol, made when it is first needed: most tasks do not commit."""

    @cached_property
    def staging_gc(self) -> staging_gc.StagingGc:
        """The garbage collection of staging, which keeps the time of its last sweep."""
        return staging_gc.StagingGc(self._vfs, self.commits, self._config)

    @abstractmethod
    def topic(self, topic: str) -> TopicFile:
        """Identity, partitions and settings of a topic."""

    @abstractmethod
    def recover(self, topic: str) -> object:
        """Work out lost high watermarks of a topic."""

    @abstractmethod
    def stage_check(self, topic: str, partition: int) -> StageCheck:
        """Raises for records that an append would refuse."""

    def guarded(self, action: Callable[[], Result]) -> Result:
        """Run ``action``. When it meets an interrupted commit or lost high watermarks, first finish
        the commit or recover the topic, then run it again.

        Not inside the action: both take more locks than it holds, in order, from the first.
        """
        recovered: set[str | None] = set()
        while True:
            try:
                return action()
            except CommitPendingError as error:
                self.committer.finish_pending(error)
            except RecoveryNeededError as error:
                # Raised before anything was written. A second time, recovering does not help.
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
        )

    def commit(
        self, job: str, parts: Sequence[StagedPart], topics: Iterable[str], app: str, version: int
    ) -> CommitResult:
        names = tuple(topics)
        result = self.guarded(lambda: self.committer.commit(job, parts, names, app, version))
        self.staging_gc.sweep_if_due()
        return result

    def abort(self, job: str, app: str) -> None:
        self.committer.abort(job, app)
