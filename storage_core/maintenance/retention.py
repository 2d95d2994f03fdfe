"""Which old segments retention drops."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def segments_to_drop(
    sizes: Sequence[int],
    largest_timestamp: Callable[[int], int],
    *,
    now_us: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    ends: Sequence[int] = (),
    hold: int | None = None,
) -> int:
    """How many of the oldest segments may go.

    Args:
        sizes: Bytes of all segments, oldest first; the last one is active and always stays.
        largest_timestamp: Newest timestamp of segment ``i``; asked only as far as needed.
        now_us: The clock. A clock that went back only makes records look younger.
        retention_ms: Age limit, or None.
        retention_bytes: Size limit of the whole partition, or None.
        ends: Where each segment ends; needed with ``hold``.
        hold: Offset that somebody still has to read: no segment goes that ends behind it.
    """
    total = sum(sizes)
    count = 0
    for position, size in enumerate(sizes[:-1]):
        if hold is not None and ends[position] > hold:
            break
        too_much = retention_bytes is not None and total - size >= retention_bytes
        too_old = (
            not too_much
            and retention_ms is not None
            and largest_timestamp(position) < now_us - retention_ms * 1000
        )
        if not too_much and not too_old:
            break
        total -= size
        count += 1
    return count
