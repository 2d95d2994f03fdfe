"""What a read wants of a partition: one value that goes down to the frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from ..types import TimeRange
from .columns import READ_SCHEMA

RECORD_FIELDS = {
    **{item.name: item for item in READ_SCHEMA},
    "timestamp_type": pa.field("timestamp_type", pa.int32()),
}
"""The columns of a records topic: what reads return, and what may be asked for beside them."""


@dataclass
class FrameCounts:
    """How many frames a read decoded, and how many it left out by their bounds."""

    read: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Selection:
    """Which columns of which records. Made once for a read; the frames of it are counted here.

    ``names`` are the columns of the batches. With ``times`` only the records of that range count.
    """

    names: tuple[str, ...]
    times: TimeRange | None = None
    counts: FrameCounts = field(default_factory=FrameCounts, compare=False)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The columns to take from frames: those of the batches, then those that choose records."""
        if self.times is None or "timestamp" in self.names:
            return self.names
        return (*self.names, "timestamp")

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of ``needed``."""
        return pa.schema([RECORD_FIELDS[name] for name in self.needed])
