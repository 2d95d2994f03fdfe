"""Publishing staged records of many tasks in one step: the commit protocol.

1. Hold the ledger entry of the application, then all partitions in sorted order, recovered.
2. If the ledger has the version already, drop the staging: the commit happened before.
3. Write the intent. **This is the commit point**: from here it happens, whoever finishes it.
4. Append small parts, link large ones into place; sync.
5. Record the version in the ledger, then publish the ends of each topic by one rename.
6. Remove the intent, then the staging; let go.

Who takes a partition's lock later and finds an intent that names it finishes the commit first. The
order of 5 and 6 matters: without the entry a repeated commit would double records, and without the
intent a crash before the entry would forget that it must be made.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from .config import StoreConfig
from .durable import remove_tree
from .errors import (
    CommitPendingError,
    CommitUnknownError,
    InvalidCommitError,
    TopicNotFoundError,
)
from .intents import Intent, Intents, PartitionIntent
from .ledger import Ledger, LedgerEntry
from .records import ActiveFile, OffsetRange
from .staging import CheckOf, ConfigOf, Stage, StagedPart, TopicPartition, sweep_staging
from .topicfile import TopicFile
from .vfs import Vfs

_log = logging.getLogger("storage_core")
Result = TypeVar("Result")


class Participant(Protocol):
    """A partition's log, as a commit uses it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def active(self) -> ActiveFile: ...

    def exclusive(self, *, finishing: bool = False) -> AbstractContextManager[Any]:
        """Hold the partition; ``finishing`` a commit, pending intents are not waited for."""

    def apply(self, intent: PartitionIntent) -> None:
        """Append what is missing of the parts, durably. Only inside ``exclusive``."""


class Host(Protocol):
    """The engine, as a commit uses it."""

    def topic(self, topic: str) -> TopicFile: ...

    def log(self, topic: str, partition: int) -> Participant: ...

    def publish_ends(self, topic: str, ends: Mapping[int, int]) -> None:
        """Make the ends of some partitions visible in one step."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did. ``skipped``: the ledger had this version already, nothing was added."""

    skipped: bool
    offsets: Mapping[TopicPartition, OffsetRange]


