"""Changes of a typed topic's schema: which version rows get, and columns that are added by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..io.io_errors import typed_write_errors
from ..metadata.schema_files import Origin
from ..schema.evolution import covers, evolve, merge_versions
from ..schema.fields import Field, SchemaVersion
from .open_logs import OpenLogs
from .published import PublishedTopics


def fitted(
    published: PublishedTopics, topic: str, wanted: Sequence[Field], *, add: bool, widen: bool
) -> tuple[SchemaVersion, bool]:
    """The published schema, and whether it takes rows of these columns as it is.

    Raises:
        SchemaMismatchError: it does not, and the change is not allowed. Or it is a records topic.
    """
    current = published.current(topic)
    tried = evolve(current, wanted, add=add, widen=widen, next_id=current.max_id + 1, version=0)
    return current, tried is current


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
        SchemaMismatchError: the rows do not fit, and the change is not allowed. Nothing was
            written.
    """
    schemas = published.schemas(topic)
    current, fits = fitted(published, topic, wanted, add=add, widen=widen)
    if fits:
        return current

    def make(known: Sequence[SchemaVersion], number: int, next_id: int) -> SchemaVersion:
        return evolve(
            current, wanted,
            add=add, widen=widen, next_id=next_id, version=number, registered=known,
        )  # fmt: skip

    with typed_write_errors(f"registering a schema version of topic {topic!r}", topic):
        return schemas.register(current.version, origin, make)


class SchemaMerges:
    """What commits do to the schemas of typed topics."""

    def __init__(self, published: PublishedTopics) -> None:
        self._published = published

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
            for version in sorted(versions):
                merged = merge_versions(merged, schemas.get(version), version=number)
            return merged

        with typed_write_errors(f"registering a schema version of topic {topic!r}", topic):
            return current.version, schemas.register(current.version, "write", make).version


def add_columns(logs: OpenLogs, topic: str, columns: Sequence[Field]) -> SchemaVersion:
    """Add columns now, without rows.

    Partition 0's lock protects the published schema, so no commit publishes another meanwhile.
    """
    # Refused before the lock: whoever holds it and fails leaves a partition to recover.
    fitted(logs.published, topic, columns, add=True, widen=False)
    with logs.log(topic, 0).exclusive():
        added = register(logs.published, topic, columns, add=True, widen=False, origin="alter")
        with typed_write_errors(f"publishing a schema version of topic {topic!r}", topic):
            logs.publish_ends(topic, {}, durably=True, schema=added.version)
        return added
