"""The tail of a partition: its active segment, log end offset and recovery point."""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from ..config import MIB, StoreConfig
from ..errors import InvalidRecordError
from ..format.columns import Columns
from ..format.frame import MAX_SPAN, EncodedFrame
from ..format.frame_builder import FramePlace, encode_frames, hole_frame
from ..format.lock_state import PartitionState
from ..format.sparse_index import bounds_of
from ..io.byte_source import MappedSource
from ..io.durable import link_over_empty, sync_file
from ..segments.active import ActiveSegment
from ..segments.index_files import build_indexes, write_indexes
from ..segments.listing import list_segments, log_path
from ..segments.segment_times import SegmentTimes, add_times
from ..segments.truncate import TailMark, cut_back
from ..types import TIMESTAMP_APPENDED, Int64s
from ..vfs import Vfs
from .recovery import Recovered

# Bytes that a sync follows are written in small steps, so that the disk starts early. Other bytes
# are written at once.
_SYNCED_WRITE_BYTES, _WRITE_BYTES = 2 * MIB, 8 * MIB
_WRITEBACK_BYTES = MIB


class Tail:
    """Writes the records. Not thread-safe: only the holder of the partition's lock uses it."""

    def __init__(self, vfs: Vfs, directory: str, config: StoreConfig) -> None:
        self._vfs = vfs
        self._directory = directory
        self._config = config
        self._active: ActiveSegment | None = None
        self._last_append_us = 0
        self.end = 0
        self.recovery_point = 0
        self.rolled = False
        self.sealed = list[SegmentTimes]()
        """What was sealed, until its times are kept: see ``keep_times``."""
        self.syncs_rolls = False
        """Rolls sync whatever the policy, because the writer needs all its records durable."""
        self._unsynced = False
        """Whether syncing the directory or a sealed segment failed."""

    def adopt(self, recovered: Recovered, state: PartitionState) -> None:
        """Continue from the end that recovery found."""
        self.forget()
        self.sealed.clear()
        self.end = recovered.end_offset
        self.recovery_point = 0 if self._config.syncs_never else self.end
        self._last_append_us = max(self._last_append_us, state.last_append_us)
        if recovered.active:
            self._resume(recovered.base, recovered.size, state.created_us)

    def resume(self, state: PartitionState) -> bool:
        """Continue where the last writer, this process or another, left cleanly.

        Returns False if the segment has another size than that writer recorded: it was restored or
        cut in the meantime.
        """
        self.forget()
        found = self._vfs.stat(log_path(self._directory, state.active_base))
        if (0 if found is None else found.size) != state.active_size:
            return False
        self.end, self.recovery_point = state.end_offset, state.recovery_point
        self._last_append_us = max(self._last_append_us, state.last_append_us)
        if found is not None:
            self._resume(state.active_base, state.active_size, state.created_us)
        return True

    def _resume(self, base: int, size: int, created_us: int) -> None:
        self._active = ActiveSegment.resume(
            self._vfs,
            self._directory,
            self._config,
            base=base,
            size=size,
            end_offset=self.end,
            created_us=created_us or self._vfs.now_us(),
        )

    def state(self, condition: int, generation: int) -> PartitionState:
        """The state word for the lock file."""
        active = self._active
        return PartitionState(
            pid=os.getpid(),
            condition=condition,
            boot_id=self._vfs.boot_id(),
            generation=generation,
            active_base=self.end if active is None else active.base,
            active_size=0 if active is None else active.size,
            end_offset=self.end,
            recovery_point=self.recovery_point,
            created_us=0 if active is None else active.created_us,
            last_append_us=self._last_append_us,
        )

    def write(self, columns: Columns, compression: str | None = None) -> None:
        """Append records, and roll before a segment would exceed ``segment_bytes``.

        ``compression`` is the topic's by default.
        """
        config = self._config
        if compression not in (None, config.compression):
            config = config.override({"compression": compression})
        if columns.offsets is not None and len(columns.offsets):
            self._begin_at(columns.offsets)
            if not columns.count:
                self._skip_to(int(columns.offsets[0]))
        synced = self._config.syncs_each_append
        most = _SYNCED_WRITE_BYTES if synced else _WRITE_BYTES
        row = 0
        while row < columns.count:
            active = self._writable_segment()
            place = FramePlace(self.end, active.base, self.recovery_point)
            frames = encode_frames(columns, row, place, room=active.room, most=most, config=config)
            if not frames:
                self.roll()
                continue
            active.write(frames)
            self.end = active.end_offset
            row += sum(frame.header.records for frame in frames)
            if synced:
                active.begin_writeback(_WRITEBACK_BYTES)

    def _begin_at(self, offsets: Int64s) -> None:
        """Prepare for records that keep their offsets: an empty log starts at the first of them."""
        first = int(offsets[0])
        before = first if self.end == 0 else self.end
        steps = np.diff(offsets, prepend=before - 1)
        if steps.min() < 1 or steps.max() >= MAX_SPAN:
            raise InvalidRecordError(
                f"records that keep their offsets must rise from {before} in steps below "
                f"{MAX_SPAN}, got {first} to {int(offsets[-1])}."
            )
        if self.end == 0 and first > 0:
            self._drop_empty_segment()
            self.end = self.recovery_point = first

    def _skip_to(self, offset: int) -> None:
        """Let no record have the offsets before this one."""
        active = self._writable_segment()  # of an empty log, its name is the log start offset
        if self.end < offset:
            place = FramePlace(self.end, active.base, self.recovery_point)
            active.write([hole_frame(offset - self.end, place)])
            self.end = active.end_offset

    def write_frame(self, frame: EncodedFrame) -> None:
        """Append a frame that a task encoded, with a new header for its place here."""
        active = self._writable_segment()
        if frame.header.length > active.room():
            self.roll()
            active = self._writable_segment()
        moved = frame.moved(
            relative_offset=self.end - active.base,
            recovery_point=max(0, self.recovery_point - active.base),
        )
        active.write([moved])
        self.end = active.end_offset
        active.begin_writeback(_WRITEBACK_BYTES)

    def adopt_file(self, path: str, size: int, records: int) -> None:
        """Link a durable file of frames into the log: it becomes a sealed segment without a copy.

        The indexes are written first, so that recovery after a crash sees that the segment is
        sealed.
        """
        self.roll()
        self.forget()
        source = MappedSource(self._vfs, path)
        interval = self._config.index_interval_bytes
        builder = build_indexes(source, self.end, interval)
        write_indexes(self._vfs, self._directory, self.end, builder, size, path)
        bounds = bounds_of(builder.time_index(), self.end)
        # An empty segment may have this name, and may be the only one: the link replaces it.
        link_over_empty(self._vfs, path, log_path(self._directory, self.end))
        try:
            self._vfs.fsync_dir(self._directory)
        except OSError:
            self._unsynced = True
            raise
        self.sealed.append(SegmentTimes(self.end, self.end + records, bounds))
        self.end += records
        self.recovery_point = self.end
        self.rolled = True

    def _drop_empty_segment(self) -> None:
        """Remove an active segment without records: it has the name that the next segment needs."""
        if self._active is not None:
            path = self._active.path
            self.forget()
            self._vfs.unlink(path)

    def sync(self) -> None:
        """Make all written records durable, unless the topic has ``fsync=none``."""
        if self._active is not None:
            self._active.write_index()
        if not self._config.syncs_never:
            self._sync_all()

    def sync_always(self) -> None:
        """Make all written records durable, whatever the topic's policy."""
        if self._active is not None:
            self._active.write_index()
        self._sync_all()

    def _sync_all(self) -> None:
        """Sync the active segment, and the sealed ones that ``fsync=none`` left to the kernel.

        The topic may have had that policy only earlier.
        """
        if self.recovery_point >= self.end:
            return
        open_base = self.end if self._active is None else self._active.base
        if self.recovery_point < open_base:
            try:
                self._sync_sealed(open_base)
            except OSError:
                self._unsynced = True
                raise
        if self._active is not None:
            self._active.sync()
        self.recovery_point = self.end

    def _sync_sealed(self, before: int) -> None:
        bases = list_segments(self._vfs, self._directory).bases
        for base, following in zip(bases, (*bases[1:], before), strict=False):
            if base < before and following > self.recovery_point:
                sync_file(self._vfs, log_path(self._directory, base))

    def roll(self, *, begin: bool = False) -> bool:
        """Seal the active segment. False if it is empty or missing.

        ``begin`` also creates the next, empty segment, so that retention may remove all others.
        """
        rolled = self._seal()
        if begin:
            self._writable_segment()
        return rolled

    def _seal(self) -> bool:
        if self._active is None or self._active.size == 0:
            return False
        sync = not self._config.syncs_never or self.syncs_rolls
        if sync:
            self._sync_all()
        base, bounds = self._active.base, self._active.seal(sync=False)
        self.sealed.append(SegmentTimes(base, self.end, bounds))
        self._active = None
        self.rolled = True
        return True

    def keep_times(self, high_watermark: int) -> None:
        """Write down the times of what was sealed and is published by now.

        Only what is durable: no power cut may take it and let other records fill its place.
        """
        if self._config.syncs_never:
            self.sealed.clear()
        end = min(high_watermark, self.recovery_point)
        published = [each for each in self.sealed if each.following <= end]
        self.sealed = [each for each in self.sealed if each.following > end]
        if published:
            add_times(self._vfs, self._directory, published)

    def mark(self) -> TailMark:
        """The current log end, for ``rewind`` if the next write fails."""
        active = self._active
        return TailMark(self.end, *((None, 0) if active is None else (active.base, active.size)))

    def rewind(self, mark: TailMark) -> None:
        """Cut what was written since ``mark``. None of it was acknowledged or published."""
        self.forget()
        self.sealed.clear()
        cut_back(self._vfs, self._directory, mark)

    @property
    def sync_failed(self) -> bool:
        """Whether a sync of the open files failed. Then none of their bytes may be trusted."""
        return self._unsynced or (self._active is not None and self._active.sync_failed)

    def forget(self) -> bool:
        """Close the files. Returns whether a sync of them had failed."""
        failed, self._unsynced = self._unsynced, False
        if self._active is None:
            return failed
        active, self._active = self._active, None
        active.close()
        return failed or active.sync_failed

    def stamped(self, columns: Columns) -> Columns:
        """Give records without a timestamp the append time. It never decreases, even if the clock
        does."""
        if columns.timestamp_type != TIMESTAMP_APPENDED:
            return columns
        self._last_append_us = max(self._last_append_us, self._vfs.now_us())
        return dataclasses.replace(columns, timestamps=self._last_append_us)

    def _writable_segment(self) -> ActiveSegment:
        if self._active is not None and self._active.size > 0:
            age_us = self._vfs.now_us() - self._active.created_us
            if age_us >= self._config.segment_ms * 1000:
                self.roll()
        if self._active is None:
            self._active = ActiveSegment.create(self._vfs, self._directory, self._config, self.end)
            self._active.sync_name()
        return self._active
