"""The message of a writing task to the driver, and the driver's checks of all messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from storage_core import StagedPart

from ..errors import cursus_error


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The parts that one task staged, and its job; in a stream also the query and its batch."""

    job: str
    parts: tuple[StagedPart, ...]
    query_id: str | None = None
    batch_id: int | None = None


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


def parts_of(messages: Sequence[TaskCommit]) -> list[StagedPart]:
    """All staged parts, task by task."""
    return [part for message in messages for part in message.parts]
