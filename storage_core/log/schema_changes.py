"""Changes of a typed topic's schema: which version rows get, and what a commit publishes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..errors import mismatches_of
from ..io.io_errors import typed_write_errors
from ..metadata.schema_files import Origin, TopicSchemas
from ..schema.evolution import FOR_JOBS, FOR_NEW_COLUMNS, covers, evolve, merge_versions
from ..schema.fields import Field, SchemaVersion
from ..schema.keys import check_key_columns
from .published import PublishedTopics


def register(
    published: PublishedTopics,
    topic: str,
    wanted: Sequence[Field],
    *,
    add: bool,
    widen: bool,
    origin: Origin,
) -> SchemaVersion:
    """The schema version for rows of these columns: the published one, or a new registered one.

    A registered version is durable and invisible. The commit that names it publishes it.

    Raises:
        SchemaMismatchError: the rows do not fit, and the change is not allowed. Or it is a records
            topic. Nothing was written.
    """
    schemas, current = published.schemas(topic), published.current(topic)
    advice = FOR_NEW_COLUMNS if origin == "alter" else FOR_JOBS

    def evolved(known: Sequence[SchemaVersion], number: int, next_id: int) -> SchemaVersion:
        with mismatches_of(topic):
            return evolve(
                current, wanted, add=add, widen=widen,
                next_id=next_id, version=number, registered=known, advice=advice,
            )  # fmt: skip

    if evolved((), 0, current.max_id + 1) is current:
        return current

    def make(known: Sequence[SchemaVersion], number: int, next_id: int) -> SchemaVersion:
        made = evolved(known, number, next_id)
        with mismatches_of(topic):
            check_key_columns(made.fields, published.key_columns(topic))
        return made

    with typed_write_errors(f"registering a schema version of topic {topic!r}", topic):
        return schemas.register(current.version, origin, make)


class SchemaMerges:
    """What commits do to the schemas of typed topics."""

    def __init__(self, published: PublishedTopics) -> None:
        self._published = published

    def of(self, topic: str) -> TopicSchemas:
        """The registered versions of a topic."""
        return self._published.schemas(topic)

    def are_covered(self, topic: str, versions: Collection[int]) -> bool:
        """Whether the published schema has every column of these versions."""
        schemas, current = self._published.schemas(topic), self._published.current(topic)
        return all(covers(current, schemas.get(version)) for version in versions)

    def merge(self, topic: str, versions: Collection[int]) -> tuple[int, int]:
        """The published version, and a durable one that covers it and these versions.

        The caller holds the lock of partition 0, which protects the published schema.

        Raises:
            SchemaMismatchError: another writer added a column of the same name and another type.
        """
        schemas, current = self._published.schemas(topic), self._published.current(topic)

        def make(_: Sequence[SchemaVersion], number: int, __: int) -> SchemaVersion:
            merged = current
            with mismatches_of(topic):
                for version in sorted(versions):
                    merged = merge_versions(merged, schemas.get(version), version=number)
            return merged

        with typed_write_errors(f"registering a schema version of topic {topic!r}", topic):
            return current.version, schemas.register(current.version, "write", make).version
