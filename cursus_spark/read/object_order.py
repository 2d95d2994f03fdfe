"""The order of small slices that share objects: by object, so that a task reads an object once.

A commit of a stream has a slice of every partition in each of its objects. Read partition by
partition, every task would ask for a small range of every object. Read object by object, one
request gets all slices of an object. The records of a partition stay in the order of their offsets.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise

from .log_slice import SegmentSplit

# Above it a request for one slice alone is as good as a shared one.
_SMALL_BYTES = 4 << 20


def by_object(
    splits: Sequence[SegmentSplit], container: Callable[[str], str | None]
) -> list[SegmentSplit] | None:
    """The splits object by object; None if the order of partitions is as good.

    Args:
        splits: In the order of topic, partition and offset.
        container: The object that a segment stands in; None where a segment is a file.
    """
    if not splits or container(splits[0].path) is None:
        return None
    size = sum(split.end_position - split.start_position for split in splits)
    if size > _SMALL_BYTES * len(splits):
        return None
    objects = [str(container(split.path)) for split in splits]
    if len(set(objects)) == len(objects):
        return None
    ranks = _ranks(splits, objects)
    if ranks is None:
        return None
    order = sorted(range(len(splits)), key=lambda at: (ranks[objects[at]], at))
    return [splits[at] for at in order]


def _ranks(splits: Sequence[SegmentSplit], objects: Sequence[str]) -> dict[str, int] | None:
    """A place for each object, such that each partition's records rise; None if there is none."""
    first: dict[str, int] = {}
    for at, name in enumerate(objects):
        first.setdefault(name, at)
    after: dict[str, list[str]] = {name: [] for name in first}
    waiting = dict.fromkeys(first, 0)
    for (split, name), (following, other) in pairwise(zip(splits, objects, strict=True)):
        if split[:2] == following[:2] and name != other:
            after[name].append(other)
            waiting[other] += 1
    ready = [(first[name], name) for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    ranks: dict[str, int] = {}
    while ready:
        _, name = heapq.heappop(ready)
        ranks[name] = len(ranks)
        for other in after[name]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (first[other], other))
    return ranks if len(ranks) == len(first) else None
