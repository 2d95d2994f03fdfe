"""Sharing a limit out over partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Key = TypeVar("Key")


def share_by_backlog(backlogs: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Share a limit out in proportion to backlogs, as ``maxOffsetsPerTrigger`` does.

    Everyone with a backlog gets at least 1, so that a small partition is not starved beside a
    large one, and nobody more than its backlog. The shares add up to the limit, or to the whole
    backlog where that is less; only with more partitions than the limit do they exceed it.

    Args:
        backlogs: What waits, by partition. Not positive: nothing waits.
        limit: The most to hand out; at least 1.
    """
    shares = dict.fromkeys(backlogs, 0)
    waiting = {key: backlog for key, backlog in backlogs.items() if backlog > 0}
    total = sum(waiting.values())
    if total <= limit:
        return shares | waiting
    rising = sorted(waiting, key=waiting.__getitem__)
    # Those whose part is below 1 get 1, at the expense of the others.
    small = 0
    while small < len(rising) and limit * waiting[rising[small]] < total:
        shares[rising[small]] = 1
        limit, total = limit - 1, total - waiting[rising[small]]
        small += 1
    # Then whole parts, and what rounding left to the largest remainders. Whoever has one is below
    # its backlog still, because limit < total.
    remainders = {}
    for key in rising[small:]:
        shares[key], remainders[key] = divmod(limit * waiting[key], total)
    left = limit - sum(shares[key] for key in remainders)
    for key in sorted(remainders, key=lambda key: -remainders[key])[: max(left, 0)]:
        shares[key] += 1
    return shares
