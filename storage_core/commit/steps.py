"""The steps of a commit while its partitions are held: plan, decide, finish.

Safe to repeat: what an earlier attempt did is found in the log and in the ledger.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ..errors import CommitUnknownError, DamagedLogError, TopicNotFoundError
from ..io.io_errors import write_failure
from .host import Footing, Host, Logs
from .intents import Intent, Intents, PartitionIntent
from .ledger import Ledger, LedgerEntry
from .staging import StagedPart, TopicPartition

_log = logging.getLogger("storage_core")


class CommitSteps:
    """For whoever holds the names of application and job. Safe for several threads."""

    def __init__(
        self, host: Host, intents: Intents, ledger: Ledger, footing: Footing | None
    ) -> None:
        self._host = host
        self._intents = intents
        self._ledger = ledger
        self._footing = footing

    def plan(
        self,
        job: str,
        parts: Sequence[StagedPart],
        topics: Mapping[str, str],
        app: str,
        version: int,
        logs: Logs,
    ) -> Intent:
        """Fix where every part goes: behind the one before it, as the tasks are counted."""
        for topic, uid in topics.items():
            if str(self._host.topic(topic).uuid) != uid:
                raise TopicNotFoundError(
                    f"topic {topic!r} was deleted and made anew during the commit.", topic=topic
                )
        grouped: dict[TopicPartition, list[StagedPart]] = {place: [] for place in sorted(logs)}
        for part in parts:
            grouped[part.topic, part.partition].append(part)
        planned = []
        for (topic, partition), group in grouped.items():
            log = logs[topic, partition]
            try:
                # A power cut must not take what stands before the place that the intent names.
                log.settle()
            except OSError as error:
                # Typed here: the other partitions that are held have nothing to do with it.
                what = f"{topic}-{partition}: syncing before a commit"
                raise write_failure(what, error, topic, partition) from error
            before = b"" if self._footing is None else self._footing.before(topic, partition)
            planned.append(
                PartitionIntent(
                    topic, topics[topic], partition,
                    log.end_offset, log.active.number, log.active.size, tuple(group),
                    before.hex(),
                )
            )  # fmt: skip
        transaction, plain = str(uuid.uuid4()), app == job
        return Intent(transaction, job, app, version, plain, dict(topics), tuple(planned))

    def decide(self, intent: Intent) -> None:
        try:
            self._intents.write(intent)
        except OSError as error:
            if self._intents.is_absent(intent):
                what = f"writing the intent of job {intent.job}, of which nothing was added,"
                raise write_failure(what, error) from error
            raise outcome_unknown(intent, error) from error

    def finish(self, intent: Intent, logs: Logs) -> None:
        """Steps 4 to 6, all partitions held."""
        try:
            alive = self.alive(intent)
            topics = {
                topic: uid for topic, uid in intent.topics.items() if self._is_alive(topic, uid)
            }
            due = {
                topic: uid
                for topic, uid in topics.items()
                if not self._ledger.has(topic, uid, intent.app, intent.version)
            }
            for part in alive:
                if part.topic in due:
                    logs[part.topic, part.partition].apply(part)
            ends: dict[str, dict[int, int]] = {topic: {} for topic in intent.topics}
            for part in alive:
                # After a power cut that brought the intent back, more may stand behind it.
                end = logs[part.topic, part.partition].end_offset
                ends[part.topic][part.partition] = max(part.end, end)
            app, version, plain = intent.app, intent.version, intent.plain
            for topic, uid in topics.items():
                # Also one that is there: who made it may have died before it was durable.
                self._ledger.record(LedgerEntry(topic, uid, app, version, plain, ends[topic]))
            for topic, published in ends.items():
                if published:
                    self._host.publish_ends(topic, published, durably=len(alive) > 1)
            self._intents.remove(intent)
        except OSError as error:
            raise outcome_unknown(intent, error) from error

    def without_recreated(self, intent: Intent) -> Intent:
        """The intent but for topics that others deleted and made anew: their records went too.

        Their logs do not hold what the commit found. All partitions held.

        Raises:
            DamagedLogError: only some partitions of a topic hold it. Nothing was touched.
        """
        if self._footing is None:
            return intent
        kept = {}
        for topic, uid in intent.topics.items():
            parts = [part for part in self.alive(intent) if part.topic == topic]
            if not self._ledger.has(topic, uid, intent.app, intent.version):
                found = {part.partition: self._footing.holds(part) for part in parts}
                if False in found.values():
                    if True in found.values():
                        raise _half_there(intent, topic, found)
                    _log.warning(
                        "topic %r was made anew: the commit of job %s to it is given up",
                        topic, intent.job,
                    )  # fmt: skip
                    continue
            kept[topic] = uid
        partitions = tuple(part for part in intent.partitions if part.topic in kept)
        return replace(intent, topics=kept, partitions=partitions)

    def _is_alive(self, topic: str, topic_uuid: str) -> bool:
        try:
            return str(self._host.topic(topic).uuid) == topic_uuid
        except TopicNotFoundError:
            return False

    def alive(self, intent: Intent) -> list[PartitionIntent]:
        """The intent's partitions but for those whose topic was deleted: their records went too."""
        return [part for part in intent.partitions if self._is_alive(part.topic, part.topic_uuid)]

    @contextmanager
    def held(self, places: set[TopicPartition], *, finishing: bool = False) -> Iterator[Logs]:
        """Hold partitions, in the order that everybody keeps.

        Only what is returned may be used: the engine may make another log for a partition whose
        topic is altered meanwhile, and that one is not held.
        """
        logs = {}
        with ExitStack() as stack:
            for topic, partition in sorted(places):
                log = logs[topic, partition] = self._host.log(topic, partition)
                stack.enter_context(log.exclusive(finishing=finishing))
            yield logs


def _half_there(intent: Intent, topic: str, found: Mapping[int, bool | None]) -> DamagedLogError:
    changed = [partition for partition, stands in found.items() if stands is False]
    return DamagedLogError(
        f"{topic}-{changed[0]} does not hold what the commit of job {intent.job} found there, but "
        "other partitions of the topic do. Restore its files from a copy, or move the redo record "
        f"{intent.transaction}.json away to give the commit up.",
        topic=topic,
        partition=changed[0],
    )


def outcome_unknown(intent: Intent, cause: object) -> CommitUnknownError:
    return CommitUnknownError(
        f"the commit of job {intent.job} is decided, or may be, but not finished: {cause}. The "
        "next writer rolls it forward; a repeated commit adds nothing twice."
    )
