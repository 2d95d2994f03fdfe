"""The ``where`` of a query, bound to the columns of its topics on the driver."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from storage_core import SchemaVersion
from storage_core.format.selection import RECORD_FIELDS, SYSTEM_FIELDS
from storage_core.predicate.binder import bind
from storage_core.predicate.parser import parse

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
    needed = [known.field(name) for name in bound.columns if name not in SYSTEM_FIELDS]
    for field in needed:
        for topic, schema in schemas.items():
            if not merge and schema.by_name(field.name) is None:
                raise cursus_error(
                    "COLUMN_UNKNOWN",
                    f"Column '{field.name}' in where is not a column of topic '{topic}'. Set "
                    "mergeSchema to true to read it as null there.",
                )
    return QueryWhere(bound, pa.schema(needed))
