"""Dropping old files of a broker's directory, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..config import StoreConfig
from ..errors import ConfigError
from ..maintenance.retention import segments_to_drop
from ..segments.listing import Listing
from ..vfs import Vfs
from .layout import RowLayout


def expired_files(
    vfs: Vfs, layout: RowLayout, listing: Listing, config: StoreConfig, hold: int | None
) -> tuple[int, ...]:
    """Bases of the files that the limits no longer cover; ages go by the files' times.

    Raises:
        ConfigError: offsets are positions in the log, so dropping files would renumber all others.
    """
    limits = (config.retention_ms, config.retention_bytes)
    if config.cleanup_policy == "compact" or limits == (None, None):
        return ()
    require_droppable(layout)
    stats = [vfs.stat(listing.path(base)) for base in listing.bases]
    count = segments_to_drop(
        [0 if stat is None else stat.size for stat in stats],
        lambda position: _modified_us(stats[position]),
        now_us=vfs.now_us(),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        ends=listing.bases[1:],
        hold=hold,
    )
    return listing.bases[:count]


def require_droppable(layout: RowLayout) -> None:
    """Raise ConfigError where dropping files would renumber the others."""
    if layout.ordinal:
        raise ConfigError(
            f"layout {layout.name} counts offsets from its first file, so no file can be dropped. "
            "Convert the directory to a native store."
        )


def drop_files(vfs: Vfs, listing: Listing, bases: Sequence[int]) -> None:
    """Remove segments, oldest first. The caller holds the partition's lock."""
    for base in bases:
        _remove(vfs, listing.path(base), listing.directory)


def _modified_us(stat: object) -> int:
    return getattr(stat, "modified_ns", 0) // 1000


def _remove(vfs: Vfs, path: str, directory: str) -> None:
    """Rename, sync, delete, as the cursus broker does: after a crash its start finishes the job."""
    index = path.removesuffix(".log") + ".index"
    sidecar = f"{path.rpartition('/')[2]}.compacted-"
    sidecars = [name for name in vfs.listdir(directory) if name.startswith(sidecar)]
    for name in (path, index):
        with suppress(FileNotFoundError):
            vfs.rename(name, f"{name}.deleted")
    vfs.fsync_dir(directory)
    for name in (f"{path}.deleted", f"{index}.deleted", *(f"{directory}/{s}" for s in sidecars)):
        with suppress(FileNotFoundError):
            vfs.unlink(name)
