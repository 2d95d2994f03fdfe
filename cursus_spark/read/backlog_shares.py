"""Shares of a limit, in proportion to what waits in each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Key = TypeVar("Key")


def share_by_backlog(backlogs: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Divide a limit in proportion to backlogs, as ``maxOffsetsPerTrigger`` does.

    A partition with a backlog gets at least 1, so that a small one does not starve, and at most its
    backlog. The shares add up to the limit, or to the whole backlog if that is less. They exceed
    the limit only if there are more partitions than the limit.

    Args:
        backlogs: The records or bytes that wait, by partition. 0 or less: none.
        limit: The sum of all shares; at least 1.
    """
    shares = dict.fromkeys(backlogs, 0)
    waiting = {key: backlog for key, backlog in backlogs.items() if backlog > 0}
    total = sum(waiting.values())
    if total <= limit:
        return shares | waiting
    rising = sorted(waiting, key=waiting.__getitem__)
    # Partitions whose share is below 1 get 1; the others get less.
    small = 0
    while small < len(rising) and limit * waiting[rising[small]] < total:
        shares[rising[small]] = 1
        limit, total = limit - 1, total - waiting[rising[small]]
        small += 1
    # Then whole shares; the largest remainders get what rounding left. A partition with a remainder
    # stays below its backlog, because limit < total.
    remainders = {}
    for key in rising[small:]:
        shares[key], remainders[key] = divmod(limit * waiting[key], total)
    left = limit - sum(shares[key] for key in remainders)
    for key in sorted(remainders, key=lambda key: -remainders[key])[: max(left, 0)]:
        shares[key] += 1
    return shares
