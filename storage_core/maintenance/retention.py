"""Which old segments retention drops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..config import StoreConfig
from ..segments.listing import Listing
from ..vfs import Vfs


def has_limits(config: StoreConfig) -> bool:
    """Whether retention may drop anything; a topic that is only compacted keeps all segments."""
    limits = (config.retention_ms, config.retention_bytes)
    return config.cleanup_policy != "compact" and limits != (None, None)


def expired_segments(
    vfs: Vfs,
    listing: Listing,
    config: StoreConfig,
    largest_timestamp: Callable[[int, str], int],
    keep_from: int | None,
) -> list[int]:
    """Bases of the oldest segments that the topic's limits no longer cover. Changes nothing.

    Args:
        vfs: The files.
        listing: The segments of the partition.
        config: The topic's settings.
        largest_timestamp: Newest timestamp of a segment, by its base and path; asked only as far
            as needed.
        keep_from: Offset that a consumer group still has to read, or None.
    """
    bases = listing.bases
    paths = [listing.path(base) for base in bases]
    stats = [vfs.stat(path) for path in paths]
    count = segments_to_drop(
        [0 if stat is None else stat.size for stat in stats],
        lambda position: largest_timestamp(bases[position], paths[position]),
        now_us=vfs.now_us(),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        ends=bases[1:],
        keep_from=keep_from,
    )
    return list(bases[:count])


def segments_to_drop(
    sizes: Sequence[int],
    largest_timestamp: Callable[[int], int],
    *,
    now_us: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    ends: Sequence[int] = (),
    keep_from: int | None = None,
) -> int:
    """How many of the oldest segments may go.

    Args:
        sizes: Bytes of all segments, oldest first; the last one is active and always stays.
        largest_timestamp: Newest timestamp of segment ``i``; asked only as far as needed.
        now_us: The clock. If the clock goes back, records only look more recent.
        retention_ms: Age limit, or None.
        retention_bytes: Size limit of the whole partition, or None.
        ends: Where each segment ends; needed with ``keep_from``.
        keep_from: Offset that a consumer group has to read: a segment that ends above it stays.
    """
    total = sum(sizes)
    count = 0
    for position, size in enumerate(sizes[:-1]):
        if keep_from is not None and ends[position] > keep_from:
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
