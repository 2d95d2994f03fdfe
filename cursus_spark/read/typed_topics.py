"""The columns of the topics that a query reads, on the driver: their kinds and schemas.

A query reads either records topics, with the columns of Kafka's source, or typed topics, with
columns of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import StructType

from storage_core import LayoutNotFoundError, SchemaVersion, Store, TopicNotFoundError
from storage_core.lazy import LazyModule

from ..errors import CursusError, cursus_error
from ..logs import logger
from ..options.read_options import ReadOptions, Subscription
from ..options.stream_read_options import StreamReadOptions
from ..schema import check_projection
from ..store import open_for_read
from ..typed.columns import check_typed_projection, typed_schema
from ..typed.spark_types import struct_type
from .query_where import QueryWhere

if TYPE_CHECKING:
    from . import where_option
else:  # its parser takes half a second to import
    where_option = LazyModule("cursus_spark.read.where_option")

_log = logger()

Schemas = Mapping[str, SchemaVersion]
"""The schemas of typed topics, by topic."""


def columns_of_query(
    options: ReadOptions, *, written: bool = False
) -> tuple[StructType, Schemas] | None:
    """The columns of typed topics, and their schemas; None for records topics.

    A topic that does not exist counts as a records topic, with a warning: a stream whose topic was
    deleted has to start before it can say so. What may be ``written`` first, such as a catalog
    table, needs no store yet, and causes no warning.

    Raises:
        LayoutNotFoundError: there is no store to read.
    """
    missing = list[TopicNotFoundError]()
    try:
        with open_for_read(options) as store:
            schemas = schemas_of(store, _existing(store, options.subscription), missing)
    except LayoutNotFoundError:
        if not written:
            raise
        schemas = {}
    if missing and not schemas and not written:
        _log.warning(
            "%s Its columns are unknown, so this DataFrame has those of a records topic: key, "
            "value, topic, partition, offset, timestamp, timestampType.",
            missing[0],
        )
    found = None
    if schemas:
        found = typed_schema(schemas, merge=options.merge_schema, metadata=options.include_metadata)
    _where(options, schemas)
    return None if found is None else (found, schemas)


class CheckedQuery(NamedTuple):
    """Whether a query reads typed topics, and its predicate."""

    typed: bool
    where: QueryWhere | None


def check_columns(options: ReadOptions, schema: StructType) -> CheckedQuery:
    """Refuse a projection or a predicate that the topics do not have the columns for."""
    try:
        with open_for_read(options) as store:
            schemas = schemas_of(store, _existing(store, options.subscription))
    except LayoutNotFoundError:
        schemas = {}
    if not schemas:
        check_projection(schema)
    else:
        check_typed_projection(schema, schemas, merge=options.merge_schema)
        _warn_of_headers(options)
    return CheckedQuery(bool(schemas), _where(options, schemas))


def _where(options: ReadOptions, schemas: Schemas) -> QueryWhere | None:
    if options.where is None:
        return None
    return where_option.bind_where(options.where, schemas, merge=options.merge_schema)


def schemas_of(
    store: Store, topics: Iterable[str], missing: list[TopicNotFoundError] | None = None
) -> dict[str, SchemaVersion]:
    """The schemas of typed topics; none for records topics.

    A topic that does not exist is left out; ``missing`` gets its error.

    Raises:
        CursusError: some are typed and some are not.
    """
    typed: dict[str, SchemaVersion] = {}
    records = []
    for topic in topics:
        try:
            schema = store.schema(topic) if store.topic(topic).is_typed else None
            if schema is None:
                records.append(topic)
            else:
                typed[topic] = schema
        except TopicNotFoundError as error:
            if missing is not None:
                missing.append(error)
    if typed and records:
        raise cursus_error(
            "KINDS_DIFFER",
            f"Topic '{next(iter(typed))}' is typed and topic '{records[0]}' has records: one query "
            "can't read both. Read them one by one.",
        )
    return typed


class QueryColumns:
    """The columns of one query. Planning compares them with its topics; used by one thread.

    Args:
        options: The options of the query.
        schema: The columns that Spark wants.
        typed: Whether the query began with typed topics.
        loaded: The schemas that ``load()`` saw, if the query wants all their columns.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        *,
        typed: bool,
        loaded: Schemas | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._typed = typed
        self._known = dict(loaded or {})
        self._wants_all = loaded is not None

    def check(self, store: Store, topics: Collection[str]) -> dict[str, int]:
        """Check the columns of the topics that tasks will read; the schema versions of typed ones.

        Raises:
            CursusError: a topic is of another kind or lacks a column; or columns changed since the
                query began, and ``schemaEvolutionMode`` is fail.
        """
        schemas = schemas_of(store, topics)
        if topics and bool(schemas) != self._typed:
            raise _other_kind(next(iter(topics)), typed=bool(schemas))
        if self._typed:
            check_typed_projection(self._schema, schemas, merge=self._options.merge_schema)
        for topic, schema in schemas.items():
            known = self._known.setdefault(topic, schema)
            if known.version != schema.version:
                self._known[topic] = schema
                self._tell(topic, known, schema)
        return {topic: schema.version for topic, schema in schemas.items()}

    def _tell(self, topic: str, known: SchemaVersion, now: SchemaVersion) -> None:
        if not isinstance(self._options, StreamReadOptions):
            return  # a batch is planned once
        changes = self._changes(known, now)
        if not changes:
            return
        text = f"Topic '{topic}': {', '.join(changes)} since the query began"
        if self._options.schema_evolution_mode == "fail":
            raise cursus_error(
                "SCHEMA_CHANGED",
                f"{text}, and schemaEvolutionMode is fail. Start the query again to read it.",
            )
        _log.warning("%s. The query keeps its columns. Start it again to read this.", text)

    def _changes(self, known: SchemaVersion, now: SchemaVersion) -> list[str]:
        names = {name.lower() for name in self._schema.fieldNames()}
        before = {field.id: field for field in known.fields}
        changes = []
        for field, column in zip(now.fields, struct_type(now.fields).fields, strict=True):
            kind = column.dataType.simpleString()
            if field.id not in before:
                changes += [f"column {field.name} {kind} was added"] if self._wants_all else []
            elif field.type != before[field.id].type and field.name.lower() in names:
                changes.append(f"column {field.name} became {kind}")
        return changes


def _other_kind(topic: str, *, typed: bool) -> CursusError:
    found, began = ("typed", "records") if typed else ("records", "typed")
    return cursus_error(
        "KINDS_DIFFER",
        f"Topic '{topic}' is a {found} topic, but the query began with {began} topics. Read it in "
        "a query of its own.",
    )


def _existing(store: Store, subscription: Subscription) -> list[str]:
    named = subscription.named()
    if named:
        return list(named)
    return [topic for topic in store.topics() if subscription.includes(topic, 0)]


def _warn_of_headers(options: ReadOptions) -> None:
    if options.include_headers:
        _log.warning("Option 'includeHeaders' is ignored: typed topics have no headers.")
