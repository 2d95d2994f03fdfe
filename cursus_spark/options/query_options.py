"""The options of a query as typed objects, made once, on the driver, from what Spark hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyspark import __version__ as pyspark_version

from ..compat import READ_LIMITS_REACH_SOURCES
from ..errors import cursus_error
from .given import GivenOptions
from .offsets import (
    EARLIEST,
    GROUP,
    LATEST,
    OffsetSpec,
    check_batch_range,
    parse_offsets,
    parse_time,
    parse_times,
)
from .parsing import Subscription, invalid, name_text, topic_list
from .table import BY_LOWER_NAME

Isolation = Literal["read_committed", "read_uncommitted"]
Strategy = Literal["error", "latest"]
Compression = Literal["none", "lz4", "zstd"]

DEFAULT_MAX_BYTES_PER_PARTITION = 128 << 20
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
_LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_TOPICS = ("topic", *_SUBSCRIPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a batch read, and what a stream shares with it. Fields are the table's options."""

    path: str
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    layout: str = "auto"
    isolation: Isolation = "read_committed"
    by_timestamp_strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = DEFAULT_MAX_BYTES_PER_PARTITION


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions(ReadOptions):
    """Options of a streaming read; ``ending`` is always latest."""

    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """Options of a streaming write, and what a batch shares with it.

    ``num_partitions`` is None unless given: a new topic then gets one partition, and an existing
    topic may have any number.
    """

    path: str
    topic: str | None = None
    layout: str = "auto"
    partitioner: str = "murmur2"
    create_topic: bool = True
    num_partitions: int | None = None
    compression: Compression | None = None
    txn_app_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(StreamWriteOptions):
    """Options of a batch write; ``txn_app_id`` and ``txn_version`` are both set or both None."""

    txn_version: int | None = None


def parse_read_options(
    raw: Mapping[str, str], origin: Mapping[str, str] | None = None
) -> ReadOptions:
    """Options of a batch read.

    Args:
        raw: What Spark hands over.
        origin: What a catalog table's columns remember of its CREATE TABLE.
    """
    given = GivenOptions(_with_origin(raw, origin or {}), "read")
    starting, ending = _starting(given), _ending(given)
    check_batch_range(starting, ending)
    return ReadOptions(**_shared_read_fields(given), starting=starting, ending=ending)


