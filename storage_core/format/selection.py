"""What a read wants of a partition: one value that goes down to the frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from ..types import TimeRange
from .columns import READ_SCHEMA, TIMESTAMP

if TYPE_CHECKING:
    from ..schema.fields import Field, SchemaVersion
    from ..schema.statistics import ColumnStatistics

RECORD_FIELDS = {
    **{item.name: item for item in READ_SCHEMA},
    "timestamp_type": pa.field("timestamp_type", pa.int32()),
}
"""The columns of a records topic: what reads return, and what may be asked for beside them."""
SYSTEM_FIELDS = {
    "_topic": pa.field("_topic", pa.string()),
    "_partition": pa.field("_partition", pa.int32()),
    "_offset": pa.field("_offset", pa.int64()),
    "_timestamp": pa.field("_timestamp", TIMESTAMP),
}
"""The columns that every topic has beside its own."""


class Where(Protocol):
    """A predicate over columns."""

    @property
    def columns(self) -> Collection[str]:
        """The names of the columns that it needs."""

    def mask(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """Which rows match: true or false for each."""

    def may_match(self, statistics: Mapping[str, ColumnStatistics | None], rows: int) -> bool:
        """Whether a row can match, by bounds of the columns; None is unknown."""


class Schemas(Protocol):
    """The schema versions of a typed topic."""

    def get(self, version: int) -> SchemaVersion:
        """A registered version. Raises if the topic has none of this number."""


SchemasOf: TypeAlias = Callable[[str], Schemas]
"""The schema versions of a typed topic, by its name."""


@dataclass
class FrameCounts:
    """How many frames a read decoded, and how many it left out by their bounds.

    ``segments`` are those that it left out as a whole; their frames are not counted.
    """

    read: int = 0
    skipped: int = 0
    segments: int = 0


@dataclass(frozen=True)
class Projection:
    """The columns of a typed topic that a read needs, whatever schema version a frame names.

    ``fields`` has them by name, as they are returned. A struct may lack fields that are not wanted.
    """

    fields: Mapping[str, Field]
    schemas: Schemas

    @cached_property
    def by_id(self) -> Mapping[int, Field]:
        """The columns by their ids."""
        return {field.id: field for field in self.fields.values()}


@dataclass(frozen=True)
class Selection:
    """Which columns of which records. Made once for a read; the frames of it are counted here.

    ``names`` are the columns of the batches. ``times`` and ``where`` choose records, by both if
    both are given. A typed topic has a ``projection``.
    """

    names: tuple[str, ...]
    times: TimeRange | None = None
    where: Where | None = None
    projection: Projection | None = None
    topic: str = ""
    partition: int = 0
    counts: FrameCounts = field(default_factory=FrameCounts, compare=False)
    _nulls: dict[str, pa.Array] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The columns to take from frames: those of the batches, then those that choose records."""
        if self.times is None and self.where is None:
            return self.names
        more = () if self.where is None else tuple(self.where.columns)
        if self.times is not None:
            more = (*more, self.time_name)
        more = tuple(name for name in dict.fromkeys(more) if name not in self.names)
        return (*self.names, *more) if more else self.names

    @property
    def time_name(self) -> str:
        """The name of the column of timestamps."""
        return "timestamp" if self.projection is None else "_timestamp"

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of ``needed``."""
        return pa.schema([self.field(name) for name in self.needed])

    def field(self, name: str) -> pa.Field:
        """A column as Arrow describes it."""
        if name in SYSTEM_FIELDS:
            return SYSTEM_FIELDS[name]
        if self.projection is None:
            return RECORD_FIELDS[name]
        return self.projection.fields[name].arrow

    def nulls(self, name: str, rows: int) -> pa.Array:
        """A column that is null in all rows. The longest one is kept, and its slices are returned.

        A cache by type would be slow: Arrow spells out a type to hash it.
        """
        kept = self._nulls.get(name)
        if kept is None or len(kept) < rows:
            kept = self._nulls[name] = pa.nulls(rows, self.field(name).type)
        return kept if len(kept) == rows else kept.slice(0, rows)

    def of_time(self, smallest: int, largest: int) -> bool:
        """Whether records with timestamps between two bounds may be in the range of times."""
        return self.times is None or self.times.overlaps(smallest, largest)