class Committer:
    """Stages and commits for one store. Safe for several threads and processes."""

    def __init__(self, vfs: Vfs, meta: str, staging: str, host: Host, config: StoreConfig) -> None:
        self._vfs = vfs
        self._staging = staging
        self._host = host
        self._config = config
        self._swept = -1.0
        self.intents = Intents(vfs, f"{meta}/intents", staging)
        self.ledger = Ledger(vfs, f"{meta}/ledger")

    def stage(self, job: str, config_of: ConfigOf, check_of: CheckOf) -> Stage:
        """Private files for one task of a job, checked before they are written."""
        return Stage(self._vfs, self._staging, job, config_of, check_of)

    def commit(
        self, job: str, parts: Sequence[StagedPart], topics: Iterable[str], app: str, version: int
    ) -> CommitResult:
        """Publish all parts or none; see the module's text for the steps.

        Raises:
            InvalidCommitError: a part does not name a staging file of this job.
            CommitUnknownError: it failed behind the commit point; it will be rolled forward.
        """
        checked = self._checked(job, parts)
        names = {topic: str(self._host.topic(topic).uuid) for topic in topics} | {
            part.topic: str(self._host.topic(part.topic).uuid) for part in checked
        }
        plain = app == job
        self.sweep()
        with self.ledger.hold(names, app, self._config.lock_timeout_ms):
            open_topics = {
                topic: uid
                for topic, uid in names.items()
                if not self.ledger.has(topic, uid, app, version)
            }
            if not open_topics and names:
                _log.warning(
                    "version %s of %r is committed already to %s: nothing was added",
                    version, app, ", ".join(sorted(names)),
                )  # fmt: skip
                self.drop_staging(job)
                return CommitResult(True, {})
            kept = [part for part in checked if part.topic in open_topics]
            with self._held({(part.topic, part.partition) for part in kept}):
                intent = self._plan(job, kept, open_topics, app, version, plain=plain)
                self._decide(intent)
                self._finish(intent)
        self.drop_staging(job)
        return CommitResult(False, _offsets(intent))

    def abort(self, job: str, topics: Iterable[str], app: str) -> None:
        """Give a job up, unless it is decided: then finish it instead.

        Spark calls this after a commit that raised, also when that commit had passed its point of
        no return: deleting the staging then would destroy the only copy of committed records.
        """
        with self.ledger.hold(topics, app, self._config.lock_timeout_ms):
            decided = [intent for intent in self.intents.pending() if intent.job == job]
            if not decided:
                self.drop_staging(job)
        for intent in decided:
            self.roll_forward(intent)

    def roll_forward(self, intent: Intent) -> None:
        """Finish a commit whose committer is gone. Safe to call for one that was just finished."""
        with self.ledger.hold(intent.topics, intent.app, self._config.lock_timeout_ms):
            if intent.transaction not in {found.transaction for found in self.intents.pending()}:
                return
            self.intents.sync()
            wanted = {(part.topic, part.partition) for part in self._alive(intent)}
            with self._held(wanted, finishing=True):
                self._finish(intent)
        self.drop_staging(intent.job)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an intent names this partition."""
        return bool(self.intents.naming(topic, partition))

    def durable_end(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The highest end that any commit to this partition is known to have made durable."""
        return self.ledger.durable_end(topic, topic_uuid, partition)

    def finish_pending(self) -> None:
        """Finish every commit whose committer is gone."""
        for intent in self.intents.pending():
            self.roll_forward(intent)

    def after_pending(self, action: Callable[[], Result]) -> Result:
        """Run ``action``; as often as it meets a pending commit, finish that and start again.

        Not inside the action: finishing takes all locks that the intent names, from the first.
        """
        while True:
            try:
                return action()
            except CommitPendingError:
                self.finish_pending()

    def drop_staging(self, job: str) -> None:
        """Delete a job's private files; what a zombie task keeps from it is swept by its age."""
        with suppress(OSError):
            remove_tree(self._vfs, f"{self._staging}/{job}")

    def sweep(self) -> None:
        """Remove staging and plain ledger entries past their time to live, now and then."""
        now = self._vfs.monotonic()
        if self._swept >= 0 and now - self._swept < 3600:
            return
        self._swept = now
        oldest_us = self._vfs.now_us() - self._config.staging_ttl_ms * 1000
        named = {intent.job for intent in self.intents.pending()}
        sweep_staging(self._vfs, self._staging, named, oldest_us)
        self.ledger.prune(oldest_us)

    def _checked(self, job: str, parts: Sequence[StagedPart]) -> list[StagedPart]:
        checked = []
        for part in parts:
            try:
                fields = {name: getattr(part, name) for name in StagedPart.__slots__}
                found = self.intents.check_part(fields)
                if found.path.split("/")[-2] != job:
                    raise ValueError(f"{found.path!r} is not of job {job}")
                stat = self._vfs.stat(found.path)
                if stat is None or stat.size < max((a + b for a, b in found.runs), default=0):
                    raise ValueError(f"{found.path!r} is missing or too short")
            except (AttributeError, TypeError, ValueError, IndexError) as error:
                raise InvalidCommitError(f"a commit message cannot be used: {error}.") from error
            checked.append(found)
        return checked

    def _plan(
        self,
        job: str,
        parts: Sequence[StagedPart],
        topics: Mapping[str, str],
        app: str,
        version: int,
        *,
        plain: bool,
    ) -> Intent:
        """Fix where every part goes: small ones first, then files that become segments."""
        grouped: dict[TopicPartition, list[StagedPart]] = {}
        for part in parts:
            grouped.setdefault((part.topic, part.partition), []).append(part)
        planned = []
        for (topic, partition), group in sorted(grouped.items()):
            log = self._host.log(topic, partition)
            planned.append(
                PartitionIntent(
                    topic,
                    topics[topic],
                    partition,
                    log.end_offset,
                    log.active.number,
                    log.active.size,
                    tuple(sorted(group, key=lambda part: part.own_file)),
                )
            )
        return Intent(str(uuid.uuid4()), job, app, version, plain, dict(topics), tuple(planned))

    def _decide(self, intent: Intent) -> None:
        try:
            self.intents.write(intent)
        except OSError as error:
            raise CommitUnknownError(
                f"writing the intent of job {intent.job} failed: {error}. It is unknown whether "
                "the commit happens; a repeated commit adds nothing twice."
            ) from error

    def _finish(self, intent: Intent) -> None:
        """Steps 4 to 6, all partitions held."""
        try:
            alive = self._alive(intent)
            done = {
                topic
                for topic, uid in intent.topics.items()
                if self.ledger.has(topic, uid, intent.app, intent.version)
            }
            for part in alive:
                if part.topic not in done:
                    self._host.log(part.topic, part.partition).apply(part)
            for topic, uid in intent.topics.items():
                ends = {part.partition: part.end for part in alive if part.topic == topic}
                if topic not in done:
                    self.ledger.record(
                        LedgerEntry(topic, uid, intent.app, intent.version, intent.plain, ends)
                    )
            for topic in {part.topic for part in alive}:
                ends = {part.partition: part.end for part in alive if part.topic == topic}
                self._host.publish_ends(topic, ends)
            self.intents.remove(intent)
        except OSError as error:
            raise CommitUnknownError(
                f"the commit of job {intent.job} is decided but not finished: {error}. It will be "
                "rolled forward by the next writer; a repeated commit adds nothing twice."
            ) from error

    def _alive(self, intent: Intent) -> list[PartitionIntent]:
        """The intent's partitions but for those whose topic was deleted: their records went too."""
        alive = []
        for part in intent.partitions:
            with suppress(TopicNotFoundError):
                if str(self._host.topic(part.topic).uuid) == part.topic_uuid:
                    alive.append(part)
        return alive

    @contextmanager
    def _held(self, partitions: set[TopicPartition], *, finishing: bool = False) -> Iterator[None]:
        with ExitStack() as stack:
            for topic, partition in sorted(partitions):
                log = self._host.log(topic, partition)
                stack.enter_context(log.exclusive(finishing=finishing))
            yield


def _offsets(intent: Intent) -> dict[TopicPartition, OffsetRange]:
    return {
        (part.topic, part.partition): OffsetRange(part.start, part.end)
        for part in intent.partitions
    }
