"""Appending to one partition, from any thread and beside other processes.

One append: take the lock, see whether somebody else wrote or crashed meanwhile, mark the state
word dirty, write frames, sync, publish the new end, mark clean, release. A crash at any point
leaves the word dirty or from another boot, and the next holder recovers before it writes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from uuid import UUID

from ..config import StoreConfig
from ..errors import LockTimeoutError
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


class WriteBarrier(Protocol):
    """What a log asks of those who have work of their own on its partition."""

    def require_none_pending(self, topic: str, partition: int) -> None:
        """Raise if such work must be finished first. Called with the partition's lock held."""

    def recovery_point(self, topic: str, topic_uuid: str, partition: int) -> int:
        """The offset that such work is known to have made durable."""


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
        self._last_sync = -math.inf  # a machine that has just started counts from zero
        self._poison: OSError | None = None
        self.topic = topic
        self.owes_flush = owes_flush
        """Whether something may be written that is not published."""
        self.unpublished = False
        self.config = config
        self.report: RecoveryReport | None = None

    @property
    def end_offset(self) -> int:
        """Next offset, as of the last time the lock was held."""
        return self._tail.end

    @property
    def recovery_point(self) -> int:
        """Offset up to which all records are durable, as far as this process knows."""
        return self._tail.recovery_point

    @property
    def base_name(self) -> str:
        """What the names of the log files begin with."""
        return f"{segments_directory(self.topic, self._partition)}/"

    @property
    def active(self) -> ActiveFile:
        """The segment appends go to, as of the last time the lock was held."""
        base, directory = self._state.active_base, self.base_name.rstrip("/")
        return ActiveFile(base, self._state.active_size, log_path(directory, base))

    def append(self, columns: Columns) -> OffsetRange:
        """Append records; under ``fsync=batch`` they are durable and visible on return.

        Raises:
            WriteFailedError: nothing of this call is visible. Unless the disk was just full, the
                partition takes no more appends until the store is opened again.
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
                self._take_back(mark, error)
                raise
            return OffsetRange(mark.end, self._tail.end)

    def _take_back(self, mark: TailMark, error: Exception) -> None:
        """Undo an append that failed; else recovery would keep its frames, and a retry doubles."""
        if self._tail.sync_failed or (isinstance(error, OSError) and not is_harmless(error)):
            return
        shown = high_watermark.read(self._vfs, self.topic, self._uuid.bytes)
        if shown is None or shown.end(self._partition) <= mark.end:
            self._tail.rewind(mark)

    def flush(self) -> None:
        """Make everything written so far durable and visible."""
        if self.owes_flush:
            with self.exclusive():
                self.publish()

    def roll(self, *, begin: bool = False) -> bool:
        """Close the active segment; the next append opens a new one. False if it was empty."""
        with self.exclusive():
            rolled = self._tail.roll(begin=begin)
            self.publish()
            return rolled

    @contextmanager
    def exclusive(
        self, *, recover: bool = False, alone: bool = True, past_barrier: bool = False
    ) -> Iterator[None]:
        """Hold the partition for writing, with a sound and known end.

        Args:
            recover: Recover in full even if the last holder left cleanly.
            alone: Refuse to go on without a high watermark; a caller that holds the whole topic
                works it out.
            past_barrier: The caller finishes what the barrier waits for.

        Raises:
            CommitPendingError: the barrier is closed. Nothing was done and no lock is held, because
                finishing takes more locks, in order.
        """
        with self._lock:
            if self._poison is not None:
                raise closed_for_writing(self.topic, self._partition, self._poison)
            try:
                with locked(self._vfs, self._lock_path, self.config.lock_timeout_ms) as fd:
                    if not past_barrier:
                        self._barrier.require_none_pending(self.topic, self._partition)
                    self._catch_up(fd, recover=recover, alone=alone)
                    self._mark(fd, DIRTY)
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
        """Keep others out without looking at the log: it is about to go, sound or not."""
        with self._lock, locked(self._vfs, self._lock_path, self.config.lock_timeout_ms):
            yield

    def sync(self) -> None:
        """Make everything durable, whatever the topic's policy. Only inside ``exclusive``."""
        self._tail.sync_always()

    @contextmanager
    def writing_durably(self) -> Iterator[Tail]:
        """The tail, whose records are all durable at the end, whatever the topic's policy.

        Only inside ``exclusive``. Nothing is published.
        """
        self._tail.syncs_rolls = True
        try:
            yield self._tail
            self._tail.sync_always()
        finally:
            self._tail.syncs_rolls = False

    def publish(self) -> None:
        """Sync what was written and make it visible. Only inside ``exclusive``.

        Without a watermark it is only noted as ``unpublished``: the records are in the log, so
        writing them again would double them. Recovering the topic shows them.
        """
        self._tail.sync()
        self._last_sync = self._vfs.monotonic()
        ends, wait_ms = {self._partition: self._tail.end}, self.config.lock_timeout_ms
        uid = self._uuid.bytes
        self.unpublished = not high_watermark.publish(self._vfs, self.topic, uid, ends, wait_ms)
        self.owes_flush = False

    def checkpoint(self) -> Checkpoint | None:
        """This partition's line for ``meta/checkpoint.json``; None while bytes wait for a sync."""
        return checkpoint.line_of(self.topic, self._partition, self._uuid, self._state)

    def take_rolled(self) -> bool:
        """Whether a segment was closed since the last call: time for a checkpoint."""
        rolled, self._tail.rolled = self._tail.rolled, False
        return rolled

    def close(self) -> None:
        """Let go of the files. What was acknowledged is durable already."""
        with self._lock, typed_write_errors(f"{self.topic}-{self._partition}: closing", self.topic):
            self._state = lock_state.NEVER_USED
            self._tail.forget()

    def _catch_up(self, fd: int, *, recover: bool, alone: bool) -> None:
        """Learn the partition's end: remembered, left by a clean holder, or recovered."""
        state = lock_state.unpack(self._vfs.pread(fd, lock_state.SIZE, 0))
        if not recover and state.condition == CLEAN:
            if state == self._state:
                return
            if lock_state.is_of_boot(state, self._vfs.boot_id()) and self._tail.resume(state):
                self._state = state
                return
        self._tail.forget()
        self._state = lock_state.NEVER_USED
        # Recovery may take long: who waits should be told about us, not about the last holder.
        named = state._replace(pid=self._tail.state(DIRTY, 0).pid)
        write_all(self._vfs, fd, [lock_state.pack(named)], 0)
        try:
            self._recover(state, alone=alone)
        except OSError as error:
            self._fail(fd, error, doubtful=error.errno not in OUT_OF_HANDLES)
            raise
        self._state = state

    def _recover(self, state: PartitionState, *, alone: bool) -> None:
        watermark = high_watermark.read(self._vfs, self.topic, self._uuid.bytes)
        if watermark is None and alone:
            raise watermark_lost(self.topic)
        line = checkpoint.find(self._vfs, self.topic, self._partition, self._uuid)
        shown = 0 if watermark is None else watermark.end(self._partition)
        published = 0 if self.config.syncs_never else shown  # without syncs it proves nothing
        flushed = 0 if line is None else line.last_flushed_offset
        committed = self._barrier.recovery_point(self.topic, str(self._uuid), self._partition)
        recovered = Recovery(
            vfs=self._vfs,
            topic=self.topic,
            partition=self._partition,
            config=self.config,
            high_watermark=shown,
            recovery_point=max(published, flushed, committed),
            checkpoint=line,
            sync_failed=state.condition == SYNC_FAILED,
            rebooted=not lock_state.is_of_boot(state, self._vfs.boot_id()),
        ).run()
        end, wait_ms = {self._partition: recovered.end_offset}, self.config.lock_timeout_ms
        high_watermark.lower(self._vfs, self.topic, self._uuid.bytes, end, wait_ms)
        self.report = recovered.report
        self.unpublished = False
        self._tail.adopt(recovered, state)

    def _mark(self, fd: int, condition: int) -> None:
        self._state = self._tail.state(condition, self._state.generation + 1)
        write_all(self._vfs, fd, [lock_state.pack(self._state)], 0)

    def _leave(self, fd: int) -> None:
        """Mark clean. If that fails, what was done is done: the next holder recovers, no more."""
        try:
            self._mark(fd, CLEAN)
        except OSError:
            self._state = lock_state.NEVER_USED

    def _fail(self, fd: int, error: BaseException, *, doubtful: bool = False) -> None:
        """Leave the word dirty: the next holder recovers. ``doubtful``: a sync may have failed."""
        try:
            sync_failed = self._tail.forget()
        except OSError:
            sync_failed = True  # what closing could not write back is as doubtful as that
        if isinstance(error, OSError) and (sync_failed or not is_harmless(error)):
            self._poison = error
        if sync_failed or doubtful:
            # Twice, as without it the next holder publishes doubtful pages; a reboot drops both.
            for _ in range(2):
                with suppress(OSError):
                    self._mark(fd, SYNC_FAILED)
                    self._vfs.fsync(fd)
                    break
        self._state = lock_state.NEVER_USED
