"""Records of a query that are gone: an error or, with ``failOnDataLoss`` false, a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from storage_core import StorageError, Store, TopicNotFoundError

from ..errors import CursusError, cursus_error
from ..logs import logger
from ..options.read_options import ReadOptions
from ..store import TopicPartition

_log = logger()
_LISTED = 20

Plan = TypeVar("Plan")


class Available(NamedTuple):
    """What one partition contains at one instant: first offset and high watermark."""

    start: int
    end: int


class Loss(NamedTuple):
    """Something that a query should read and that is gone.

    Attributes:
        topic: Name of the topic.
        what: What is gone, after the condition of the error in brackets.
        advice: What the user can do. A warning leaves it out: ``failOnDataLoss`` is false there.
    """

    topic: str
    what: str
    advice: str = ""

    def error(self) -> CursusError:
        """The error for a query with ``failOnDataLoss``."""
        return CursusError(f"{self.what} {self.advice}".rstrip())


def data_loss(topic: str, what: str, advice: str) -> Loss:
    """Records or a topic that are gone."""
    return Loss(topic, str(cursus_error("DATA_LOSS", what)), advice)


class _Step(NamedTuple):
    """One try of a step of planning: what it lost, and the uuids of the topics that it saw."""

    losses: list[Loss]
    seen: dict[str, str]


_step: ContextVar[_Step | None] = ContextVar("step of planning", default=None)


def lose(options: ReadOptions, loss: Loss) -> None:
    """Raise the error or, with ``failOnDataLoss`` false, log a warning and continue."""
    if options.fail_on_data_loss:
        raise loss.error()
    step = _step.get()
    if step is None:
        _warn([loss])
    else:
        step.losses.append(loss)


def saw(topic: str, uuid: str) -> None:
    """Tell the step of planning that it works with this topic; "" if the uuid is not known yet."""
    step = _step.get()
    if step is not None:
        step.seen[topic] = step.seen.get(topic) or uuid


def planned(
    store: Store, plan: Callable[[frozenset[str]], Plan], logged: set[Loss] | None = None
) -> Plan:
    """Run one step of planning; again from its start if it fails because a topic was deleted.

    A file may be missing at any look that the step takes, so any error may mean that. The losses of
    the step are logged at its end, in one line for each topic.

    Args:
        store: The store.
        plan: Gets the topics that an earlier try saw and that are deleted now.
        logged: The losses that the step before logged, which are not logged again. It is updated.
    """
    gone: frozenset[str] = frozenset()
    while True:
        step = _Step([], {})
        token = _step.set(step)
        try:
            with store.reading_once():
                result = plan(gone)
            break
        except (StorageError, OSError, CursusError) as error:
            if isinstance(error, CursusError) and error.condition == "DATA_LOSS":
                raise
            lost = {topic for topic, uuid in step.seen.items() if not _is_same(store, topic, uuid)}
            if lost <= gone:
                raise
            gone |= lost
        finally:
            _step.reset(token)
    logged = set() if logged is None else logged
    _warn(loss for loss in dict.fromkeys(step.losses) if loss not in logged)
    logged.clear()
    logged.update(step.losses)
    return result


def _is_same(store: Store, topic: str, uuid: str) -> bool:
    try:
        return uuid in ("", str(store.topic(topic).uuid))
    except TopicNotFoundError:
        return False


def _warn(losses: Iterable[Loss]) -> None:
    lines: dict[tuple[str, str], list[str]] = {}
    for loss in losses:
        condition, _, what = loss.what.partition(" ")
        lines.setdefault((loss.topic, condition), []).append(what)
    for (_, condition), whats in lines.items():
        more = "" if len(whats) <= _LISTED else f" And {len(whats) - _LISTED} more."
        text = " ".join(whats[:_LISTED])
        _log.warning("%s %s%s The query continues: failOnDataLoss is false.", condition, text, more)


def within(options: ReadOptions, where: TopicPartition, offset: int, held: Available) -> int:
    """The offset if the partition contains it; else an error or, without it, the nearest one."""
    if held.start <= offset <= held.end:
        return offset
    lose(
        options,
        aged_out(where, offset, held) if offset < held.start else beyond(where, offset, held),
    )
    return min(max(offset, held.start), held.end)


def aged_out(where: TopicPartition, offset: int, held: Available) -> Loss:
    """Records that retention removed."""
    return data_loss(
        where[0],
        f"{name_of(where)}: records {offset} to {held.start - 1} are no longer in the log (it now "
        f"starts at {held.start}).",
        f"Set failOnDataLoss to false to continue from {held.start}.",
    )


def beyond(where: TopicPartition, offset: int, held: Available) -> Loss:
    """An offset after the end."""
    return data_loss(
        where[0],
        f"{name_of(where)}: offset {offset} is past the end of the log ({held.end}). Records may "
        "have been lost.",
        f"Set failOnDataLoss to false to continue from {held.end}.",
    )


def vanished(where: TopicPartition, start: int, end: int) -> Loss:
    """Planned records whose files are missing."""
    return data_loss(
        where[0],
        f"{name_of(where)}: records {start} to {end - 1} are no longer in the log.",
        "Set failOnDataLoss to false to read what is left.",
    )


def skipped_damage(where: TopicPartition, start: int, end: int) -> Loss:
    """Damaged records that were given up."""
    return data_loss(
        where[0],
        f"{name_of(where)}: records {start} to {end - 1} were damaged and have been skipped with "
        "cursus skip.",
        "Set failOnDataLoss to false to read the others.",
    )


def gone_back(where: TopicPartition, position: int, end: int) -> Loss:
    """A log that ends before a position that the stream has read."""
    return data_loss(
        where[0],
        f"{name_of(where)}: the end of the log was changed from {position} to {end}.",
        f"Set failOnDataLoss to false to continue from {end}.",
    )


def recreated(topic: str) -> Loss:
    """A new topic under the name of a deleted one."""
    return data_loss(
        topic,
        f"Topic '{topic}' was deleted and created again since the checkpoint.",
        "Start with a new checkpoint, or set failOnDataLoss to false to read the new topic from "
        "its start.",
    )


def deleted(topic: str, partition: int, *, whole: bool) -> Loss:
    """A deleted topic, or a missing partition."""
    what = f"Topic '{topic}' was deleted." if whole else f"Partition {topic}-{partition} is gone."
    return data_loss(
        topic,
        what,
        "Start with a new checkpoint, or set failOnDataLoss to false to continue without it.",
    )


def deleted_meanwhile(topic: str) -> Loss:
    """A topic that was there when the planning of a new query began."""
    return data_loss(
        topic,
        f"Topic '{topic}' was deleted while the query was planned.",
        "Start the query again, or set failOnDataLoss to false to continue without it.",
    )


def name_of(where: TopicPartition) -> str:
    """A topic-partition in messages."""
    return f"{where[0]}-{where[1]}"
