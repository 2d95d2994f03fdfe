"""Commits of jobs: what many tasks uploaded becomes visible in each topic in one step."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..commit.protocol import CommitRequest, CommitResult
from ..commit.staging import checksum_of
from ..config import StoreConfig
from ..errors import InvalidCommitError
from ..format.file_names import check_name
from ..io import json_files
from ..metadata.topic_file import TopicFile
from ..types import OffsetRange
from ..vfs import Vfs
from .catalog import ObjectCatalog
from .collector import Collector
from .commit_log import Draft
from .names import hour_of
from .schemas import SchemaStep, merge_step
from .staging import StagedSlice, claimed_slices
from .state import Commit, LogState, Transaction

_log = logging.getLogger("storage_core")
# Jobs whose commit may still happen: their data must stay, whoever aborts them.
_undecided: set[str] = set()


def is_undecided(job: str) -> bool:
    """Whether a commit of the job was tried in this process, and nobody knows what became of it."""
    return job in _undecided


class ObjectCommits:
    """Commits of one store. Safe for several threads."""

    def __init__(
        self, clock: Vfs, config: StoreConfig, catalog: ObjectCatalog, collector: Collector
    ) -> None:
        self._clock = clock
        self._half_ttl_us = config.staging_ttl_ms * 1000 // 2
        self._catalog = catalog
        self._collector = collector

    def commit(self, request: CommitRequest) -> CommitResult:
        """Publish the parts, one topic after another; each topic gets all of its parts or none.

        Repeating the call adds what is missing: each topic's log knows the version.

        Raises:
            InvalidCommitError: a part is not what a task of this job staged. Nothing was committed.
            CommitUnknownError: nobody knows whether a topic has its parts. Repeating is safe.
        """
        job, app, version = check_name("job", request.job), request.app, request.version
        # Older data may be deleted by garbage collection before the commit happens.
        oldest = hour_of(self._clock.now_us() - self._half_ttl_us)
        claimed = claimed_slices(job, request.parts, oldest)
        if type(version) is not int or not isinstance(app, str):
            raise InvalidCommitError(
                f"app must be str and version int, got {app!r} and {version!r}."
            )
        who = Transaction(app, version, plain=app == job)
        names = sorted({*request.topics, *(part.topic for part in claimed)})
        jobs = [
            _TopicJob(self._catalog, self._clock, name, claimed, who, request) for name in names
        ]
        for each in jobs:  # all of them are checked before the first log is changed
            each.draft(each.state)
        _undecided.add(job)
        results = [self._commit_topic(each) for each in jobs]
        _undecided.discard(job)
        offsets = {place: found for result in results for place, found in result.offsets.items()}
        skipped = bool(results) and all(result.skipped for result in results)
        recorded = [result.recorded for result in results if result.recorded is not None]
        later = max(recorded) if skipped and len(recorded) == len(results) else None
        return CommitResult(skipped, offsets, later)

    def _commit_topic(self, job: _TopicJob) -> CommitResult:
        state, happened = job.log.commit(job.draft)
        if not happened:
            return job.skipped(state)
        self._collector.collect_if_due(job.log, state)
        return CommitResult(False, job.offsets(state))


class _TopicJob:
    """What one job commits to one topic."""

    def __init__(
        self,
        catalog: ObjectCatalog,
        clock: Vfs,
        topic: str,
        claimed: Sequence[StagedSlice],
        who: Transaction,
        request: CommitRequest,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._topic = topic
        self._parts = [part for part in claimed if part.topic == topic]
        self._who = who
        self._exact = request.exact
        self._schema = request.schemas.get(topic)
        self.log, self.state = catalog.get(topic)

    def draft(self, state: LogState) -> Draft | None:
        """The commit on top of a state; None if the version is there.

        Raises:
            InvalidCommitError: a part does not fit the topic.
        """
        found, who = self._catalog.require(self._topic, state), self._who
        if state.has_version(who.app, who.version, exact=self._exact):
            return None
        now, step = json_files.timestamp(self._clock), SchemaStep()
        versions = set() if self._schema is None else {self._schema}
        for part in self._parts:
            _require_fit(found, state, part)
            if part.schema is not None:
                versions.add(part.schema)
        if versions:
            step = merge_step(self._topic, state, versions, now)
        slices = [(part.partition, part.as_slice()) for part in self._parts]
        return Draft(
            Commit(slices, who, schemas=step.new, published=step.published, written_at=now)
        )

    def offsets(self, state: LogState) -> dict[tuple[str, int], OffsetRange]:
        """The offsets that the records got, by the state right after the commit."""
        counts: dict[int, int] = {}
        for part in self._parts:
            counts[part.partition] = counts.get(part.partition, 0) + part.records
        ends = {partition: state.partitions[partition].end for partition in counts}
        return {
            (self._topic, partition): OffsetRange(ends[partition] - count, ends[partition])
            for partition, count in counts.items()
        }

    def skipped(self, state: LogState) -> CommitResult:
        """The result where the version was there."""
        entry = state.ledger[self._who.app]
        later = None if entry.has(self._who.version, exact=True) else entry.version
        _log.warning(
            "version %s of %r is %s in %s: no record was added there",
            self._who.version,
            self._who.app,
            "already committed" if later is None else f"not above the recorded {later}",
            self._topic,
        )
        return CommitResult(True, {}, later)


def _require_fit(found: TopicFile, state: LogState, part: StagedSlice) -> None:
    topic = part.topic
    if part.partition >= found.partitions:
        raise InvalidCommitError(f"{topic!r} has no partition {part.partition}.", topic=topic)
    if found.is_typed != (part.schema is not None):
        raise InvalidCommitError(f"{topic!r} is a {found.kind} topic.", topic=topic)
    if part.schema is None:
        return
    known = part.schema <= len(state.schemas)
    if (
        not known
        or checksum_of(state.schemas[part.schema - 1].schema, found) != part.schema_checksum
    ):
        raise InvalidCommitError(
            f"{topic!r} has other columns in schema version {part.schema}, or other key columns: "
            "it was deleted and created again meanwhile. Run the job again.",
            topic=topic,
        )
