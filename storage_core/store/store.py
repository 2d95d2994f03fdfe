"""The store: topics in a directory that any number of processes write and read."""

from __future__ import annotations

# A program may write while it ends. Python can no longer import this module then, and Arrow and
# io/parallel.py both need it.
import concurrent.futures.thread  # noqa: F401
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

from .. import arguments
from ..config import StoreConfig
from ..errors import InvalidSchemaError, StoreClosedError, TopicExistsError
from ..format.columns import Columns, Values, make_columns
from ..io.io_errors import typed_metadata_errors, typed_write_errors
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile, with_settings
from ..types import IsolationLevel, OffsetRange, RecoveryReport
from ..vfs import Vfs
from .maintenance import StoreMaintenance
from .open_directory import make_engine, open_files

if TYPE_CHECKING:
    from ..commit import protocol
    from ..commit.commit_state import PendingCommit
    from ..commit.protocol import CommitResult
    from ..commit.staging import Stage, StagedPart
    from ..engine.api import Log
    from ..metadata import consumer_groups
    from ..metadata.schema_files import RegisteredSchema
    from ..schema.fields import SchemaVersion
    from . import typed_appends, typed_topics
    from .typed_appends import TableLike
    from .typed_topics import ColumnsLike
else:
    protocol = LazyModule("storage_core.commit.protocol")
    typed_appends = LazyModule("storage_core.store.typed_appends")
    typed_topics = LazyModule("storage_core.store.typed_topics")


