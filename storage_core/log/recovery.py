"""Recovery of a partition: find a valid log end after a crash. Runs under the partition's lock.

Every step is safe to repeat:

1. Finish interrupted deletions. Sync the directory and the last segment: a killed process may have
   left its bytes in the page cache, and recovery must not rely on bytes that a power cut can take.
2. If a sync failed before, copy the last segment to a new file. The kernel may have marked pages
   clean that never reached the disk. Only writing the bytes again puts them there.
3. Scan the last segment up to its first invalid byte. If that byte is above the *recovery point*,
   the rest was never acknowledged: recovery saves it beside the log as ``.broken`` and cuts it. If
   it is below, the log is damaged: recovery raises an error and changes nothing.
4. Check that the sealed segments follow each other without a gap, finish an interrupted merge, and
   restore missing indexes. With ``fsync=none`` this check comes before step 3: a power cut may take
   any bytes that no commit or checkpoint made durable. Recovery then moves every segment after the
   first invalid place out of the log.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ..config import StoreConfig
from ..errors import BrokenFrameError, DamagedLogError
from ..format.file_names import segments_directory, skipped_file
from ..format.frame_scan import last_end_offset, recovery_point_after, walk_frames
from ..io.byte_source import WindowSource
from ..io.durable import sync_directories
from ..metadata.checkpoint import Checkpoint
from ..segments.continuity import covered_runs
from ..segments.deletion_markers import drop_merged, finish_deletions
from ..segments.index_files import rebuild_indexes, sealed_index
from ..segments.listing import Listing, list_segments, log_path
from ..segments.truncate import copy_to_new_file, cut_segment, save_tail
from ..types import OffsetPosition, RecoveryReport
from ..vfs import Vfs
from .unsynced_recovery import InvalidPlace, first_invalid_place, set_aside


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where appends continue. ``active``: the last segment exists and is not sealed."""

    base: int
    size: int
    end_offset: int
    active: bool
    report: RecoveryReport


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of one partition. The caller holds its lock."""

    vfs: Vfs
    topic: str
    partition: int
    config: StoreConfig
    high_watermark: int
    recovery_point: int
    checkpoint: Checkpoint | None
    sync_failed: bool
    rebooted: bool
    """Whether the machine may have lost power since the last writer left."""

    @property
    def directory(self) -> str:
        return segments_directory(self.topic, self.partition)

    def run(self) -> Recovered:
        """Do all steps and return the valid log end.

        Raises:
            DamagedLogError: durable records are damaged or missing; nothing was deleted.
        """
        # Up to the root: the creator of the topic may have crashed before fsync.
        sync_directories(self.vfs, self.directory)
        self.vfs.fsync_dir(self.directory)
        removed = finish_deletions(
            self.vfs, self.directory, list_segments(self.vfs, self.directory)
        )
        self._remove_temporary_files()
        listing = list_segments(self.vfs, self.directory)
        if not listing.bases:
            return self._recover_empty(removed)
        lost, saved_segments = 0, list[str]()
        if self.config.syncs_never:
            lost, saved_segments = self._cut_unsynced(listing)
            removed += len(saved_segments)
            listing = list_segments(self.vfs, self.directory)
        covered = self._finish_replacement(listing)
        if covered:
            removed += covered
            listing = list_segments(self.vfs, self.directory)
        base = listing.bases[-1]
        if self.sync_failed:
            self._copy_doubtful(listing)
        has_seal = self._is_sealed(base) or not self._is_writable(base)
        size, end, cut, saved = self._recover_tail(base)
        sealed = has_seal and not cut and size > 0
        self._forget_skipped(listing, end)
        report = RecoveryReport(
            topic=self.topic,
            partition=self.partition,
            end_offset=end,
            cut_bytes=cut + lost,
            saved_as=saved or next(reversed(saved_segments), None),
            rebuilt_indexes=self._restore_indexes(listing, last_sealed=sealed),
            removed_segments=removed,
        )
        return Recovered(base, size, end, not sealed, report)

    def _recover_empty(self, removed: int) -> Recovered:
        # Every policy syncs the name of a segment before it gets records. So a power cut cannot
        # leave an empty log: the segments were deleted.
        if (end := max(self.recovery_point, self.high_watermark)) > 0:
            raise self._damage(
                f"the log has no segment, but it had records up to offset {end}. "
                "Restore the segments from a copy",
                self.directory,
            )
        report = RecoveryReport(self.topic, self.partition, 0, removed_segments=removed)
        return Recovered(0, 0, 0, False, report)

    def _forget_skipped(self, listing: Listing, end: int) -> None:
        """New records get the offsets after the end: they are not the ones that were skipped."""
        for start, stop in listing.skipped:
            if stop > end:
                with suppress(FileNotFoundError):
                    self.vfs.unlink(f"{self.directory}/{skipped_file(start, stop)}")

    def _remove_temporary_files(self) -> None:
        for name in self.vfs.listdir(self.directory):
            if name.endswith(".tmp"):
                with suppress(FileNotFoundError):
                    self.vfs.unlink(f"{self.directory}/{name}")

    def _cut_unsynced(self, listing: Listing) -> tuple[int, list[str]]:
        """Move segments after the first invalid place away; return their bytes and new names."""
        doubtful = self.rebooted or self.sync_failed
        trusted = self.recovery_point if doubtful else listing.bases[-1]
        found = first_invalid_place(self.vfs, listing, trusted)
        if found is None:
            return 0, []
        self._require_lost(found)
        return set_aside(self.vfs, listing, found.base)

    def _require_lost(self, found: InvalidPlace) -> None:
        """Raise if records from the invalid place on were durable: that is damage."""
        durable = max(self.recovery_point, found.claim)
        if found.offset < durable:
            raise self._damage(
                f"{found.reason}; offsets {found.offset} to {durable - 1} were durable. "
                "Nothing was changed. Restore the missing records from a copy",
                log_path(self.directory, found.base),
            )

    def _finish_replacement(self, listing: Listing) -> int:
        """Check that segments follow each other; remove those that a merge has replaced."""
        try:
            runs = covered_runs(self.vfs, listing)
        except BrokenFrameError as error:
            place = None if error.position is None else error
            raise self._damage(str(error), str(error.path), place) from error
        for bases, end in runs:
            drop_merged(self.vfs, self.directory, bases, end)
        return sum(len(bases) for bases, _ in runs)

    def _recover_tail(self, base: int) -> tuple[int, int, int, str | None]:
        """Size and end offset of the valid part, the bytes cut after it, and their file."""
        path = log_path(self.directory, base)
        fd = self.vfs.open(path, "read")
        try:
            if not self.config.syncs_never:
                self.vfs.fsync(fd)
            source = WindowSource(self.vfs, fd, self.vfs.fstat(fd).size)
            valid, error = self._follow(source, base)
            if error is not None:
                self._require_torn(source, base, valid, path, error)
            end, size = valid
            cut, saved = source.size - size, None
            if cut:
                saved = save_tail(self.vfs, fd, self.directory, base, size, cut)
            elif end < self.recovery_point:
                raise self._damage(
                    f"it ends at offset {end}, but the recovery point is {self.recovery_point}. "
                    "Restore it from a copy",
                    path,
                )
            writable = self._is_writable(base)
            # A sealed segment without a valid frame has the name that the next segment needs.
            if cut or (size == 0 and not writable):
                if not writable:
                    copy_to_new_file(self.vfs, self.directory, base)
                cut_segment(self.vfs, self.directory, base, size)
                # After a power cut an old index must not come back: the segment may by then have
                # grown to the size that the index names.
                self.vfs.fsync_dir(self.directory)
            return size, end, cut, saved
        finally:
            self.vfs.close(fd)

    def _follow(
        self, source: WindowSource, base: int
    ) -> tuple[OffsetPosition, BrokenFrameError | None]:
        """Where the valid frames end, and the error that stopped the scan."""
        end = self._trusted_start(source, base)
        try:
            for frame in walk_frames(source, base, at=end, bodies=True):
                end = OffsetPosition(frame.end_offset, frame.end_position)
        except BrokenFrameError as error:
            return end, error
        return end, None

    def _trusted_start(self, source: WindowSource, base: int) -> OffsetPosition:
        """Where verification may begin: after the bytes that a checkpoint says are synced.

        Only if a frame ends there; otherwise at the start of the segment.
        """
        line = self.checkpoint
        start = OffsetPosition(base, 0)
        if (
            line is None
            or self.sync_failed
            or self.config.syncs_never
            or line.active_segment_base_offset != base
            or not 0 < line.active_segment_size_bytes <= source.size
        ):
            return start
        head = WindowSource(self.vfs, source.fd, line.active_segment_size_bytes)
        try:
            joins = last_end_offset(head, base) == line.log_end_offset
        except BrokenFrameError:
            return start
        if not joins:
            return start
        return OffsetPosition(line.log_end_offset, head.size)

    def _require_torn(
        self,
        source: WindowSource,
        base: int,
        valid: OffsetPosition,
        path: str,
        error: BrokenFrameError,
    ) -> None:
        """Raise if the bytes to cut were durable once: that is damage, not a torn tail."""
        claim = recovery_point_after(source, base, valid.position)
        durable = max(self.recovery_point, claim)
        if valid.offset < durable:
            raise self._damage(
                f"{error}; offsets {valid.offset} to {durable - 1} were durable. "
                "Nothing was changed. Restore the file from a copy",
                path,
                error,
            ) from error

    def _copy_doubtful(self, listing: Listing) -> None:
        """Copy all segments above the recovery point: the failed sync covered sealed ones too."""
        for base, following in zip(listing.bases, (*listing.bases[1:], None), strict=True):
            if following is None or following > self.recovery_point:
                copy_to_new_file(self.vfs, self.directory, base, sealed=following is not None)

    def _is_sealed(self, base: int) -> bool:
        stat = self.vfs.stat(log_path(self.directory, base))
        return stat is not None and bool(
            sealed_index(self.vfs, self.directory, base, "offset", stat.size)
        )

    def _is_writable(self, base: int) -> bool:
        """Whether this process may append to a file: a sealed one is read-only, except for root."""
        try:
            self.vfs.close(self.vfs.open(log_path(self.directory, base), "write"))
        except PermissionError:
            return False
        return True

    def _restore_indexes(self, listing: Listing, *, last_sealed: bool) -> int:
        """Rebuild missing indexes of sealed segments; return how many segments lacked one."""
        sealed = listing.bases if last_sealed else listing.bases[:-1]
        missing = [
            base
            for base in sealed
            if base not in listing.indexes or base not in listing.time_indexes
        ]
        for base in missing:
            rebuild_indexes(self.vfs, self.directory, base, self.config)
        return len(missing)

    def _damage(
        self, reason: str, path: str, error: BrokenFrameError | None = None
    ) -> DamagedLogError:
        place = "" if error is None else f" at byte {error.position}, offset {error.offset}"
        return DamagedLogError(
            f"{self.topic}-{self.partition}: {path} is damaged{place}: {reason}.",
            topic=self.topic,
            partition=self.partition,
            path=path,
            position=None if error is None else error.position,
            offset=None if error is None else error.offset,
        )
