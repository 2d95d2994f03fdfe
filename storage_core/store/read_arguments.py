"""The arguments of reads, checked."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from .. import arguments
from ..errors import ConfigError, InvalidRecordError, PartitionNotFoundError
from ..format.columns import microseconds
from ..types import OffsetRange, SegmentInfo

if TYPE_CHECKING:
    from ..schema.fields import SchemaVersion

Offsets: TypeAlias = OffsetRange | None


def moment(timestamp: int | datetime) -> int:
    """A time in microseconds since 1970."""
    found = microseconds(timestamp)
    if found is None:
        raise InvalidRecordError(
            f"timestamp must be a datetime or integer microseconds, got {timestamp!r}."
        )
    return found


def wanted_offsets(offsets: Offsets) -> Offsets:
    """A range of offsets, or none."""
    arguments.instance("offsets", offsets, (OffsetRange, type(None)), "an OffsetRange or None")
    return offsets


def require_one_of(partitions: int, topic: str, partition: int) -> None:
    """Refuse a number that is none of a topic's partitions."""
    if not isinstance(partition, int) or not 0 <= partition < partitions:
        raise PartitionNotFoundError(
            f"topic {topic!r} has no partition {partition!r}; its partitions are 0 to "
            f"{partitions - 1}.",
            topic=topic,
        )


def check_numbers(
    start: int | None, end: int | None, max_records: int | None, max_bytes: int | None
) -> None:
    """Refuse offsets and limits that are no numbers, or negative."""
    numbers = {"start": start, "end": end, "max_records": max_records, "max_bytes": max_bytes}
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or value < 0):
            raise InvalidRecordError(f"{name} must be an integer of 0 or more, got {value!r}.")


def column_names(
    columns: Sequence[str],
    fields: Iterable[str],
    known: Container[str],
    schema: SchemaVersion | None,
) -> tuple[str, ...]:
    """The columns to read; ``fields`` are those that an error shows.

    Those of a typed topic, which has a ``schema``, are found in any case, as by Spark. They are
    returned under the topic's names.
    """
    chosen, spelled = list[str](), dict[str, str]()
    for name in arguments.names("columns", columns, InvalidRecordError):
        found = name if name in known or schema is None else _in_any_case(name, known, schema)
        if found not in known:
            shown = ", ".join(itertools.islice(fields, 20))
            raise InvalidRecordError(f"column {name!r} does not exist. Columns: {shown}.")
        other = spelled.setdefault(found, name)
        if other != name:
            raise InvalidRecordError(
                f"columns names {found!r} as {other!r} and as {name!r}, which differ only in case. "
                "Name it once."
            )
        chosen.append(found)
    return tuple(chosen)


def _in_any_case(name: str, known: Container[str], schema: SchemaVersion) -> str:
    own = schema.by_name(name)
    if own is not None:
        return own.name
    return name.lower() if name.lower() in known else name


def listed_segments(segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
    """Segments that ``segments()`` returned."""
    wanted = "a list of what segments() returned"
    arguments.instance("segments", segments, Iterable, wanted)
    listed = list(segments)
    for segment in listed:
        arguments.instance("segments", segment, SegmentInfo, wanted)
    return listed


def checked_slice(planned: tuple[SegmentInfo, int, int]) -> tuple[SegmentInfo, int, int]:
    """One of the ranges that a planner made."""
    if isinstance(planned, Sequence) and len(planned) == 3:
        segment, start, end = planned
        if isinstance(segment, SegmentInfo) and isinstance(start, int) and isinstance(end, int):
            return segment, start, end
    raise ConfigError(f"slices must be a list of (segment, start, end), got {planned!r} in it.")