class Store(StoreMaintenance):
    """A log directory. Safe for several threads. Several processes may open it at once.

    Reads take no lock and change no file. The first append to a partition recovers it if its last
    writer crashed.
    """

    def __init__(
        self,
        vfs: Vfs,
        config: StoreConfig,
        layout: str = "native",
        isolation: IsolationLevel = "read_committed",
        internal_topics: bool = False,
    ) -> None:
        engine = make_engine(
            vfs, layout, config, isolation=isolation, internal_topics=internal_topics
        )
        super().__init__(vfs, config, engine)
        self._arguments = (vfs, config, layout, isolation, internal_topics)
        self._closed = self._flushed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        layout: str = "auto",
        create: bool = False,
        config: StoreConfig | None = None,
        isolation: IsolationLevel = "read_committed",
        internal_topics: bool = False,
        storage: Mapping[str, str] | None = None,
        pins: Mapping[str, bytes] | None = None,
    ) -> Store:
        """Open a log directory.

        Args:
            path: The directory, as a local path or a ``file:`` URI; or the URL of an object store,
                such as ``s3://bucket/log``.
            layout: native, cursus, cursus-broker, rustlog, objects or kafka. ``auto`` detects it.
            create: Create a store if the directory is empty or missing (``auto``: a native one).
            config: Settings; topics may override some of them.
            isolation: For a broker's directory. ``read_committed`` stops at open transactions and
                leaves out aborted ones; ``read_uncommitted`` reads them. In Kafka's directories
                both stop at the high watermark, in those of a cursus broker only the first stops
                at the ``.hwm``. ``log_end`` reads to the last whole record.
            internal_topics: Include the internal topics (``__…``) of a broker.
            storage: Options of an object store, by the names of the library ``obstore``: region,
                endpoint, keys. By default the environment has them. They are never shown.
            pins: What ``pinned`` said of some topics in another process. They are then read and
                staged without a look at the store.

        Raises:
            LayoutNotFoundError: the path is not a log directory, or not a local path.
        """
        settings = StoreConfig() if config is None else config
        arguments.instance("config", settings, StoreConfig, "a StoreConfig or None")
        arguments.one_of("isolation", isolation, get_args(IsolationLevel))
        if storage is not None:
            arguments.instance("storage", storage, Mapping, "a mapping of names to texts")
        if pins is not None:
            arguments.instance("pins", pins, Mapping, "a mapping of topics to bytes")
        vfs, found = open_files(
            path, layout, create=create, config=settings, storage=storage, known=bool(pins)
        )
        store = cls(vfs, settings, found, isolation, internal_topics)
        for topic, data in (pins or {}).items():
            store._pin(topic, data)
        return store

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        exist_ok: bool = False,
        schema: ColumnsLike | None = None,
        key_columns: Iterable[str] = (),
        timestamp_column: str | None = None,
        **settings: Any,
    ) -> TopicFile:
        """Create a topic. ``settings`` override those of the store, e.g. ``compression="zstd"``.

        Args:
            topic: Its name.
            partitions: How many partitions it has.
            exist_ok: Return the topic of this name if there is one, whatever its kind.
            schema: Columns make it a typed topic: an Arrow schema or fields. Without them it is a
                records topic.
            key_columns: Columns whose values choose the partition. They never change.
            timestamp_column: The column whose values are the records' timestamps. It never changes.
            settings: Settings of this topic.

        Raises:
            TopicExistsError: the topic already exists and ``exist_ok`` is not set.
            InvalidSchemaError, UnsupportedTypeError: a column is not allowed.
        """
        self._require_writable()
        new, keys = None, arguments.names("key_columns", key_columns)
        if schema is not None:
            new = typed_topics.new_schema(schema, keys, timestamp_column)
        elif keys or timestamp_column is not None:
            raise InvalidSchemaError(
                "key_columns and timestamp_column are of typed topics: give the schema too."
            )
        try:
            with typed_write_errors(f"creating topic {topic!r}", topic):
                return self._engine.create_topic(topic, partitions, settings, new)
        except TopicExistsError:
            if exist_ok:
                return self.topic(topic)
            raise

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records. A reader with an open segment can finish reading it."""
        self._require_writable()
        with typed_write_errors(f"deleting topic {topic!r}", topic):
            self._engine.delete_topic(topic)

    def add_partitions(self, topic: str, total: int) -> TopicFile:
        """Increase a topic to ``total`` partitions. The number never decreases."""
        self._require_writable()
        with typed_write_errors(f"adding partitions to topic {topic!r}", topic):
            return self._engine.add_partitions(topic, total)

    def alter_topic(
        self, topic: str, *, add_columns: ColumnsLike | None = None, **settings: Any
    ) -> TopicFile:
        """Change settings of a topic. None resets a setting to the store's default.

        ``add_columns`` adds nullable columns to a typed topic: an Arrow schema or fields.

        Raises:
            SchemaMismatchError: a column is there with another type, or it is a records topic.
        """
        self._require_writable()
        with typed_write_errors(f"changing topic {topic!r}", topic):
            if add_columns is not None:
                columns = typed_topics.columns_of("add_columns", add_columns)
                if settings:  # all of them are checked before a column is added for good
                    with_settings(self._engine.topic(topic), settings)
                self._engine.add_columns(topic, columns)
                if not settings:
                    return self._engine.topic(topic)
            return self._engine.alter_topic(topic, settings)

    def register_schema(
        self, topic: str, columns: ColumnsLike, *, add: bool = False, widen: bool = False
    ) -> SchemaVersion:
        """The schema version for the rows of a write job with these columns.

        It is the published one if the rows fit. Otherwise it is a new one, which the job's commit
        publishes together with the rows.

        Args:
            topic: A typed topic.
            columns: The columns of the rows.
            add: Add columns that the topic does not have (``mergeSchema``).
            widen: Let types grow (``mergeSchema.typeWidening``).

        Raises:
            SchemaMismatchError: the rows do not fit, and the change is not allowed. Nothing was
                written.
        """
        self._require_writable()
        wanted = typed_topics.columns_of("columns", columns)
        with typed_metadata_errors(topic):
            return self._engine.register_schema(topic, wanted, add=add, widen=widen)

    def adopt_schemas(self, topic: str, versions: Sequence[RegisteredSchema]) -> None:
        """Give a typed topic the schema versions of another store's, for ``convert``.

        They keep their numbers and field ids. The last one is published.

        Raises:
            SchemaMismatchError: a number is that of other columns here.
        """
        self._require_writable()
        with typed_write_errors(f"copying schema versions of topic {topic!r}", topic):
            self._engine.adopt_schemas(topic, versions)

    def append(
        self,
        topic: str,
        partition: int,
        values: Values,
        keys: Values | None = None,
        timestamps: Values | None = None,
        headers: Values | None = None,
    ) -> OffsetRange:
        """Append records and return their offsets. By default they are durable and visible then.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            values: Arrow array or sequence of bytes. None is a null value.
            keys: Like ``values``.
            timestamps: Arrow timestamps, datetimes or integer microseconds since 1970. Records
                without one get the append time.
            headers: For each record None, a dict, or a list of (name, bytes) pairs.

        Raises:
            WriteFailedError: no record of this call is visible. Records acknowledged before are
                safe.
        """
        self._require_writable()
        with self._vfs.anchored():
            # Not config(): it checks all settings, which every append would pay for.
            settings = self._require_partition(topic, partition).settings
            columns = make_columns(
                values,
                keys,
                timestamps,
                headers,
                now_us=self._vfs.now_us(),
                max_record_bytes=settings.get("max_record_bytes", self._config.max_record_bytes),
            )
            return self._engine.append(topic, partition, columns)

    def append_table(
        self, topic: str, data: TableLike, *, partition: int | None = None
    ) -> Mapping[int, OffsetRange]:
        """Append rows to a typed topic; their offsets by partition. Durable and visible then.

        All rows become visible together. Columns are matched by name.

        Args:
            topic: A typed topic.
            data: A RecordBatch, a Table, or anything with ``__arrow_c_stream__`` (a pandas, Polars
                or DuckDB DataFrame). A stream is read batch by batch.
            partition: Where all rows go. By default the key columns choose it; without key columns
                each batch goes to the next partition.

        Raises:
            SchemaMismatchError: a column is unknown or does not fit. No row was appended.
            WriteFailedError: no row of this call is visible.
        """
        self._require_writable()
        if partition is not None:
            self._require_partition(topic, partition)
        return typed_appends.append_table(self, topic, data, partition)

    def append_columns(self, topic: str, partition: int, columns: Columns) -> OffsetRange:
        """``append`` inside this package, for records that ``make_columns`` has checked."""
        self._require_writable()
        return self._engine.append(topic, partition, columns)

    def check_columns(self, topic: str, partition: int, columns: Columns) -> None:
        """Raise for records that ``append_columns`` would refuse. Writes nothing."""
        self._engine.stage_check(topic, partition)(columns)

    def partition_log(self, topic: str, partition: int) -> Log:
        """The writing side of one partition, for callers that need more than ``append``."""
        self._require_writable()
        self._require_partition(topic, partition)
        return self._engine.log(topic, partition)

    def appended_log(self, topic: str, partition: int) -> Log:
        """``partition_log`` inside this package, right after an append."""
        arguments.instance("topic", topic, str, "the name of a topic")
        arguments.integer("partition", partition)
        return self._engine.appended_log(topic, partition)

    def store_uuid(self) -> UUID | None:
        """The identity of the store: two directories with the same one are one store, or copies.

        None for a broker's directory, which has none, and if the file with it is missing.
        """
        with typed_metadata_errors():
            return self._engine.store_uuid()

    @property
    def vfs(self) -> Vfs:
        """The files, locks and clock of this store."""
        return self._vfs

    def stage(self, job: str, **overrides: Any) -> Stage:
        """Staging for one task of a write job. No reader sees its records before ``commit``.

        Args:
            job: A unique name of the job, the same in all its tasks.
            overrides: Topic settings for this job only, e.g. ``compression="zstd"``.
        """
        self._require_writable()
        return self._engine.stage(job, overrides)

    def commit(
        self,
        job: str,
        parts: Sequence[StagedPart],
        *,
        topics: Iterable[str] = (),
        app: str | None = None,
        version: int = 0,
        exact: bool = False,
    ) -> CommitResult:
        """Publish what the tasks of a job staged: on all partitions or none, exactly once.

        Args:
            job: The job's name.
            parts: What ``Stage.finish`` returned in every task. Records of a partition are
                appended in this order.
            topics: More topics to record the version for, for example for an empty batch.
            app: The application or query that numbers its versions; by default the job.
            version: If ``app`` has committed this or a later version, the call adds nothing.
            exact: Add nothing only if ``app`` has committed this very version.

        Raises:
            InvalidCommitError: a part is not what a task of this job staged.
            CommitUnknownError: the commit is pending or failed. Repeating it is safe.
        """
        named = arguments.names("topics", topics)
        arguments.instance("parts", parts, Iterable, "a list of what Stage.finish returned")
        arguments.instance("exact", exact, bool, "True or False")
        self._require_writable()
        with typed_write_errors(f"committing job {job!r}"):
            name = job if app is None else app
            request = protocol.CommitRequest(job, parts, named, name, version, exact)
            return self._engine.commit(request)

    def abort(self, job: str, *, app: str | None = None, tried: bool = False) -> None:
        """Delete the staging of a job. If its commit is decided, finish the commit instead.

        Args:
            job: The job's name.
            app: The application of its commit; by default the job.
            tried: Another process may have called ``commit``. In layout objects the staging is then
                left to garbage collection: the commit may still happen.
        """
        arguments.instance("tried", tried, bool, "True or False")
        self._require_writable()
        with typed_write_errors(f"aborting job {job!r}"):
            self._engine.abort(job, job if app is None else app, tried=tried)

    def pending_commits(self) -> list[PendingCommit]:
        """Commits that are decided and not finished: interrupted ones, and those that run now."""
        return self._engine.pending_commits()

    def finish_commit(self, transaction: str) -> None:
        """Append the rest of an interrupted commit after the records of another program.

        Only needed in a broker's directory, after a ``ForeignRecordsError``. Every other
        interrupted commit is finished by the next writer.
        """
        self._require_writable()
        with typed_write_errors(f"finishing the commit {transaction}"):
            self._engine.finish_commit(transaction)

    def give_up_commit(self, transaction: str) -> None:
        """Drop an interrupted commit, after a ``ForeignRecordsError``.

        What it had appended before it was interrupted stays in the log and becomes visible.
        """
        self._require_writable()
        with typed_write_errors(f"giving up the commit {transaction}"):
            self._engine.give_up_commit(transaction)

    def flush(self) -> None:
        """Sync and publish the records that ``fsync=interval`` has deferred."""
        self._engine.flush()

    def flush_partition(self, topic: str, partition: int) -> None:
        """Flush one partition. After ``close`` it does nothing, unless the flush there failed."""
        arguments.integer("partition", partition)
        if self._closed and self._flushed:
            return
        self._require_writable()
        self._engine.flush_partition(topic, partition)

    def roll(self, topic: str, partition: int, *, begin: bool = False) -> bool:
        """Seal the active segment of a partition. False if it was empty.

        Args:
            topic: An existing topic.
            partition: One of its partitions.
            begin: Also create the next, empty segment. Maintenance leaves the last segment alone,
                sealed or not; with this it takes the sealed one. Not in a broker's directory.

        Raises:
            ConfigError: ``begin`` in a broker's directory.
        """
        arguments.instance("begin", begin, bool, "True or False")
        self._require_writable()
        self._require_partition(topic, partition)
        return self._engine.roll(topic, partition, begin=begin)

    def repair(self) -> list[RecoveryReport]:
        """Recover every partition now, and rewrite indexes, high watermarks and checkpoint.

        It cuts torn tails and saves them beside the log. It finishes interrupted deletions and
        commits. It restores a missing ``broker.id`` from the topics. It does not change damaged
        records that were durable: the error says where they are.
        """
        with typed_write_errors("repairing the store"):
            return self._engine.repair()

    def commit_offsets(self, group: str, offsets: consumer_groups.Offsets) -> None:
        """Store durably the next offset of a consumer group, by topic and partition."""
        wanted = 'a dict of topic to {partition: offset}, such as {"t": {0: 100}}'
        arguments.instance("offsets", offsets, Mapping, wanted)
        self._require_writable()
        uuids = {}
        for topic, ends in offsets.items():
            arguments.offsets("offsets", ends, wanted)
            uuids[topic] = str(self.topic(topic).uuid)
            for partition in ends:
                self._require_partition(topic, partition)
        with typed_write_errors(f"committing offsets of group {group!r}"):
            self._engine.groups.commit(group, offsets, uuids)

    def close(self) -> None:
        """Flush, write a checkpoint and close all files. Safe to call twice."""
        if not self._closed:
            try:
                self._engine.close()
                self._flushed = True
            finally:
                self._closed = True

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Store], tuple[Any, ...]]:
        """A pickle holds the path and the settings, never open files."""
        return Store, self._arguments

    def _require_writable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"the store {self.path} is closed. Open it again to write.")
        with typed_metadata_errors():
            self._engine.require_writable()
