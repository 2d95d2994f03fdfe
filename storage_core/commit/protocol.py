"""The commit protocol: publish the staged records of many tasks in one step.

1. Lock the names of application and job. If the ledger has the version, drop the staging and stop:
   the commit happened before.
2. Lock all partitions in sorted order; recover and sync them. If the rows bring new columns, lock
   partition 0 too, and register the schema that covers them and the published one.
3. Write the intent. **This is the commit point**: from here on the commit happens, whichever
   process finishes it.
4. Append small parts, link large ones into the log, and sync.
5. Record the version in the ledger, then raise the high watermarks of each topic in one step, which
   also publishes the schema of a typed topic that gets columns.
6. Remove the intent, unlock, and delete the staging.

A writer that later locks a partition of a pending commit finds the intent and finishes the commit
first. So does the next commit of the same application.

The order of steps 5 and 6 matters:

- Without the ledger entry a repeated commit would append its records twice.
- Without the intent a crash before the ledger entry would lose the fact that the entry is missing.
- The high watermarks of several partitions are synced before the intent is removed. Otherwise a
  power cut could lower some of them, and the next writers would publish the commit one partition at
  a time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic

from ..config import StoreConfig
from ..errors import (
    CommitPendingError,
    CommitUnknownError,
    DamagedLogError,
    InvalidCommitError,
    RecoveryNeededError,
    StorageError,
    TopicNotFoundError,
)
from ..format.file_names import check_name
from ..io.io_errors import write_failure
from ..metadata.topic_file import TopicFile
from ..types import OffsetRange
from ..vfs import Vfs
from .commit_state import CommitState
from .intents import Intent, PartitionIntent
from .ledger import LedgerEntry
from .new_columns import merge_schemas, schemas_to_merge
from .part_validation import claimed_parts, verify_parts
from .participants import Fingerprints, Log, Participants, Schemas
from .staging import StagedPart, TopicPartition
from .staging_gc import drop_staging

_log = logging.getLogger("storage_core")
_TRIES = 100


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did. ``skipped``: the ledger had this version or a later one.

    ``recorded``: the later one, if this version itself was never committed.
    """

    skipped: bool
    offsets: Mapping[TopicPartition, OffsetRange]
    recorded: int | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a driver asks for.

    Attributes:
        job: The job's name.
        parts: What its tasks staged.
        topics: More topics to record the version for.
        app: The application that numbers its versions.
        version: Its version.
        exact: Skip only a version that was really committed.
        schemas: By topic a schema version whose columns are published with or without rows.
    """

    job: str
    parts: Sequence[StagedPart]
    topics: Iterable[str]
    app: str
    version: int
    exact: bool = False
    schemas: Mapping[str, int] = field(default_factory=dict)


class Committer(Generic[Log]):
    """Commits for one store. Safe for several threads and processes.

    It raises CommitPendingError and RecoveryNeededError to its engine. The engine finishes the
    pending commit or recovers the topic, then repeats the call. Both need more locks than a commit
    holds, and locks are taken in order from the first.
    """

    def __init__(
        self,
        vfs: Vfs,
        state: CommitState,
        logs: Participants[Log],
        append_staged: Callable[[Log, PartitionIntent], None],
        config: StoreConfig,
        fingerprints: Fingerprints | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self._vfs = vfs
        self._intents, self._ledger = state.intents, state.ledger
        self._staging = state.staging
        self._logs = logs
        self._append_staged = append_staged
        self._config = config
        self._fingerprints = fingerprints
        self._schemas = schemas

    def commit(self, request: CommitRequest) -> CommitResult:
        """Publish all parts or none. The module docstring lists the steps.

        Raises:
            InvalidCommitError: a part is not what a task of this job staged.
            SchemaMismatchError: another writer published a column of the same name and another
                type. Nothing was written.
            CommitUnknownError: the commit failed after the commit point. The next writer finishes
                it.
            CommitPendingError, RecoveryNeededError: other work comes first. Nothing was written.
        """
        claimed = claimed_parts(self._staging, check_name("job", request.job), request.parts)
        if type(request.version) is not int or not isinstance(request.app, str):
            raise InvalidCommitError(
                f"app must be str and version int, got {request.app!r} and {request.version!r}."
            )
        names = frozenset({*request.topics, *(part.topic for part in claimed)})
        decided: list[Intent] = []
        try:
            return self._commit(replace(request, parts=claimed, topics=names), decided)
        except (OSError, StorageError) as error:
            # After the commit point every failure means the same: another writer finishes the
            # commit.
            if decided and not isinstance(error, CommitUnknownError):
                raise outcome_unknown(decided[0], error) from error
            raise

    def _commit(self, request: CommitRequest, decided: list[Intent]) -> CommitResult:
        topics = {name: self._logs.topic(name) for name in request.topics}
        with self._locked_names(request.app, request.job):
            self._require_finished(request.app, request.job)
            due = self._not_in_ledger(request, topics)
            if topics and not due:
                drop_staging(self._vfs, self._staging, request.job)
                return CommitResult(True, {}, self._later(request, topics))
            kept = [part for part in request.parts if part.topic in due]
            schemas_of = None if self._schemas is None else self._schemas.of
            verify_parts(self._vfs, kept, {name: topics[name] for name in due}, schemas_of)
            given = {name: found for name, found in request.schemas.items() if name in due}
            new = schemas_to_merge(self._schemas, kept, given)
            places = {(part.topic, part.partition) for part in kept} | {(name, 0) for name in new}
            with self._locked_partitions(places) as logs:
                intent = self.plan(request, kept, due, logs, new)
                self.decide(intent)
                decided.append(intent)
                try:
                    self.finish(intent, logs)
                    finished = True
                except RecoveryNeededError:
                    # Restoring lost high watermarks takes more locks than are held here.
                    finished = False
        if finished:
            drop_staging(self._vfs, self._staging, request.job)
        else:
            self.roll_forward(intent)
        return CommitResult(False, _offsets(intent))

    def _not_in_ledger(
        self, request: CommitRequest, topics: Mapping[str, TopicFile]
    ) -> dict[str, str]:
        """The topics, with their uuids, to which this version is not committed yet."""
        app, version, exact = request.app, request.version, request.exact
        due = {
            name: str(topic.uuid)
            for name, topic in topics.items()
            if not self._ledger.has(name, str(topic.uuid), app, version, exact=exact)
        }
        skipped = {name: topic for name, topic in topics.items() if name not in due}
        if skipped:
            later = self._later(request, skipped)
            _log.warning(
                "version %s of %r is %s in %s: no record was added there",
                version, app,
                "already committed" if later is None else f"not above the recorded {later}",
                ", ".join(sorted(skipped)),
            )  # fmt: skip
        return due

    def _later(self, request: CommitRequest, topics: Mapping[str, TopicFile]) -> int | None:
        """The last recorded version, if the one that is asked for was committed to no topic."""
        found = [
            entry
            for name, topic in topics.items()
            if (entry := self._ledger.find(name, str(topic.uuid), request.app)) is not None
        ]
        if any(entry.has(request.version, exact=True) for entry in found):
            return None
        return max((entry.version for entry in found), default=None)

    def _require_finished(self, app: str, job: str) -> None:
        """Raise if an earlier commit of the application or job is pending: it comes first.

        The ledger has only the last version of an application, and a job has one staging.
        """
        pending = [each for each in self._intents.pending() if app == each.app or job == each.job]
        if pending:
            raise CommitPendingError(
                f"an earlier commit of {app!r}, job {job}, is pending. The next writer finishes "
                "it.",
                transactions=[intent.transaction for intent in pending],
            )

    def abort(self, job: str, app: str) -> None:
        """Delete the staging of a job; if its commit is decided, finish the commit instead.

        Spark aborts a job after a commit that raised, even if that commit had passed its commit
        point. Deleting the staging then would destroy the only copy of committed records.
        """
        check_name("job", job)
        with self._locked_names(app, job):
            decided = [intent for intent in self._intents.pending() if intent.job == job]
            if not decided:
                drop_staging(self._vfs, self._staging, job)
        for intent in decided:
            self.roll_forward(intent)

    def finish_pending(self, error: CommitPendingError | None = None) -> None:
        """Finish interrupted commits and wait for running ones: all, or those in ``error``."""
        failed: StorageError | None = None
        for intent in self._intents.pending():
            if (
                error is None
                or intent.transaction in error.transactions
                or intent.names(error.topic, error.partition)
            ):
                try:
                    self.roll_forward(intent)
                except StorageError as problem:
                    # One that needs a decision must not keep the others from being finished.
                    failed = failed or problem
        if failed is not None:
            raise failed

    def roll_forward(self, intent: Intent) -> None:
        """Finish an interrupted commit. Safe if another process has just finished it."""
        for _ in range(_TRIES):
            try:
                self._roll_forward(intent)
                drop_staging(self._vfs, self._staging, intent.job)
                return
            except RecoveryNeededError as error:
                self._logs.recover(str(error.topic))
            except OSError as error:
                raise outcome_unknown(intent, error) from error
            except TopicNotFoundError:
                continue  # deleted while this call waited for its lock: repeat without it
        raise outcome_unknown(intent, f"its topics were deleted {_TRIES} times during this call")

    def _roll_forward(self, intent: Intent) -> None:
        with self._locked_names(intent.app, intent.job):
            if intent.transaction not in {found.transaction for found in self._intents.pending()}:
                return
            self.decide(intent)
            wanted = {(part.topic, part.partition) for part in self.alive(intent)}
            with self._locked_partitions(wanted, past_barrier=True) as logs:
                try:
                    self.finish(self.without_recreated(intent), logs)
                except OSError as error:
                    # Typed here: a failed read of the staging says nothing about the partitions.
                    raise outcome_unknown(intent, error) from error

    @contextmanager
    def locked(self, intent: Intent) -> Iterator[bool]:
        """Lock all that an interrupted commit names; whether it is still pending."""
        with self._locked_names(intent.app, intent.job):
            names = {found.transaction for found in self._intents.pending()}
            wanted = {(part.topic, part.partition) for part in self.alive(intent)}
            with self._locked_partitions(wanted, past_barrier=True):
                try:
                    yield intent.transaction in names
                except OSError as error:
                    raise outcome_unknown(intent, error) from error

    def plan(
        self,
        request: CommitRequest,
        parts: Sequence[StagedPart],
        topics: Mapping[str, str],
        logs: Mapping[TopicPartition, Log],
        new: Mapping[str, frozenset[int]],
    ) -> Intent:
        """Fix the offsets of every part. Parts of a partition follow each other in task order."""
        for topic, uid in topics.items():
            if str(self._logs.topic(topic).uuid) != uid:
                raise TopicNotFoundError(
                    f"topic {topic!r} was deleted and created again during the commit. No record "
                    "was added. Run the job again.",
                    topic=topic,
                )
        grouped: dict[TopicPartition, list[StagedPart]] = {place: [] for place in sorted(logs)}
        for part in parts:
            grouped[part.topic, part.partition].append(part)
        planned = []
        schemas = merge_schemas(self._schemas, new)
        for (topic, partition), group in grouped.items():
            if not group and topic not in schemas:
                continue
            log = logs[topic, partition]
            try:
                # A power cut must not take records below the offset that the intent names.
                log.sync()
            except OSError as error:
                # Typed here, so that no other locked partition takes this failure for its own.
                what = f"{topic}-{partition}: syncing before a commit"
                raise write_failure(what, error, topic, partition) from error
            prints = self._fingerprints
            before = b"" if prints is None else prints.before(topic, partition)
            planned.append(
                PartitionIntent(
                    topic, topics[topic], partition,
                    log.end_offset, log.active.number, log.active.size, tuple(group),
                    before.hex(),
                )
            )  # fmt: skip
        job, app, version = request.job, request.app, request.version
        transaction, plain = str(uuid.uuid4()), app == job
        return Intent(
            transaction, job, app, version, plain, dict(topics), tuple(planned),
            exact=request.exact, schemas=schemas,
        )  # fmt: skip

    def decide(self, intent: Intent) -> None:
        """Write the intent: the commit point."""
        try:
            self._intents.write(intent)
        except OSError as error:
            if self._intents.is_absent(intent):
                what = f"no record was added: writing the intent of job {intent.job}"
                raise write_failure(what, error) from error
            raise outcome_unknown(intent, error) from error

    def finish(self, intent: Intent, logs: Mapping[TopicPartition, Log]) -> None:
        """Steps 4 to 6. All partitions are locked. Idempotent: log and ledger show what is done."""
        try:
            alive = self.alive(intent)
            topics = {
                topic: uid for topic, uid in intent.topics.items() if self._is_alive(topic, uid)
            }
            due = {topic: uid for topic, uid in topics.items() if not self._has(intent, topic, uid)}
            for part in alive:
                if part.topic in due:
                    self._append_staged(logs[part.topic, part.partition], part)
            ends: dict[str, dict[int, int]] = {topic: {} for topic in intent.topics}
            for part in alive:
                # A power cut may bring a removed intent back. Then later records may follow.
                end = logs[part.topic, part.partition].end_offset
                ends[part.topic][part.partition] = max(part.end, end)
            app, version, plain = intent.app, intent.version, intent.plain
            for topic, uid in topics.items():
                # Also if the entry exists: its writer may have crashed before fsync.
                self._ledger.record(LedgerEntry(topic, uid, app, version, plain, ends[topic]))
            for topic, published in ends.items():
                if published:
                    schema = intent.schemas[topic][1] if topic in intent.schemas else None
                    # Without the schema, a power cut would show rows that lack their columns.
                    durably = len(alive) > 1 or schema is not None
                    self._logs.publish_ends(topic, published, durably=durably, schema=schema)
            self._intents.remove(intent)
        except OSError as error:
            raise outcome_unknown(intent, error) from error

    def without_recreated(self, intent: Intent) -> Intent:
        """The intent without topics that a broker deleted and created again.

        The logs of such a topic do not have the bytes that the commit found. The staged records of
        the commit belong to the deleted topic. All partitions are locked.

        Raises:
            DamagedLogError: only some partitions of a topic have the bytes. Nothing was changed.
            ForeignRecordsError: another program appended to one. Nothing was changed.
        """
        if self._fingerprints is None:
            return intent
        kept = {}
        for topic, uid in intent.topics.items():
            parts = [part for part in self.alive(intent) if part.topic == topic]
            if not self._has(intent, topic, uid):
                found = {part.partition: self._fingerprints.matches(part) for part in parts}
                if False in found.values():
                    if True in found.values():
                        for part in parts:
                            # Of a log that was empty it can be said more clearly.
                            if not part.before:
                                self._fingerprints.require_own(part)
                        raise _half_there(intent, topic, found)
                    _log.warning(
                        "topic %r was deleted and created again: the records of job %s are dropped",
                        topic, intent.job,
                    )  # fmt: skip
                    continue
                # Before any log is changed: a commit that is given up must not be half there.
                for part in parts:
                    self._fingerprints.require_own(part)
            kept[topic] = uid
        partitions = tuple(part for part in intent.partitions if part.topic in kept)
        return replace(intent, topics=kept, partitions=partitions)

    def _has(self, intent: Intent, topic: str, topic_uuid: str) -> bool:
        """Whether the ledger shows that this commit is finished for a topic."""
        app, version = intent.app, intent.version
        return self._ledger.has(topic, topic_uuid, app, version, exact=intent.exact)

    def alive(self, intent: Intent) -> list[PartitionIntent]:
        """The partitions of the intent whose topic was not deleted."""
        return [part for part in intent.partitions if self._is_alive(part.topic, part.topic_uuid)]

    def _is_alive(self, topic: str, topic_uuid: str) -> bool:
        try:
            return str(self._logs.topic(topic).uuid) == topic_uuid
        except TopicNotFoundError:
            return False

    @contextmanager
    def _locked_partitions(
        self, places: set[TopicPartition], *, past_barrier: bool = False
    ) -> Iterator[Mapping[TopicPartition, Log]]:
        """Lock partitions in sorted order, as every writer does: no deadlock.

        Use only the logs that this yields. If a topic is altered in the meantime, the engine opens
        another log for its partitions, and that one is not locked.
        """
        logs = {}
        with ExitStack() as stack:
            for topic, partition in sorted(places):
                log = logs[topic, partition] = self._logs.log(topic, partition)
                stack.enter_context(log.exclusive(past_barrier=past_barrier))
            yield logs

    def _locked_names(self, app: str, job: str) -> AbstractContextManager[None]:
        return self._ledger.lock_names([app, job], self._config.lock_timeout_ms)


def _offsets(intent: Intent) -> dict[TopicPartition, OffsetRange]:
    return {
        (part.topic, part.partition): OffsetRange(part.start, part.end)
        for part in intent.partitions
        if part.parts
    }


def _half_there(intent: Intent, topic: str, found: Mapping[int, bool | None]) -> DamagedLogError:
    changed = [partition for partition, matches in found.items() if matches is False]
    return DamagedLogError(
        f"{topic}-{changed[0]} was changed after the commit of job {intent.job} was decided; other "
        "partitions of the topic were not. Restore its files from a copy, or move the intent "
        f"{intent.transaction}.json away to drop the commit.",
        topic=topic,
        partition=changed[0],
    )


def outcome_unknown(intent: Intent, cause: object) -> CommitUnknownError:
    """The error of a commit that failed at its commit point or after it."""
    return CommitUnknownError(
        f"the commit of job {intent.job} is pending, or failed before its commit point: {cause}. "
        "If it is pending, the next writer finishes it. Repeating the commit is safe: no record is "
        "added twice."
    )
