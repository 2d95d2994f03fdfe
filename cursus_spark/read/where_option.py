"""The ``where`` of a query, bound to the columns of its topics on the driver."""

from __future__ import annotations

import re
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
# Collations have an order of their own, and Spark pads the texts of char(n) with blanks.
_NOT_BYTES = re.compile(r"string collate |char\(")


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
    for topic, schema in schemas.items():
        check_where(bound, topic, schema, merge=merge)
    needed = [known.field(name) for name in bound.columns if name not in SYSTEM_FIELDS]
    return QueryWhere(bound, pa.schema(needed))


def check_where(bound: Bound, topic: str, schema: SchemaVersion, *, merge: bool) -> None:
    """Refuse a topic whose rows the predicate would leave out in silence where ``filter`` does not.

    Also for a topic that a query finds later, or that was created again with other columns.

    Raises:
        CursusError: the topic has no such column, or Spark does not compare its texts as bytes.
    """
    for path in bound.paths:
        if path[0] in SYSTEM_FIELDS:
            continue
        own = _find(schema.fields, path)
        if own is None:
            if not merge:
                raise cursus_error(
                    "COLUMN_UNKNOWN",
                    f"Column '{dotted(path)}' in where is not a column of topic '{topic}'. Set "
                    "mergeSchema to true to read it as null there.",
                )
        elif path in bound.compared and _NOT_BYTES.match(own.annotation):
            raise cursus_error(
                "COLUMN_TYPE",
                f"Column '{dotted(path)}' in where has type {own.annotation} in topic '{topic}'; "
                "where compares texts by their bytes. Use filter() for it; IS NULL is understood.",
            )


def _find(fields: Sequence[Field], path: Path) -> Field | None:
    own = next((field for field in fields if fold(field.name) == fold(path[0])), None)
    if own is None or len(path) == 1 or pa.types.is_null(own.type):
        return own
    return _find(own.children, path[1:])
