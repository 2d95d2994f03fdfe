"""Publishing staged records of many tasks in one step: the commit protocol.

1. Hold the names of application and job, then all partitions in sorted order, recovered and synced.
2. If the ledger has the version already, drop the staging: the commit happened before.
3. Write the intent. **This is the commit point**: from here it happens, whoever finishes it.
4. Append small parts, link large ones into place; sync.
5. Record the version in the ledger, then publish the ends of each topic by one rename.
6. Remove the intent, then the staging; let go.

Who takes a partition's lock later and finds an intent that names it finishes the commit first, and
so does the next commit of the same application. The order of 5 and 6 matters: without the entry a
repeated commit would double records; without the intent a crash before the entry would forget that
it must be made; and what several partitions publish is synced before the intent goes, else a power
cut could take the visible ends back, and their next writers would show the commit one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from ..config import StoreConfig
from ..errors import (
    CommitPendingError,
    CommitUnknownError,
    InvalidCommitError,
    RecoveryNeededError,
    StorageError,
    TopicNotFoundError,
)
from ..format.file_names import check_name
from ..io.durable import remove_tree
from ..types import OffsetRange
from ..vfs import Vfs
from .host import Footing, Host
from .intents import Intent, Intents
from .ledger import Ledger
from .part_validation import claimed_parts, verify_parts
from .staging import CheckOf, ConfigOf, Stage, StagedPart, TopicPartition
from .staging_gc import sweep
from .steps import CommitSteps, outcome_unknown

_log = logging.getLogger("storage_core")
_TRIES = 100
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did. ``skipped``: the ledger had this version already, nothing was added."""

    skipped: bool
    offsets: Mapping[TopicPartition, OffsetRange]


