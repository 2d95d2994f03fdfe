"""Where the rows of a write go, found on the driver before any task runs: records or typed rows.

The kind of a topic is fixed at its creation. An existing topic decides how rows are written. A new
topic is typed if the rows are not what Kafka's sink takes, or if the option ``typed`` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from storage_core import Field, LayoutNotFoundError, Store, TopicFile, TopicNotFoundError
from storage_core.schema.conform import check_fits
from storage_core.schema.fields import dotted, fold, from_arrow, sql_type

from ..errors import CursusError, cursus_error
from ..options.write_options import StreamWriteOptions
from ..schema import are_records, refuse_duplicates, sink_columns
from ..store import (
    DriverStore,
    ensure_topic,
    open_existing_for_write,
    open_for_write,
)
from ..typed.spark_types import arrow_fields, as_nullable, check_exact_types
from .typed_rows import TypedTopic

_LISTED = 20


class Target(NamedTuple):
    """Where rows go: the typed topic, None if they are records; and the store, for the tasks."""

    topic: TypedTopic | None
    driver: DriverStore


def find_target(options: StreamWriteOptions, schema: StructType) -> Target:
    """The topic of the rows and its store, created if they are missing.

    If the rows name their topics, the tasks create these. For rows that are refused nothing is
    created.

    Raises:
        CursusError, StorageError: the rows do not fit the topic, or the topic is not what the
            options ask for.
    """
    topic = options.topic
    if topic is None:
        if _makes_typed(options, schema):
            raise _topic_required(schema)
        _refuse_typed_options(options, "of the column 'topic'")
        sink_columns(schema, topic=None)
        with open_for_write(options) as made_store:
            return Target(None, DriverStore.of(made_store, topic))
    store: Store | None = None
    found: TopicFile | None = None
    pins: Mapping[str, bytes] = {}
    with ExitStack() as opened:
        with suppress(LayoutNotFoundError, TopicNotFoundError):
            store = opened.enter_context(open_existing_for_write(options))
            with store.reading_once():
                found, pins = store.topic(topic), _pins(store, topic)
        if found is None:
            typed = _makes_typed(options, schema)
        else:
            typed = found.is_typed
            _require_options(found, topic, options)
        if not typed:
            _refuse_typed_options(options, f"'{topic}'")
            sink_columns(schema, topic=topic)
        columns = _columns_of(schema) if typed else None
        if columns is not None and found is None:
            _check_new(options, columns)
        if store is None:
            store = opened.enter_context(open_for_write(options))
        made = ensure_topic(store, options, topic, columns, found)
        if made.is_typed != typed:  # another writer has just created it
            return find_target(options, schema)
        if columns is None:
            return Target(None, DriverStore.of(store, topic, pins or _pins(store, topic)))
        _require_options(made, topic, options)
        found_topic = _typed_topic(store, made, topic, columns, options)
        return Target(found_topic, DriverStore.of(store, topic, _pins(store, topic)))


def _pins(store: Store, topic: str) -> dict[str, bytes]:
    pin = store.pinned(topic)
    return {} if pin is None else {topic: pin}


def _typed_topic(
    store: Store,
    found: TopicFile,
    topic: str,
    columns: Sequence[Field],
    options: StreamWriteOptions,
) -> TypedTopic:
    """The topic with the schema version of the rows; a new version is durable, and not visible."""
    version = store.register_schema(
        topic, columns, add=options.merge_schema, widen=options.type_widening
    )
    check_fits(pa.schema([column.arrow for column in columns]), version, topic=topic)
    check_exact_types(columns, version.fields, topic)
    return TypedTopic(topic, version, found.partitions, found.key_columns, found.timestamp_column)


def _makes_typed(options: StreamWriteOptions, schema: StructType) -> bool:
    return not are_records(schema) if options.typed is None else options.typed


def _columns_of(schema: StructType) -> tuple[Field, ...]:
    if not schema.fields:
        raise cursus_error("SCHEMA_EMPTY", "The rows to write have no column. Select at least one.")
    refuse_duplicates(schema, "in the rows to write", fold)
    return as_nullable(from_arrow(*arrow_fields(schema)))


def _check_new(options: StreamWriteOptions, columns: Sequence[Field]) -> None:
    """Refuse key columns and a timestamp column that a topic of these columns cannot have."""
    by_name = {fold(column.name): column for column in columns}
    named = {"keyColumns": options.key_columns or ()}
    if options.timestamp_column is not None:
        named["timestampColumn"] = (options.timestamp_column,)
    for option, names in named.items():
        for name in names:
            if fold(name) not in by_name:
                raise cursus_error(
                    "OPTION_INVALID",
                    f"Option '{option}' names '{name}', which is not a column of the rows. "
                    f"Columns: {_listed([column.name for column in columns])}.",
                )
            kind = by_name[fold(name)].type
            if option == "timestampColumn" and not pa.types.is_timestamp(kind):
                raise cursus_error(
                    "OPTION_INVALID",
                    f"Option 'timestampColumn' names '{name}' of type {sql_type(kind)}, it must "
                    "be a timestamp.",
                )


def _require_options(found: TopicFile, topic: str, options: StreamWriteOptions) -> None:
    """Refuse a topic that is not what the options ask for: all this is fixed at its creation."""
    if options.typed is not None and options.typed != found.is_typed:
        wanted = "true" if options.typed else "false"
        raise _differs(topic, f"is a {found.kind} topic", "typed", wanted)
    if not found.is_typed:
        return
    keys = options.key_columns
    if keys is not None and list(map(fold, keys)) != list(map(fold, found.key_columns)):
        listed = _listed(found.key_columns) if found.key_columns else "none"
        raise _differs(topic, f"has key columns {listed}", "keyColumns", _listed(keys))
    time = options.timestamp_column
    if time is not None and fold(time) != fold(found.timestamp_column or ""):
        text = f"has timestamp column {found.timestamp_column or 'none'}"
        raise _differs(topic, text, "timestampColumn", time)


def _differs(topic: str, found: str, option: str, wanted: str) -> CursusError:
    return cursus_error(
        "TOPIC_DIFFERS",
        f"Topic '{topic}' {found}, but {option} is {wanted}. A topic keeps what it was created "
        "with: remove the option, or write to another topic.",
    )


def _refuse_typed_options(options: StreamWriteOptions, topic: str) -> None:
    """Refuse what records cannot do. ``mergeSchema`` may stay: records have nothing to merge."""
    given = {"keyColumns": options.key_columns, "timestampColumn": options.timestamp_column}
    for option, value in given.items():
        if value is not None:
            raise cursus_error(
                "TOPIC_DIFFERS",
                f"Topic {topic} has records, with key and value, but {option} is given, which only "
                "typed topics have. Remove it, or set typed to true for a new topic.",
            )


def _topic_required(schema: StructType) -> CursusError:
    own = (
        " The column 'topic' does not choose one: it is a column like any other there."
        if "topic" in schema.fieldNames()
        else ""
    )
    return cursus_error(
        "TOPIC_REQUIRED",
        "topic option required for rows of your own columns, which go to one typed topic: "
        f'{_listed(schema.fieldNames())}.{own} Use .option("topic", "..."). (Options given in '
        "CREATE TABLE do not reach INSERT; use INSERT INTO t WITH (path = '...', topic = '...').)",
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(dotted((name,)) for name in names[:_LISTED]) + more
