"""The exactly-once stream sink: every micro-batch is one commit, identified by query and batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from storage_core.lazy import LazyModule

from ..errors import cursus_error, one_line_errors
from ..logs import logger
from ..options.write_options import StreamWriteOptions
from ..store import DriverStore, open_for_write
from ..worker import SentToTasks
from ..write.task import write_rows
from ..write.task_commit import (
    TaskCommit,
    asking_for_shared_files,
    check_messages,
    commit_was_tried,
    parts_of,
)

if TYPE_CHECKING:
    from ..write import target
    from ..write.typed_rows import TypedTopic
else:
    target = LazyModule("cursus_spark.write.target")  # only the driver uses it

_log = logger()
_COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
# Properties by which a task knows its query. The commit runs on another writer object, in another
# process: it knows the query from the messages of the tasks only.
_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


class CursusStreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    """The sink of one streaming query. Spark creates one for each batch, and another to commit."""

    def __init__(self, options: StreamWriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        # The process that only commits needs nothing of this, and spares the store the questions.
        self._found = None if _COMMITTER in sys.modules else self._find()

    def _find(self) -> tuple[TypedTopic | None, DriverStore]:
        # A plain tuple: no task imports what only the driver uses.
        topic, driver = target.find_target(self._options, self._schema)
        return topic, driver

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Stage the rows of one task of one batch."""
        with one_line_errors():
            query, batch, run = (_property(name) for name in (_QUERY, _BATCH, _RUN))
            # The run makes it unique: a task left from an earlier run writes to another directory.
            job = f"stream-{query}-{batch}-{run}"
            assert self._found is not None, "the process that commits writes nothing"
            topic, driver = self._found
            staged = write_rows(self._options, self._schema, topic, job, iterator, driver)
            return replace(staged, query_id=query, batch_id=int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch. A batch that was committed before adds nothing."""
        with one_line_errors(), open_for_write(self._options) as store:
            checked = check_messages(messages)
            if not checked:
                return
            first = checked[0]
            if first.batch_id != batchId or first.query_id is None:
                raise cursus_error(
                    "COMMIT_INVALID",
                    f"the tasks wrote batch {first.batch_id}, but Spark commits batch {batchId}. "
                    "Nothing was committed; restart the query.",
                )
            topics = [] if self._options.topic is None else [self._options.topic]
            with asking_for_shared_files(self._options.path, checked):
                result = store.commit(
                    first.job,
                    parts_of(checked),
                    topics=topics,
                    app=self._options.txn_app_id or first.query_id,
                    version=batchId,
                )
            if result.skipped:
                _log.warning(
                    "batch %s of query %s was committed before: nothing was added",
                    batchId,
                    first.query_id,
                )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the staged files, unless the commit is decided: then finish it.

        A task that did not report may still write; garbage collection deletes its files by age.
        """
        del batchId
        staged = [message for message in messages if isinstance(message, TaskCommit)]
        if not staged:
            return
        with one_line_errors(), open_for_write(self._options) as store:
            app = self._options.txn_app_id or staged[0].query_id
            store.abort(staged[0].job, app=app, tried=commit_was_tried(messages))


def _property(name: str) -> str:
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(name)
    if found is None:
        raise cursus_error(
            "QUERY_UNKNOWN",
            f"Spark did not set the property {name} that names the query of this task. This "
            "release of Spark does not support the streaming sink; use 4.1 or newer.",
        )
    return str(found)
