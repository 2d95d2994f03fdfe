"""The columns of typed topics in a log of objects: registered and published by commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..engine.base import no_columns
from ..errors import SchemaMismatchError, mismatches_of
from ..metadata.schema_files import Origin, RegisteredSchema
from ..schema.evolution import FOR_JOBS, FOR_NEW_COLUMNS, covers, evolve, merge_versions
from ..schema.fields import Field, SchemaVersion
from ..schema.keys import check_key_columns
from .commit_log import CommitLog
from .document import damaged
from .state import LogState


class ObjectSchemas:
    """The registered schema versions of one typed topic."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def get(self, version: int) -> SchemaVersion:
        """A registered version.

        Raises:
            DamagedMetadataError: the log has none of this number.
        """
        state = self._log.state()
        if version > len(state.schemas):
            state = self._log.refresh()
        if not 1 <= version <= len(state.schemas):
            raise damaged(self._log.prefix, f"it has no schema version {version}")
        return state.schemas[version - 1].schema

    def all(self) -> list[RegisteredSchema]:
        """Every registered version in order."""
        return list(self._log.state().schemas)


class SchemaStep(NamedTuple):
    """What a commit does to the schema: versions that are new, and the one that readers get."""

    new: tuple[RegisteredSchema, ...] = ()
    published: int | None = None


def published_schema(topic: str, state: LogState) -> SchemaVersion:
    """The schema that readers get.

    Raises:
        SchemaMismatchError: it is a records topic.
    """
    if state.published is None:
        raise no_columns(topic)
    return state.schemas[state.published - 1].schema


def evolved(
    topic: str,
    state: LogState,
    wanted: Sequence[Field],
    *,
    add: bool,
    widen: bool,
    origin: Origin = "write",
) -> tuple[SchemaVersion, bool]:
    """The schema version for rows of these columns, and whether it is new.

    Raises:
        SchemaMismatchError: the columns do not fit, and the change is not allowed.
        InvalidSchemaError: a key column would get what cannot be compared.
    """
    current = published_schema(topic, state)
    known = [each.schema for each in state.schemas]
    with mismatches_of(topic):
        made = evolve(
            current,
            wanted,
            add=add,
            widen=widen,
            next_id=1 + max(each.max_id for each in known),
            version=len(known) + 1,
            registered=known,
            advice=FOR_NEW_COLUMNS if origin == "alter" else FOR_JOBS,
        )
        if state.topic is not None:
            check_key_columns(made.fields, state.topic.key_columns)
    return (current, False) if made is current else _known_or_new(state, current, made)


def merge_step(topic: str, state: LogState, versions: Collection[int], now: str) -> SchemaStep:
    """What a commit of rows of these versions publishes: nothing, if their columns are known.

    Raises:
        SchemaMismatchError: another writer published a column of the same name and another type.
    """
    current = published_schema(topic, state)
    found = [state.schemas[version - 1].schema for version in sorted(versions)]
    if all(covers(current, each) for each in found):
        return SchemaStep()
    merged = current
    with mismatches_of(topic):
        for each in found:
            merged = merge_versions(merged, each, version=len(state.schemas) + 1)
    schema, is_new = _known_or_new(state, current, merged)
    new = (RegisteredSchema(schema, "write", now),) if is_new else ()
    return SchemaStep(new, schema.version)


def missing_versions(
    topic: str, state: LogState, versions: Sequence[RegisteredSchema]
) -> tuple[RegisteredSchema, ...]:
    """Versions of another store's topic that this one lacks; they keep their numbers.

    Raises:
        SchemaMismatchError: a number is that of other columns here.
    """
    published_schema(topic, state)
    new = list[RegisteredSchema]()
    for found in versions:
        version = found.schema.version
        if version == len(state.schemas) + len(new) + 1:
            new.append(found)
        elif not version <= len(state.schemas) or state.schemas[version - 1].schema != found.schema:
            raise SchemaMismatchError(
                f"topic {topic!r} has other columns in schema version {version} than the topic "
                "that is copied. Choose an empty target.",
                topic=topic,
            )
    return tuple(new)


def _known_or_new(
    state: LogState, current: SchemaVersion, made: SchemaVersion
) -> tuple[SchemaVersion, bool]:
    """A registered version of the same fields, from the published one on, or a new one."""
    for each in state.schemas[current.version - 1 :]:
        if each.schema.fields == made.fields:
            return each.schema, False
    return SchemaVersion(len(state.schemas) + 1, made.fields), True