def parse_stream_read_options(
    raw: Mapping[str, str], origin: Mapping[str, str] | None = None
) -> StreamReadOptions:
    """Options of a streaming read; see ``parse_read_options``."""
    given = GivenOptions(_with_origin(raw, origin or {}), "stream read", elsewhere=_ENDS)
    for name in _ENDS:
        if name in given:
            noun = "timestamp" if name == "endingTimestamp" else "offset"
            raise cursus_error(
                "OPTION_INVALID",
                f"Option '{name}': ending {noun} not valid in streaming queries. Remove it, or "
                "use spark.read.",
            )
    _refuse_limits_without_effect(given)
    starting, group = _starting(given), given.value("consumerGroup")
    if GROUP in starting.bounds().values() and group is None:
        raise cursus_error(
            "OPTION_MISSING",
            "Option 'consumerGroup' must be specified with startingOffsets 'group'.",
        )
    most, least = given.value("maxOffsetsPerTrigger"), given.value("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise invalid("minOffsetsPerTrigger", f"at most maxOffsetsPerTrigger ({most})", str(least))
    return StreamReadOptions(
        **_shared_read_fields(given),
        starting=starting,
        ending=OffsetSpec("endingOffsets", LATEST),
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=given.value("maxBytesPerTrigger"),
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=given.value("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        consumer_group=group,
    )


def parse_write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Options of a batch write."""
    given = GivenOptions(raw, "write")
    app, version = given.value("txnAppId"), given.value("txnVersion")
    if (app is None) != (version is None):
        missing, present = ("txnAppId", "txnVersion") if app is None else ("txnVersion", "txnAppId")
        raise cursus_error(
            "OPTION_MISSING",
            f"Option '{missing}' must be specified with '{present}': give both or neither.",
        )
    return WriteOptions(**_shared_write_fields(given), txn_app_id=app, txn_version=version)


def parse_stream_write_options(raw: Mapping[str, str]) -> StreamWriteOptions:
    """Options of a streaming write."""
    given = GivenOptions(raw, "stream write", elsewhere=("txnVersion",))
    if "txnVersion" in given:
        raise cursus_error(
            "OPTION_INVALID",
            "Option 'txnVersion' not valid in streaming queries: the batch id is the version. "
            "Remove it, or use foreachBatch.",
        )
    return StreamWriteOptions(**_shared_write_fields(given), txn_app_id=given.value("txnAppId"))


def catalog_options(raw: Mapping[str, str]) -> dict[str, str] | None:
    """The user's options if Spark is creating a catalog table, else None.

    The catalog forgets them; ``schema.with_origin`` puts them where it does not.
    """
    lower = {key.lower(): text for key, text in raw.items()}
    if "provider" not in lower:
        return None
    return {BY_LOWER_NAME[key].name: lower[key] for key in lower if key in BY_LOWER_NAME}


def _with_origin(raw: Mapping[str, str], origin: Mapping[str, str]) -> Mapping[str, str]:
    """What the query says, and the table's own options for the rest.

    A query with a path of its own is not about the table, whatever its columns remember; one with
    topics, a start or an end of its own means that one, however the table names its own.
    """
    lower = {key.lower() for key in raw}
    if "path" in lower or "paths" in lower:
        return raw
    groups = [{name.lower() for name in names} for names in (_TOPICS, _STARTS, _ENDS)]
    hidden = lower.union(*(group for group in groups if lower & group))
    kept = {key: text for key, text in origin.items() if key.lower() not in hidden}
    return {**kept, **raw}


def _shared_read_fields(given: GivenOptions) -> dict[str, Any]:
    return {
        "path": given.path(),
        "subscription": _subscription(given),
        "layout": given.value("layout", "auto"),
        "isolation": given.value("isolation", "read_committed"),
        "by_timestamp_strategy": given.value("startingOffsetsByTimestampStrategy", "error"),
        "fail_on_data_loss": given.value("failOnDataLoss", True),
        "include_headers": given.value("includeHeaders", False),
        "min_partitions": given.value("minPartitions"),
        "max_records_per_partition": given.value("maxRecordsPerPartition"),
        "max_bytes_per_partition": given.value(
            "maxBytesPerPartition", DEFAULT_MAX_BYTES_PER_PARTITION
        ),
    }


def _shared_write_fields(given: GivenOptions) -> dict[str, Any]:
    topic = name_text("topic", given.text("topic")) if "topic" in given else None
    return {
        "path": given.path(),
        "topic": topic,
        "layout": given.value("layout", "auto"),
        "partitioner": given.value("partitioner", "murmur2"),
        "create_topic": given.value("createTopic", True),
        "num_partitions": given.value("numPartitions"),
        "compression": given.value("compression"),
    }


def _refuse_limits_without_effect(given: GivenOptions) -> None:
    for name in _LIMITS:
        if name in given and not READ_LIMITS_REACH_SOURCES:
            raise cursus_error(
                "PYSPARK_TOO_OLD",
                f"Option '{name}' needs PySpark 4.2 or newer, this is {pyspark_version}, where "
                "every batch reads all there is. Remove the option, or upgrade.",
            )


def _subscription(given: GivenOptions) -> Subscription:
    names = [name for name in ("topic", *_SUBSCRIPTIONS) if name in given]
    listed = ", ".join(_SUBSCRIPTIONS)
    if not names:
        raise cursus_error(
            "OPTION_MISSING",
            f"One of the following options must be specified for the cursus source: {listed}. "
            "For a catalog table add WITH (subscribe = '...').",
        )
    if len(names) > 1:
        raise cursus_error(
            "OPTION_CONFLICT",
            f"Only one of the following options can be specified for the cursus source: {listed}. "
            f"Given: {', '.join(names)}.",
        )
    if names == ["topic"]:
        return topic_list("topic", given.text("topic"))
    found: Subscription = given.value(names[0])
    return found


def _starting(given: GivenOptions) -> OffsetSpec:
    stream = given.use == "stream read"
    return _spec(given, "starting", OffsetSpec("startingOffsets", LATEST if stream else EARLIEST))


def _ending(given: GivenOptions) -> OffsetSpec:
    return _spec(given, "ending", OffsetSpec("endingOffsets", LATEST))


def _spec(given: GivenOptions, side: str, spec: OffsetSpec) -> OffsetSpec:
    """The spec of one side: a time for all wins over times by partition, these over offsets."""
    offsets, times, time = f"{side}Offsets", f"{side}OffsetsByTimestamp", f"{side}Timestamp"
    default = spec.default
    if offsets in given:
        group = given.use == "stream read"
        spec = parse_offsets(offsets, given.text(offsets), default=default, group=group)
    if times in given:
        spec = parse_times(times, given.text(times), default=default).over(spec)
    return parse_time(time, given.text(time)) if time in given else spec
