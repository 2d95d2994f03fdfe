"""The engine of brokers' directories: reads them, and appends while the broker is stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ..commit.commit_state import CommitState
from ..commit.protocol import Committer
from ..commit.resolution import finish_commit, give_up_commit
from ..commit.staging import StageCheck
from ..config import StoreConfig
from ..engine.base import BaseEngine
from ..errors import ConfigError, NotWritableError, SchemaMismatchError, StorageError
from ..format.columns import Columns
from ..io.io_errors import typed_read_errors
from ..layouts.broker_names import STATE_DIRECTORY
from ..log.published import Published
from ..metadata.identity import require_trusted_locks
from ..metadata.topic_file import TopicFile
from ..segments.partition_reader import PartitionReader
from ..types import IsolationLevel, OffsetRange, Problem, RecoveryReport
from ..vfs import Vfs
from .catalog import BrokerCatalog
from .layout import RowLayout, find_layout
from .log import RowLog
from .maintenance import BrokerMaintenance
from .open_logs import BrokerLogs

if TYPE_CHECKING:
    from ..metadata.schema_files import NewSchema, RegisteredSchema, TopicSchemas
    from ..schema.fields import Field, SchemaVersion


class BrokerEngine(BaseEngine):
    """One broker directory. Safe for several threads."""

    groups_directory = f"{STATE_DIRECTORY}/consumer-offsets"

    def __init__(
        self,
        vfs: Vfs,
        layout: RowLayout,
        config: StoreConfig,
        *,
        isolation: IsolationLevel,
        internal_topics: bool,
    ) -> None:
        commits = CommitState(vfs, STATE_DIRECTORY, f"{STATE_DIRECTORY}/staging")
        self._trusts_locks = False
        self._catalog = BrokerCatalog(vfs, layout, config, internal_topics=internal_topics)
        self._logs = BrokerLogs(vfs, layout, self._catalog, config, commits, isolation)
        super().__init__(vfs, config, commits)
        self.name = layout.name
        self._layout = layout

    @cached_property
    def committer(self) -> Committer[RowLog]:
        return Committer(
            self._vfs,
            self.commits,
            self._logs,
            RowLog.append_staged,
            self._config,
            fingerprints=self._logs,
        )

    def finish_commit(self, transaction: str) -> None:
        finish_commit(self.commits, self.committer, self._logs, transaction)

    def give_up_commit(self, transaction: str) -> None:
        give_up_commit(self._vfs, self.commits, self.committer, transaction)

    def topics(self) -> list[str]:
        return self._catalog.names()

    def topic(self, topic: str) -> TopicFile:
        return self._catalog.get(topic)

    def published(self, topic: str) -> Published:
        return Published(self.high_watermarks(topic))

    def high_watermarks(self, topic: str) -> tuple[int, ...]:
        found = self._catalog.get(topic)
        count, topic_uuid = found.partitions, str(found.uuid)
        intents = self.commits.intents
        while True:
            stat = intents.directory_stat()
            ends = self._ends(topic, count)
            pending = intents.pending(replaced=True)
            # A commit that came and went between two ends would show on the later one alone.
            if intents.unchanged_since(stat) or ends == self._ends(topic, count):
                break
        # A decided commit that is not finished is invisible on all its partitions.
        for intent in pending:
            for part in intent.partitions:
                same = (part.topic, part.topic_uuid) == (topic, topic_uuid)
                if same and part.partition < count:
                    ends[part.partition] = min(ends[part.partition], part.start)
        return tuple(ends)

    def _ends(self, topic: str, count: int) -> list[int]:
        return [
            self._logs.segments(topic, partition).high_watermark() for partition in range(count)
        ]

    def recovery_due(self, topic: str, partition: int) -> bool:  # noqa: ARG002
        """Never: the end is worked out from the files each time."""
        return False

    def reader(self, topic: str, partition: int) -> PartitionReader:
        return PartitionReader(topic, partition, self._logs.segments(topic, partition))

    def log_problems(self) -> Iterator[Problem]:
        for topic in self.topics():
            for partition in range(self._catalog.get(topic).partitions):
                yield from self._check_partition(topic, partition)

    def require_writable(self) -> None:
        if not self._vfs.writable():
            raise NotWritableError(
                f"{self._vfs.root} cannot be written by this user. Reading works.", path=""
            )
        if not self._trusts_locks:
            require_trusted_locks(self._vfs, self._config)
            self._trusts_locks = True

    def schemas(self, topic: str) -> TopicSchemas:
        raise self._no_columns(topic)

    def register_schema(
        self,
        topic: str,
        wanted: Sequence[Field],  # noqa: ARG002
        *,
        add: bool,  # noqa: ARG002
        widen: bool,  # noqa: ARG002
    ) -> SchemaVersion:
        raise self._no_columns(topic)

    def add_columns(self, topic: str, columns: Sequence[Field]) -> None:  # noqa: ARG002
        raise self._no_columns(topic)

    def adopt_schemas(
        self,
        topic: str,
        versions: Sequence[RegisteredSchema],  # noqa: ARG002
    ) -> None:
        raise self._no_columns(topic)

    def create_topic(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, Any],
        new: NewSchema | None = None,
    ) -> TopicFile:
        if new is not None:
            raise self._no_columns(topic)
        if settings:
            raise self._no_settings()
        return self._catalog.create(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self._logs.delete_topic(topic)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        return self._catalog.grow(topic, total)

    def alter_topic(self, topic: str, settings: Mapping[str, Any]) -> TopicFile:  # noqa: ARG002
        raise self._no_settings()

    def append(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        log = self.log(topic, partition)
        return self.guarded(lambda: log.append(columns))

    def recover(self, topic: str) -> None:
        self._logs.recover(topic)

    def stage_check(self, topic: str, partition: int) -> StageCheck:
        return self.log(topic, partition).check_storable

    def log(self, topic: str, partition: int) -> RowLog:
        return self._logs.log(topic, partition)

    appended_log = log

    def roll(self, topic: str, partition: int, *, begin: bool = False) -> bool:
        if begin:
            raise ConfigError(
                f"layout {self.name} is what its broker reads, and the broker begins files by "
                "itself. Segments are sealed by command in native stores."
            )
        return self.guarded(self.log(topic, partition).roll)

    def maintenance(self, topic: str, partition: int) -> BrokerMaintenance:
        found = self._catalog.get(topic)
        return BrokerMaintenance(
            self._logs.of(topic, partition),
            found.config(self._config),
            self._logs.segments(topic, partition),
            str(found.uuid),
            log=partial(self.log, topic, partition),
            guard=self.guarded,
        )

    def repair(self) -> list[RecoveryReport]:
        self.require_writable()
        reports, failed = list[RecoveryReport](), list[StorageError]()
        try:
            self.committer.finish_pending()
        except StorageError as error:
            failed.append(error)
        for topic in self.topics():
            for partition in range(self._catalog.get(topic).partitions):
                log = self.log(topic, partition)
                try:
                    end = self.guarded(log.recovered_end)
                except StorageError as error:
                    # One partition must not keep the others from being repaired.
                    failed.append(error)
                    continue
                reports.append(RecoveryReport(topic, partition, end, log.cut_bytes))
        if failed:
            raise failed[0]
        return reports

    def flush(self) -> None:
        """Nothing waits: every append syncs."""

    def flush_partition(self, topic: str, partition: int) -> None:
        """Nor here."""

    def close(self) -> None:
        """Nothing is held open but maps, which go with the last reader."""

    def _check_partition(self, topic: str, partition: int) -> Iterator[Problem]:
        segments = self._logs.segments(topic, partition)
        try:
            listing = segments.listing()
            found = segments.end()
            for base in listing.bases:
                following = listing.following(base)
                end = found.offset if following is None and found is not None else following
                segments.verify(base, base if end is None else end, listing)
            if found is not None and found.damage is not None:
                with typed_read_errors(topic, partition, found.path):
                    raise found.damage
        except StorageError as error:
            yield replace(Problem.from_error(error), topic=topic, partition=partition)

    def _no_columns(self, topic: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"layout {self.name} stores keys and values, not columns, so topic {topic!r} cannot be "
            "a typed topic. Use a native store.",
            topic=topic,
        )

    def _no_settings(self) -> ConfigError:
        return ConfigError(
            f"layout {self.name} keeps no settings of topics. Use a native store, or set them in "
            "the store's configuration."
        )


def open_engine(
    vfs: Vfs, layout: str, config: StoreConfig, isolation: IsolationLevel, internal_topics: bool
) -> BrokerEngine:
    """The engine for a broker's directory of this layout."""
    found = find_layout(vfs, layout)
    return BrokerEngine(vfs, found, config, isolation=isolation, internal_topics=internal_topics)
