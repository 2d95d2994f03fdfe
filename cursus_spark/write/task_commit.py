"""The message of a writing task to the driver, and the driver's checks of all messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from storage_core import StagedPart, StorageError
from storage_core.arguments import store_url

from ..errors import CursusError, cursus_error


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The parts that one task staged, and its job; in a stream also the query and its batch.

    ``host`` is the machine of the task.
    """

    job: str
    parts: tuple[StagedPart, ...]
    query_id: str | None = None
    batch_id: int | None = None
    host: str = ""


def check_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    """The tasks' messages, all of one job.

    Raises:
        CursusError: one is missing, of another class or of another job. Nothing is committed.
    """
    checked = []
    for message in messages:
        if not isinstance(message, TaskCommit):
            raise cursus_error(
                "COMMIT_INVALID",
                "a task did not report what it wrote. Nothing was committed; run the write again.",
            )
        checked.append(message)
    if len({(message.job, message.query_id, message.batch_id) for message in checked}) > 1:
        raise cursus_error(
            "COMMIT_INVALID",
            "the tasks' messages name several jobs. Nothing was committed; run the write again.",
        )
    return checked


def commit_was_tried(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether Spark may have called ``commit`` before it aborts: it does when all tasks reported.

    The call may have been in another process, which may be alive.
    """
    return all(isinstance(message, TaskCommit) for message in messages)


@contextmanager
def asking_for_shared_files(path: str, messages: Sequence[TaskCommit]) -> Iterator[None]:
    """Ask whether all nodes see the directory, if the driver misses a file that a task staged."""
    try:
        yield
    except StorageError as error:
        if error.code != "COMMIT_INVALID" or store_url(path) is not None:
            raise
        for message in messages:
            for part in message.parts:
                if not os.path.exists(os.path.join(path, part.path)):
                    raise _not_shared(path, message.host, part.path) from error
        raise


def _not_shared(path: str, host: str, file: str) -> CursusError:
    return cursus_error(
        "COMMIT_INVALID",
        f"Does every node see the directory {path}? A task on host '{host}' wrote {file}, but the "
        f"driver on host '{os.uname().nodename}' does not find it. See docs/operations.md, 'File "
        "systems'. If every node sees the directory: the job was aborted, or its staging was "
        "deleted. Nothing was committed; run the write again.",
    )


def parts_of(messages: Sequence[TaskCommit]) -> list[StagedPart]:
    """All staged parts, task by task."""
    return [part for message in messages for part in message.parts]
