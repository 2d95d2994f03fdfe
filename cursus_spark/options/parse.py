"""Makes the typed options of a query from the options that Spark passes, on the driver.

Spark passes keys in lower case; messages use the names of the table. An option that belongs to
another kind of query is ignored with a warning, as in Spark's Kafka source: a temporary view is
read and written with the same options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark import __version__ as pyspark_version

from ..compat import READ_LIMITS_REACH_SOURCES
from ..errors import cursus_error, shown
from ..logs import logger
from .known_names import STORAGE, check_known
from .offsets import (
    check_batch_range,
    check_order,
    load_json,
    parse_offsets,
    parse_time,
    parse_times,
)
from .read_options import (
    DEFAULT_MAX_BYTES_PER_PARTITION,
    EARLIEST,
    GROUP,
    LATEST,
    OffsetSpec,
    ReadOptions,
    Subscription,
)
from .stream_read_options import (
    DEFAULT_INLINE_BATCH_BYTES,
    DEFAULT_MAX_TRIGGER_DELAY_MS,
    StreamReadOptions,
)
from .table import BY_LOWER_NAME, OPTIONS, Use
from .values import invalid, name_text, topic_list
from .write_options import StreamWriteOptions, WriteOptions

_LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_WIDENING = "mergeSchema.typeWidening"
_TOPICS = ("topic", *_SUBSCRIPTIONS)
_INSERT_HINT = (
    " (Options given in CREATE TABLE do not reach INSERT; use INSERT INTO t WITH "
    "(path = '...', topic = '...').)"
)
_SELECT_HINT = " For a catalog table: SELECT ... FROM t WITH (path = '...', subscribe = '...')."

_log = logger()


def check_at_load(raw: Mapping[str, str]) -> ReadOptions | None:
    """Refuse what neither a batch nor a stream can use. At ``load()`` Spark does not say which.

    Options of writes are checked too: they belong to a temporary view. CREATE TABLE may leave path
    and topics to the query: without them it returns None, else what decides on the columns.
    """
    check_known(raw, "read", "stream read")
    everything = tuple(option.name for option in OPTIONS)
    given = GivenOptions(raw, "stream read", elsewhere=everything)
    is_table = catalog_options(raw) is not None
    if not is_table:
        given.path()
    if not is_table or any(name in given for name in _TOPICS):
        _subscription(given)
    for name in everything:
        given.value(name)
    starting = _starting(given)
    if any(name in given for name in _ENDS):
        _check_ends(starting, given)
    elif not is_table:
        _check_group(starting, given)
    _check_limits(given)
    if "path" not in given or not any(name in given for name in _TOPICS):
        return None
    return ReadOptions(
        **_shared_read_fields(given), starting=starting, ending=OffsetSpec("endingOffsets", LATEST)
    )


def parse_read_options(
    raw: Mapping[str, str], origin: Mapping[str, str] | None = None
) -> ReadOptions:
    """Options of a batch read.

    Args:
        raw: The options that Spark passes.
        origin: The options of a catalog table's CREATE TABLE, from the metadata of its columns.
    """
    given = GivenOptions(_with_origin(raw, origin or {}), "read")
    starting, ending = _starting(given), _ending(given)
    check_batch_range(starting, ending)
    return ReadOptions(
        **_shared_read_fields(given),
        starting=starting,
        ending=ending,
        timestamp_mode=given.value("timestampMode", "exact"),
    )


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
    if given.value("timestampMode") == "exact":
        raise cursus_error(
            "OPTION_INVALID",
            "Option 'timestampMode': exact not valid in streaming queries, which read every record "
            "after their start. Remove it, and filter by the column timestamp.",
        )
    starting = _starting(given)
    _check_group(starting, given)
    most, least = _check_limits(given)
    return StreamReadOptions(
        **_shared_read_fields(given),
        starting=starting,
        ending=OffsetSpec("endingOffsets", LATEST),
        timestamp_mode="offsets",
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=given.value("maxBytesPerTrigger"),
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=given.value("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        inline_batch_bytes=given.value("inlineBatchBytes", DEFAULT_INLINE_BATCH_BYTES),
        consumer_group=given.value("consumerGroup"),
        schema_evolution_mode=given.value("schemaEvolutionMode", "ignore"),
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
    if app is None and "txnMode" in given:
        raise cursus_error(
            "OPTION_MISSING",
            "Options 'txnAppId' and 'txnVersion' must be specified with 'txnMode'.",
        )
    return WriteOptions(
        **_shared_write_fields(given),
        txn_app_id=app,
        txn_version=version,
        txn_mode=given.value("txnMode", "last"),
    )


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
    """The user's options if Spark creates a catalog table, else None.

    The catalog does not keep them; ``schema.with_origin`` puts them into the columns' metadata.
    """
    lower = {key.lower(): text for key, text in raw.items()}
    if "provider" not in lower:
        return None
    return {BY_LOWER_NAME[key].name: lower[key] for key in lower if key in BY_LOWER_NAME}


def _with_origin(raw: Mapping[str, str], origin: Mapping[str, str]) -> Mapping[str, str]:
    """The options of the query, and for the rest those of the table's CREATE TABLE.

    A query with its own path does not read the table's topics, so it gets no option of the table.
    Its own topics, start or end replace all options of the table for topics, start or end.
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
        "storage": given.storage,
        "subscription": _subscription(given),
        "layout": given.value("layout", "auto"),
        "isolation": given.value("isolation", "read_committed"),
        "by_timestamp_strategy": given.value("startingOffsetsByTimestampStrategy", "error"),
        "fail_on_data_loss": given.value("failOnDataLoss", True),
        "include_headers": given.value("includeHeaders", False),
        "include_metadata": given.value("includeMetadata", False),
        "merge_schema": given.value("mergeSchema", False),
        "where": given.value("where"),
        "min_partitions": given.value("minPartitions"),
        "max_records_per_partition": given.value("maxRecordsPerPartition"),
        "max_bytes_per_partition": given.value(
            "maxBytesPerPartition", DEFAULT_MAX_BYTES_PER_PARTITION
        ),
        "cache_dir": given.value("cacheDir"),
        "cache_bytes": given.value("cacheBytes"),
    }


