"""The columns that the rows of a commit bring to typed topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .participants import Schemas
from .staging import StagedPart


def schemas_to_merge(
    schemas: Schemas | None, parts: Sequence[StagedPart], given: Mapping[str, int]
) -> dict[str, frozenset[int]]:
    """By topic the versions of parts and ``given`` ones, if they have columns not published yet.

    A published schema loses no column, so a topic that is not named here needs no second look.
    """
    if schemas is None:
        return {}
    found = {topic: frozenset({version}) for topic, version in given.items()}
    for part in parts:
        if part.schema is not None:
            found[part.topic] = found.get(part.topic, frozenset()) | {part.schema}
    return {
        topic: versions
        for topic, versions in found.items()
        if not schemas.are_covered(topic, versions)
    }


def merge_schemas(
    schemas: Schemas | None, new: Mapping[str, frozenset[int]]
) -> dict[str, tuple[int, int]]:
    """By topic the published schema version and the one to publish; partition 0 is locked."""
    if schemas is None:
        return {}
    merged = {topic: schemas.merge(topic, versions) for topic, versions in new.items()}
    # Another writer may have published these columns since.
    return {topic: step for topic, step in merged.items() if step[0] != step[1]}
