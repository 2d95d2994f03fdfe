"""Whether a topic takes some records: rows if it is typed, keys and values if it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import InvalidRecordError, SchemaMismatchError
from ..format.columns import Columns
from ..format.selection import Schemas

if TYPE_CHECKING:
    from ..schema.fields import SchemaVersion


def require_kind(
    topic: str, columns: Columns, *, is_typed: bool, schemas: Callable[[], Schemas]
) -> None:
    """Raise for records that a topic does not take. Records that ``make_columns`` accepts fit."""
    if columns.schema is not None and is_typed:
        _require_schema(topic, columns.schema, schemas())
    if is_typed == (columns.rows is not None) or not columns.count:
        return
    raise InvalidRecordError(
        f"topic {topic!r} is a typed topic: it takes rows, not keys and values. Use append_table."
        if columns.rows is None
        else f"topic {topic!r} is a records topic: it takes keys and values. Use append.",
        topic=topic,
    )


def _require_schema(topic: str, found: SchemaVersion, schemas: Schemas) -> None:
    registered = schemas.get(found.version)
    if registered is not found and registered != found:
        raise SchemaMismatchError(
            f"topic {topic!r} has other columns in schema version {found.version} than the "
            "rows: it was deleted and created again meanwhile. Nothing was written; write the "
            "rows again.",
            topic=topic,
        )


def no_columns(topic: str) -> SchemaMismatchError:
    """The error for a records topic where a typed one is needed."""
    return SchemaMismatchError(
        f"topic {topic!r} is a records topic: it has keys and values, no columns of its "
        "own. The kind of a topic never changes; create a typed topic.",
        topic=topic,
    )
