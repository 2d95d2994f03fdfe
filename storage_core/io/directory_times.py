"""When a directory's modification time can be trusted to show its next change."""

from __future__ import annotations

from ..vfs import FileStat, Vfs

# A directory's time moves in steps of some milliseconds: a listing made within one step of the last
# change may miss a later change with the same time, so it is not kept.
_TIME_STEP_NS = 50_000_000


def is_settled(vfs: Vfs, directory: FileStat) -> bool:
    """Whether another change of the directory would show in its time."""
    return vfs.now_us() * 1000 - directory.modified_ns > _TIME_STEP_NS
