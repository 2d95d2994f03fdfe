"""The topics that a query reads and their offset ranges: options resolved with the store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from storage_core import Store

from ..errors import CursusError, cursus_error, shown
from ..logs import logger
from ..options.read_options import Bound, OffsetSpec, ReadOptions, Subscription, iso_time
from ..store import TopicPartition
from .data_loss import Available, Loss, name_of, saw, within

_log = logger()


def subscribed_topics(store: Store, subscription: Subscription) -> list[str]:
    """The existing topics that a query reads.

    Raises:
        CursusError: a topic that the user named does not exist.
    """
    existing = store.topics()
    named = set(subscription.named())
    missing = sorted(named - set(existing))
    if missing:
        raise topic_missing(store, missing[0])
    # By name only: another topic may be deleted at any moment, and that is no matter of this query.
    is_wanted = named.__contains__
    if subscription.pattern is not None:
        is_wanted = partial(subscription.includes, partition=0)
    found = [topic for topic in existing if is_wanted(topic)]
    for topic in found:
        saw(topic, "")
    if not found:
        warn_of_no_topics(store, subscription)
    return found


def warn_of_no_topics(store: Store, subscription: Subscription) -> None:
    """Log that a pattern matches no topic: most often it is mistyped."""
    if subscription.pattern is not None:
        _log.warning(
            "Option 'subscribePattern' matches no topic of %s: %s. Topics found: %s.",
            store.path,
            shown(subscription.pattern),
            ", ".join(store.topics()[:20]) or "none",
        )


class Subscribed(NamedTuple):
    """The subscribed topics at one instant: what each partition contains, and their uuids."""

    held: Mapping[TopicPartition, Available]
    ids: Mapping[str, str]


def available(store: Store, subscription: Subscription) -> Subscribed:
    """Start and high watermark of every subscribed partition; one read per topic."""
    found: dict[TopicPartition, Available] = {}
    ids: dict[str, str] = {}
    for topic in subscribed_topics(store, subscription):
        # The uuid first: offsets of a new topic of this name are then noticed as such.
        ids[topic] = str(store.topic(topic).uuid)
        saw(topic, ids[topic])
        for partition, end in enumerate(store.visible_ends(topic)):
            if subscription.includes(topic, partition):
                start = min(store.start_offset(topic, partition), end)
                found[topic, partition] = Available(start, end)
    _require_assigned(subscription, found)
    return Subscribed(found, ids)


def _require_assigned(
    subscription: Subscription, found: Mapping[TopicPartition, Available]
) -> None:
    for topic, partitions in subscription.partitions or ():
        for partition in partitions:
            if (topic, partition) not in found:
                raise partition_missing(topic, partition)


def topic_missing(store: Store, topic: str) -> CursusError:
    """The error for a topic that the user named and that does not exist."""
    return missing_topic(store, topic).error()


def missing_topic(store: Store, topic: str) -> Loss:
    """The same as a loss, for a query that continues from its checkpoint."""
    found = ", ".join(store.topics()[:20]) or "none"
    what = f"Topic '{topic}' does not exist in {store.path}. Topics found: {found}."
    return Loss(topic, str(cursus_error("TOPIC_NOT_FOUND", what)))


def partition_missing(topic: str, partition: int) -> CursusError:
    """The error for a partition that the user named and that does not exist."""
    return missing_partition(topic, partition).error()


def missing_partition(topic: str, partition: int) -> Loss:
    """The same as a loss, for a query that continues from its checkpoint."""
    what = f"Option 'assign': topic '{topic}' has no partition {partition}."
    return Loss(topic, str(cursus_error("PARTITION_NOT_FOUND", what)))


def resolve_start(
    store: Store, options: ReadOptions, where: TopicPartition, held: Available
) -> int:
    """The offset where a query starts in one partition.

    Raises:
        CursusError: the records are gone, or no record is at or after the timestamp.
    """
    bound = options.starting.bound(*where)
    if bound.kind == "earliest":
        return held.start
    if bound.kind == "latest":
        return held.end
    if bound.kind == "timestamp":
        found = store.offset_for_timestamp(*where, bound.value)
        if found is not None:
            return min(found, held.end)
        if options.by_timestamp_strategy == "latest":
            return held.end
        raise cursus_error(
            "NO_OFFSET_FOR_TIMESTAMP",
            f"No record in {name_of(where)} at or after {iso_time(bound.value)}. Set "
            "startingOffsetsByTimestampStrategy to 'latest' to start at the end.",
        )
    return within(options, where, bound.value, held)


def resolve_end(store: Store, options: ReadOptions, where: TopicPartition, held: Available) -> int:
    """The offset before which a batch query stops in one partition.

    Raises:
        StorageError: the query stops at the end of the log, and damaged records follow there. A
            broker's directory has no high watermark, so the loss would not be noticed.
    """
    bound = options.ending.bound(*where)
    if bound.kind == "offset":
        return within(options, where, bound.value, held)
    if bound.kind == "timestamp":
        found = store.offset_for_timestamp(*where, bound.value)
        if found is not None and options.timestamp_mode == "exact":
            # The task leaves out the records from the end of the interval on.
            found = store.end_of_older(*where, bound.value) or held.start
        if found is not None:
            return min(found, held.end)
    store.require_sound_end(*where)
    return held.end


def check_named(spec: OffsetSpec, held: Mapping[TopicPartition, Available]) -> None:
    """Refuse bounds of topics or partitions that the query does not read: a typing error."""
    topics = {topic for topic, _ in held}
    for topic in sorted(spec.named_topics() - topics):
        raise cursus_error(
            "OFFSETS_INVALID",
            f"Option '{spec.option}' names topic '{topic}', which the query does not read. "
            f"Topics read: {', '.join(sorted(topics)) or 'none'}.",
        )
    for topic, partition in sorted(set(spec.partitions) - set(held)):
        raise cursus_error(
            "OFFSETS_INVALID",
            f"Option '{spec.option}' names {topic}-{partition}, which the query does not read.",
        )


def left_out(spec: OffsetSpec, held: Mapping[TopicPartition, Available]) -> CursusError | None:
    """The error for JSON that leaves out partitions of a stream; None if it names all.

    The stream would start after the records that these partitions hold.
    """
    missing = sorted(where for where in held if spec.leaves_out(*where))
    if not missing:
        return None
    shown_names = ", ".join(f"{topic}-{number}" for topic, number in missing[:20])
    more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
    example = '{"' + missing[0][0] + '":{"*":"earliest"}}'
    return cursus_error(
        "OFFSETS_INVALID",
        f"Option '{spec.option}' leaves out {shown_names}{more}. Name every partition, or add a "
        f"default for the other partitions of a topic, such as {example}.",
    )


def batch_ranges(
    store: Store, options: ReadOptions
) -> tuple[dict[TopicPartition, tuple[int, int]], Mapping[str, str]]:
    """Start and end offset of every partition that a batch query reads; uuids of the topics."""
    held, ids = available(store, options.subscription)
    for spec in (options.starting, options.ending):
        check_named(spec, held)
    ranges = {}
    for where, bounds in held.items():
        start = resolve_start(store, options, where, bounds)
        end = resolve_end(store, options, where, bounds)
        if start < end:
            ranges[where] = (start, end)
        elif _is_explicit(options.starting.bound(*where)) and start > end:
            raise cursus_error(
                "OFFSETS_INVALID",
                f"{name_of(where)}: the query would start at {start}, after its end {end}. Set a "
                "start before the end.",
            )
    return ranges, ids


def _is_explicit(bound: Bound) -> bool:
    return bound.kind == "offset"