class Committer:
    """Stages and commits for one store. Safe for several threads and processes."""

    def __init__(
        self,
        vfs: Vfs,
        meta: str,
        staging: str,
        host: Host,
        config: StoreConfig,
        footing: Footing | None = None,
    ) -> None:
        self._vfs = vfs
        self._staging = staging
        self._host = host
        self._config = config
        self._swept = -1.0
        self.intents = Intents(vfs, f"{meta}/intents", staging)
        self.ledger = Ledger(vfs, f"{meta}/ledger")
        self._steps = CommitSteps(host, self.intents, self.ledger, footing)

    def stage(self, job: str, config_of: ConfigOf, check_of: CheckOf) -> Stage:
        """Private files for one task of a job, checked before they are written."""
        return Stage(self._vfs, self._staging, job, config_of, check_of)

    def commit(
        self, job: str, parts: Sequence[StagedPart], topics: Iterable[str], app: str, version: int
    ) -> CommitResult:
        """Publish all parts or none; see the module's text for the steps.

        Raises:
            InvalidCommitError: a part is not what a task of this job staged.
            CommitUnknownError: it failed behind the commit point; it will be rolled forward.
        """
        claimed = claimed_parts(self._staging, check_name("job", job), parts)
        if type(version) is not int or not isinstance(app, str):
            raise InvalidCommitError(f"version {version!r} of {app!r} is not a number of a name.")
        names = {*topics, *(part.topic for part in claimed)}
        self.sweep(job)
        return self.after_pending(lambda: self._commit(job, claimed, names, app, version))

    def _commit(
        self, job: str, claimed: list[StagedPart], names: set[str], app: str, version: int
    ) -> CommitResult:
        decided: list[Intent] = []
        try:
            return self._commit_holding(job, claimed, names, app, version, decided)
        except (OSError, StorageError) as error:
            # Behind the commit point every failure means the same: it is decided all the same.
            if decided and not isinstance(error, CommitUnknownError):
                raise outcome_unknown(decided[0], error) from error
            raise

    def _commit_holding(
        self,
        job: str,
        claimed: list[StagedPart],
        names: set[str],
        app: str,
        version: int,
        decided: list[Intent],
    ) -> CommitResult:
        topics = {name: self._host.topic(name) for name in names}
        with self._holding(app, job):
            self._require_finished(app)
            due = {
                name: str(topic.uuid)
                for name, topic in topics.items()
                if not self.ledger.has(name, str(topic.uuid), app, version)
            }
            if len(due) < len(topics):
                _log.warning(
                    "version %s of %r is committed already to %s: nothing was added there",
                    version, app, ", ".join(sorted(topics.keys() - due.keys())),
                )  # fmt: skip
            if topics and not due:
                self.drop_staging(job)
                return CommitResult(True, {})
            kept = [part for part in claimed if part.topic in due]
            verify_parts(self._vfs, kept, {name: topics[name].partitions for name in due})
            with self._steps.held({(part.topic, part.partition) for part in kept}) as logs:
                intent = self._steps.plan(job, kept, due, app, version, logs)
                self._steps.decide(intent)
                decided.append(intent)
                try:
                    self._steps.finish(intent, logs)
                    finished = True
                except RecoveryNeededError:
                    # Finding lost visible ends takes more locks than are held here.
                    finished = False
        if finished:
            self.drop_staging(job)
        else:
            self.roll_forward(intent)
        return CommitResult(False, _offsets(intent))

    def _require_finished(self, app: str) -> None:
        """An earlier commit of the same application comes first: the ledger knows only the last."""
        pending = [intent for intent in self.intents.pending() if intent.app == app]
        if pending:
            raise CommitPendingError(
                f"an earlier commit of {app!r} is not finished.",
                transactions=[intent.transaction for intent in pending],
            )

    def abort(self, job: str, app: str) -> None:
        """Give a job up, unless it is decided: then finish it instead.

        Spark calls this after a commit that raised, also when that commit had passed its point of
        no return: deleting the staging then would destroy the only copy of committed records.
        """
        check_name("job", job)
        with self._holding(app, job):
            decided = [intent for intent in self.intents.pending() if intent.job == job]
            if not decided:
                self.drop_staging(job)
        for intent in decided:
            self.roll_forward(intent)

    def roll_forward(self, intent: Intent) -> None:
        """Finish a commit whose committer is gone. Safe to call for one that was just finished."""
        for _ in range(_TRIES):
            try:
                self._roll_forward(intent)
                self.drop_staging(intent.job)
                return
            except RecoveryNeededError as error:
                self._host.recover(str(error.topic))
            except OSError as error:
                raise outcome_unknown(intent, error) from error
            except TopicNotFoundError:
                continue  # deleted while we waited for its lock: its records went too
        raise outcome_unknown(intent, "its topics come and go")

    def _roll_forward(self, intent: Intent) -> None:
        with self._holding(intent.app, intent.job):
            if intent.transaction not in {found.transaction for found in self.intents.pending()}:
                return
            self._steps.decide(intent)
            wanted = {(part.topic, part.partition) for part in self._steps.alive(intent)}
            with self._steps.held(wanted, finishing=True) as logs:
                self._steps.finish(self._steps.without_recreated(intent), logs)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an intent names this partition."""
        return bool(self.intents.naming(topic, partition))

    def recovery_point(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The highest end that any commit to this partition is known to have made durable."""
        committed = self.ledger.recovery_points(topic, topic_uuid).get(partition, 0)
        # What stands before a pending commit was settled before it was decided.
        return max(committed, self.intents.starts(topic, topic_uuid).get(partition, 0))

    def finish_pending(self) -> None:
        """Finish every commit whose committer is gone; wait for the others."""
        for intent in self.intents.pending():
            self.roll_forward(intent)

    def after_pending(self, action: Callable[[], Result]) -> Result:
        """Run ``action``; as often as it meets a pending commit or a lost end, settle that first.

        Not inside the action: both take more locks than it holds, in order, from the first.
        """
        recovered: set[str | None] = set()
        while True:
            try:
                return action()
            except CommitPendingError as error:
                place = (error.topic, error.partition)
                for intent in self.intents.pending():
                    if intent.transaction in error.transactions or intent.names(*place):
                        self.roll_forward(intent)
            except RecoveryNeededError as error:
                # Raised before anything was written. A second time, recovering does not help.
                if error.topic is None or error.topic in recovered:
                    raise
                recovered.add(error.topic)
                self._host.recover(error.topic)

    def drop_staging(self, job: str) -> None:
        """Delete a job's private files; what was linked into a log stays there.

        The commit is done, or given up: what cannot be deleted now (a zombie task may be adding to
        it) is swept by age.
        """
        try:
            remove_tree(self._vfs, f"{self._staging}/{job}")
        except (OSError, StorageError) as error:
            _log.warning("the staging of job %s is left for the sweep: %s", job, error)

    def sweep(self, committing: str = "") -> None:
        """Remove staging and plain ledger entries past their time to live, now and then.

        Not that of the job we are ``committing``: it may be slow, or the clock was put forward.
        """
        now = self._vfs.monotonic()
        if self._swept >= 0 and now - self._swept < 3600:
            return
        self._swept = now
        oldest_us = self._vfs.now_us() - self._config.staging_ttl_ms * 1000
        try:
            sweep(
                self._vfs, self._staging, self.intents, self.ledger, oldest_us,
                self.drop_staging, committing,
            )  # fmt: skip
        except (OSError, StorageError) as error:
            _log.warning("old staging was not swept: %s", error)

    def _holding(self, app: str, job: str) -> AbstractContextManager[None]:
        return self.ledger.hold([app, job], self._config.lock_timeout_ms)


def _offsets(intent: Intent) -> dict[TopicPartition, OffsetRange]:
    return {
        (part.topic, part.partition): OffsetRange(part.start, part.end)
        for part in intent.partitions
    }
