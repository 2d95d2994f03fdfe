"""Appending to one partition, from any thread and beside other processes.

Steps of one append:

1. Take the partition's lock.
2. Read the state word in the lock file: did another writer append, or crash?
3. Mark the word dirty.
4. Write the frames and sync them.
5. Publish the new high watermark.
6. Mark the word clean and release the lock.

After a crash at any step the word is dirty, or from another boot. Then the next writer that takes
the lock recovers the partition before it writes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from ..config import StoreConfig
from ..errors import LockTimeoutError, StorageError
from ..format import lock_state
from ..format.columns import Columns
from ..format.file_names import segments_directory
from ..format.lock_state import CLEAN, DIRTY, SYNC_FAILED, PartitionState
from ..io.durable import write_all
from ..io.io_errors import (
    OUT_OF_HANDLES,
    closed_for_writing,
    is_harmless,
    typed_write_errors,
    watermark_lost,
    write_failure,
)
from ..io.locks import locked
from ..metadata import checkpoint, high_watermark
from ..metadata.checkpoint import Checkpoint
from ..segments.listing import log_path
from ..segments.truncate import TailMark
from ..types import ActiveFile, OffsetRange, RecoveryReport
from ..vfs import Vfs
from .recovery import Recovery
from .tail import Tail
from .write_barrier import WriteBarrier


class PartitionLog:
    """The writing side of one topic-partition. Safe for several threads and processes."""

    def __init__(
        self,
        vfs: Vfs,
        topic: str,
        partition: int,
        topic_uuid: UUID,
        config: StoreConfig,
        barrier: WriteBarrier,
        *,
        owes_flush: bool = False,
    ) -> None:
        self._vfs = vfs
        self._partition = partition
        self._uuid = topic_uuid
        self._lock_path = f"topics/{topic}/{partition}/lock"
        self._lock = threading.Lock()
        self._barrier = barrier
        self._tail = Tail(vfs, segments_directory(topic, partition), config)
        self._state = lock_state.NEVER_USED
        self._last_sync = -math.inf  # not 0: the clock of a machine that just booted starts at 0
        self._poison: OSError | None = None
        self.topic = topic
        self.owes_flush = owes_flush
        """Whether the log may have records that are not published yet."""
        self.unpublished = False
        """Whether ``publish`` found no high watermark to raise: the topic must be recovered."""
        self.config = config
        self.report: RecoveryReport | None = None

    @property
    def end_offset(self) -> int:
        """The log end offset, as of the last time this process held the lock."""
        return self._tail.end

    @property
    def recovery_point(self) -> int:
        """The offset below which all records are durable, as far as this process knows."""
        return self._tail.recovery_point

    @property
    def base_name(self) -> str:
        """The prefix of the paths of the log files."""
        return f"{segments_directory(self.topic, self._partition)}/"

    @property
    def active(self) -> ActiveFile:
        """The active segment, as of the last time this process held the lock."""
        base, directory = self._state.active_base, self.base_name.rstrip("/")
        return ActiveFile(base, self._state.active_size, log_path(directory, base))

    def append(self, columns: Columns) -> OffsetRange:
        """Append records. With ``fsync=batch`` they are durable and visible on return.

        Raises:
            WriteFailedError: no record of this call is visible. Unless the disk was only full, the
                partition is closed for writing until the store is opened again.
        """
        with self.exclusive():
            mark = self._tail.mark()
            try:
                self._tail.write(self._tail.stamped(columns))
                waited_ms = (self._vfs.monotonic() - self._last_sync) * 1000
                if not self.config.syncs_at_intervals or waited_ms >= self.config.fsync_interval_ms:
                    self.publish()
                else:
                    self.owes_flush = True
            except (OSError, LockTimeoutError) as error:
                self._undo_append(mark, error)
                raise
            return OffsetRange(mark.end, self._tail.end)

    def _undo_append(self, mark: TailMark, error: Exception) -> None:
        """Cut off what a failed append wrote.

        Otherwise recovery would keep those frames, and a retry would append the records twice.
        After a failed sync or another I/O error it cuts nothing: recovery decides then.
        """
        if self._tail.sync_failed or (isinstance(error, OSError) and not is_harmless(error)):
            return
        published = high_watermark.newest(self._vfs, self.topic, self._uuid.bytes)
        if published is None or published.watermark.end(self._partition) <= mark.end:
            self._tail.rewind(mark)

    def flush(self) -> None:
        """Make everything written so far durable and visible."""
        if self.owes_flush:
            with self.exclusive():
                self.publish()

    def roll(self, *, begin: bool = False) -> bool:
        """Seal the active segment. The next append starts a new one. False if it was empty."""
        with self.exclusive():
            rolled = self._tail.roll(begin=begin)
            self.publish()
            return rolled

    @contextmanager
    def exclusive(
        self,
        *,
        recover: bool = False,
        needs_high_watermark: bool = True,
        past_barrier: bool = False,
    ) -> Iterator[None]:
        """Lock the partition for writing, and recover it first if that is needed.

        Args:
            recover: Recover in full even if the last writer left cleanly.
            needs_high_watermark: Raise if the high watermark is lost. A caller that locks the whole
                topic sets this to False and works the high watermarks out itself.
            past_barrier: The caller is finishing the pending commit that the barrier waits for.

        Raises:
            CommitPendingError: the barrier is closed. Nothing was written, and the lock is released
                because finishing a commit takes more locks, in order.
            RecoveryNeededError: the high watermark is lost and ``needs_high_watermark`` is set.
        """
        with self._lock:
            if self._poison is not None:
                raise closed_for_writing(self.topic, self._partition, self._poison)
            try:
                with locked(self._vfs, self._lock_path, self.config.lock_timeout_ms) as fd:
                    if not past_barrier:
                        self._barrier.require_none_pending(self.topic, self._partition)
                    self._catch_up(fd, recover=recover, needs_high_watermark=needs_high_watermark)
                    self._write_state(fd, DIRTY)
                    try:
                        yield
                    except BaseException as error:
                        self._fail(fd, error)
                        raise
                    self._leave(fd)
            except OSError as error:
                what = f"{self.topic}-{self._partition}: writing"
                raise write_failure(what, error, self.topic, self._partition) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the partition without reading the log: it is about to be deleted, valid or not."""
        with self._lock, locked(self._vfs, self._lock_path, self.config.lock_timeout_ms):
            yield

    @contextmanager
    def unrecovered(self, *, at_end: bool) -> Iterator[None]:
        """Lock the partition for a change of damaged bytes. Recovery may have refused them.

        The next writer recovers the partition: it may remember what is no longer so.

        Args:
            at_end: The change moves the end of the log, so no commit may be pending.
        """
        with (
            self._lock,
            locked(self._vfs, self._lock_path, self.config.lock_timeout_ms) as fd,
        ):
            if at_end:
                self._barrier.require_none_pending(self.topic, self._partition)
            self._tail.forget()
            self._state = lock_state.NEVER_USED
            state = lock_state.unpack(self._vfs.pread(fd, lock_state.SIZE, 0))
            if state.condition == CLEAN:
                state = state._replace(condition=DIRTY, generation=state.generation + 1)
                write_all(self._vfs, fd, [lock_state.pack(state)], 0)
            yield

    def sync(self) -> None:
        """Make all records durable, whatever the topic's policy. Only inside ``exclusive``."""
        self._tail.sync_always()

    @contextmanager
    def writing_durably(self) -> Iterator[Tail]:
        """The tail to write to. On exit all its records are durable, whatever the topic's policy.

        Only inside ``exclusive``. It publishes nothing.
        """
        self._tail.syncs_rolls = True
        try:
            yield self._tail
            self._tail.sync_always()
        finally:
            self._tail.syncs_rolls = False

    def publish(self) -> None:
        """Sync the written records and raise the high watermark. Only inside ``exclusive``.

        If the high watermark is lost, this sets ``unpublished`` and raises no error: the records
        are in the log, so a retry would append them twice. Recovering the topic publishes them.
        """
        self._tail.sync()
        self._last_sync = self._vfs.monotonic()
        ends, wait_ms = {self._partition: self._tail.end}, self.config.lock_timeout_ms
        uid = self._uuid.bytes
        self.unpublished = not high_watermark.publish(self._vfs, self.topic, uid, ends, wait_ms)
        self.owes_flush = False

    def checkpoint(self) -> Checkpoint | None:
        """The partition's line for ``meta/checkpoint.json``; None while records are unsynced."""
        return checkpoint.line_of(self.topic, self._partition, self._uuid, self._state)

    def take_rolled(self) -> bool:
        """Whether a segment was sealed since the last call. Then a checkpoint is due."""
        rolled, self._tail.rolled = self._tail.rolled, False
        return rolled

    def close(self) -> None:
        """Close the files. Acknowledged records are already durable."""
        with self._lock, typed_write_errors(f"{self.topic}-{self._partition}: closing", self.topic):
            self._state = lock_state.NEVER_USED
            self._tail.forget()

    def _catch_up(self, fd: int, *, recover: bool, needs_high_watermark: bool) -> None:
        """Find the log end: remembered, written by the last writer's clean exit, or recovered."""
        state = lock_state.unpack(self._vfs.pread(fd, lock_state.SIZE, 0))
        if not recover and state.condition == CLEAN:
            if state == self._state:
                return
            if lock_state.is_of_boot(state, self._vfs.boot_id()) and self._tail.resume(state):
                self._state = state
                return
        self._tail.forget()
        self._state = lock_state.NEVER_USED
        # Recovery may take long. A process that waits for the lock should report our process id,
        # not that of the last writer.
        named = state._replace(pid=self._tail.state(DIRTY, 0).pid)
        write_all(self._vfs, fd, [lock_state.pack(named)], 0)
        try:
            self._recover(state, needs_high_watermark=needs_high_watermark)
        except OSError as error:
            self._fail(fd, error, doubtful=error.errno not in OUT_OF_HANDLES)
            raise
        self._state = state

    def _recover(self, state: PartitionState, *, needs_high_watermark: bool) -> None:
        uid, wait_ms = self._uuid.bytes, self.config.lock_timeout_ms
        if needs_high_watermark:
            published = high_watermark.read(self._vfs, self.topic, uid, wait_ms)
            if published is None:
                raise watermark_lost(self.topic)
        else:
            newest = high_watermark.newest(self._vfs, self.topic, uid)
            published = None if newest is None else newest.watermark
        line = checkpoint.find(self._vfs, self.topic, self._partition, self._uuid)
        visible = 0 if published is None else published.end(self._partition)
        # Without syncs a high watermark does not prove that the records below it are durable.
        synced = 0 if self.config.syncs_never else visible
        flushed = 0 if line is None else line.last_flushed_offset
        committed = self._barrier.recovery_point(self.topic, str(self._uuid), self._partition)
        recovered = Recovery(
            vfs=self._vfs,
            topic=self.topic,
            partition=self._partition,
            config=self.config,
            high_watermark=visible,
            recovery_point=max(synced, flushed, committed),
            checkpoint=line,
            sync_failed=state.condition == SYNC_FAILED,
            rebooted=not lock_state.is_of_boot(state, self._vfs.boot_id()),
        ).run()
        end = {self._partition: recovered.end_offset}
        high_watermark.lower(self._vfs, self.topic, uid, end, wait_ms)
        self.report = recovered.report
        self.unpublished = False
        self._tail.adopt(recovered, state)

    def _write_state(self, fd: int, condition: int) -> None:
        self._state = self._tail.state(condition, self._state.generation + 1)
        write_all(self._vfs, fd, [lock_state.pack(self._state)], 0)

    def _leave(self, fd: int) -> None:
        """Mark the word clean. If that fails, the write still counts: the next writer recovers."""
        if self._tail.sealed:
            self._keep_times()
        try:
            self._write_state(fd, CLEAN)
        except OSError:
            self._state = lock_state.NEVER_USED

    def _keep_times(self) -> None:
        """Keep the times of sealed segments, for lookups: those that readers see by now.

        A hint: the records are published already, so no error of it may say otherwise.
        """
        with suppress(OSError, StorageError):
            found = high_watermark.newest(self._vfs, self.topic, self._uuid.bytes)
            self._tail.keep_times(0 if found is None else found.watermark.end(self._partition))

    def _fail(self, fd: int, error: BaseException, *, doubtful: bool = False) -> None:
        """Leave the word dirty: the next writer recovers. ``doubtful``: a sync may have failed."""
        self._tail.sealed.clear()
        try:
            sync_failed = self._tail.forget()
        except OSError:
            sync_failed = True  # the kernel may have lost what it could not write back on close
        if isinstance(error, OSError) and (sync_failed or not is_harmless(error)):
            self._poison = error
        if sync_failed or doubtful:
            # Two tries: without this word the next writer would publish pages that the disk may not
            # have. A reboot drops both the word and the pages.
            for _ in range(2):
                with suppress(OSError):
                    self._write_state(fd, SYNC_FAILED)
                    self._vfs.fsync(fd)
                    break
        self._state = lock_state.NEVER_USED