def _shared_write_fields(given: GivenOptions) -> dict[str, Any]:
    topic = name_text("topic", given.text("topic")) if "topic" in given else None
    given.value("partitioner")  # an error unless murmur2: there is no other partitioner
    merge, widening = given.value("mergeSchema", False), given.value(_WIDENING, False)
    if widening and not merge:
        raise cursus_error(
            "OPTION_MISSING", f"Option 'mergeSchema' must be true with '{_WIDENING}' true."
        )
    return {
        "path": given.path(),
        "storage": given.storage,
        "topic": topic,
        "layout": given.value("layout", "auto"),
        "create_topic": given.value("createTopic", True),
        "num_partitions": given.value("numPartitions"),
        "compression": given.value("compression"),
        "typed": given.value("typed"),
        "key_columns": given.value("keyColumns"),
        "timestamp_column": given.value("timestampColumn"),
        "merge_schema": merge,
        "type_widening": widening,
    }


def _refuse_limits_without_effect(given: GivenOptions) -> None:
    for name in _LIMITS:
        if name in given and not READ_LIMITS_REACH_SOURCES:
            raise cursus_error(
                "PYSPARK_TOO_OLD",
                f"Option '{name}' needs PySpark 4.2 or newer. This is PySpark {pyspark_version}, "
                "where every batch reads everything. Remove the option, or upgrade PySpark.",
            )


def _check_group(starting: OffsetSpec, given: GivenOptions) -> None:
    if GROUP in starting.bounds().values() and "consumerGroup" not in given:
        raise cursus_error(
            "OPTION_MISSING",
            "Option 'consumerGroup' must be specified with startingOffsets 'group'.",
        )


