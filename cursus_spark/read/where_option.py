"""The ``where`` of a query, bound to the columns of its topics on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from storage_core import Field, SchemaVersion
from storage_core.format.selection import RECORD_FIELDS, SYSTEM_FIELDS
from storage_core.predicate.binder import bind
from storage_core.predicate.bound import Bound
from storage_core.predicate.parser import parse
from storage_core.schema.fields import Path, dotted, fold

from ..errors import cursus_error, one_line_errors
from ..typed.columns import common_fields
from .query_where import QueryWhere

_OF_RECORDS = ("key", "value", "offset", "timestamp")


def bind_where(text: str, schemas: Mapping[str, SchemaVersion], *, merge: bool) -> QueryWhere:
    """Bind a predicate to the columns of the topics that a query reads.

    Args:
        text: The option.
        schemas: Those of typed topics; empty if the query reads records.
        merge: Whether topics may lack columns of other topics, which are null then.

    Raises:
        CursusError: it is not a predicate over these columns.
    """
    with one_line_errors():
        system = list(SYSTEM_FIELDS.values())
        if not schemas:
            known = pa.schema([*(RECORD_FIELDS[name] for name in _OF_RECORDS), *system])
            return QueryWhere(bind(parse(text), known), pa.schema([]))
        fields = [each.arrow for each in common_fields(schemas, merge=True)]
        known = pa.schema([*fields, *system])
        bound = bind(parse(text), known)
    if not merge:
        for topic, schema in schemas.items():
            require_columns(bound, topic, schema)
    needed = [known.field(name) for name in bound.columns if name not in SYSTEM_FIELDS]
    return QueryWhere(bound, pa.schema(needed))


def require_columns(bound: Bound, topic: str, schema: SchemaVersion) -> None:
    """Refuse a topic without a column of the predicate: its rows would be left out in silence.

    Also for a topic that a query finds later, or that was created again with other columns.

    Raises:
        CursusError: names the column and the topic.
    """
    for path in bound.paths:
        if path[0] not in SYSTEM_FIELDS and not _has(schema.fields, path):
            raise cursus_error(
                "COLUMN_UNKNOWN",
                f"Column '{dotted(path)}' in where is not a column of topic '{topic}'. Set "
                "mergeSchema to true to read it as null there.",
            )


def _has(fields: Sequence[Field], path: Path) -> bool:
    own = next((field for field in fields if fold(field.name) == fold(path[0])), None)
    if own is None or len(path) == 1:
        return own is not None
    return pa.types.is_null(own.type) or _has(own.children, path[1:])
