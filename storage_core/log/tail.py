"""The growing end of a partition: its active segment, next offset and durable point."""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from ..config import MIB, StoreConfig
from ..errors import InvalidRecordError
from ..format.columns import Columns
from ..format.frame import MAX_SPAN, EncodedFrame
from ..format.frame_builder import FramePlace, encode_frames
from ..format.lock_state import PartitionState
from ..io.byte_source import MappedSource
from ..io.durable import link_over_empty, sync_file
from ..segments.active import ActiveSegment, build_indexes, write_indexes
from ..segments.listing import list_segments, log_path
from ..segments.truncate import TailMark, cut_back
from ..types import TIMESTAMP_APPENDED, Int64s
from ..vfs import Vfs
from .recovery import Recovered

# What is synced at the end is written early, so that the device has begun; else all at once.
_SYNCED_WRITE_BYTES, _WRITE_BYTES = 2 * MIB, 8 * MIB
_WRITEBACK_BYTES = MIB


class Tail:
    """Where records are written. Not thread-safe: the holder of the partition's lock uses it."""

    def __init__(self, vfs: Vfs, directory: str, config: StoreConfig) -> None:
        self._vfs = vfs
        self._directory = directory
        self._config = config
        self._active: ActiveSegment | None = None
        self._last_append_us = 0
        self.end = 0
        self.recovery_point = 0
        self.rolled = False
        self.syncs_rolls = False
        """Rolls sync whatever the policy: the writer needs all of its records durable."""
        self._unsynced = False
        """A name or a closed file could not be synced."""

    def adopt(self, recovered: Recovered, state: PartitionState) -> None:
        """Go on from what recovery found."""
        self.forget()
        self.end = recovered.end_offset
        self.recovery_point = 0 if self._config.syncs_never else self.end
        self._last_append_us = max(self._last_append_us, state.last_append_us)
        if recovered.active:
            self._resume(recovered.base, recovered.size, state.created_us)

    def resume(self, state: PartitionState) -> bool:
        """Go on where another writer, or an earlier life of this one, left cleanly.

        Returns False when the file is not as they left it (somebody restored or cut it).
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
        """What the lock file should say of this tail."""
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
        """Write records behind the end, rolling before a segment would pass its limit.

        ``compression`` is the topic's unless given.
        """
        config = self._config
        if compression not in (None, config.compression):
            config = config.override({"compression": compression})
        if columns.offsets is not None and len(columns.offsets):
            self._begin_at(columns.offsets)
            if not columns.count:
                self._writable_segment()  # whose name says where the log begins
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
        """Let the next record have the offset it brings: an empty log simply begins there."""
        first = int(offsets[0])
        before = first if self.end == 0 else self.end
        steps = np.diff(offsets, prepend=before - 1)
        if steps.min() < 1 or steps.max() >= MAX_SPAN:
            raise InvalidRecordError(
                f"records that keep their offsets must rise from {before} on, in steps below "
                f"{MAX_SPAN}; these go from {first} to {int(offsets[-1])}."
            )
        if self.end == 0 and first > 0:
            self._drop_empty_segment()
            self.end = self.recovery_point = first

    def write_frame(self, frame: EncodedFrame) -> None:
        """Write a frame that was encoded elsewhere, with a header for its place here."""
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
        """Give a durable file of frames a name in the log: it becomes a sealed segment as it is.

        Its indexes come first, so that whoever finds the segment after a crash knows it is sealed.
        """
        self.roll()
        self.forget()
        source = MappedSource(self._vfs, path)
        interval = self._config.index_interval_bytes
        builder = build_indexes(source, self.end, interval)
        write_indexes(self._vfs, self._directory, self.end, builder, size)
        # An empty segment may have the name already, and be all there is.
        link_over_empty(self._vfs, path, log_path(self._directory, self.end))
        try:
            self._vfs.fsync_dir(self._directory)
        except OSError:
            self._unsynced = True
            raise
        self.end += records
        self.recovery_point = self.end
        self.rolled = True

    def _drop_empty_segment(self) -> None:
        """An active segment without a record has the name that the next segment needs."""
        if self._active is not None:
            path = self._active.path
            self.forget()
            self._vfs.unlink(path)

    def sync(self) -> None:
        """Make everything written durable, unless the topic asked for no syncs."""
        if self._active is not None:
            self._active.write_index()
        if not self._config.syncs_never:
            self._sync_all()

    def sync_always(self) -> None:
        """Make everything written durable, whatever the topic asked for."""
        if self._active is not None:
            self._active.write_index()
        self._sync_all()

    def _sync_all(self) -> None:
        """Also the closed segments that ``fsync=none``, now or before, left to the kernel."""
        if self.recovery_point >= self.end:
            return
        open_base = self.end if self._active is None else self._active.base
        if self.recovery_point < open_base:
            try:
                self._sync_closed(open_base)
            except OSError:
                self._unsynced = True
                raise
        if self._active is not None:
            self._active.sync()
        self.recovery_point = self.end

    def _sync_closed(self, before: int) -> None:
        bases = list_segments(self._vfs, self._directory).bases
        for base, following in zip(bases, (*bases[1:], before), strict=False):
            if base < before and following > self.recovery_point:
                sync_file(self._vfs, log_path(self._directory, base))

    def roll(self, *, begin: bool = False) -> bool:
        """Seal the active segment; False if it is empty or there is none.

        With ``begin`` an empty one stands behind it afterwards, so that all others may go.
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
        self._active.seal(sync=False)
        self._active = None
        self.rolled = True
        return True

    def mark(self) -> TailMark:
        """Where the log ends now, to go back to if what follows fails."""
        active = self._active
        return TailMark(self.end, *((None, 0) if active is None else (active.base, active.size)))

    def rewind(self, mark: TailMark) -> None:
        """Take back what was written since ``mark``: none of it was acknowledged or published."""
        self.forget()
        cut_back(self._vfs, self._directory, mark)

    @property
    def sync_failed(self) -> bool:
        """Whether a sync of the open files failed; nothing of them may be trusted then."""
        return self._unsynced or (self._active is not None and self._active.sync_failed)

    def forget(self) -> bool:
        """Close the files; return whether a sync had failed on them."""
        failed, self._unsynced = self._unsynced, False
        if self._active is None:
            return failed
        active, self._active = self._active, None
        active.close()
        return failed or active.sync_failed

    def stamped(self, columns: Columns) -> Columns:
        """Records without a time of their own get one that never goes back, as the clock may."""
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
