"""All slices of a log as columns: what a plan of a large log reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...types import TimeBounds
from ..slices import Slice
from ..state import LogState
from .block import SliceColumns, columns_of
from .moving import live_rows, wide


def table(state: LogState, times: TimeBounds | None = None) -> Iterator[SliceColumns]:
    """The slices of a state, a manifest or less at a time, each sorted by partition and base.

    Args:
        state: The state of a log.
        times: Only slices that can have records from the first to the second timestamp. Manifests
            without any are not read.

    Raises:
        FileNotFoundError: a manifest is gone; later commits may have replaced it.
    """
    before = np.zeros(len(state.partitions), np.int64)
    for found in state.manifests:
        after = wide(found.ends, len(before))
        low, before = before, after
        if times is not None and not _meets(found.bounds(), times):
            continue
        assert state.archive is not None
        for part in state.archive.reader.stream(found):
            rows = live_rows(part, state, low, after)
            if times is not None:
                rows = np.intersect1d(rows, part.overlap(times), assume_unique=True)
            if len(rows):
                yield part if len(rows) == part.rows else part.chosen(rows)
    loaded = [
        (number, each)
        for number, partition in enumerate(state.partitions)
        for each in partition.loaded()
        if times is None or _meets(TimeBounds(each.smallest, each.largest), times)
    ]
    if loaded:
        yield columns_of(loaded)


def slices_in(part: SliceColumns) -> Iterator[tuple[int, Slice]]:
    """The slices of columns, with their partitions."""
    for partition in np.unique(part.column(0)).tolist():
        for each in part.slices(partition):
            yield partition, each


def _meets(bounds: TimeBounds | None, times: TimeBounds) -> bool:
    return bounds is not None and bounds.largest >= times[0] and bounds.smallest <= times[1]