def _check_limits(given: GivenOptions) -> tuple[int | None, int | None]:
    """``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``, in this order of size."""
    most, least = given.value("maxOffsetsPerTrigger"), given.value("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise invalid("minOffsetsPerTrigger", f"at most maxOffsetsPerTrigger ({most})", str(least))
    return most, least


def _check_ends(starting: OffsetSpec, given: GivenOptions) -> None:
    """Refuse an end before the start, and with a start that only streams have."""
    bounds = starting.bounds()
    if starting.is_partial or not any(name in given for name in _STARTS):
        del bounds[""]  # the user did not write it
    for bound in bounds.values():
        if bound in (LATEST, GROUP):
            end = next(name for name in _ENDS if name in given)
            raise cursus_error(
                "OPTION_CONFLICT",
                f"Option 'startingOffsets' has '{bound}', where only a stream can start, and "
                f"option '{end}' is for batches only. Remove one of them.",
            )
    check_order(starting, _ending(given))


def _subscription(given: GivenOptions) -> Subscription:
    names = [name for name in _TOPICS if name in given]
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
    """The bounds of one side. Precedence: one time for all, times by partition, offsets."""
    offsets, times, time = f"{side}Offsets", f"{side}OffsetsByTimestamp", f"{side}Timestamp"
    default = spec.default
    if offsets in given:
        group = given.use == "stream read"
        spec = parse_offsets(offsets, given.text(offsets), default=default, group=group)
    if times in given:
        partial = spec.is_partial or offsets not in given
        spec = parse_times(times, given.text(times), default=default).over(spec)
        spec = replace(spec, is_partial=partial)
    return parse_time(time, given.text(time)) if time in given else spec


class GivenOptions:
    """The options given to one query, by their names in the table."""

    def __init__(self, raw: Mapping[str, str], use: Use, elsewhere: tuple[str, ...] = ()) -> None:
        check_known(raw, use)
        self.use = use
        self._texts = {}
        for key, text in raw.items():
            option = BY_LOWER_NAME.get(key.lower())
            if option is None or text is None:
                continue
            if use in option.uses or option.name in elsewhere:
                self._texts[option.name] = str(text)
            else:
                places = " and ".join(option.uses)
                _log.warning("Option '%s' is ignored: it is for %s.", option.name, places)
        self._take_paths(raw)
        self.storage = tuple(
            (key.lower().removeprefix(STORAGE), str(text))
            for key, text in sorted(raw.items())
            if key.lower().startswith(STORAGE) and text is not None
        )

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def text(self, name: str) -> str:
        """The text of an option that is given."""
        return self._texts[name]

    def value(self, name: str, default: Any = None) -> Any:
        """The parsed value of an option, or the default."""
        if name not in self._texts:
            return default
        return BY_LOWER_NAME[name.lower()].parse(name, self._texts[name])

    def path(self) -> str:
        """The directory of the log, required in every query."""
        if "path" not in self._texts:
            writing = "write" in self.use
            verb = "save" if self.use == "write" else "start" if writing else "load"
            hint = _INSERT_HINT if writing else _SELECT_HINT
            raise cursus_error(
                "OPTION_MISSING",
                f"Option 'path' must be specified: the directory of the log. Use .{verb}"
                f'("/data/log") or .option("path", "/data/log").{hint}',
            )
        return str(self.value("path"))

    def _take_paths(self, raw: Mapping[str, str]) -> None:
        # Spark passes load([...]) as JSON, under this key.
        found = [text for key, text in raw.items() if key.lower() == "paths"]
        if not found:
            return
        try:
            paths = load_json(found[0])
        except ValueError:
            paths = []
        if not isinstance(paths, list) or len(paths) != 1 or not isinstance(paths[0], str):
            raise cursus_error(
                "OPTION_INVALID",
                f"A cursus query reads one directory, got {shown(found[0])}. Use union to read "
                "several.",
            )
        self._texts["path"] = paths[0]
