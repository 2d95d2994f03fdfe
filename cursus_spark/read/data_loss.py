"""Records of a query that are gone: an error or, with ``failOnDataLoss`` false, a warning."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..errors import CursusError, cursus_error
from ..options.query_options import ReadOptions
from ..store import TopicPartition

_log = logging.getLogger("cursus_spark")


class Available(NamedTuple):
    """What one partition contains at one instant: first offset and high watermark."""

    start: int
    end: int


def lose(options: ReadOptions, error: CursusError) -> None:
    """Raise the error or, with ``failOnDataLoss`` false, log it as a warning and continue."""
    if options.fail_on_data_loss:
        raise error
    _log.warning("%s", error)


def within(options: ReadOptions, where: TopicPartition, offset: int, held: Available) -> int:
    """The offset if the partition contains it; else an error or, without it, the nearest one."""
    if held.start <= offset <= held.end:
        return offset
    error = aged_out(where, offset, held) if offset < held.start else beyond(where, offset, held)
    lose(options, error)
    return min(max(offset, held.start), held.end)


def aged_out(where: TopicPartition, offset: int, held: Available) -> CursusError:
    """The error for records that retention removed."""
    return cursus_error(
        "DATA_LOSS",
        f"{name_of(where)}: records {offset} to {held.start - 1} are no longer in the log (it now "
        f"starts at {held.start}). Set failOnDataLoss to false to continue from {held.start}.",
    )


def beyond(where: TopicPartition, offset: int, held: Available) -> CursusError:
    """The error for an offset after the end."""
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
    """The error for a log that ends before a position that the stream has read."""
    return cursus_error(
        "DATA_LOSS",
        f"{name_of(where)}: the end of the log was changed from {position} to {end}. "
        f"Set failOnDataLoss to false to continue from {end}.",
    )


def recreated(topic: str) -> CursusError:
    """The error for a new topic under the name of a deleted one."""
    return cursus_error(
        "DATA_LOSS",
        f"Topic '{topic}' was deleted and created again since the checkpoint. Start with a new "
        "checkpoint, or set failOnDataLoss to false to read the new topic from its start.",
    )


def deleted(topic: str, partition: int, *, whole: bool) -> CursusError:
    """The error for a deleted topic, or a missing partition."""
    what = f"Topic '{topic}' was deleted" if whole else f"Partition {topic}-{partition} is gone"
    return cursus_error(
        "DATA_LOSS",
        f"{what}. Start with a new checkpoint, or set failOnDataLoss to false to continue without "
        "it.",
    )


def name_of(where: TopicPartition) -> str:
    """A topic-partition in messages."""
    return f"{where[0]}-{where[1]}"
