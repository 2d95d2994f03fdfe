"""All slices of a log as columns: what a plan of a large log reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from ...types import TimeBounds
from ..slices import Slice
from ..state import LogState
from .archive import Manifest
from .block import SliceColumns, columns_of
from .moving import live_rows, wide


def table(
    state: LogState,
    times: TimeBounds | None = None,
    wanted: Callable[[Manifest], bool] = lambda _: True,
) -> Iterator[SliceColumns]:
    """The slices of a state, a manifest or less at a time, each sorted by partition and base.

    Args:
        state: The state of a log.
        times: Only slices that can have records from the first to the second timestamp. Manifests
            without any are not read.
        wanted: The manifests that are read.

    Raises:
        FileNotFoundError: a manifest is gone; later commits may have replaced it.
    """
    before = np.zeros(len(state.partitions), np.int64)
    for found in state.manifests:
        after = wide(found.ends, len(before))
        low, before = before, after
        if (times is not None and not _meets(found.bounds(), times)) or not wanted(found):
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


def named(state: LogState, keys: Collection[str], most: int | None = None) -> set[str] | None:
    """Those of some objects that a log needs: its records stand in them, or they are manifests.

    Args:
        state: The state of the log.
        keys: The objects.
        most: If more manifests have to be read, the answer is None.
    """
    if state.deleted:
        return set()
    wanted = set(keys)
    found = wanted.intersection(each.key for each in state.manifests)
    found |= wanted.intersection(
        each.key for partition in state.partitions for each in partition.loaded()
    )
    rest = sorted(wanted - found)
    reading = {each.key for each in state.manifests if rest and each.may_name(rest)}
    if most is not None and len(reading) > most:
        return None
    for part in table(state, wanted=lambda each: each.key in reading):
        found |= wanted.intersection(part.keys)
    return found
