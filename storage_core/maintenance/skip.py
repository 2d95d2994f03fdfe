"""Giving up damaged records, so that readers and writers go on after them.

The damaged bytes of the segment become one frame without records, of the same length, written in
place: nothing else of the file moves. The steps:

1. Save the damaged bytes beside the log as ``.broken``, durably.
2. Create ``<start>-<end>.skipped``, durably. Its name tells readers which offsets to warn of.
3. Write the empty frame over the damaged bytes, and sync it.

A crash before step 3, or inside it, leaves damage at the same place, which every reader refuses as
before: the user skips it again. After step 3 readers find the file of step 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..config import StoreConfig
from ..errors import BrokenFrameError, DamagedLogError, InvalidRecordError
from ..format.file_names import skipped_file
from ..io.durable import create_file, opened, write_all
from ..io.io_errors import typed_read_errors, typed_write_errors
from ..log.partition_log import PartitionLog
from ..segments.damage import Damage, find_damage, hole
from ..segments.index_files import rebuild_indexes
from ..segments.listing import list_segments
from ..segments.sealed import SealedLog
from ..segments.truncate import save_tail
from ..vfs import Vfs
from .segment_swap import maintenance_lock

_SHOWN = 10


def damage_of(files: SealedLog, high_watermark: int) -> list[Damage]:
    """All damage of a partition below its high watermark. Reads every byte."""
    with typed_read_errors(files.topic, files.partition, files.directory):
        return list(
            find_damage(files.vfs, list_segments(files.vfs, files.directory), high_watermark)
        )


def skip(
    files: SealedLog,
    log: PartitionLog,
    config: StoreConfig,
    high_watermark: int,
    start: int,
    end: int,
) -> str | None:
    """Give up the damaged records ``start`` to ``end``; return where their bytes are saved.

    Raises:
        InvalidRecordError: this is not exactly the range of one damage. Nothing was changed.
        CommitPendingError: the end of the log is damaged, and an interrupted commit is pending.
    """
    name = f"{files.topic}-{files.partition}"
    with (
        typed_write_errors(f"{name}: skipping damaged records", files.topic),
        maintenance_lock(files, config),
    ):
        damage = _chosen(name, damage_of(files, high_watermark), start, end)
        with log.unrecovered(at_end=damage.at_end):
            # Again: a writer may have appended or recovered before this process got the lock.
            damage = _chosen(name, damage_of(files, high_watermark), start, end)
            try:
                frame = hole(damage)
            except BrokenFrameError as error:
                raise DamagedLogError(
                    f"{name}: the damage from offset {start} to {end - 1} is too large for one "
                    "frame. Restore the file from a copy.",
                    topic=files.topic,
                    partition=files.partition,
                    path=damage.path,
                ) from error
            return write_hole(files.vfs, files.directory, damage, frame, config)


def write_hole(
    vfs: Vfs, directory: str, damage: Damage, frame: bytes, config: StoreConfig
) -> str | None:
    """The three steps. The caller holds the partition's lock."""
    saved = None
    if damage.size:
        with opened(vfs, damage.path, "read") as fd:
            saved = save_tail(vfs, fd, directory, damage.base, damage.position, damage.size)
    with suppress(FileExistsError):  # by a crash
        create_file(vfs, f"{directory}/{skipped_file(damage.start, damage.end)}", b"")
    vfs.fsync_dir(directory)
    with opened(vfs, damage.path, "read") as fd:
        vfs.make_writable(fd)
    with opened(vfs, damage.path, "write") as fd:
        write_all(vfs, fd, [frame], damage.position)
        vfs.fsync(fd)
        is_last = list_segments(vfs, directory).is_last(damage.base)
        if not is_last:
            vfs.make_read_only(fd)
    if not is_last:
        # Other damage is left in the segment: the old index still leads to its sound frames.
        with suppress(BrokenFrameError):
            rebuild_indexes(vfs, directory, damage.base, config)
    return saved


def _chosen(name: str, found: Sequence[Damage], start: int, end: int) -> Damage:
    for damage in found:
        if (damage.start, damage.end) == (start, end):
            return damage
    ranges = ", ".join(f"{each.start} to {each.end}" for each in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise InvalidRecordError(
        f"{name}: offsets {start} to {end} are not the range of one damage. "
        + (f"Damaged, without the end: {ranges}{more}." if found else "Nothing is damaged.")
    )
