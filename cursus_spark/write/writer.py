"""Batch writes: tasks stage records, the driver commits all of them in one step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from storage_core import StorageError
from storage_core.lazy import LazyModule

from ..errors import CursusError, one_line_errors
from ..logs import logger
from ..options.write_options import WriteOptions
from ..store import open_for_write
from ..worker import SentToTasks
from .task import write_rows
from .task_commit import (
    TaskCommit,
    asking_for_shared_files,
    check_messages,
    commit_was_tried,
    parts_of,
)

if TYPE_CHECKING:
    from . import target
else:
    target = LazyModule("cursus_spark.write.target")  # only the driver uses it

_log = logger()


class CursusWriter(SentToTasks, DataSourceArrowWriter):
    """One batch write. The driver creates it once; all tasks use pickled copies."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._job = f"batch-{uuid.uuid4()}"
        self._target, self._driver = target.find_target(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Stage the rows of one task."""
        return write_rows(
            self._options, self._schema, self._target, self._job, iterator, self._driver
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the records that all tasks staged."""
        with one_line_errors(), open_for_write(self._options) as store:
            checked = check_messages(messages)
            with asking_for_shared_files(self._options.path, checked):
                result = store.commit(
                    self._job,
                    parts_of(checked),
                    topics=self._topics(),
                    app=self._options.txn_app_id,
                    version=self._options.txn_version or 0,
                    exact=self._options.txn_mode == "exact",
                )
            if result.skipped:
                self._warn_of_skip(result.recorded)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the job up, unless its commit is decided: then finish it.

        It raises nothing, because Spark would show that error in place of the job's own. The next
        writer finishes a decided commit, and garbage collection deletes staged files by age.
        """
        try:
            with open_for_write(self._options) as store:
                tried = commit_was_tried(messages)
                store.abort(self._job, app=self._options.txn_app_id, tried=tried)
        except (CursusError, StorageError, OSError) as error:
            _log.warning("the staged files of job %s were not deleted: %s", self._job, error)

    def _warn_of_skip(self, recorded: int | None) -> None:
        app, version = self._options.txn_app_id, self._options.txn_version
        if recorded is None:
            _log.warning(
                "txnAppId '%s' committed txnVersion %s before: nothing was written", app, version
            )
        else:
            _log.warning(
                "txnVersion %s is not above the recorded %s of txnAppId '%s': nothing was written. "
                "Use another txnAppId, or set txnMode to exact.",
                version,
                recorded,
                app,
            )

    def _topics(self) -> list[str]:
        return [] if self._options.topic is None else [self._options.topic]
