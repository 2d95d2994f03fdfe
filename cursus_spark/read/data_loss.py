"""Records that a query counts on and that are gone: an error or, if the user says so, a warning."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..errors import CursusError, cursus_error
from ..options.query_options import ReadOptions
from ..store import TopicPartition

_log = logging.getLogger("cursus_spark")


class Available(NamedTuple):
    """What one partition holds at one instant: first offset and visible end."""

    start: int
    end: int


def lose(options: ReadOptions, error: CursusError) -> None:
    """Fail because records are gone or, with ``failOnDataLoss`` false, warn and go on."""
    if options.fail_on_data_loss:
        raise error
    _log.warning("%s", error)


def within(options: ReadOptions, where: TopicPartition, offset: int, held: Available) -> int:
    """An offset that the partition holds; outside of it an error or, if asked for, the nearest."""
    if held.start <= offset <= held.end:
        return offset
    error = aged_out(where, offset, held) if offset < held.start else beyond(where, offset, held)
    lose(options, error)
    return min(max(offset, held.start), held.end)


def aged_out(where: TopicPartition, offset: int, held: Available) -> CursusError:
    """The error for records that retention has removed."""
    return cursus_error(
        "DATA_LOSS",
        f"{name_of(where)}: records {offset} to {held.start - 1} are no longer in the log (it now "
        f"starts at {held.start}). Set failOnDataLoss to false to continue from {held.start}.",
    )


def beyond(where: TopicPartition, offset: int, held: Available) -> CursusError:
    """The error for an offset past the end."""
    return cursus_error(
        "DATA_LOSS",
        f"{name_of(where)}: offset {offset} is past the end of the log ({held.end}). Records may "
        f"have been lost; set failOnDataLoss to false to continue from {held.end}.",
    )


def vanished(where: TopicPartition, start: int, end: int) -> CursusError:
    """The error for planned records whose files are missing."""
    return cursus_error(
        "DATA_LOSS",
        f"{name_of(where)}: records {start} to {end - 1} are no longer in the log. Set "
        "failOnDataLoss to false to read what is left.",
    )


def gone_back(where: TopicPartition, position: int, end: int) -> CursusError:
    """The error for records that were there once and are no more."""
    return cursus_error(
        "DATA_LOSS",
        f"{name_of(where)}: the end of the log was changed from {position} to {end}. "
        f"Set failOnDataLoss to false to continue from {end}.",
    )


def recreated(topic: str) -> CursusError:
    """The error for a topic that only has its name in common with the one that was read."""
    return cursus_error(
        "DATA_LOSS",
        f"Topic '{topic}' was deleted and created again since the checkpoint. Start with a new "
        "checkpoint, or set failOnDataLoss to false to read the new topic from its start.",
    )


def deleted(topic: str, partition: int, *, whole: bool) -> CursusError:
    """The error for a topic, or a partition of one, that is gone."""
    what = f"Topic '{topic}' was deleted" if whole else f"Partition {topic}-{partition} is gone"
    return cursus_error(
        "DATA_LOSS",
        f"{what}. Start with a new checkpoint, or set failOnDataLoss to false to go on without it.",
    )


def name_of(where: TopicPartition) -> str:
    """A topic-partition in messages."""
    return f"{where[0]}-{where[1]}"
